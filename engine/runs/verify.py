"""Checks a run after the fact: its files against their hashes, the manifest, and one another."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, parts, provenance, schema, storage
from engine.runs.reader import REBUILD, Json, RunError, read_json
from engine.runs.rebuild import collect
from engine.runs.token_ids import ids_hash

AGAIN = "run the command again"
_KINDS: dict[str, schema.Columns] = {
    schema.SCORES_DIR: schema.SCORE_COLUMNS,
    schema.ITEMS_DIR: schema.ITEM_COLUMNS,
    schema.LOGPROBS_DIR: schema.LOGPROB_COLUMNS,
    schema.ITEM_LOGPROBS_DIR: schema.ITEM_LOGPROB_COLUMNS,
    schema.SEQUENCES_DIR: schema.SEQUENCE_COLUMNS,
}
_LISTS = (f"{schema.ITEMS_DIR}/", f"{schema.ITEM_LOGPROBS_DIR}/")  # need no vocabulary


@dataclasses.dataclass
class Findings:
    """What `verify` found.

    Attributes:
      content: of the manifest; of one that cannot be read, what `rebuild.collect` makes instead.
      problems: one line each, which says what to remove and what to run.
      readable: whether the manifest can be read.
      broken: results that have a problem.
      unchecked: results with all rows that the plain pass has not been compared with.
      files: number of files of results that were read.
      rows: their rows.
    """

    content: Json
    problems: list[str]
    readable: bool
    broken: set[str] = dataclasses.field(default_factory=set)
    unchecked: list[str] = dataclasses.field(default_factory=list)
    files: int = 0
    rows: int = 0


def verify(run: epath.Path, advance: Callable[[int], object] = lambda files: None) -> Findings:
    """Reads and checks every file of a run; changes nothing.

    Args:
      run: the folder.
      advance: called with the number of files that were read.

    Raises:
      AssayError: no run folder.
    """
    found = _opened(run)
    known: set[str] = set()
    for path, entry in sorted(found.content["results"].items()):
        search = path.startswith(f"{schema.SEQUENCES_DIR}/")
        known.update([path] if search else [f"{path}/{name}" for name in entry["parts"]])
        lines = list((_search if search else _result)(run, path, entry, found))
        found.problems += [f"{run / path}: {line}" for line in lines]
        if lines:
            found.broken.add(path)
        elif not _imported(entry) and not (entry["complete"] and entry["self_check"]):
            found.unchecked.append(path)
        advance(len(entry["parts"]))
    found.problems += _tables(run, found.content)
    for place in storage.tree(run):
        if place.startswith(f"{schema.READINGS_DIR}/"):  # runs of their own
            continue
        file = run / place
        if storage.is_temporary(file) and lock.holder_of(run) is None:
            found.problems.append(f"{file}: left by a command that was killed; remove it")
        elif place.endswith(".parquet") and place not in known and not _is_table(place):
            found.problems.append(_stray(run, place, found.content))
    return found


def unchecked(run: epath.Path, path: str) -> str:
    """The problem of a result that the plain pass has not been compared with."""
    return f"{run / path}: not checked by the plain pass; {AGAIN}, or `assay verify --rescore`"


def _opened(run: epath.Path) -> Findings:
    """The manifest's content, or what the files say in its place, and why."""
    try:
        content = read_json(run / schema.MANIFEST)
    except RunError as error:
        content, _ = collect(run, None)
        if not content["results"]:
            raise
        gone = not storage.exists(run / schema.MANIFEST)
        problem = f"{run / schema.MANIFEST}: gone; {REBUILD}" if gone else str(error)
        return Findings(content, [problem], readable=False)
    return Findings(content, [], readable=True)


def _result(run: epath.Path, path: str, entry: Json, found: Findings) -> Iterator[str]:
    """Problems of a result that consists of parts."""
    yield from _unnamed(path, found.content)
    ids, total = [], entry["fingerprint"].get("rows")
    for name, part in sorted(entry["parts"].items()):
        span = provenance.part_span(name)
        if span is None:
            yield f"{name} is no name of a part; rebuild the manifest"
            continue
        wanted = provenance.of_result(found.content, path)
        if total is not None:
            wanted["rows"] = provenance.part_rows(*span, total)
        if not storage.exists(run / path / name):
            yield f"{name}: missing; {AGAIN}"
            continue
        try:
            table = parts.read_part(run / path, *span, part["sha256"], wanted)
        except AssayError as error:
            yield _shortened(error, run / path)
            continue
        if total is None and table.about is not None:
            total = table.about["rows"]["of"]
        if part["rows"] != len(table.frame):
            yield f"{name} has {len(table.frame)} rows, the manifest says {part['rows']}"
        yield from _columns(name, path, entry, table.frame)
        key = table.frame.to_series(0)
        drawn = "tokens" in entry["fingerprint"]  # some tokens of a vocabulary: see `_draw`
        inside = key.is_between(span[0], span[1] - 1).all() or _imported(entry) or drawn
        if not inside:
            yield f"{name} holds other ids than its name says; remove it and {AGAIN}"
        ids.append(key.to_numpy())
        found.files, found.rows = found.files + 1, found.rows + len(key)
    if len(ids) == len(entry["parts"]):  # else what is missing was said
        every = np.concatenate(ids) if ids else np.empty(0, int)
        yield from _coverage(every, total)
        yield from _draw(every, total, entry)


