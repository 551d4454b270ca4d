"""Checks a run after the fact, and makes its manifest anew from what its files say.

`verify` compares the files with their hashes, the manifest, and one another; it changes nothing.
`rebuild` writes the manifest that the files tell.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, parts, provenance, schema, storage
from engine.runs import manifest as manifests
from engine.runs.reader import KINDS, REBUILD, Json, RunError, read_json

AGAIN = "run the command again"
DAMAGED = "manifest.damaged.json"  # a manifest that could not be read, kept beside the new one
_COLUMNS: dict[str, schema.Columns] = {
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
      content: of the manifest; of one that cannot be read, what `collect` makes instead.
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
    findings = _opened(run)
    content, known = findings.content, set[str]()
    for path, entry in sorted(content["results"].items()):
        search = _is_search(path)
        known.update([path] if search else [f"{path}/{name}" for name in entry["parts"]])
        lines = list((_check_search if search else _check_result)(run, path, entry, findings))
        findings.problems += [f"{run / path}: {line}" for line in lines]
        if lines:
            findings.broken.add(path)
        elif not _imported(entry) and not (entry["complete"] and entry["self_check"]):
            findings.unchecked.append(path)
        advance(len(entry["parts"]))
    # Readings of the models are runs of their own.
    files = [p for p in storage.tree(run) if not p.startswith(f"{schema.READINGS_DIR}/")]
    findings.problems += _check_tables(run, files, content)
    for place in files:
        if storage.is_temporary(run / place) and lock.holder_of(run) is None:
            findings.problems.append(f"{run / place}: left by a command that was killed; remove it")
        elif place.endswith(".parquet") and place not in known and not _is_table(place):
            findings.problems.append(_stray(run, place, content))
    return findings


def unchecked(run: epath.Path, path: str) -> str:
    """The problem of a result that the plain pass has not been compared with."""
    return f"{run / path}: not checked by the plain pass; {AGAIN}, or `assay verify --rescore`"


def _opened(run: epath.Path) -> Findings:
    """The manifest's content, or what the files say in its place, and why."""
    path = run / schema.MANIFEST
    try:
        return Findings(read_json(path), [], readable=True)
    except RunError as error:
        content, _ = collect(run, None)
        if not content["results"]:
            raise
        problem = str(error) if storage.exists(path) else f"{path}: gone; {REBUILD}"
        return Findings(content, [problem], readable=False)


def _check_result(run: epath.Path, path: str, entry: Json, findings: Findings) -> Iterator[str]:
    """Problems of a result that consists of parts."""
    yield from _unnamed(path, findings.content)
    ids, total = [], entry["fingerprint"].get("rows")
    for name, part in sorted(entry["parts"].items()):
        span = provenance.part_span(name)
        if span is None:
            yield f"{name} is no name of a part; rebuild the manifest"
            continue
        wanted = provenance.of_result(findings.content, path)
        if total is not None:
            wanted["rows"] = provenance.part_rows(*span, total)
        if not storage.exists(run / path / name):
            yield f"{name}: missing; {AGAIN}"
            continue
        try:
            table = parts.read_part(run / path, *span, part["sha256"], wanted)
        except AssayError as error:
            yield str(error).removeprefix(f"{run / path}/")
            continue
        if total is None and table.about is not None:
            total = table.about["rows"]["of"]
        yield from _check_frame(f"{name} ", path, entry, part["rows"], table.frame)
        key = table.frame.to_series(0)
        # Ids of imported rewards and of a random subset of a vocabulary are no row numbers.
        by_row = not _imported(entry) and "tokens" not in entry["fingerprint"]
        if by_row and not key.is_between(span[0], span[1] - 1).all():
            yield f"{name} holds other ids than its name says; remove it and {AGAIN}"
        ids.append(key.to_numpy())
        findings.files, findings.rows = findings.files + 1, findings.rows + len(key)
    if len(ids) == len(entry["parts"]):  # otherwise a line above says what is missing
        yield from _check_ids(np.concatenate(ids) if ids else np.empty(0, int), total, entry)


def _check_ids(ids: np.ndarray, total: int | None, entry: Json) -> Iterator[str]:
    """Ids that occur twice or not at all, or that were not drawn for a random subset."""
    distinct = len(np.unique(ids))
    if distinct < len(ids):
        yield f"{len(ids) - distinct} ids occur twice; remove the folder and {AGAIN}"
    if total is not None and distinct < total:
        yield f"{total - distinct} of {total} rows are missing; {AGAIN}"
    # Results of earlier versions have no hash.
    drawn = entry["fingerprint"].get("tokens", {}).get("sha256")
    if drawn is not None and len(ids) == total and provenance.ids_hash(ids) != drawn:
        yield f"holds other token ids than were drawn; remove the folder and {AGAIN}"


