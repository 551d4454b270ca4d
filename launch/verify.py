"""Checks a run: every result, hash, row and id; with --rescore, also random rows. Changes nothing.

Reads every file once. Prints one line per problem, which says what to remove and what to run, and
one line at the end. Exit status 0: all is well; 1: there are problems; 2: bad input.
"""

import dataclasses
import sys

from engine.errors import AssayError
from engine.runs import shards, storage
from engine.settings import MeshSettings, SourceSettings, setting
from launch.common import checking, command, sources
from launch.common.config import CommandSettings

_FLAGS = {
    "run": (None, "Run folder to check."),
    "rescore": (
        0,
        "Random rows of each result to compute again; needs --checkpoint.",
        0,
        None,
    ),
    "checkpoint": (
        [],
        "Models to score again, comma-separated: checkpoints, models' folders or hub ids.",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifySettings:
    """What `assay verify` takes."""

    seed: int = setting("Seed for drawing the rows of --rescore.", 0)
    mesh: MeshSettings = setting("The device mesh.")


def check(given: command.Given) -> command.CommandResult:
    """Flags -> checks of a run, or of all its shards: a line for each folder."""
    run = storage.path_of(command.paths(given, "run")[0])
    if bool(given.rescore) != bool(given.checkpoint):
        raise AssayError("--rescore and --checkpoint: give both or neither")
    if not storage.is_folder(run):
        raise AssayError(f"run {run}: no such folder")
    models = sources.checkpoints(given.checkpoint, given.config)
    folders = shards.expanded([run], allow_incomplete=False)
    problems: list[str] = []
    text = "\n".join(checking.checked(folder, models, given, problems) for folder in folders)
    return command.CommandResult(text, lambda: {"problems": problems}, int(bool(problems)))


COMMAND = command.Command(
    "verify", check, __doc__, (_FLAGS,), settings=CommandSettings(VerifySettings, SourceSettings)
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
