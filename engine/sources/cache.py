"""The cache of converted models: `<cache>/<name>-<hash>`, each a checkpoint, made once.

The hash is of everything that a conversion depends on: the bytes of a folder's files, or the commit
of a hub id, and the settings. So a folder that has changed is converted again, and a copy is not.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import filelock
from tqdm import tqdm

from engine import processes, programs
from engine.checkpoint.card import CARD, VERSION, Checkpoint
from engine.convert import hub
from engine.display import in_words
from engine.errors import AssayError
from engine.runs import storage
from engine.settings import ConvertSettings, Published, SourceSettings
from engine.sources import convert
from engine.sources.resolve import Known, name_of, place_of

_ENTRY = re.compile(r"[a-z0-9][a-z0-9._-]*-[0-9a-f]{12}")
_HASHES = ".hashes"  # in the cache: what large files hashed to, by their place
_RANDOM = 8  # characters that `tempfile` adds to the name of an unfinished conversion
_YOUNG_S = 2.0  # a file may be rewritten within one tick of its disk's clock
_ONLY_NAMED = ("slug", "bos", "date", "template_vars")  # not in a key, or as the policy


class Entry(NamedTuple):
    """A model in the cache."""

    name: str  # of its folder, by which it is removed
    source: str  # hub id with its commit, or folder
    nbytes: int  # on disk
    used: datetime.datetime  # last, in local time


def folder(chosen: str) -> Path:
    """Where converted models are kept: what the setting `cache` says, or below the user's cache.

    Raises AssayError where the user wants no cache, or has no home.
    """
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = programs.cache_folder()
    if home is None:
        raise AssayError(
            "no place to keep converted models: ASSAY_CACHE is empty, or there is no home; "
            "allowed: --config.cache=<folder>, or a checkpoint that `assay convert` makes"
        )
    return home / "models"


def checkpoint(
    source: str,
    revision: str | None,
    settings: SourceSettings,
    known: Known,
    verify: bool = True,
) -> Checkpoint:
    """The checkpoint of a folder or hub id; it is fetched and converted unless cached.

    Of several calls that need it at once, one converts. The arguments are those of `resolve`.
    """
    root, chosen, place = folder(settings.cache), settings.convert, place_of(source)
    published, slug = known(place), chosen.slug or name_of(source, known)
    if published is not None and not Path(source).is_dir():
        revision = revision or published.revision
    opened = hub.identify(source, revision, base=settings.base)
    with _named(root, settings.cache):
        root.mkdir(parents=True, exist_ok=True)
        key = _key(root, opened, chosen, published)
        with _locked(root, key, source):
            found = next((entry for entry in root.glob(f"*-{key}")), None)
            if found is None:
                found = root / f"{slug}-{key}"
                for left in root.glob(f".*-{key}-{'?' * _RANDOM}"):  # of conversions that ended
                    shutil.rmtree(left, ignore_errors=True)
                _say(f"{source}: converting into {found}")
                convert.convert(
                    place,
                    storage.path_of(found),
                    published,
                    chosen,
                    slug=slug,
                    revision=opened.revision,
                    base=settings.base,
                )
                did = "converted"
            else:
                with suppress(OSError):  # a cache that only others may write
                    os.utime(found / CARD)
                did = "converted before"
                if Checkpoint.open(found).card.source != place:
                    did = "the same files as a folder that was converted before"
            _say(f"{source}: {did}, {in_words(_size(found))} in {found} (`assay cache`)")
    made = Checkpoint.open(found, verify=verify)
    fields: dict[str, Any] = {"slug": slug, "source": place}  # of a copy, not of the first folder
    if made.card.base and opened.base:
        fields["base"] = {**made.card.base, "source": opened.base.name}
    return dataclasses.replace(made, card=dataclasses.replace(made.card, **fields))


def entries(root: Path) -> list[Entry]:
    """The models in a cache, the last used first."""
    listed = []
    for path in root.glob("*") if root.is_dir() else ():
        card = path / CARD
        if not _ENTRY.fullmatch(path.name) or not card.is_file():
            continue
        with suppress(ValueError, KeyError, OSError):  # removed meanwhile, or damaged
            content = json.loads(card.read_bytes())
            commit = f"@{content['revision'][:12]}" if content["revision"] else ""
            used = datetime.datetime.fromtimestamp(card.stat().st_mtime)
            listed.append(Entry(path.name, f"{content['source']}{commit}", _size(path), used))
    return sorted(listed, key=lambda entry: entry.used, reverse=True)


def remove(root: Path, entry: Entry) -> None:
    """Removes a model; what is left of it after an interruption is no entry."""
    place, key = root / entry.name, entry.name.rpartition("-")[2]
    with storage.reported(place), _locked(root, key, entry.name):
        doomed = root / f".{entry.name}-{'removed'.ljust(_RANDOM, '.')}"
        place.rename(doomed)
        shutil.rmtree(doomed)


def _key(
    root: Path, source: hub.Source, settings: ConvertSettings, published: Published | None
) -> str:
    """Hash of all that a conversion depends on: 12 hexadecimal digits."""
    chosen = dataclasses.asdict(settings)
    if (template := chosen["template"]) and Path(template).is_file():
        chosen["template"] = _digest(Path(template))
    inputs = {
        "version": VERSION,
        "settings": {name: chosen[name] for name in chosen if name not in _ONLY_NAMED},
        "policy": convert.policy_of(settings, published).to_json(),
        "head": published.head if published else "",
        **({"reward": published.reward} if published and published.reward else {}),
        "files": _contents(root, source),
        "base": _contents(root, source.base) if source.base else None,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


# Any: what JSON holds.
def _contents(root: Path, source: hub.Source) -> Any:
    """Hub id and commit, or the sha256 of every file of a folder that conversion may read."""
    if source.revision:
        return [source.name, source.revision]
    kinds = (*hub.SMALL, "*.safetensors")
    files = sorted(path for path in source.folder.iterdir() if path.is_file())
    return {
        path.name: _remembered(root, path) if path.suffix == ".safetensors" else _digest(path)
        for path in files
        if any(fnmatch(path.name, kind) for kind in kinds)
    }


def _remembered(root: Path, path: Path) -> str:
    """sha256 of a large file; it is read once for as long as it stays as it is."""
    real = path.resolve()
    stat = real.stat()
    state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    note = storage.path_of(root / _HASHES / hashlib.sha256(os.fsencode(real)).hexdigest())
    with suppress(ValueError, KeyError, TypeError):
        known = json.loads(storage.read_if_there(note) or b"null")
        if known["state"] == state:
            return str(known["sha256"])
    digest = _digest(real)
    if time.time() - max(stat.st_mtime, stat.st_ctime) > _YOUNG_S:
        storage.write_atomic(note, json.dumps({"state": state, "sha256": digest}).encode())
    return digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _named(root: Path, chosen: str) -> Iterator[None]:
    """Names the file that cannot be read or written, and what moves a cache not `chosen`."""
    try:
        yield
    except (AssayError, OSError) as error:
        place = getattr(error, "filename", None) or root
        message = f"{place}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if not chosen and str(root) in message:
            message += "; --config.cache or ASSAY_CACHE chooses another cache"
        raise AssayError(message) from error


@contextmanager
def _locked(root: Path, key: str, source: str) -> Iterator[None]:
    """Holds the lock of one conversion, which the system lets go of when a process ends."""
    lock = filelock.FileLock(root / f".{key}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        _say(f"{source}: waiting for another command that converts or removes it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _say(line: str) -> None:
    if processes.writes():
        tqdm.write(line, file=sys.stderr)
