"""Checks a run: every result, hash, row and id; with --rescore, also random rows. Changes nothing.

Reads every file once. Prints one line per problem, which says what to remove and what to run, and
one line at the end. Exit status 0: all is well; 1: there are problems; 2: bad input.
"""

import sys
from collections.abc import Sequence

from etils import epath

from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.runs import lock, shards, storage
from engine.runs.result import AGAIN
from engine.runs.verify import Findings, verify
from engine.settings import SourceSettings, VerifySettings
from engine.sweep.outcomes import memory_errors
from engine.sweep.rescore import rescore, whole_results
from launch.common import command, sources
from launch.common.config import CommandSettings
from launch.common.text import show

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
    text = "\n".join(_checked(folder, models, given, problems) for folder in folders)
    return command.CommandResult(text, lambda: {"problems": problems}, int(bool(problems)))


def _checked(
    run: epath.Path, models: Sequence[Checkpoint], given: command.Given, problems: list[str]
) -> str:
    """Checks one run folder; prints its problems and adds them to `problems`."""
    if holder := lock.holder_of(run):
        print(f"run {run} is being written by {holder}", file=sys.stderr, flush=True)
    with progress(len(storage.tree(run)), "files", what="checking", delay_s=5) as bar:
        findings = verify(run, bar.update)
    lines = findings.problems
    rescored = _rescored(findings, models, given, lines) if models else ""
    for line in lines:
        show(line)
    for line in findings.notes:
        print(f"note: {line}", file=sys.stderr)
    problems += lines
    verdict = f"problems: {len(lines)}" if lines else "all is well"
    return (
        f"{run}: {len(findings.folder.results)} results, {findings.files:,} files, "
        f"{findings.rows:,} rows{rescored}: {verdict}"
    )


def _rescored(
    findings: Findings, models: Sequence[Checkpoint], given: command.Given, problems: list[str]
) -> str:
    """Computes random rows of the results of some models again."""
    mesh, folder = build_mesh(given.config.mesh.model), findings.folder
    results = [r for r in whole_results(folder, models) if r.path not in findings.broken]
    with (
        memory_errors([model.card.slug for model in models], mesh, "rescore", given.rescore),
        progress(len(results), "results", what="re-scoring", delay_s=5) as bar,
    ):
        how = {"rows": given.rescore, "seed": given.config.seed}
        for result, outcome in rescore(folder, models, mesh, results, **how):
            bar.update()
            if isinstance(outcome, str):
                problems.append(f"{result.folder}: {outcome}; {AGAIN}")
    return f", {len(results)} results re-scored"


COMMAND = command.Command(
    "verify", check, __doc__, (_FLAGS,), settings=CommandSettings(VerifySettings, SourceSettings)
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
