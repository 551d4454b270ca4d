"""Makes the manifest of a run from what its files say about themselves."""

import collections
import dataclasses
import itertools
import json

from etils import epath

from engine.errors import AssayError
from engine.runs import manifest as manifests
from engine.runs import parts, provenance, schema, storage
from engine.runs.reader import KINDS, Json, RunError, read_json

DAMAGED = "manifest.damaged.json"  # a manifest that could not be read, kept beside the new one


@dataclasses.dataclass(frozen=True)
class _File:
    """A file of a result."""

    name: str
    rows: int
    sha256: str
    about: Json | None  # None: the old manifest vouches for it


def rebuild(run: epath.Path) -> list[str]:
    """Writes manifest.json anew; returns a line for each file that has no place in it.

    The new manifest has no self-check of a result that differs from its entry in the old one: the
    next sweep, or `verify --rescore`, fills it.

    Raises:
      AssayError: no file of the folder says what computed it.
    """
    try:
        old: Json | None = read_json(run / schema.MANIFEST)
    except RunError:
        old = None
    content, problems = collect(run, old)
    if not content["results"]:
        first = f": {problems[0]}" if problems else ""
        raise AssayError(f"run {run}: holds nothing to make a manifest from{first}")
    if old is None and storage.exists(run / schema.MANIFEST):
        storage.write_atomic(run / DAMAGED, storage.read(run / schema.MANIFEST))
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
    entries = {} if old is None else old["results"]
    for path, files in _results(run).items():
        before = entries.get(path)
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
    found: dict[str, list[epath.Path]] = collections.defaultdict(list)
    for place in storage.tree(run):
        kind, _, name = place.partition("/")
        if kind == schema.SEQUENCES_DIR and name.endswith(".parquet"):
            found[place].append(run / place)
        elif kind in KINDS and provenance.part_span(place.rpartition("/")[2]) is not None:
            found[place.rpartition("/")[0]].append(run / place)
    return dict(sorted(found.items()))


def _read(file: epath.Path, before: Json | None, path: str) -> _File:
    recorded = ((before or {}).get("parts") or {}).get(file.name, {}).get("sha256")
    try:
        table = parts.read_frame(file, None, {"path": path})
    except AssayError:
        if recorded is None:
            raise
        table = parts.read_frame(file, recorded, {"path": path})  # of an earlier version
    return _File(file.name, len(table.frame), table.sha256, table.about)


def _alike(files: list[_File], before: Json | None) -> tuple[list[_File], Json]:
    """The files of the fingerprint that most rows have, and that fingerprint."""
    rows: dict[str, int] = collections.Counter()
    fingerprints = [(file.about or before or {})["fingerprint"] for file in files]
    texts = [json.dumps(fingerprint, sort_keys=True) for fingerprint in fingerprints]
    for file, text in zip(files, texts, strict=True):
        rows[text] += file.rows
    if not rows:
        return [], {}
    chosen = max(rows, key=lambda text: rows[text])
    kept = [file for file, text in zip(files, texts, strict=True) if text == chosen]
    return kept, fingerprints[texts.index(chosen)]


def _enter(content: Json, file: _File) -> str:
    """Enters the models, prompts and lists of a file; says what contradicts what is there."""
    about = file.about or {}
    for kind in provenance.NAMED:
        for name, entry in about.get(kind, {}).items():
            present = content[kind].get(name)
            if present is not None and (
                why := provenance.contradiction(kind, name, entry, present)
            ):
                return why
            if present is None or (kind == "models" and present.get("vocab") is None):
                content[kind][name] = entry
    return ""


def _entry(files: list[_File], fingerprint: Json, before: Json | None) -> Json:
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
    entry["complete"] = sum(file.rows for file in files) == total and _without_gap(files)
    return entry


def _without_gap(files: list[_File]) -> bool:
    """Whether the names of parts are row ranges that follow one another; of a search, True."""
    spans = sorted(span for f in files if (span := provenance.part_span(f.name)) is not None)
    return all(before[1] == after[0] for before, after in itertools.pairwise(spans))
