"""One call of `assay reproduce`: its models, stages and runs, and where things lie."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from ml_collections import ConfigDict

from configs import known_models
from configs.known_models import ModelSpec
from configs.prompts import PROMPTS
from engine.errors import AssayError
from engine.runs import parts, schema, storage
from engine.scoring.reward_passes import dtype_named
from launch.common import inputs, scoring
from launch.common.command import Given, paths
from launch.common.conventions import dimensions_of
from launch.common.released_files import read
from launch.common.released_layouts import people
from launch.common.scoring import chosen_prompts
from launch.common.text import nearest, pieces

KEEP = ("all", "none")
NONE, DIFFERING, ALL = TRIED = ("none", "differing", "all")  # of --readings
PAPER, OURS, NOISE = "paper", "ours", "noise"  # run folders below <root>/runs
_OF_PEOPLE = {"elo_rank", "elo_score", "elo_matches"}


class EloList(NamedTuple):
    """The EloEverything items and, where a file has them, what people think of them."""

    name: str  # of the list in a run
    replies: Sequence[str]  # the items, in the file's order
    humans: pl.DataFrame | None  # `schema.HUMAN_COLUMNS`; None where the file does not have them


class Stage(enum.StrEnum):
    """What is done for a model, in this order; the page is about all of them."""

    CONVERT = "convert"
    SWEEP = "sweep"
    ITEMS = "items"
    SEARCH = "search"
    LOGPROBS = "logprobs"
    READINGS = "readings"
    PAGE = "page"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """The flags and settings, checked."""

    root: Path  # folder of everything that is written
    rewards: Sequence[ModelSpec]  # reward models, in the order of the paper
    languages: Sequence[ModelSpec]  # language models of Tables A1-A5, where a stage concerns them
    stages: Sequence[str]  # those that are run
    source_dir: Path | None  # folder that holds a folder for each model; None: the hub
    elo: EloList | None  # the items, with human ranks where they are known; None: not given
    keep: str  # "all", or "none": downloads and checkpoints go when their results are complete
    prompts: Mapping[str, str]  # prompt id -> text
    item_prompt: tuple[str, str]  # prompt id and text of the items
    searched: Sequence[str]  # slugs of the models that are searched
    tried: str  # for which models single conventions are changed; one of `TRIED`
    config: ConfigDict  # of configs/reproduce.py

    @property
    def models(self) -> list[ModelSpec]:
        """Every model, reward models first."""
        return [*self.rewards, *self.languages]

    @property
    def runs(self) -> dict[str, str]:
        """Run -> its conventions, for readers."""
        named = {PAPER: "the paper's conventions", OURS: "our conventions"}
        second = self.config.second_dtype
        return named | ({NOISE: f"{named[PAPER]} in {second}"} if second else {})

    def stages_of(self, spec: ModelSpec) -> list[str]:
        """The stages of this call that give results of a model."""
        return [stage for stage in self.all_stages_of(spec) if stage in self.stages]

    def all_stages_of(self, spec: ModelSpec) -> list[str]:
        """The stages that give results of a model, whatever --only says."""
        stages: list[str] = [Stage.SWEEP if spec.head else Stage.LOGPROBS]
        if spec.head and self.elo is not None:
            stages.append(Stage.ITEMS)
        if spec.slug in self.searched:
            stages.append(Stage.SEARCH)
        if spec.head and self.tried != NONE:
            stages.append(Stage.READINGS)
        return stages

    def checkpoint(self, spec: ModelSpec) -> Path:
        """Folder of a model's checkpoint."""
        return self.root / "checkpoints" / spec.slug

    def run(self, name: str) -> str:
        """Folder of a run."""
        return str(self.root / "runs" / name)


