"""What one call of `assay reproduce` asks for: models, stages, and where things lie."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from configs import known_models
from configs.known_models import ModelSpec
from configs.prompts import PROMPTS
from engine.errors import AssayError
from launch.common import scoring
from launch.common.command import Given, paths
from launch.common.prompts import chosen_prompts
from launch.common.spelling import nearest
from launch.reproduction.elo import EloList, read_elo

CONVERT, SWEEP, ITEMS, SEARCH, LOGPROBS, READINGS, PAGE = (
    "convert",
    "sweep",
    "items",
    "search",
    "logprobs",
    "readings",
    "page",
)
STAGES = {
    CONVERT: "fetch and convert the models",
    SWEEP: "rewards of every token, in the paper's conventions and in ours",
    ITEMS: "rewards of the EloEverything items (--elo)",
    SEARCH: "sequences of the highest and lowest reward (GCG)",
    LOGPROBS: "next tokens of the language models",
    READINGS: "one of the paper's conventions changed at a time (--readings)",
    PAGE: "tables, comparison and paper.html",
}
KEEP = ("all", "none")
NONE, DIFFERING, ALL = TRIED = ("none", "differing", "all")  # of --readings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags and settings, checked.

    Attributes:
      root: folder of everything that is written.
      rewards: reward models, in the order of the paper.
      languages: language models of Tables A1-A5, where a stage is asked for that concerns them.
      stages: those that are run.
      source_dir: folder that holds a folder for each model; None: the hub.
      elo: the items, with human ranks where they are known; None: not given.
      keep: "all", or "none": downloads and checkpoints go when their results are complete.
      prompts: prompt id -> text.
      item_prompt: prompt id and text of the items.
      searched: slugs of the models that are searched, where the stage is asked for.
      tried: for which models single conventions are changed; one of `TRIED`.
      config: of configs/reproduce.py.
    """

    root: Path
    rewards: Sequence[ModelSpec]
    languages: Sequence[ModelSpec]
    stages: Sequence[str]
    source_dir: Path | None
    elo: EloList | None
    keep: str
    prompts: Mapping[str, str]
    item_prompt: tuple[str, str]
    searched: Sequence[str]
    tried: str
    config: ConfigDict

    @property
    def models(self) -> list[ModelSpec]:
        """Every model, reward models first."""
        return [*self.rewards, *self.languages]

    def runs(self, stage: str) -> bool:
        """Whether a stage was asked for."""
        return stage in self.stages

    def stages_of(self, spec: ModelSpec) -> list[str]:
        """The stages that were asked for and give results of a model."""
        return [stage for stage in self.all_stages_of(spec) if self.runs(stage)]

    def all_stages_of(self, spec: ModelSpec) -> list[str]:
        """The stages that give results of a model, whatever --only says."""
        own = [LOGPROBS] if not spec.head else [SWEEP]
        if spec.head and self.elo is not None:
            own.append(ITEMS)
        if spec.slug in self.searched:
            own.append(SEARCH)
        if spec.head and self.tried != NONE:
            own.append(READINGS)
        return own

    def checkpoint(self, spec: ModelSpec) -> Path:
        """Folder of a model's checkpoint."""
        return self.root / "checkpoints" / spec.slug

    def run(self, reading: str) -> str:
        """Run folder of a reading."""
        return str(self.root / "runs" / reading)


def asked(given: Given) -> Asked:
    """Flags and settings -> what is asked for.

    Raises:
      AssayError: an unknown model, stage or prompt, or a folder or file that is not there.
    """
    config = given.config
    if given.keep not in KEEP:
        raise AssayError(f"--keep={given.keep!r}; allowed: {', '.join(KEEP)}")
    if given.readings not in TRIED:
        raise AssayError(f"--readings={given.readings!r}; allowed: {', '.join(TRIED)}")
    stages = _stages(given.only, given.readings)
    scoring.verify(config)  # which refuses what is not allowed
    folder = given["source-dir"].value
    if folder is not None and not Path(folder).is_dir():
        raise AssayError(f"--source-dir={folder!r}: no such folder")
    rewards, languages = _models(given.models, config.language_models)
    slugs = [spec.slug for spec in rewards]
    prompt = config.item_prompt
    if prompt not in PROMPTS:
        raise AssayError(f"item_prompt={prompt!r}; allowed: {', '.join(PROMPTS)}")
    concerned = any(stage in stages for stage in (CONVERT, LOGPROBS, PAGE))
    asked = Asked(
        root=Path(paths(given, "root")[0]),
        rewards=rewards,
        languages=languages if concerned else [],
        stages=stages,
        source_dir=None if folder is None else Path(folder),
        elo=read_elo(Path(given.elo), given.column) if given.elo else None,
        keep=given.keep,
        prompts=chosen_prompts(config.prompts, ()),
        item_prompt=(prompt, PROMPTS[prompt]),
        searched=_searched(config.searched, slugs),
        tried=given.readings,
        config=config,
    )
    _check_work(asked, given.only, [*rewards, *languages])
    return asked


