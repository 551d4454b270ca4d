"""The conventions of a reproduction's runs: the paper's and ours, of one conversion.

The template's BOS, the attention soft-cap and the head stand in the card of a checkpoint and change
none of its parameters, so another convention is another card over the same files.
"""

from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.scoring.reward_passes import dtype_named
from engine.settings import AUTO, SweepSettings
from launch.common import scoring
from launch.common.conventions import DIMENSIONS, Convention, Values, based_on, values_of
from launch.reproduction.call import NOISE, OURS, Call

# What the paper's conventions are in the words of `assay conventions`, where a model allows it.
BASE = {
    "bos": "double",
    "mode": "text",
    "pooling": "first_pad",
    "head": "urm-helpfulness",
    "softcap": "off",
}
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


def values_in(
    checkpoint: Checkpoint,
    settings: SweepSettings,
    dates: Sequence[str] = (),
    dtypes: Sequence[str] = (),
) -> Values:
    """What a model allows of each dimension, the paper's values first."""
    return based_on(values_of(checkpoint, settings, DIMENSIONS, dates, dtypes), BASE)


def read_as(
    call: Call, run: str, converted: Checkpoint, *, listed: bool
) -> tuple[Checkpoint, SweepSettings, Mesh]:
    """A reward model as a run reads it, how its rewards are computed there, and where.

    `listed`: of a list of replies, of which all runs take the text.
    """
    common, mesh = shared_settings(call, run, converted)
    mode = "text" if listed else AUTO
    settings = SweepSettings(mode=mode, pooling=AUTO, objectives="none", **common)
    if run == OURS:
        return converted, settings, mesh
    values = values_in(converted, settings)
    paper = Convention(**{name: allowed[0] for name, allowed in values.items()})
    return paper.applied(converted), paper.settings(settings), mesh


def shared_settings(
    call: Call, run: str, checkpoint: Checkpoint
) -> tuple[dict[str, Any], Mesh]:  # Any: settings are of several types
    """Settings that rewards and log-probabilities share, and the mesh."""
    common, mesh = scoring.shared_settings(call.config, [checkpoint])
    return common | ({"dtype": call.config.second_dtype} if run == NOISE else {}), mesh


def check_second_dtype(config: ConfigDict) -> None:
    """Refuses a second dtype that cannot measure noise: no dtype, or that of the run."""
    second = config.second_dtype
    if second and str(dtype_named(second)) == scoring.dtype_and_mesh(config, [])[0]:
        other = "float32" if second != "float32" else "bfloat16"
        raise AssayError(
            f"second_dtype={second!r} is the dtype of the run (dtype={config.dtype!r}), so nothing "
            f"would differ; allowed: another one, such as {other!r}"
        )