def read_call(given: Given) -> Call:
    """What is to be done by the flags and settings; raises AssayError for what is not known."""
    config, prompt = given.config, given.config.item_prompt
    for flag, allowed in (("keep", KEEP), ("readings", TRIED)):
        if given[flag].value not in allowed:
            raise AssayError(f"--{flag}={given[flag].value!r}; allowed: {', '.join(allowed)}")
    stages = _stages(given.only, given.readings)
    if Stage.ITEMS in given.only and not given.elo:
        raise AssayError(f"--only={Stage.ITEMS} without --elo; allowed: --elo=<csv or txt>")
    scoring.verify_setting(config)  # which refuses what is not allowed
    folder = given["source-dir"].value
    if folder is not None and not Path(folder).is_dir():
        raise AssayError(f"--source-dir={folder!r}: no such folder")
    rewards, languages = _models(given.models, config.language_models)
    if prompt not in PROMPTS:
        raise AssayError(f"item_prompt={prompt!r}; allowed: {', '.join(PROMPTS)}")
    concerned = {Stage.CONVERT, Stage.LOGPROBS, Stage.PAGE} & {*stages}
    call = Call(
        root=Path(paths(given, "root")[0]),
        rewards=rewards,
        languages=languages if concerned else [],
        stages=stages,
        source_dir=None if folder is None else Path(folder),
        elo=read_elo(Path(given.elo), given.column) if given.elo else None,
        keep=given.keep,
        prompts=chosen_prompts(config.prompts, ()),
        item_prompt=(prompt, PROMPTS[prompt]),
        searched=_some("searched", config.searched, "all", [spec.slug for spec in rewards]),
        tried=given.readings,
        config=config,
    )
    dimensions_of(config.dimensions)
    for dtype in pieces(config.dtypes):
        dtype_named(dtype)
    return call


def _stages(only: Sequence[str], tried: str) -> list[str]:
    for stage in only:
        if stage not in [*Stage]:
            near = nearest(stage, map(str, Stage))
            raise AssayError(f"--only={stage!r}{near}; allowed: {', '.join(Stage)}")
    if Stage.READINGS in only and tried == NONE:
        raise AssayError(
            f"--only={Stage.READINGS} with --readings={NONE}; allowed: {DIFFERING}, {ALL}"
        )
    left_out = [Stage.READINGS] if tried == NONE else []
    return [stage for stage in Stage if stage in (only or Stage) and stage not in left_out]


def _models(chosen: Sequence[str], listed: str) -> tuple[list[ModelSpec], list[ModelSpec]]:
    """Reward and language models, in the order of the registry.

    Language models come from --models and from the setting, in which "paper" says no more than in
    --models.
    """
    tables = (known_models.MODELS, known_models.LANGUAGE_MODELS)
    every, slugs = tables[0] | tables[1], set()
    for name in chosen or [""]:
        if name != "paper" and name not in every:
            near = nearest(name, every)
            raise AssayError(f"--models={name!r}{near}; allowed: paper, {', '.join(every)}")
        slugs.update(known_models.MODELS if name == "paper" else [name])
    if "paper" in chosen or listed != "paper":
        slugs.update(_some("language_models", listed, "paper", known_models.LANGUAGE_MODELS))
    rewards, languages = ([s for slug, s in table.items() if slug in slugs] for table in tables)
    return rewards, languages


def _some(setting: str, value: str, whole: str, allowed: Iterable[str]) -> Sequence[str]:
    """The slugs that a setting names: all that are allowed where it is `whole`."""
    slugs = list(allowed) if value == whole else pieces(value)
    for slug in slugs:
        if slug not in allowed:
            raise AssayError(
                f"{setting}={slug!r}; allowed: {whole}, or some of {', '.join(allowed)}"
            )
    return slugs


def read_elo(path: Path, column: str) -> EloList:
    """The items of a file: one of the authors' release, or any list that `assay score` takes.

    A file in the layout `elo` of `assay import_scores` has human ranks. `column` holds the items.

    Raises:
      AssayError: no such file or column, an empty item, or a rank that is no number.
    """
    if not path.is_file():
        raise AssayError(f"--elo={path}: no such file")
    name = inputs.list_name(path)
    if path.suffix != ".txt" and column == "name":
        released = read(path)
        if {*released.frame.columns} >= _OF_PEOPLE:
            humans = people(released)
            return EloList(name, humans["item"].to_list(), humans)
    return EloList(name, list(dict.fromkeys(inputs.read_items(path, column))), None)


def write_people(run: str, elo: EloList) -> None:
    """Writes what people think of the items into a run; nothing where that is not known."""
    if elo.humans is None or check_people(run, elo):
        return
    name = schema.humans_path(elo.name)
    parts.write_frame(storage.path_of(run) / name, elo.humans, {"path": name})


def check_people(run: str, elo: EloList) -> bool:
    """Whether a run holds what people think of the items; raises AssayError for other scores."""
    allowed = "the same file as before, or another --root"
    return inputs.has_human_ranks(storage.path_of(run), elo.name, elo.humans, allowed)
