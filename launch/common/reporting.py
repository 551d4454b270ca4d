"""Settings of a report, and the call that launch.analyze and launch.demo share."""

import dataclasses
import time
from collections.abc import Mapping, Sequence

from etils import epath
from ml_collections import ConfigDict

import analysis
from analysis import report
from analysis.report.folder import check_target
from analysis.settings import AnalyzeSettings
from analysis.words.questions import check_files
from configs import known_models
from demo.embedded_models import EMBEDDED, SMALL
from engine.runs.folder import RunFolder
from engine.runs.shards import expanded
from engine.settings import setting
from launch.common.config import made
from launch.common.text import say

_REVIEWS = {"rt": "sentences of film reviews", "imdb": "film reviews"}
_FRAMES = {"both": "praise and blame", "praising": "praise alone"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """What `assay report` takes beside the settings of a sweep and of a language model."""

    analyze: AnalyzeSettings = setting("Settings of the page", like="assay analyze")


def report_on(
    runs: Sequence[epath.Path], target: epath.Path, settings: AnalyzeSettings | None = None
) -> epath.Path:
    """Writes the report of some runs, with progress lines on standard error; returns its page.

    An older report in the folder `target` is replaced.
    """
    settings = settings or AnalyzeSettings()
    check_target(target, runs)
    runs = expanded(runs, allow_incomplete=settings.allow_incomplete)
    for run in runs:  # before the first line of progress
        RunFolder.read(run)
    start = time.monotonic()

    def progress(stage: str) -> None:
        say(f"{time.monotonic() - start:5.1f} s  {stage}")

    progress("scores")
    run = analysis.load(runs, allow_incomplete=settings.allow_incomplete)
    return report.write_report(run, target, metadata(), settings, progress)


def settings_of(config: ConfigDict) -> AnalyzeSettings:
    """The settings that a config declares; raises AssayError for an absent or malformed list."""
    settings = made(AnalyzeSettings, config)
    check_files(settings.options)
    return settings


def metadata() -> Mapping[str, analysis.ModelInfo]:
    """Slug -> what is known of a model: the published ones and the demo's."""
    published = {
        slug: analysis.ModelInfo(
            nickname=spec.nickname,
            developer=spec.developer,
            base=spec.base,
            size_b=float(spec.size_b),
            rewardbench_rank=spec.rewardbench_rank,
            lineage=spec.weights or spec.hub_id,
            about=_about(spec),
        )
        for slug, spec in known_models.KNOWN.items()
    }
    embedded = {
        slug: analysis.ModelInfo(
            nickname=model.nickname,
            developer="Assay",
            base=f"SmolLM2, {model.depth} layers",
            size_b=model.size_b,
            rewardbench_rank=None,
            about=f"{model.depth} layers of SmolLM2-135M, {model.head} head; trained on "
            f"{_REVIEWS[model.source]}: {_FRAMES[model.frames]}",
        )
        for slug, model in {**EMBEDDED, SMALL.slug: SMALL}.items()
    }
    return published | embedded


def _about(spec: known_models.ModelSpec) -> str:
    parts = [f"{spec.base}, {spec.size_b:g}B parameters", f"{spec.head} head" * bool(spec.head)]
    parts += [f"trained from {spec.weights}"] if spec.weights else []
    return ", ".join(filter(None, parts))