def _check_search(run: epath.Path, path: str, entry: Json, findings: Findings) -> Iterator[str]:
    """Problems of the file of a search."""
    yield from _unnamed(path, findings.content)
    file = run / path
    recorded = entry["parts"].get(file.name)
    if recorded is None:
        yield f"not finished; {AGAIN}"
        return
    if not storage.exists(file):
        yield f"missing; {AGAIN}"
        return
    wanted = provenance.of_result(findings.content, path)
    try:
        table = parts.read_frame(file, recorded["sha256"], wanted)
    except AssayError as error:
        yield str(error).removeprefix(f"{file.parent}/")
        return
    yield from _check_frame("", path, entry, recorded["rows"], table.frame)
    for name, text in (table.about or {}).get("prompts", {}).items():
        if findings.content["prompts"].get(name) != text:
            yield f"prompt {name!r} has another text in the manifest; rebuild the manifest"
    findings.files, findings.rows = findings.files + 1, findings.rows + len(table.frame)


def _check_frame(
    name: str, path: str, entry: Json, rows: int, frame: pl.DataFrame
) -> Iterator[str]:
    """Another number of rows, columns of other names or types, numbers that are not finite."""
    if rows != len(frame):
        yield f"{name}has {len(frame)} rows, the manifest says {rows}"
    expected = _COLUMNS[path.partition("/")[0]] | schema.objective_columns(
        schema.columns_beside(entry["fingerprint"])
    )
    if dict(frame.schema) != expected:
        yield f"{name}has other columns than the format says; remove it and {AGAIN}"
        return
    for column in (column for column, kind in expected.items() if kind == pl.Float32):
        if not frame[column].is_finite().all():
            yield f"{name}holds a {column} that is not finite; remove it and {AGAIN}"


def _check_tables(run: epath.Path, files: Sequence[str], content: Json) -> Iterator[str]:
    """Problems of vocabularies and of human scores."""
    of_tokens = [path for path in content["results"] if not path.startswith(_LISTS)]
    models = {path.partition("/model=")[2].partition("/")[0] for path in of_tokens}
    vocabularies = [content["models"].get(slug, {}).get("vocab") for slug in models]
    needed = {schema.vocab_path(vocab) for vocab in vocabularies if vocab is not None}
    present = {place for place in files if place.endswith(".parquet") and _is_table(place)}
    for place in sorted(needed | present):
        if place not in present:
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
    file, path = run / place, place if _is_search(place) else place.rpartition("/")[0]
    known = path in content["results"]
    try:
        parts.read_frame(file, None, provenance.of_result(content, path) if known else {})
    except AssayError as error:
        return str(error)
    if not known:
        return f"{file}: its result is not in the manifest; `--rebuild` adds it, or remove it"
    return f"{file}: not in the manifest; `--rebuild` adds it, or {AGAIN}"


def _unnamed(path: str, content: Json) -> Iterator[str]:
    """A model or prompt of a result that the manifest does not have."""
    have = provenance.of_result(content, path)
    names = dict(piece.split("=", 1) for piece in path.split("/") if "=" in piece)
    if not have["models"]:
        yield f"the manifest has no model {names['model']!r}; rebuild the manifest"
    if not have["prompts"] and not _is_search(path):
        yield f"the manifest has no prompt {names['prompt']!r}; rebuild the manifest"


def _imported(entry: Json) -> bool:
    return bool(entry["fingerprint"].get("mode") == "imported")


def _is_search(path: str) -> bool:
    return path.startswith(f"{schema.SEQUENCES_DIR}/")


def _is_table(place: str) -> bool:
    """Whether a path is that of a vocabulary or of human scores."""
    return place.startswith(f"{schema.VOCAB_DIR}/") or place.endswith(f"/{schema.HUMANS}")


@dataclasses.dataclass(frozen=True)
class _File:
    """A file of a result; `about` is None where the old manifest alone vouches for it."""

    name: str
    rows: int
    sha256: str
    about: Json | None


def rebuild(run: epath.Path) -> list[str]:
    """Writes manifest.json anew; returns a line for each file that has no place in it.

    The new manifest has no self-check of a result that differs from its entry in the old one: the
    next sweep, or `verify --rescore`, fills it.

    Raises:
      AssayError: no file of the folder says what computed it.
    """
    path = run / schema.MANIFEST
    try:
        old: Json | None = read_json(path)
    except RunError:
        old = None
    content, problems = collect(run, old)
    if not content["results"]:
        first = f": {problems[0]}" if problems else ""
        raise AssayError(f"run {run}: holds nothing to make a manifest from{first}")
    if old is None and storage.exists(path):
        storage.write_atomic(run / DAMAGED, storage.read(path))
    manifests.Manifest(run, content).save()
    return problems


