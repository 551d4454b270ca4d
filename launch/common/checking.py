"""What `assay verify` does with one run folder: its files are checked, and rows computed again."""

from collections.abc import Sequence

from etils import epath

from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.mesh import build_mesh
from engine.runs import lock, storage
from engine.runs.result import AGAIN
from engine.runs.verify import Findings, verify
from engine.sweep.outcomes import memory_errors
from engine.sweep.rescore import rescore, whole_results
from launch.common.command import Given
from launch.common.text import say, show


def checked(
    run: epath.Path, models: Sequence[Checkpoint], given: Given, problems: list[str]
) -> str:
    """Checks one run folder; prints its problems and adds them to `problems`."""
    if holder := lock.holder_of(run):
        say(f"run {run} is being written by {holder}")
    with progress(len(storage.tree(run)), "files", what="checking", delay_s=5) as bar:
        findings = verify(run, bar.update)
    lines = findings.problems
    rescored = _rescored(findings, models, given, lines) if models else ""
    for line in lines:
        show(line)
    for line in findings.notes:
        say(f"note: {line}")
    problems += lines
    verdict = f"problems: {len(lines)}" if lines else "all is well"
    return (
        f"{run}: {len(findings.folder.results)} results, {findings.files:,} files, "
        f"{findings.rows:,} rows{rescored}: {verdict}"
    )


def _rescored(
    findings: Findings, models: Sequence[Checkpoint], given: Given, problems: list[str]
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
