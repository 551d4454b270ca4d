"""Writes the report of one run, or of several together. See configs/analyze.py."""

import sys
from collections.abc import Sequence

from absl import flags
from absl.flags import FlagValues

from engine.runs import storage
from launch.common import command, reporting


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags]
    return command.run("analyze", argv, analyze, doc=__doc__, define=define, config="analyze")


def define_flags(given: FlagValues) -> None:
    """Defines --run and --report."""
    flags.DEFINE_list("run", [], "Run folders, comma-separated.", flag_values=given)
    report = "Folder to write; an older report in it is replaced."
    flags.DEFINE_string("report", None, report, flag_values=given)


def analyze(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    settings = reporting.settings_of(given.config)
    runs = [storage.path_of(run) for run in command.paths(given, "run")]
    target = storage.path_of(command.paths(given, "report")[0])
    page = reporting.write_report(runs, target, settings)
    return command.CommandResult(f"report: {page}", lambda: {"page": str(page)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
