"""Checks a run after the fact, and makes its manifest anew from what its files say.

`verify` compares the files with their hashes, the manifest, and one another; it changes nothing.
`rebuild` writes the manifest that the files tell.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, parts, provenance, schema, storage
from engine.runs import manifest as manifests
from engine.runs.reader import KINDS, REBUILD, Json, RunError, natural, read_contents, read_json

AGAIN = "run the command again"
_COLUMNS: dict[str, schema.Columns] = {
    schema.SCORES_DIR: schema.SCORE_COLUMNS,
    schema.ITEMS_DIR: schema.ITEM_COLUMNS,
    schema.LOGPROBS_DIR: schema.LOGPROB_COLUMNS,
    schema.ITEM_LOGPROBS_DIR: schema.ITEM_LOGPROB_COLUMNS,
    schema.SEQUENCES_DIR: schema.SEQUENCE_COLUMNS,
    schema.CONVERSATIONS_DIR: schema.CONVERSATION_COLUMNS,
    schema.CONVERSATION_LOGPROBS_DIR: schema.CONVERSATION_LOGPROB_COLUMNS,
}
_CONVERSATIONS = f"{schema.CONVERSATIONS_DIR}/"
# These need no vocabulary.
_LISTS = tuple(f"{kind}/" for kind in KINDS if kind not in (schema.SCORES_DIR, schema.LOGPROBS_DIR))


@dataclasses.dataclass
class Findings:
    """What `verify` found."""

    content: Json  # of the manifest; without results where it cannot be read
    problems: list[str]  # one line each, which says what to remove and what to run
    broken: set[str] = dataclasses.field(default_factory=set)  # results that have a problem
    # Results with all rows that the plain pass has not been compared with.
    unchecked: list[str] = dataclasses.field(default_factory=list)
    files: int = 0  # of results that were read
    rows: int = 0  # of these files


def verify(run: epath.Path, advance: Callable[[int], object] = lambda files: None) -> Findings:
    """Reads and checks every file of a run; changes nothing.

    `advance` is called with the number of files that were read. Raises AssayError for no run
    folder.
    """
    path = run / schema.MANIFEST
    if not storage.exists(path) and _results(run):
        return Findings(manifests.empty(), [f"{path}: gone; {REBUILD}"])
    try:
        findings = Findings(read_json(path), [])
    except RunError as error:
        if not storage.exists(path):
            raise
        return Findings(manifests.empty(), [str(error)])
    try:
        read_contents(run)
    except RunError as error:
        return Findings(manifests.empty(), [f"{error}; rebuild the manifest"])
    content, known = findings.content, set[str]()
    for path, entry in sorted(content["results"].items()):
        known.update([path] if _is_search(path) else [f"{path}/{name}" for name in entry["parts"]])
        lines = list(_check_result(run, path, entry, findings))
        findings.problems += [f"{_folder(run, path)}: {line}" for line in lines]
        if lines:
            findings.broken.add(path)
        elif not _imported(entry) and not (entry["complete"] and entry["self_check"]):
            findings.unchecked.append(path)
        advance(len(entry["parts"]))
    files = storage.tree(run)
    findings.problems += _check_tables(run, files, content)
    for place in files:
        if storage.is_temporary(run / place) and not lock.holder_of(run):
            findings.problems.append(f"{run / place}: left by a command that was killed; remove it")
        elif place.endswith(".parquet") and place not in known and not _is_table(place):
            advice = f"`--rebuild` adds it if it is whole; or remove it and {AGAIN}"
            findings.problems.append(f"{run / place}: not in the manifest; {advice}")
    return findings


def unchecked(run: epath.Path, path: str) -> str:
    """The problem of a result that the plain pass has not been compared with."""
    return f"{run / path}: not checked by the plain pass; {AGAIN}, or `assay verify --rescore`"


def _check_result(run: epath.Path, path: str, entry: Json, findings: Findings) -> Iterator[str]:
    """Problems of a result: of its parts, or of the one file of a search."""
    folder = _folder(run, path)
    ids, total, largest = list[np.ndarray](), entry["fingerprint"].get("rows"), 0.0
    wanted = provenance.of_result(findings.content, path)
    if _is_search(path) and not entry["parts"]:
        yield f"{path.rpartition('/')[2]}: not finished; {AGAIN}"
    for name, part in sorted(entry["parts"].items()):
        span = provenance.part_span(name)
        if not storage.exists(folder / name):
            yield f"{name}: missing; {AGAIN}"
            continue
        if span and total is not None:
            wanted["rows"] = provenance.part_rows(*span, total)
        try:
            table = parts.read_frame(folder / name, part["sha256"], wanted)
        except AssayError as error:
            yield str(error).removeprefix(f"{folder}/")
            continue
        if span and total is None:
            total = table.about["rows"]["of"]
        yield from _check_frame(name, path, entry, part["rows"], table.frame)
        for prompt, text in table.about.get("prompts", {}).items():
            if findings.content["prompts"].get(prompt) != text:
                yield f"prompt {prompt!r} has another text in the manifest; rebuild the manifest"
        key = table.frame.to_series(0)
        # Ids of imported rewards are no row numbers.
        if span and not _imported(entry) and not key.is_between(span[0], span[1] - 1).all():
            yield f"{name} holds other ids than its name says; remove it and {AGAIN}"
        ids.append(key.to_numpy())
        for numbers in table.frame.select(pl.col(pl.Float32)):
            largest = max(largest, np.abs(numbers.to_numpy()).max(initial=0.0))
        findings.files, findings.rows = findings.files + 1, findings.rows + len(key)
    if len(ids) < len(entry["parts"]):  # a line says what is missing
        return
    yield from _check_tolerance(path, findings.content, largest)
    if not _is_search(path):
        yield from _check_ids(np.concatenate(ids) if ids else np.empty(0, int), total)


def _check_tolerance(path: str, content: Json, largest: float) -> Iterator[str]:
    """A self-check with a larger tolerance than the code has, or with a difference beyond it.

    `largest` is the largest absolute number of the result. The difference is compared where the
    tolerance cannot be that of a mixture of experts; nothing is of a pair of language models.
    """
    entry, slug = content["results"][path], path.partition("/model=")[2].partition("/")[0]
    pair, dtype = (
        content["models"].get(slug, {}).get(schema.PAIR),
        entry["fingerprint"].get("dtype"),
    )
    plain = schema.SELF_CHECK_TOLERANCE.get(dtype, 0.0)
    most = max(schema.OF_MIXTURE, 10 * plain)
    check = entry["self_check"] or {"tolerance": 0.0, "max_abs_difference": 0.0}
    tolerance, difference = check["tolerance"], check["max_abs_difference"]
    known = tolerance in (0.0, plain, schema.OF_MIXTURE) or _is_search(path)
    bounded = tolerance <= plain < schema.OF_MIXTURE
    within = 0 <= difference * (1 - tolerance) <= tolerance * max(1.0, largest)
    if not pair and (not known or not 0 <= tolerance <= most or (bounded and not within)):
        said = f"self_check has a difference of {difference:g} and a tolerance of {tolerance:g}"
        yield f"{said}, beyond what {dtype} allows; remove it and {AGAIN}"


def _check_ids(ids: np.ndarray, total: int | None) -> Iterator[str]:
    """Ids that occur twice or not at all."""
    distinct = len(np.unique(ids))
    if distinct < len(ids):
        yield f"{len(ids) - distinct} ids occur twice; remove the folder and {AGAIN}"
    if total is not None and distinct < total:
        yield f"{total - distinct} of {total} rows are missing; {AGAIN}"


def _check_frame(
    name: str, path: str, entry: Json, rows: int, frame: pl.DataFrame
) -> Iterator[str]:
    """Another number of rows, columns of other names or types, numbers that are not finite."""
    if rows != len(frame):
        yield f"{name} has {len(frame)} rows, the manifest says {rows}"
    expected = _COLUMNS[path.partition("/")[0]] | schema.objective_columns(
        schema.columns_beside(entry["fingerprint"])
    )
    if dict(frame.schema) != expected:
        yield f"{name} has other columns than the format says; remove it and {AGAIN}"
        return
    for column in (column for column, kind in expected.items() if kind == pl.Float32):
        if not frame[column].is_finite().all():
            yield f"{name} holds a {column} that is not finite; remove it and {AGAIN}"


def _check_tables(run: epath.Path, files: Sequence[str], content: Json) -> Iterator[str]:
    """Problems of vocabularies, of human scores and of lists of conversations."""
    of_tokens = [path for path in content["results"] if not path.startswith(_LISTS)]
    models = {path.partition("/model=")[2].partition("/")[0] for path in of_tokens}
    vocabularies = [content["models"].get(slug, {}).get("vocab") for slug in models]
    needed = {schema.vocab_path(vocab) for vocab in vocabularies if vocab is not None}
    lists = {p.split("/")[1] for p in content["results"] if p.startswith(_CONVERSATIONS)}
    needed |= set(map(schema.list_path, lists))
    present = {place for place in files if place.endswith(".parquet") and _is_table(place)}
    for place in sorted(needed | present):
        if place not in present:
            yield f"{run / place}: missing; {AGAIN}"
            continue
        try:
            table = parts.read_frame(run / place, None, {"path": place})
        except AssayError as error:
            yield str(error)
            continue
        if table.frame.to_series(0).is_duplicated().any():
            yield f"{run / place}: an id occurs twice; remove it and {AGAIN}"
        known = content["lists"].get(place.split("/")[1]) if place.endswith(schema.LIST) else None
        if known and manifests.conversations_hash(table.frame) != known["items_hash"]:
            yield f"{run / place}: other conversations than in the manifest; remove it and {AGAIN}"


def _imported(entry: Json) -> bool:
    return bool(entry["fingerprint"].get("mode") == "imported")


def _is_search(path: str) -> bool:
    return path.startswith(f"{schema.SEQUENCES_DIR}/")


def _folder(run: epath.Path, path: str) -> epath.Path:
    """Where the files of a result lie."""
    return (run / path).parent if _is_search(path) else run / path


def _is_table(place: str) -> bool:
    """Whether a path is that of a vocabulary, of human scores or of a list of conversations."""
    tables = (f"/{schema.HUMANS}", f"/{schema.LIST}")
    return place.startswith(f"{schema.VOCAB_DIR}/") or place.endswith(tables)


def rebuild(run: epath.Path) -> list[str]:
    """Writes manifest.json anew; returns a line for each file that has no place in it.

    A manifest that can be read keeps its entry of a result that has the same files. A new entry has
    no self-check: the next sweep, or `verify --rescore`, fills it. Raises AssayError if no file
    says what computed it.
    """
    path = run / schema.MANIFEST
    try:
        old: Json | None = read_json(path)
    except RunError:
        old = None
    content, problems = manifests.empty(), []
    if old is not None:
        content.update({kind: dict(old[kind]) for kind in provenance.NAMED})
    for result, files in _results(run).items():
        before = None if old is None else old["results"].get(result)
        same, strays = _same_fingerprint(result, files)
        problems += strays
        clash = next(filter(None, (_enter(content, about) for about, _ in same.values())), "")
        if clash:
            problems.append(f"{run / result}: has {clash}, as in other results; remove it")
        elif same:
            content["results"][result] = _entry(same, before)
    if not content["results"]:
        first = f": {problems[0]}" if problems else ""
        raise AssayError(f"run {run}: holds nothing to make a manifest from{first}")
    manifests.Manifest(run, content).save()
    return problems


def _results(run: epath.Path) -> dict[str, list[epath.Path]]:
    """Path of each result relative to the run -> its files."""
    files: dict[str, list[epath.Path]] = collections.defaultdict(list)
    for place in storage.tree(run):
        folder, _, name = place.rpartition("/")
        if _is_search(place) and name.endswith(".parquet"):
            files[place].append(run / place)
        elif place.partition("/")[0] in KINDS and provenance.part_span(name) is not None:
            files[folder].append(run / place)
    return dict(sorted(files.items(), key=lambda result: natural(result[0])))


# What a file says about itself, and its entry under `parts` in the manifest.
_File = tuple[Json, Json]


def _same_fingerprint(
    path: str, files: Sequence[epath.Path]
) -> tuple[Mapping[str, _File], list[str]]:
    """The files of a result with the fingerprint that most of its rows have, by name.

    Returns:
      Those files, and a line for each other one.
    """
    problems, by_fingerprint = [], collections.defaultdict[str, dict[str, _File]](dict)
    for file in files:
        try:
            table = parts.read_frame(file, None, {"path": path})
        except AssayError as error:
            problems.append(str(error))
            continue
        fingerprint = json.dumps(table.about["fingerprint"], sort_keys=True)
        part = {"rows": len(table.frame), "sha256": table.sha256}
        by_fingerprint[fingerprint][file.name] = table.about, part
    every = by_fingerprint.values()
    kept = max(every, key=lambda same: sum(part["rows"] for _, part in same.values()), default={})
    problems += [
        f"{file}: computed otherwise than most parts of its result; remove it and run again"
        for file in files
        if file.name not in kept and any(file.name in same for same in every)
    ]
    return kept, problems


def _enter(content: Json, about: Json) -> str:
    """Enters the models, prompts and lists of a file; says what contradicts what is there."""
    for kind in provenance.NAMED:
        for name, entry in about.get(kind, {}).items():
            present = content[kind].get(name)
            why = present is not None and provenance.contradiction(kind, name, entry, present)
            if why:
                return why
            if present is None or (kind == "models" and present.get("vocab") is None):
                content[kind][name] = entry
    return ""


def _entry(files: Mapping[str, _File], before: Json | None) -> Json:
    """The entry of a result that has these files; `before` if it is the same."""
    about = next(iter(files.values()))[0]
    entry = manifests.new_result(about["fingerprint"])
    entry["parts"] = {name: part for name, (_, part) in files.items()}
    if before is not None and all(before.get(k) == entry[k] for k in ("fingerprint", "parts")):
        return before
    for key in ("coefficients", "self_check", "rejected"):
        if key in about:
            entry[key] = about[key]
    total = about.get("rows", {}).get("of", about["fingerprint"].get("rows"))
    # Names of parts are row ranges, which must follow one another; the name of a search is none.
    spans = sorted(span for name in files if (span := provenance.part_span(name)) is not None)
    adjacent = all(before[1] == after[0] for before, after in itertools.pairwise(spans))
    entry["complete"] = sum(part["rows"] for _, part in files.values()) == total and adjacent
    return entry
