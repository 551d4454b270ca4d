"""Writes the report of a run, or of several together.

Result: <report>/index.html, which opens from disk, with figures/ and tables/. Ten models (six of
128,256 tokens, four of 256,000) under three prompts take about a minute on two cores.
"""

import sys

from analysis.settings import AnalyzeSettings
from engine.runs import storage
from launch.common import command, reporting
from launch.common.config import CommandSettings

_FLAGS = {
    "run": ([], "Run folders, comma-separated."),
    "report": (None, "Folder to write; an older report in it is replaced."),
}


def analyze(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    settings = reporting.settings_of(given.config)
    runs = [storage.path_of(run) for run in command.paths(given, "run")]
    target = storage.path_of(command.paths(given, "report")[0])
    page = reporting.report_on(runs, target, settings)
    return command.CommandResult(f"report: {page}", lambda: {"page": str(page)})


COMMAND = command.Command(
    "analyze", analyze, __doc__, [_FLAGS], settings=CommandSettings(AnalyzeSettings)
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
