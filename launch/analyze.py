"""Writes the report of one run, or of several together.

python -m launch.analyze --run=<dir>[,<dir>…] --report=<dir> [--config.top=20]
"""

import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags
from ml_collections import config_flags

import analysis
from analysis import publish, report

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_RUN = flags.DEFINE_list("run", None, "Run folder, or several with commas.", required=True)
_REPORT = flags.DEFINE_string("report", None, "Folder to write the report to.", required=True)
_CONFIG = config_flags.DEFINE_config_file("config", str(_ROOT / "configs/analyze.py"))


def known_models() -> Mapping[str, analysis.ModelInfo]:
    """Slug -> metadata; the one place that wires `configs.models` into the analysis."""
    return {}


def main(argv: Sequence[str]) -> None:
    """Flags -> settings -> `write_report`; raises ValueError with a one-line reason."""
    if len(argv) > 1:
        raise ValueError(f"unexpected argument {argv[1]!r}")
    settings = report.AnalyzeSettings(**_CONFIG.value.to_dict())
    runs, target = [pathlib.Path(run) for run in _RUN.value], pathlib.Path(_REPORT.value)
    publish.check_target(target, runs)
    progress = _clock()
    progress("reading")
    run = analysis.load(runs, allow_incomplete=settings.allow_incomplete)
    page = report.write_report(run, target, known_models(), settings, progress)
    print(f"{len(run.models)} models × {len(run.prompts)} prompts: report written to {page}")


def _clock() -> Callable[[str], None]:
    start = time.monotonic()

    def progress(stage: str) -> None:
        print(f"analyze: {time.monotonic() - start:5.1f} s  {stage}", file=sys.stderr)

    return progress


def _run(argv: Sequence[str]) -> None:
    try:
        main(argv)
    except ValueError as error:
        sys.exit(f"analyze: {error}")


if __name__ == "__main__":
    app.run(_run)