def collect(run: epath.Path, old: Json | None) -> tuple[Json, list[str]]:
    """The content of a manifest made from the files of a run.

    Args:
      run: the folder.
      old: content of the manifest as it is, if it can be read: it vouches for files that say
        nothing about themselves, and gives self-checks, times and environments.

    Returns:
      The content, and a line for each file that has no place in it.
    """
    content, problems = manifests.empty(), []
    if old is not None:
        content.update({kind: dict(old[kind]) for kind in provenance.NAMED})
    for path, files in _results(run).items():
        before = None if old is None else old["results"].get(path)
        whole = []
        for file in files:
            try:
                whole.append(_read(file, before, path))
            except AssayError as error:
                problems.append(str(error))
        kept, fingerprint = _alike(whole, before)
        problems += [
            f"{run / path / file.name}: computed otherwise than most parts of its result; "
            "remove it and run again"
            for file in whole
            if file not in kept
        ]
        clash = next(filter(None, (_enter(content, file) for file in kept)), "")
        if clash:
            problems.append(f"{run / path}: has {clash}, as in other results; remove it")
        elif kept:
            content["results"][path] = _entry(kept, fingerprint, before)
    return content, problems


def _results(run: epath.Path) -> dict[str, list[epath.Path]]:
    """Path of each result relative to the run -> its files."""
    files: dict[str, list[epath.Path]] = collections.defaultdict(list)
    for place in storage.tree(run):
        folder, _, name = place.rpartition("/")
        if _is_search(place) and name.endswith(".parquet"):
            files[place].append(run / place)
        elif place.partition("/")[0] in KINDS and provenance.part_span(name) is not None:
            files[folder].append(run / place)
    return dict(sorted(files.items()))


def _read(file: epath.Path, before: Json | None, path: str) -> _File:
    try:
        table = parts.read_frame(file, None, {"path": path})
    except AssayError:
        recorded = (before or {}).get("parts", {}).get(file.name)
        if recorded is None:
            raise
        table = parts.read_frame(file, recorded["sha256"], {"path": path})  # of an earlier version
    return _File(file.name, len(table.frame), table.sha256, table.about)


def _alike(files: Sequence[_File], before: Json | None) -> tuple[list[_File], Json]:
    """The files of the fingerprint that most rows have, and that fingerprint."""
    fingerprints = [(file.about or before or {})["fingerprint"] for file in files]
    texts = [json.dumps(fingerprint, sort_keys=True) for fingerprint in fingerprints]
    rows: dict[str, int] = collections.Counter()
    for file, text in zip(files, texts, strict=True):
        rows[text] += file.rows
    if not rows:
        return [], {}
    chosen = max(rows, key=lambda text: rows[text])
    kept = [file for file, text in zip(files, texts, strict=True) if text == chosen]
    return kept, fingerprints[texts.index(chosen)]


def _enter(content: Json, file: _File) -> str:
    """Enters the models, prompts and lists of a file; says what contradicts what is there."""
    for kind in provenance.NAMED:
        for name, entry in (file.about or {}).get(kind, {}).items():
            present = content[kind].get(name)
            why = present is not None and provenance.contradiction(kind, name, entry, present)
            if why:
                return why
            if present is None or (kind == "models" and present.get("vocab") is None):
                content[kind][name] = entry
    return ""


def _entry(files: Sequence[_File], fingerprint: Json, before: Json | None) -> Json:
    """The entry of a result that has these files."""
    entry = manifests.new_result(fingerprint)
    entry["parts"] = {f.name: {"rows": f.rows, "sha256": f.sha256} for f in files}
    if before is not None and all(before.get(k) == entry[k] for k in ("fingerprint", "parts")):
        return before
    about = files[0].about or {}
    for key in ("coefficients", "self_check", "rejected", "certificate", "universal"):
        if key in about:
            entry[key] = about[key]
    total = about.get("rows", {}).get("of", fingerprint.get("rows"))
    # Names of parts are row ranges, which must follow one another; the name of a search is none.
    spans = sorted(span for f in files if (span := provenance.part_span(f.name)) is not None)
    adjacent = all(before[1] == after[0] for before, after in itertools.pairwise(spans))
    entry["complete"] = sum(file.rows for file in files) == total and adjacent
    return entry
