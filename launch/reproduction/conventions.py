"""The conventions of a reproduction's runs: the paper's and ours, of one conversion.

The template's BOS, the attention soft-cap and the head stand in the card of a checkpoint and change
none of its parameters, so another convention is another card over the same files.
"""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from configs.known_models import ModelSpec
from engine.checkpoint.card import REWARD, Card, Checkpoint
from engine.errors import AssayError
from engine.scoring.reward_passes import default_dtype, dtype_named
from engine.settings import AUTO, SweepSettings
from engine.text.chat_template import TemplatePolicy
from launch.common import scoring
from launch.reproduction.call import NOISE, OURS, Call

# What the paper's conventions are in the words of `assay conventions`, where a model allows it.
BASE = {"bos": "double", "softcap": "off", "head": "urm-helpfulness"}
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


def card_of(run: str, card: Card) -> Card:
    """The card of a conversion as a run has it; that of a language model is the same in all."""
    if run == OURS or card.kind != REWARD:
        return card
    head = card.reward_head
    kind = BASE["head"] if head.kind == "urm" else head.kind
    return dataclasses.replace(
        card,
        policy=dataclasses.replace(card.policy, bos=BASE["bos"]),
        decoder=dataclasses.replace(card.decoder, attention_softcap=None),
        head=dataclasses.replace(head, kind=kind),
    )


def checkpoint_of(run: str, converted: Checkpoint) -> Checkpoint:
    """The checkpoint as a run has it; the files are the same."""
    return dataclasses.replace(converted, card=card_of(run, converted.card))


def mode_of(run: str, *, listed: bool) -> str:
    """How a reply becomes ids; of a list of replies all runs take the text."""
    return "text" if run != OURS or listed else AUTO


def settings_of(
    call: Call, run: str, checkpoint: Checkpoint, *, listed: bool
) -> tuple[SweepSettings, Mesh]:
    """How a model's rewards are computed in a run, and where; `listed`: of a list of replies."""
    common, mesh = shared_settings(call, run, checkpoint)
    first_pad = run != OURS and checkpoint.card.pad_token_id is not None
    pooling = "first_pad" if first_pad else AUTO
    mode = mode_of(run, listed=listed)
    return SweepSettings(mode=mode, pooling=pooling, objectives="none", **common), mesh


def shared_settings(
    call: Call, run: str, checkpoint: Checkpoint
) -> tuple[dict[str, Any], Mesh]:  # Any: settings are of several types
    """Settings that rewards and log-probabilities share, and the mesh."""
    common, mesh = scoring.shared_settings(call.config, [checkpoint])
    return common | ({"dtype": call.config.second_dtype} if run == NOISE else {}), mesh


def policy_of(spec: ModelSpec) -> TemplatePolicy:
    """The policy of the conversion: ours."""
    return TemplatePolicy(bos=spec.bos, date=spec.date or None)


def check_second_dtype(config: ConfigDict) -> None:
    """Refuses a second dtype that cannot measure noise: no dtype, or that of the run."""
    second = config.second_dtype
    if not second:
        return
    dtype_named(second)
    first = config.dtype
    if first == "auto":
        first = default_dtype(jax.devices()[0].platform)
    if second == first:
        other = "float32" if first != "float32" else "bfloat16"
        raise AssayError(
            f"second_dtype={second!r} is the dtype of the run (dtype={config.dtype!r}), so nothing "
            f"would differ; allowed: another one, such as {other!r}"
        )
