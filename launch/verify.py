"""Checks a run: every hash, row and id, and the manifest; with --rescore, also random rows.

Prints one line per problem, which says what to remove and what to run, and one line at the end.
Exit status 0: all is well; 1: there are problems; 2: bad input. See configs/verify.py.
"""

import contextlib
import sys
from collections.abc import Sequence

from etils import epath
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.runs import lock, shards, storage
from engine.runs.manifest import Manifest
from engine.runs.verify import AGAIN, Findings, rebuild, unchecked, verify
from engine.sweep.outcomes import memory_errors
from engine.sweep.rescore import rescore, whole_results
from launch.common import command, locking, sources
from launch.common.text import show

_FLAGS = {
    "run": (None, "A run folder."),
    "rebuild": (False, "First make manifest.json anew from the parts; no file is removed."),
    "rescore": (
        0,
        "Rows of each result to compute again by the plain pass; needs --checkpoint.",
        0,
        None,
    ),
    "checkpoint": (
        [],
        "Models to re-score, comma-separated: checkpoints, models' folders or hub ids.",
    ),
}


def check(given: command.Given) -> command.CommandResult:
    """Flags -> checks of a run, or all its shards: a line for each folder."""
    run = storage.path_of(command.paths(given, "run")[0])
    if bool(given.rescore) != bool(given.checkpoint):
        raise AssayError("--rescore and --checkpoint; allowed: both or neither")
    if not storage.is_folder(run):
        raise AssayError(f"run {run}: no such folder")
    config = ConfigDict({**given.config, "check_memory": True})  # of a conversion
    models = sources.checkpoints(given.checkpoint, config)
    folders = shards.expanded([run], allow_incomplete=False)
    problems: list[str] = []
    text = "\n".join(_checked(folder, models, given, problems) for folder in folders)
    return command.CommandResult(text, lambda: {"problems": problems}, int(bool(problems)))


def _checked(
    run: epath.Path, models: Sequence[Checkpoint], given: command.Given, problems: list[str]
) -> str:
    """Checks one run folder; prints its problems and adds them to `problems`."""
    lines: list[str] = []
    writes = given.rebuild or given.rescore
    held = locking.run_lock(given, str(run), "verify") if writes else contextlib.nullcontext()
    with held:
        if not writes and (holder := lock.holder_of(run)):
            print(f"run {run} is being written by {holder}", file=sys.stderr, flush=True)
        if given.rebuild:
            lines += rebuild(run)
        with progress(len(storage.tree(run)), "files", what="checking", delay_s=5) as bar:
            findings = verify(run, bar.update)
        lines += [line for line in findings.problems if line not in lines]
        rescored = _rescored(run, findings, models, given, lines) if models else ""
    lines += [unchecked(run, path) for path in findings.unchecked]
    for line in lines:
        show(line)
    problems += lines
    verdict = f"problems: {len(lines)}" if lines else "all is well"
    return (
        f"{run}: {len(findings.content['results'])} results, {findings.files:,} files, "
        f"{findings.rows:,} rows{rescored}: {verdict}"
    )


def _rescored(
    run: epath.Path,
    findings: Findings,
    models: Sequence[Checkpoint],
    given: command.Given,
    problems: list[str],
) -> str:
    """Re-scores the results of some models; enters the check of those that had none."""
    mesh = build_mesh(given.config.mesh.model)
    content = findings.content
    paths = [path for path in whole_results(content, models) if path not in findings.broken]
    manifest = Manifest(run, content)
    with (
        memory_errors([model.card.slug for model in models], mesh, "rescore", given.rescore),
        progress(len(paths), "results", what="re-scoring", delay_s=5) as bar,
    ):
        for path, outcome in rescore(
            run, content, models, mesh, paths, rows=given.rescore, seed=given.config.seed
        ):
            bar.update()
            if isinstance(outcome, str):
                problems.append(f"{run / path}: {outcome}; remove it and {AGAIN}")
            elif path in findings.unchecked:
                coefficients = content["results"][path].get("coefficients")
                manifest.finish(path, outcome, coefficients)
                findings.unchecked.remove(path)
    if paths:
        manifest.save_if_changed()
    return f", {len(paths)} results re-scored"


COMMAND = command.Command("verify", check, __doc__, (_FLAGS, locking.WAIT))
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
