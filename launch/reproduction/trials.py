"""The stage `readings`: the paper's conventions with one of them changed at a time.

Each is a reading of `assay conventions`, in a run of its own below <root>/runs/paper/readings. What
was tried of a model is noted in <root>/readings/<slug>.json when it is complete.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence

from etils import epath
from ml_collections import ConfigDict

from analysis.published.data import Published
from configs import known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.readings import DEFAULT, Entry, read_index
from engine.scoring.reward_passes import dtype_named
from launch.common.reading_lists import lists_of
from launch.common.reading_runs import Failed, compute
from launch.common.reading_tasks import Plan
from launch.common.readings import (
    DIMENSIONS,
    NO_DATE,
    OWN_DATE,
    Choices,
    based_on,
    check_known,
    listed,
    readings_of,
    values_of,
)
from launch.reproduction import studies
from launch.reproduction.asked import ALL, Asked
from launch.reproduction.readings import PAPER
from launch.reproduction.readings import Reading as Bundle

# What the paper's conventions are in the words of `assay conventions`, where a model allows it.
BASE = {"bos": "double", "softcap": "off", "head": "urm-helpfulness"}


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
        own, other = dataclasses.asdict(self), dataclasses.asdict(done)
        return all(set(own[name]) <= set(other[name]) for name in own)

    def joined(self, done: "Scope | None") -> "Scope":
        """What was done before, and this: every prompt and list with everything that is tried."""
        if done is None or not done.prompts:
            return self
        if not self.prompts:
            return done
        own, other = dataclasses.asdict(self), dataclasses.asdict(done)
        return Scope(**{name: list(dict.fromkeys([*other[name], *own[name]])) for name in own})

    def tries(self, name: str, entry: Entry) -> bool:
        """Whether a reading is one of it; the noise floor is one of every scope."""
        dimension = name.partition("-")[0]
        if entry.noise or dimension not in self.dimensions:
            return entry.noise
        value = entry.settings[dimension]
        listed = {"dtype": self.dtypes, "date": [*self.dates, OWN_DATE, NO_DATE]}
        return value in listed.get(dimension, [value])


def scope_of(
    asked: Asked, spec: ModelSpec, published: Published, readings: Sequence[Bundle]
) -> Scope:
    """What is to be tried of a model now: of the prompts under which a published value differs.

    With --readings=all it is every prompt, and the items.
    """
    every = [*asked.prompts, asked.item_prompt[0]]
    if asked.tried != ALL:
        every = studies.differing(asked, spec, published, readings)
    config = asked.config
    scope = Scope(
        prompts=every,
        lists=_lists(asked) if asked.item_prompt[0] in every else [],
        dimensions=_dimensions(config),
        dates=listed(config.dates),
        dtypes=_dtypes(asked),
    )
    return asked_of(asked, scope)


def asked_of(asked: Asked, scope: Scope) -> Scope:
    """A scope without the prompts and lists that this call does not have."""
    prompts = [prompt for prompt in asked.prompts if prompt in scope.prompts]
    lists = [name for name in _lists(asked) if name in scope.lists]
    if lists and not prompts:  # the size of a step is that of a vocabulary
        prompts = list(asked.prompts)[:1]
    return dataclasses.replace(scope, prompts=prompts, lists=lists)


def run(asked: Asked, converted: Checkpoint, scope: Scope, paper: Bundle) -> None:
    """Computes what is missing of the readings of a model.

    One that cannot be computed, such as one that overflows in float16, is named in the index.

    Raises:
      AssayError: the paper's own reading cannot be computed.
    """
    checkpoint = paper.checkpoint(converted)
    settings, mesh = paper.settings(asked.config, checkpoint, listed=False)
    choices = Choices(
        dimensions=DIMENSIONS,
        mode=settings.mode,
        pooling=settings.pooling,
        dtype=settings.dtype,
        dtypes=scope.dtypes,
        dates=scope.dates,
    )
    values = based_on(values_of(converted, choices), BASE)
    chosen = {n: own if n in scope.dimensions else own[:1] for n, own in values.items()}
    folder = storage.path_of(asked.run(PAPER))
    plan = Plan(
        run=folder,
        prompts={prompt: asked.prompts[prompt] for prompt in scope.prompts},
        lists=[one for one in lists_of(folder, "auto") if one.name in scope.lists],
        settings=settings,
        mesh=mesh,
    )
    try:
        compute(converted, readings_of(chosen, all_combinations=False), plan)
    except Failed as failed:
        print(failed, file=sys.stderr, flush=True)


def check(config: ConfigDict) -> None:
    """Refuses conventions and dtypes that are not known.

    Raises:
      AssayError: one of them is not.
    """
    check_known(_dimensions(config))
    for dtype in listed(config.dtypes):
        dtype_named(dtype)


def note(asked: Asked, spec: ModelSpec, scope: Scope) -> None:
    """Notes that a scope is complete."""
    text = json.dumps(dataclasses.asdict(scope), indent=1) + "\n"
    storage.write_atomic(_place(asked, spec), text.encode())


def done(asked: Asked, spec: ModelSpec) -> Scope | None:
    """What was tried of a model and is complete; None where nothing was."""
    place = _place(asked, spec)
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


def entries(asked: Asked, spec: ModelSpec) -> dict[str, Entry]:
    """The readings of a model that were begun, the default one left out."""
    index = read_index(storage.path_of(asked.run(PAPER))).get(spec.slug, {})
    return {name: entry for name, entry in index.items() if name != DEFAULT}


def failures(asked: Asked, spec: ModelSpec) -> dict[str, str]:
    """Reading -> why it could not be computed."""
    own = entries(asked, spec).items()
    return {name: entry.failure for name, entry in own if entry.failure}


def places(asked: Asked, spec: ModelSpec) -> list[tuple[str, str]]:
    """The results of the stage: a reading's folder below <root>/runs, and a path in it.

    Of prompts and lists that this call does not have there are none.
    Before the stage was complete they are those that the registry tells of, for every prompt.
    """
    scope = done(asked, spec)
    if scope is None:
        names, prompts = _at_most(asked, spec), list(asked.prompts)
        lists = _lists(asked)
    else:
        own = {n: e for n, e in entries(asked, spec).items() if scope.tries(n, e)}
        names = [name for name, e in own.items() if not e.same_as and not e.failure]
        scope = asked_of(asked, scope)
        prompts, lists = list(scope.prompts), list(scope.lists)
    paths = [schema.scores_path(spec.slug, prompt) for prompt in prompts]
    paths += [schema.items_path(name, spec.slug, asked.item_prompt[0]) for name in lists]
    return [(folder(name), path) for name in names for path in paths]


def folder(name: str) -> str:
    """Folder of a reading below <root>/runs."""
    return f"{PAPER}/{schema.READINGS_DIR}/{name}"


def dtype_in(folder: str) -> str | None:
    """The dtype that a reading of `places` changes to; None where it changes something else."""
    name = folder.rpartition("/")[2]
    return name.removeprefix("dtype-") if name.startswith("dtype-") else None


def _at_most(asked: Asked, spec: ModelSpec) -> list[str]:
    """Names for the readings that a model may have, as far as the registry tells.

    It does not tell whether a template begins with line ends: such a model has one reading more.
    """
    capped = decoder_config(known_shapes.config_json(spec)).attention_softcap is not None
    dates = [date for date in listed(asked.config.dates) if date != spec.date]
    own: dict[str, Sequence[str]] = {
        "bos": ["none", "single"],
        "date": [*dates, OWN_DATE, NO_DATE] if spec.date else [],
        "newlines": [],
        "mode": ["ids"],
        "pooling": ["last", "last_non_pad"],
        "head": ["urm"] if spec.head == "urm" else [],
        "softcap": ["on"] if capped else [],
        "dtype": _dtypes(asked),
    }
    chosen = _dimensions(asked.config)
    return [f"{n}-{v}" for n, values in own.items() if n in chosen for v in values] + ["noise"]


def _dimensions(config: ConfigDict) -> Sequence[str]:
    return DIMENSIONS if config.dimensions == "all" else listed(config.dimensions)


def _lists(asked: Asked) -> list[str]:
    """The items, where people ranked them: nothing else is published of them."""
    return [asked.elo.name] if asked.elo and asked.elo.humans is not None else []


def _dtypes(asked: Asked) -> list[str]:
    """The dtypes that are tried; the second one of the run has its own reading."""
    config = asked.config
    return [one for one in listed(config.dtypes) if one != config.second_dtype]


def _place(asked: Asked, spec: ModelSpec) -> epath.Path:
    return storage.path_of(asked.root / "readings" / f"{spec.slug}.json")
