"""How a reproduction reads its models: the paper's conventions, ours, and single changes.

The template's BOS, the attention soft-cap and the head stand in the card of a checkpoint and change
none of its parameters, so another convention is another card over the same files.

The stage `readings` changes one of the paper's conventions at a time. Each change is a convention
of `assay conventions`, in a run folder below <root>/runs/paper/readings. What was tried of a model
is noted in <root>/readings/<slug>.json when it is complete.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from etils import epath
from jax.sharding import Mesh
from ml_collections import ConfigDict

from analysis.published.data import Published
from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.convention_index import DEFAULT, read_index
from engine.scoring.reward_passes import dtype_named
from engine.settings import AUTO, SweepSettings
from launch.common import scoring
from launch.common.convention_runs import ConventionRuns, Failed
from launch.common.conventions import Convention, conventions_of, dimensions_of, values_of
from launch.common.inputs import ranked_lists
from launch.common.text import pieces, say
from launch.reproduction import studies
from launch.reproduction.call import ALL, NOISE, OURS, PAPER, Call

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
# Values beside the paper's that a model may have of each dimension, at the most.
_AT_MOST = {"bos": 2, "newlines": 1, "mode": 1, "pooling": 2, "head": 1, "softcap": 1}


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
    values = values_of(converted, settings, (), (), (), BASE)
    paper = Convention(**{name: value for name, [value] in values.items()})
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """What is tried of a model."""

    prompts: Sequence[str]  # of its vocabulary; none where every published value is met
    lists: Sequence[str]  # of items
    dimensions: Sequence[str]  # that are varied
    dates: Sequence[str]  # that are tried
    dtypes: Sequence[str]  # that are tried
    # The results, once they are complete: a run below <root>/runs, and a path in it.
    places: Sequence[Sequence[str]] = ()

    def within(self, done: "Scope | None") -> bool:
        """Whether all of it was done; without prompts there is nothing to do."""
        if done is None or not self.prompts:
            return done is not None
        wanted, have = dataclasses.asdict(self), dataclasses.asdict(done)
        return all(set(wanted[name]) <= set(have[name]) for name in wanted if name != "places")


def scope_of(call: Call, spec: ModelSpec, published: Published, *, noise: bool) -> Scope:
    """What is to be tried of a model now: of the prompts under which a published value differs.

    With --readings=all it is every prompt, and the items. `noise`: whether a second dtype measures
    it.
    """
    prompts = [*call.prompts, call.item_prompt[0]]
    if call.tried != ALL:
        prompts = studies.differing(call, spec, published, noise=noise)
    # Nothing is published of items that people did not rank.
    listed = call.elo and call.elo.humans is not None and call.item_prompt[0] in prompts
    swept = [prompt for prompt in call.prompts if prompt in prompts]
    if listed and not swept:  # the size of a step is that of a vocabulary
        swept = list(call.prompts)[:1]
    return Scope(
        prompts=swept,
        lists=[call.elo.name] if listed and call.elo else [],
        dimensions=dimensions_of(call.config.dimensions),
        dates=pieces(call.config.dates),
        dtypes=_dtypes(call),
    )


def compute(call: Call, converted: Checkpoint, scope: Scope) -> None:
    """Computes what is missing of the conventions of a model.

    One that cannot be computed, such as one that overflows in float16, is named in the index.

    Raises:
      AssayError: the paper's convention cannot be computed.
    """
    _, settings, mesh = read_as(call, PAPER, converted, listed=False)
    values = values_of(converted, settings, scope.dimensions, scope.dates, scope.dtypes, BASE)
    folder = storage.path_of(call.run(PAPER))
    prompts = {prompt: call.prompts[prompt] for prompt in scope.prompts}
    lists = [one for one in ranked_lists(folder, "auto") if one.name in scope.lists]
    conventions = conventions_of(values, all_combinations=False)
    try:
        ConventionRuns(converted, folder, prompts, lists, settings, mesh).compute(conventions)
    except Failed as failed:
        say(str(failed))


def note(call: Call, spec: ModelSpec, scope: Scope, complete: Iterable[tuple[str, str]]) -> None:
    """Notes that a scope was tried, with its results among those that are complete."""
    slug, prompt = spec.slug, call.item_prompt[0]
    paths = [schema.scores_path(slug, one) for one in scope.prompts]
    paths += [schema.items_path(name, slug, prompt) for name in scope.lists]
    changes = [place for place in complete if place[0].startswith(run_of(""))]
    places = sorted(p for p in changes if p[1] in paths and p[0] != run_of(DEFAULT))
    text = json.dumps(dataclasses.asdict(dataclasses.replace(scope, places=places)), indent=1)
    storage.write_atomic(_note(call, spec), f"{text}\n".encode())


def done(call: Call, spec: ModelSpec) -> Scope | None:
    """What was last tried of a model and is complete; None where nothing was."""
    place = _note(call, spec)
    data = storage.read_if_there(place)
    try:
        return None if data is None else Scope(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise AssayError(f"{place}: not a note of readings ({error}); remove it") from error


def failures(call: Call, spec: ModelSpec) -> dict[str, str]:
    """Convention -> why it could not be computed."""
    entries = read_index(storage.path_of(call.run(PAPER))).get(spec.slug, {})
    return {name: entry.failure for name, entry in entries.items() if entry.failure}


def at_most(call: Call) -> int:
    """How many single changes a model may have, with one that measures the noise of steps."""
    dates = len(pieces(call.config.dates)) + 2  # the template's own, and none
    counts = {**_AT_MOST, "date": dates, "dtype": len(_dtypes(call))}
    return sum(counts[name] for name in dimensions_of(call.config.dimensions)) + 1


def run_of(name: str) -> str:
    """The run of a single change, below <root>/runs."""
    return f"{PAPER}/{schema.READINGS_DIR}/{name}"


def _dtypes(call: Call) -> list[str]:
    """The dtypes that are tried; the second one of the run has a run of its own."""
    return [one for one in pieces(call.config.dtypes) if one != call.config.second_dtype]


def _note(call: Call, spec: ModelSpec) -> epath.Path:
    return storage.path_of(call.root / "readings" / f"{spec.slug}.json")