def _check_work(asked: Asked, only: Sequence[str], models: Sequence[ModelSpec]) -> None:
    """Refuses stages of which none concerns any of the models."""
    if asked.runs(CONVERT) or asked.runs(PAGE) or any(map(asked.stages_of, models)):
        return
    own = {stage for spec in models for stage in asked.all_stages_of(spec)}
    allowed = [stage for stage in STAGES if stage in own | {CONVERT, PAGE}]
    names = [spec.slug for spec in models]
    few = len(names) <= 3
    how = f"; the stage {ITEMS} needs --elo" if ITEMS in only and asked.elo is None else ""
    raise AssayError(
        f"--only={','.join(only)}: nothing to do for {_all(names) if few else len(names)}"
        f"{'' if few else ' models'}; allowed: {_all(allowed)}{how}"
    )


def _stages(only: Sequence[str], tried: str) -> list[str]:
    for stage in only:
        if stage not in STAGES:
            raise AssayError(f"--only={stage!r}{nearest(stage, STAGES)}; allowed: {_all(STAGES)}")
    if READINGS in only and tried == NONE:
        raise AssayError(f"--only={READINGS} with --readings={NONE}; allowed: {DIFFERING}, {ALL}")
    chosen = [stage for stage in STAGES if stage in (only or STAGES)]
    return [stage for stage in chosen if stage != READINGS or tried != NONE]


def _models(chosen: Sequence[str], listed: str) -> tuple[list[ModelSpec], list[ModelSpec]]:
    """Reward and language models, in the order of the registry.

    Language models come from --models and from the setting, in which "paper" says no more than in
    --models.
    """
    names = {**_by_name(known_models.MODELS), **_by_name(known_models.LANGUAGE_MODELS)}
    found = []
    for name in [one.strip() for one in chosen] or [""]:
        if name == "paper":
            found += list(known_models.MODELS)
        elif name.lower() in names:
            found.append(names[name.lower()])
        else:
            near = nearest(name, [*names, *known_models.MODELS])
            raise AssayError(
                f"--models={name!r}{near}; allowed: paper, {_all(known_models.MODELS)}, "
                f"{_all(known_models.LANGUAGE_MODELS)}"
            )
    rewards = [spec for slug, spec in known_models.MODELS.items() if slug in found]
    every = "paper" in [name.strip() for name in chosen]
    languages = [*found, *(_languages(listed) if every or listed != "paper" else [])]
    return rewards, [s for slug, s in known_models.LANGUAGE_MODELS.items() if slug in languages]


def _languages(listed: str) -> list[str]:
    if listed == "paper":
        return list(known_models.LANGUAGE_MODELS)
    slugs = [slug.strip() for slug in listed.split(",") if slug.strip()]
    for slug in slugs:
        if slug not in known_models.LANGUAGE_MODELS:
            raise AssayError(
                f"language_models={slug!r}; allowed: paper, {_all(known_models.LANGUAGE_MODELS)}"
            )
    return slugs


def _searched(listed: str, slugs: Sequence[str]) -> list[str]:
    if listed == "all":
        return list(slugs)
    chosen = [slug.strip() for slug in listed.split(",") if slug.strip()]
    for slug in chosen:
        if slug not in slugs:
            raise AssayError(f"searched={slug!r}; allowed: all, or some of {_all(slugs)}")
    return chosen


def _by_name(specs: Mapping[str, ModelSpec]) -> dict[str, str]:
    """Slug, nickname and hub id in lower case -> slug."""
    return {
        name.lower(): slug
        for slug, spec in specs.items()
        for name in (slug, spec.nickname, spec.hub_id)
    }


def _all(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
