"""Says what changed between two reward models, token by token, with a verdict.

Each side is a run of one model, or a checkpoint, which is swept first; a language model's run of
`assay logprobs` may stand for one. All inputs are checked before the first sweep.

Exit status: 0: every limit holds; 1: some do not; 2: an input is refused, or a sweep failed.
"""

import json
import sys
from pathlib import Path

from ml_collections import config_flags

from analysis.measures.two_models import AFTER, BEFORE
from analysis.report import verdict as verdicts
from analysis.report.folder import check_target
from analysis.report.verdict import Verdict
from engine import display
from engine.errors import AssayError
from engine.lists.files import read_pairs
from engine.runs import storage
from engine.settings import Limits
from engine.sources.resolve import is_model
from launch.common import command, comparing, locking, reporting, scoring
from launch.common.text import aligned, say

_SIDE = "A run of one model, or a checkpoint."
_FLAGS = {
    BEFORE: (None, _SIDE),
    f"{BEFORE}_model": ("", f"Slug of the model in --{BEFORE}, where it is a run of several."),
    AFTER: (None, _SIDE),
    f"{AFTER}_model": ("", f"Slug of the model in --{AFTER}, where it is a run of several."),
    "noise": (
        [],
        "Other sweeps of one of the two models (dtype, step size, mesh), which measure the noise.",
    ),
    "items": (
        "",
        "Pairs that both judge: a .csv, .jsonl or .parquet with prompt, chosen and rejected.",
    ),
    "report": (None, "Folder to write."),
    "run": ("", "Folder for the rewards of checkpoints, new or to be continued."),
}


def diff(given: command.Given) -> command.CommandResult:
    """Flags -> rewards where they are missing -> one report."""
    limits = Limits(**given.config.limits.to_dict())
    settings = reporting.settings_of(given.config.analyze)
    paths = {side: storage.path_of(command.paths(given, side)[0]) for side in (BEFORE, AFTER)}
    target = storage.path_of(command.paths(given, "report")[0])
    checkpoints = [side for side, path in paths.items() if is_model(str(path))]
    if checkpoints and not given.run:
        raise AssayError("--run is missing; allowed: a folder for the rewards of the checkpoints")
    folders = [path for side, path in paths.items() if side not in checkpoints]
    check_target(target, [*folders, *([storage.path_of(given.run)] if given.run else [])])
    if not given.items and "limits.accuracy" in config_flags.get_override_values(given["config"]):
        raise AssayError("--config.limits.accuracy without pairs; allowed: beside --items")
    listed = read_pairs(Path(given.items)) if given.items else None
    for note in listed.notes if listed else ():
        say(f"note: {note}")
    verdict, page, left_out = comparing.compared(given, paths, target, listed, limits, settings)
    last = f"{page}: {'; '.join(filter(None, [verdict.said, left_out]))}"
    return command.CommandResult(
        "\n".join([*_lines(verdict), last]),
        lambda: json.loads(storage.read(target / "verdict.json")),
        exit_status=int(verdict.failed > 0),
    )


def _lines(verdict: Verdict) -> list[str]:
    """The verdict for a terminal: models, settings that differ, limits, words that moved most."""
    limits, more = verdicts.shortened(verdict)
    keys, sides = ("name", "source"), verdict.sources.items()
    sources = [(side, *(str(source[key]) for key in keys)) for side, source in sides]
    table = [("", "limit on", "prompt", "measured", "allowed", "noise")]
    for one in limits:
        shown = [one[key] for key in ("on", "prompt", "measured", "allowed", "noise")]
        table.append(("holds" if one["holds"] else "FAILS", *shown))
    words = [("moved most", "prompt", "percentile before", "after")]
    for word in verdict.moved_most():
        token = display.plain(word["token"].strip())
        words.append((token, word["prompt"], *verdicts.from_to(word)))
    parts = [aligned(sources), [*aligned(table), *[more] * bool(more)], aligned(words)]
    body = [line for part in parts for line in ("", *part)]
    differs = [f"differs in: {verdict.differs_in}"] * bool(verdict.differs_in)
    return [f"{verdict.word}: {verdict.said}", *differs, *body, ""]


COMMAND = command.Command("diff", diff, __doc__, (_FLAGS, scoring.PROMPT, locking.WAIT))
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
