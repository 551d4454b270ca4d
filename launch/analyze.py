"""Writes the report of one run, or of several together. See configs/analyze.py."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

import analysis
from analysis import publish, report
from analysis.options import Options
from analysis.report import AnalyzeSettings
from configs import analyze as defaults
from configs import models
from demo.models import EMBEDDED
from engine.errors import AssayError
from launch import cli


def main() -> str:
    """Flags -> settings -> one call."""
    settings = settings_of(flags.FLAGS.config)
    runs = [Path(run) for run in cli.paths(flags.FLAGS.run, "run")]
    target = Path(cli.paths([flags.FLAGS.report], "report")[0])
    page = write_report(runs, target, settings)
    return f"report: {page}"


def write_report(
    runs: Sequence[Path], target: Path, settings: AnalyzeSettings | None = None
) -> Path:
    """Loads `runs`, writes their report to `target`, returns the path of its page.

    `settings` are those of configs/analyze.py by default.
    """
    settings = settings or settings_of(defaults.get_config())
    publish.check_target(target, runs)
    progress = _clock()
    progress("scores")
    run = analysis.load(runs, allow_incomplete=settings.allow_incomplete)
    return report.write_report(run, target, known_models(), settings, progress)


def settings_of(config: ConfigDict) -> AnalyzeSettings:
    """The settings that a config declares.

    Raises:
      AssayError: a value that is not allowed, by its name, or a word list that is not there.
    """
    values = config.to_dict()
    for key in ("afinn", "frequency", "bing", "identity"):
        path = values["options"][key]
        if path and not Path(path).exists():
            raise AssayError(f"analyze.options.{key}={path!r}: no such file")
    return AnalyzeSettings(**values | {"options": Options(**values["options"])})


def known_models() -> Mapping[str, analysis.ModelInfo]:
    """Slug -> metadata; the one place where tables of models are wired into the analysis."""
    published = {
        slug: analysis.ModelInfo(
            nickname=spec.nickname,
            developer=spec.developer,
            base=spec.base,
            size_b=float(spec.size_b),
            rewardbench_rank=spec.rewardbench_rank,
            lineage=spec.weights or spec.hub_id,
        )
        for slug, spec in models.KNOWN.items()
    }
    embedded = {
        slug: analysis.ModelInfo(
            nickname=model.nickname,
            developer="Assay",
            base=f"SmolLM2, {model.depth} layers",
            size_b=model.size_b,
            rewardbench_rank=None,
        )
        for slug, model in EMBEDDED.items()
    }
    return published | embedded


def _clock() -> Callable[[str], None]:
    start = time.monotonic()

    def progress(stage: str) -> None:
        print(f"{time.monotonic() - start:5.1f} s  {stage}", file=sys.stderr, flush=True)

    return progress


if __name__ == "__main__":
    # Here, for launch.demo imports this module and has flags of the same names.
    flags.DEFINE_list("run", [], "Run folders, comma-separated.")
    flags.DEFINE_string("report", None, "Folder to write; an older report in it is replaced.")
    cli.config_file("analyze")
    cli.run(main)
