"""Checks a run after the fact: opens every result, and reads every byte; changes nothing."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, schema, storage
from engine.runs.folder import RunFolder, read_table
from engine.runs.identity import conversations_hash
from engine.runs.result import AGAIN, Result, RunError

RESUME = "run its command again"


@dataclasses.dataclass
class Findings:
    """What `verify` found."""

    folder: RunFolder
    problems: list[str]  # one line each, which says what to remove and what to run
    notes: list[str] = dataclasses.field(default_factory=list)  # of what is no problem
    broken: set[str] = dataclasses.field(default_factory=set)  # results that have a problem
    files: int = 0  # of results that were read
    rows: int = 0  # of these files


def verify(run: epath.Path, advance: Callable[[int], object] = lambda files: None) -> Findings:
    """Reads and checks every file of a run.

    `advance` is called with the number of files that were read. Raises AssayError for no run
    folder.
    """
    try:
        folder = RunFolder.read(run)
    except RunError as error:
        if not storage.exists(run / schema.RUN):
            raise
        return Findings(RunFolder(run=run), [str(error)])
    findings = Findings(folder, [*folder.damaged])
    for path, result in sorted(folder.results.items()):
        lines = list(_check_result(result, findings))
        findings.problems += lines
        findings.notes += [result.mixed_line] * bool(result.mixed_line)
        if lines:
            findings.broken.add(path)
        advance(len(result.parts))
    findings.problems += _check_tables(folder)
    unread = {line.partition(f"/{schema.RESULT}: ")[0] for line in folder.damaged}
    for place in sorted(folder.files):
        name = place.rpartition("/")[2]
        if storage.is_temporary(run / place) and not lock.holder_of(run):
            findings.problems.append(f"{run / place}: left by a command that was killed; remove it")
        elif name.endswith(".parquet") and str((run / place).parent) not in unread:
            result = folder.results.get(place.rpartition("/")[0])
            if place not in folder.tables and (result is None or name not in result.parts):
                why = f"no {schema.RESULT} or {schema.RUN} names it"
                findings.problems.append(f"{run / place}: {why}; remove it and {RESUME}")
    return findings


def _check_result(result: Result, findings: Findings) -> Iterator[str]:
    """Problems of a result; one for each."""
    ids, before = list[np.ndarray](), findings.files
    for name in result.parts:
        if not storage.exists(result.folder / name):
            yield f"{result.folder / name}: missing; {RESUME}"
            continue
        try:
            frame = result.frame(name)
        except AssayError as error:
            yield str(error)
            continue
        ids.append(frame.to_series(0).to_numpy())
        findings.files, findings.rows = findings.files + 1, findings.rows + len(frame)
    if findings.files - before < len(result.parts):
        return
    all_ids = np.concatenate(ids) if ids else np.empty(0, int)
    if not result.is_search and len(np.unique(all_ids)) < len(all_ids):
        yield f"{result.folder}: ids occur twice; remove the folder and {RESUME}"
    if result.missing:
        of = "" if result.is_search else f": {len(all_ids)} of {result.identity.rows} rows"
        yield f"{result.folder}: not finished{of}; {RESUME}"
    elif result.self_check is None and not result.imported:
        yield f"{result.folder}: not checked by the plain pass; {RESUME}"
    if result.self_check is not None and not result.imported:
        model, dtype = findings.folder.models[result.model], result.identity.dtype
        if why := result.self_check.problem(dtype, mixture=model.get("mixture", False)):
            yield f"{result.folder / schema.RESULT}: {why}; {AGAIN}"


def _check_tables(folder: RunFolder) -> Iterator[str]:
    """Problems of vocabularies, of human scores and of lists of conversations."""
    results = folder.results.values()
    needed = {schema.list_path(str(r.items)) for r in results if r.items and not r.prompt}
    for result in results:
        vocab = folder.models[result.model].get("vocab")
        if result.kind in (schema.SCORES_DIR, schema.LOGPROBS_DIR) and vocab:
            needed.add(schema.vocab_path(vocab))
    for path in sorted(needed | set(folder.tables)):
        try:
            table = read_table(folder, path)
        except AssayError as error:
            yield str(error)
            continue
        if table.to_series(0).is_duplicated().any():
            yield f"{folder.run / path}: an id occurs twice; {AGAIN}"
        known = folder.lists.get(path.split("/")[1]) if path.endswith(schema.LIST) else None
        if known and conversations_hash(table) != known["items_hash"]:
            yield f"{folder.run / path}: other conversations than in {schema.RUN}; {AGAIN}"
