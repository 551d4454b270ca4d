"""The readings of a model: the paper's conventions and ours, of one conversion.

The template's BOS, the attention soft-cap and the reading of the head stand in the card of a
checkpoint and change none of its parameters, so a reading is another card over the same files.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from configs.known_models import ModelSpec
from engine.checkpoint.card import REWARD, Card, Checkpoint
from engine.errors import AssayError
from engine.scoring.reward_passes import default_dtype, dtype_named
from engine.settings import AUTO, SweepSettings
from engine.text.chat_template import TemplatePolicy
from launch.common import scoring

PAPER, OURS, NOISE = "paper", "ours", "noise"
# Convention -> the paper's, ours. The same as the table in docs/reproduce-the-paper.md.
CONVENTIONS = (
    ("a token as the reply", "decoded to text, then the whole conversation is tokenised", "its id"),
    ("BOS", "added by the tokenizer as well as the template (two in all)", "the card’s"),
    ("date in the template of Llama 3.1 and 3.2", "26 Jul 2024", "26 Jul 2024"),
    ("where the reward is read", "before the first pad token", "at the last token"),
    ("Gemma 2’s attention soft-cap", "left out, but not of language models", "applied"),
    (
        "rounding of rewards",
        "of seven of ten models to bfloat16; of the three GRM, on items, to float16",
        "none",
    ),
    ("URM’s reward", "its first output", "the weighted sum"),
    ("a token with a leading space and a lexicon’s word", "do not match", "match"),
    ("items that people compared fewer than 50 times", "count", "are left out"),
    ("the models’ median rank of an item", "counts people as a model", "is the models’ own"),
)


@dataclasses.dataclass(frozen=True)
class Reading:
    """One way to read the models.

    Attributes:
      id: folder of its run below <root>/runs.
      name: for readers.
      paper: whether it has the paper's conventions.
      dtype: of the decoder; "" for that of the config.
    """

    id: str
    name: str
    paper: bool
    dtype: str = ""

    def checkpoint(self, converted: Checkpoint) -> Checkpoint:
        """The checkpoint as this reading has it; the files are the same."""
        return dataclasses.replace(converted, card=self.card(converted.card))

    def card(self, card: Card) -> Card:
        """The card of a conversion as this reading has it."""
        if not self.paper or card.kind != REWARD:
            return card
        head, decoder = card.reward_head, card.decoder
        kind = "urm-helpfulness" if head.kind == "urm" else head.kind
        return dataclasses.replace(
            card,
            policy=dataclasses.replace(card.policy, bos="double"),
            decoder=dataclasses.replace(decoder, attention_softcap=None),
            head=dataclasses.replace(head, kind=kind),
        )

    def mode(self, *, listed: bool) -> str:
        """How a reply becomes ids; of a list of replies both readings take the text."""
        return "text" if self.paper or listed else AUTO

    def settings(
        self, config: ConfigDict, checkpoint: Checkpoint, *, listed: bool
    ) -> tuple[SweepSettings, Mesh]:
        """How a model's rewards are computed, and where.

        Args:
          config: of configs/reproduce.py.
          checkpoint: from `checkpoint`.
          listed: whether a list of replies is scored.
        """
        common, mesh = self.common(config, checkpoint)
        pad = checkpoint.card.pad_token_id
        first_pad = self.paper and pad is not None
        settings = SweepSettings(
            mode=self.mode(listed=listed),
            pooling="first_pad" if first_pad else AUTO,
            objectives="none",
            **common,
        )
        return settings, mesh

    def common(self, config: ConfigDict, checkpoint: Checkpoint) -> tuple[dict[str, Any], Mesh]:
        """Settings that rewards and log-probabilities share (of several types), and the mesh."""
        common, mesh = scoring.shared_settings(config, [checkpoint])
        return common | ({"dtype": self.dtype} if self.dtype else {}), mesh


def check_second_dtype(config: ConfigDict, platform: str) -> None:
    """Checks that a second dtype can measure noise.

    Args:
      config: of configs/reproduce.py.
      platform: of the devices, as jax names it.

    Raises:
      AssayError: it is no dtype, or that of the run.
    """
    second = config.second_dtype
    if not second:
        return
    dtype_named(second)
    first = default_dtype(platform) if config.dtype == "auto" else config.dtype
    if second == first:
        other = "float32" if first != "float32" else "bfloat16"
        raise AssayError(
            f"second_dtype={second!r} is the dtype of the run (dtype={config.dtype!r}), so nothing "
            f"would differ; allowed: another one, such as {other!r}"
        )


def readings(config: ConfigDict) -> Sequence[Reading]:
    """The paper's, ours and, where a second dtype is named, the paper's in that dtype."""
    both = [
        Reading(PAPER, "the paper's conventions", True),
        Reading(OURS, "our conventions", False),
    ]
    if config.second_dtype:
        name = f"the paper's conventions in {config.second_dtype}"
        both.append(Reading(NOISE, name, True, config.second_dtype))
    return both


def policy_of(spec: ModelSpec) -> TemplatePolicy:
    """The policy of the conversion: ours."""
    return TemplatePolicy(bos=spec.bos, date=spec.date or None)
