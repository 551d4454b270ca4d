"""The stage `readings`: the paper's conventions with one of them changed at a time.

Each is a convention of `assay conventions`, in a run of its own below <root>/runs/paper/readings.
What was tried of a model is noted in <root>/readings/<slug>.json when it is complete.
"""

import dataclasses
import json
from collections.abc import Sequence

from etils import epath

from analysis.published.data import Published
from configs import known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.convention_index import DEFAULT, Entry, read_index
from launch.common.convention_runs import ConventionRuns, Failed
from launch.common.conventions import (
    DIMENSIONS,
    NO_DATE,
    OWN_DATE,
    based_on,
    conventions_of,
    dimensions_of,
    values_of,
)
from launch.common.inputs import ranked_lists
from launch.common.text import pieces, say
from launch.reproduction import studies
from launch.reproduction.call import ALL, PAPER, Call
from launch.reproduction.conventions import BASE, checkpoint_of, settings_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """What is tried of a model.

    Attributes:
      prompts: of its vocabulary; none where every published value is met.
      lists: of items.
      dimensions: that are varied.
      dates: that are tried.
      dtypes: that are tried.
    """

    prompts: Sequence[str]
    lists: Sequence[str]
    dimensions: Sequence[str]
    dates: Sequence[str]
    dtypes: Sequence[str]

    def within(self, done: "Scope | None") -> bool:
        """Whether all of it was done; without prompts there is nothing to do."""
        if done is None or not self.prompts:
            return done is not None
        wanted, have = dataclasses.asdict(self), dataclasses.asdict(done)
        return all(set(wanted[name]) <= set(have[name]) for name in wanted)

    def joined(self, done: "Scope | None") -> "Scope":
        """What was done before, and this: every prompt and list with everything that is tried."""
        if done is None or not done.prompts:
            return self
        if not self.prompts:
            return done
        new, old = dataclasses.asdict(self), dataclasses.asdict(done)
        return Scope(**{name: list(dict.fromkeys([*old[name], *new[name]])) for name in new})

    def tries(self, name: str, entry: Entry) -> bool:
        """Whether a convention is one of it; the noise floor is one of every scope."""
        dimension = name.partition("-")[0]
        if entry.noise or dimension not in self.dimensions:
            return entry.noise
        value = entry.settings[dimension]
        listed = {"dtype": self.dtypes, "date": [*self.dates, OWN_DATE, NO_DATE]}
        return value in listed.get(dimension, [value])

    def of_call(self, call: Call) -> "Scope":
        """The scope without the prompts and lists that a call does not have."""
        prompts = [prompt for prompt in call.prompts if prompt in self.prompts]
        lists = [name for name in _lists(call) if name in self.lists]
        if lists and not prompts:  # the size of a step is that of a vocabulary
            prompts = list(call.prompts)[:1]
        return dataclasses.replace(self, prompts=prompts, lists=lists)


def scope_of(call: Call, spec: ModelSpec, published: Published, *, noise: bool) -> Scope:
    """What is to be tried of a model now: of the prompts under which a published value differs.

    With --readings=all it is every prompt, and the items. `noise`: whether a second dtype measures
    it.
    """
    prompts = [*call.prompts, call.item_prompt[0]]
    if call.tried != ALL:
        prompts = studies.differing(call, spec, published, noise=noise)
    scope = Scope(
        prompts=prompts,
        lists=_lists(call) if call.item_prompt[0] in prompts else [],
        dimensions=dimensions_of(call.config.dimensions),
        dates=pieces(call.config.dates),
        dtypes=_dtypes(call),
    )
    return scope.of_call(call)


def compute(call: Call, converted: Checkpoint, scope: Scope) -> None:
    """Computes what is missing of the conventions of a model.

    One that cannot be computed, such as one that overflows in float16, is named in the index.

    Raises:
      AssayError: the paper's own convention cannot be computed.
    """
    settings, mesh = settings_of(call, PAPER, checkpoint_of(PAPER, converted), listed=False)
    values = values_of(converted, settings, DIMENSIONS, scope.dates, scope.dtypes)
    values = {
        name: allowed if name in scope.dimensions else allowed[:1]
        for name, allowed in based_on(values, BASE).items()
    }
    folder = storage.path_of(call.run(PAPER))
    prompts = {prompt: call.prompts[prompt] for prompt in scope.prompts}
    lists = [one for one in ranked_lists(folder, "auto") if one.name in scope.lists]
    try:
        runs = ConventionRuns(converted, folder, prompts, lists, settings, mesh)
        runs.compute(conventions_of(values, all_combinations=False))
    except Failed as failed:
        say(str(failed))