def _coverage(ids: np.ndarray, total: int | None) -> Iterator[str]:
    """Ids that occur twice or not at all."""
    distinct = np.unique(ids)
    if len(distinct) < len(ids):
        yield f"{len(ids) - len(distinct)} ids occur twice; remove the folder and {AGAIN}"
    if total is not None and len(distinct) < total:
        yield f"{total - len(distinct)} of {total} rows are missing; {AGAIN}"


def _draw(ids: np.ndarray, total: int | None, entry: Json) -> Iterator[str]:
    """Other ids than the subset of a vocabulary that the fingerprint names."""
    # Results of earlier versions have no hash.
    wanted = entry["fingerprint"].get("tokens", {}).get("sha256")
    if wanted is not None and len(ids) == total and ids_hash(ids) != wanted:
        yield f"holds other token ids than were drawn; remove the folder and {AGAIN}"


def _search(run: epath.Path, path: str, entry: Json, found: Findings) -> Iterator[str]:
    """Problems of the file of a search."""
    yield from _unnamed(path, found.content)
    file = run / path
    recorded = entry["parts"].get(file.name)
    if recorded is None:
        yield f"not finished; {AGAIN}"
        return
    if not storage.exists(file):
        yield f"missing; {AGAIN}"
        return
    wanted = provenance.of_result(found.content, path)
    try:
        table = parts.read_frame(file, recorded["sha256"], wanted)
    except AssayError as error:
        yield _shortened(error, file.parent)
        return
    yield from _columns(file.name, path, entry, table.frame)
    if recorded["rows"] != len(table.frame):
        yield f"has {len(table.frame)} rows, the manifest says {recorded['rows']}"
    for name, text in (table.about or {}).get("prompts", {}).items():
        if found.content["prompts"].get(name) != text:
            yield f"prompt {name!r} has another text in the manifest; rebuild the manifest"
    found.files, found.rows = found.files + 1, found.rows + len(table.frame)


def _columns(name: str, path: str, entry: Json, frame: pl.DataFrame) -> Iterator[str]:
    """Columns of other names or types, and numbers that are not finite."""
    own = _KINDS[path.partition("/")[0]]
    expected = own | schema.objective_columns(schema.columns_beside(entry["fingerprint"]))
    if dict(frame.schema) != expected:
        yield f"{name} has other columns than the format says; remove it and {AGAIN}"
        return
    for column in (name for name, kind in expected.items() if kind == pl.Float32):
        if not frame[column].is_finite().all():
            yield f"{name} holds a {column} that is not finite; remove it and {AGAIN}"


def _tables(run: epath.Path, content: Json) -> Iterator[str]:
    """Problems of vocabularies and of human scores."""
    of_tokens = [path for path in content["results"] if not path.startswith(_LISTS)]
    models = {path.partition("/model=")[2].partition("/")[0] for path in of_tokens}
    entries = [entry for slug, entry in content["models"].items() if slug in models]
    places = {schema.vocab_path(e["vocab"]) for e in entries if e.get("vocab") is not None}
    on_disk = {
        place
        for place in storage.tree(run)
        if place.endswith(".parquet") and not place.startswith(f"{schema.READINGS_DIR}/")
    }
    for place in sorted(places | {place for place in on_disk if _is_table(place)}):
        if place not in on_disk:
            yield f"{run / place}: missing; {AGAIN}"
            continue
        try:
            table = parts.read_frame(run / place, None, provenance.of_table(place), may_be_old=True)
        except AssayError as error:
            yield str(error)
            continue
        if table.frame.to_series(0).is_duplicated().any():
            yield f"{run / place}: an id occurs twice; remove it and {AGAIN}"


def _stray(run: epath.Path, place: str, content: Json) -> str:
    """What to do with a file that the manifest does not know."""
    file = run / place
    try:
        parts.read_frame(file, None, {})
    except AssayError as error:
        return str(error)
    path = place if place.startswith(f"{schema.SEQUENCES_DIR}/") else place.rpartition("/")[0]
    if path not in content["results"]:
        return f"{file}: its result is not in the manifest; `--rebuild` adds it, or remove it"
    try:
        parts.read_frame(file, None, provenance.of_result(content, path))
    except AssayError as error:
        return str(error)
    return f"{file}: not in the manifest; `--rebuild` adds it, or {AGAIN}"


def _unnamed(path: str, content: Json) -> Iterator[str]:
    """A model or list of a result that the manifest does not have."""
    have = provenance.of_result(content, path)
    names = dict(piece.split("=", 1) for piece in path.split("/") if "=" in piece)
    if not have["models"]:
        yield f"the manifest has no model {names['model']!r}; rebuild the manifest"
    if not have["prompts"] and not path.startswith(f"{schema.SEQUENCES_DIR}/"):
        yield f"the manifest has no prompt {names['prompt']!r}; rebuild the manifest"


def _imported(entry: Json) -> bool:
    return bool(entry["fingerprint"].get("mode") == "imported")


def _shortened(error: AssayError, folder: epath.Path) -> str:
    """The message of an error without the folder, which the line names already."""
    return str(error).removeprefix(f"{folder}/")


def _is_table(place: str) -> bool:
    """Whether a path is that of a vocabulary or of human scores."""
    return place.startswith(f"{schema.VOCAB_DIR}/") or place.endswith(f"/{schema.HUMANS}")
