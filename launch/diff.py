"""Says what changed between two reward models, token by token, with a verdict.

Each side is a run, or a model, which is swept first: about a minute per prompt for 135M parameters
on two CPU cores. A run of `assay logprobs` will do too. Settings of sweeps, such as `prompts`,
`lens` and `dtype`, are refused if both sides are runs.

Exit status: 0: every limit holds; 1: some do not; 2: an input is refused, or a sweep failed.
"""

import json
import sys

from analysis.measures.two_models import AFTER, BEFORE
from analysis.report import verdict as verdicts
from analysis.report.folder import check_target
from analysis.settings import Limits
from engine.errors import AssayError
from engine.runs import storage
from engine.settings import PromptSettings
from engine.sources.resolve import is_model
from launch.common import command, comparing, inputs, reporting, scoring
from launch.common.comparing import DiffSettings
from launch.common.config import SCORING_ANY, CommandSettings, made

_SIDE = "A run, or a model: checkpoint, model's folder or hub id."
_FLAGS = {
    BEFORE: (None, _SIDE),
    f"{BEFORE}_model": ("", f"Slug of the model in --{BEFORE}, if that is a run of several."),
    AFTER: (None, _SIDE),
    f"{AFTER}_model": ("", f"Slug of the model in --{AFTER}, if that is a run of several."),
    "noise": (
        [],
        "Runs of one of the two models with another dtype, step size or mesh, to measure the "
        "noise; comma-separated.",
    ),
    "items": (
        "",
        "Pairs for both to score: a .csv, .jsonl or .parquet with prompt, chosen and rejected.",
    ),
    "report": (None, "Folder of the report; an older report in it is replaced."),
    "run": ("", "Folder for the rewards of models that are swept, new or an earlier one."),
}


def diff(given: command.Given) -> command.CommandResult:
    """Flags -> rewards where they are missing -> one report."""
    limits = made(Limits, given.config.limits)
    settings = reporting.settings_of(given.config.analyze)
    paths = {side: storage.path_of(command.paths(given, side)[0]) for side in (BEFORE, AFTER)}
    target = storage.path_of(command.paths(given, "report")[0])
    checkpoints = [side for side, path in paths.items() if is_model(str(path))]
    if checkpoints and not given.run:
        raise AssayError("--run is missing; allowed: a folder for the rewards of the checkpoints")
    folders = [path for side, path in paths.items() if side not in checkpoints]
    check_target(target, [*folders, *([storage.path_of(given.run)] if given.run else [])])
    arguments = (inputs.limited_pairs(given), limits, settings)
    verdict, page, left_out = comparing.compared(given, paths, target, *arguments)
    last = f"{page}: {'; '.join(filter(None, [verdict.summary, left_out]))}"
    return command.CommandResult(
        "\n".join([*verdicts.terminal_lines(verdict), last]),
        lambda: json.loads(storage.read(target / "verdict.json")),
        exit_status=int(verdict.failed > 0),
    )


COMMAND = command.Command(
    "diff",
    diff,
    __doc__,
    (_FLAGS, inputs.PROBES, scoring.PROMPT, command.WAIT),
    settings=CommandSettings(DiffSettings, PromptSettings, *SCORING_ANY),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