def note(call: Call, spec: ModelSpec, scope: Scope) -> None:
    """Notes that a scope is complete."""
    text = json.dumps(dataclasses.asdict(scope), indent=1) + "\n"
    storage.write_atomic(_note(call, spec), text.encode())


def done(call: Call, spec: ModelSpec) -> Scope | None:
    """What was tried of a model and is complete; None where nothing was."""
    place = _note(call, spec)
    data = storage.read_if_there(place)
    if data is None:
        return None
    try:
        scope = Scope(**json.loads(data))
        for name, values in dataclasses.asdict(scope).items():
            if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
                raise TypeError(f"{name}={values!r}; allowed: a list of names")
        return scope
    except (ValueError, TypeError) as error:
        raise AssayError(f"{place}: not a note of readings ({error}); remove it") from error


def entries(call: Call, spec: ModelSpec) -> dict[str, Entry]:
    """The single changes of a model that the index names."""
    index = read_index(storage.path_of(call.run(PAPER))).get(spec.slug, {})
    return {name: entry for name, entry in index.items() if name != DEFAULT}


def failures(call: Call, spec: ModelSpec) -> dict[str, str]:
    """Convention -> why it could not be computed."""
    every = entries(call, spec).items()
    return {name: entry.failure for name, entry in every if entry.failure}


def places(call: Call, spec: ModelSpec) -> list[tuple[str, str]]:
    """The results of the stage: a run below <root>/runs, and a path in it.

    Of prompts and lists that this call does not have there are none. Before the stage was complete
    they are those that the registry tells of, for every prompt.
    """
    scope = done(call, spec)
    if scope is None:
        names, prompts, lists = _at_most(call, spec), list(call.prompts), _lists(call)
    else:
        tried = {n: e for n, e in entries(call, spec).items() if scope.tries(n, e)}
        names = [name for name, e in tried.items() if not e.same_as and not e.failure]
        scope = scope.of_call(call)
        prompts, lists = list(scope.prompts), list(scope.lists)
    paths = [schema.scores_path(spec.slug, prompt) for prompt in prompts]
    paths += [schema.items_path(name, spec.slug, call.item_prompt[0]) for name in lists]
    return [(run_of(name), path) for name in names for path in paths]


def run_of(name: str) -> str:
    """The run of a single change, below <root>/runs."""
    return f"{PAPER}/{schema.READINGS_DIR}/{name}"


def dtype_in(run: str) -> str | None:
    """The dtype that a run of `places` changes to; None where it changes something else."""
    name = run.rpartition("/")[2]
    return name.removeprefix("dtype-") if name.startswith("dtype-") else None


def _at_most(call: Call, spec: ModelSpec) -> list[str]:
    """Names for the single changes that a model may have, as far as the registry tells.

    It does not tell whether a template begins with line ends: such a model has one more.
    """
    capped = decoder_config(known_shapes.config_json(spec)).attention_softcap is not None
    dates = [date for date in pieces(call.config.dates) if date != spec.date]
    values: dict[str, Sequence[str]] = {
        "bos": ["none", "single"],
        "date": [*dates, OWN_DATE, NO_DATE] if spec.date else [],
        "newlines": [],
        "mode": ["ids"],
        "pooling": ["last", "last_non_pad"],
        "head": ["urm"] if spec.head == "urm" else [],
        "softcap": ["on"] if capped else [],
        "dtype": _dtypes(call),
    }
    chosen = dimensions_of(call.config.dimensions)
    names = [f"{n}-{v}" for n, allowed in values.items() if n in chosen for v in allowed]
    return [*names, "noise"]


def _lists(call: Call) -> list[str]:
    """The items, where people ranked them: nothing else is published of them."""
    return [call.elo.name] if call.elo and call.elo.humans is not None else []


def _dtypes(call: Call) -> list[str]:
    """The dtypes that are tried; the second one of the run has a run of its own."""
    return [one for one in pieces(call.config.dtypes) if one != call.config.second_dtype]


def _note(call: Call, spec: ModelSpec) -> epath.Path:
    return storage.path_of(call.root / "readings" / f"{spec.slug}.json")
