"""Files on a local disk or in an object store (`s3://`, `gs://`), read and written whole by fsspec.

A disk renames a file atomically. A store has no rename, but an object appears only when all of its
bytes have arrived; so objects are written under their final name. What a store or a disk refuses is
one line.
"""

import contextlib
import importlib.util
import logging
import os
import pathlib
import re
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
from etils import epath

from engine.errors import AssayError

PathLike = str | os.PathLike[str]

# Scheme of a URL -> the package that reads it, of the extra `stores`.
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}
_ALLOWED = "a local path, s3://<bucket>/<path> or gs://<bucket>/<path>"
# botocore sends a request six times within half a minute, or within two where nothing answers; s3fs
# does that twice. What the user sets (FSSPEC_S3_CONFIG_KWARGS, a file in ~/.config/fsspec) wins.
_RETRIES = {"retries": {"mode": "standard", "total_max_attempts": 6}}
fsspec.config.conf.setdefault("s3", {}).setdefault("config_kwargs", _RETRIES)
for _scheme in _PACKAGES:
    fsspec.config.conf.setdefault(_scheme, {})["use_listings_cache"] = False
# It logs a traceback of what it also raises, and a warning for each use without credentials.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)

_REQUESTS = 16  # side by side
# What a store says, or the name of its error, where credentials are missing or have expired: a
# request for metadata is then answered by a bare 400.
_REFUSALS = ("Credential", "Expired", "Token", "Forbidden", "Unauthorized", "Bad Request")


def path_of(name: PathLike) -> epath.Path:
    """The path that a user names; raises AssayError for a store that Assay does not read."""
    text = os.fspath(name)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return epath.Path(text)
    if scheme not in _PACKAGES or not rest.strip("/"):
        raise AssayError(f"{text}: not a path that Assay reads; allowed: {_ALLOWED}")
    package = _PACKAGES[scheme]
    if importlib.util.find_spec(package) is None:
        raise AssayError(
            f"{text}: {scheme}:// needs the package {package}; install it with "
            "`pip install 'assay-rewards[stores]'`"
        )
    return epath.Path(text)


def is_remote(path: PathLike) -> bool:
    """Whether a path is a URL of an object store."""
    return "://" in os.fspath(path)


def read(path: epath.Path) -> bytes:
    """The bytes of a file; raises AssayError for a pipe or a device, which may never end."""
    with reported(path):
        return _whole(path)


def read_if_there(path: epath.Path) -> bytes | None:
    """As `read`; None where there is no file, also if it is removed meanwhile."""
    with reported(path), contextlib.suppress(FileNotFoundError):
        return _whole(path)
    return None


def read_ahead(paths: Sequence[epath.Path]) -> Iterator[bytes]:
    """The bytes of many files in order; `_REQUESTS` of them are read at once."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        for start in range(0, len(paths), _REQUESTS):
            yield from pool.map(read, paths[start : start + _REQUESTS])


def exists(path: epath.Path) -> bool:
    """Whether there is such a file or folder."""
    return _kind(path) is not None


def is_folder(path: epath.Path) -> bool:
    """Whether there is such a folder; in a store, whether an object lies below it."""
    return _kind(path) == "directory"


def is_file(path: epath.Path) -> bool:
    """Whether there is such a file."""
    return _kind(path) == "file"


def names(folder: epath.Path) -> list[str]:
    """Names of the files and folders in a folder, sorted; none if there is no such folder."""
    with reported(folder), contextlib.suppress(FileNotFoundError):
        entries = {entry.rstrip("/") for entry in _call(folder, "ls", detail=False)}
        # A "folder" made by a web console is an empty object, which is listed in itself.
        return sorted(entry.rpartition("/")[2] for entry in entries - {_located(folder)[1]})
    return []


def write_atomic(path: epath.Path, data: bytes) -> None:
    """Writes a file that is seen whole or not at all, in place of an older one.

    If it cannot be written, or the disk is full, nothing is left behind.
    """
    with reported(path):
        if is_remote(path):
            _call(path, "pipe_file", data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def remove(path: epath.Path) -> None:
    """Removes a file; one that is gone already is no error."""
    with reported(path), contextlib.suppress(FileNotFoundError):
        _call(path, "rm_file")


def remove_folder(path: epath.Path) -> None:
    """Removes a folder and all that is in it; one that is gone already is no error."""
    with reported(path), contextlib.suppress(FileNotFoundError):
        _call(path, "rm", recursive=True)


def upload(folder: pathlib.Path, target: epath.Path) -> None:
    """Copies all files of a local folder into a folder of a store, side by side."""
    with reported(target):  # the slashes say that both are folders
        store, name = _located(target)
        store.put(f"{folder}/", f"{name}/", recursive=True)


@contextlib.contextmanager
def local(folder: epath.Path) -> Iterator[pathlib.Path]:
    """A small folder as a local one: itself, or a copy that is removed at the end."""
    if not is_remote(folder):
        yield pathlib.Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="assay-") as copy:
        with reported(folder), contextlib.suppress(FileNotFoundError):
            store, name = _located(folder)
            store.get(f"{name}/", f"{copy}/", recursive=True)
        yield pathlib.Path(copy)


def remove_leftovers(run: epath.Path) -> None:
    """Removes the temporary files that killed commands have left anywhere in a run that is locked.

    Stores get none: what they are sent is seen whole or not at all.
    """
    if not is_remote(run):
        for name in tree(run):
            if is_temporary(run / name):
                remove(run / name)


def is_temporary(path: epath.Path) -> bool:
    """Whether a file has a temporary name of `write_atomic`."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", path.name) is not None


@contextlib.contextmanager
def reported(path: PathLike) -> Iterator[None]:
    """Turns the errors of a disk or a store into an AssayError that begins with the path."""
    try:
        yield
    except AssayError:
        raise
    except Exception as error:  # the errors of stores have no common type
        if is_remote(path):
            raise AssayError(f"{os.fspath(path)}: {_reason(error)}") from error
        if isinstance(error, OSError):
            raise AssayError(f"{os.fspath(path)}: {error.strerror or error}") from error
        raise


def tree(folder: epath.Path) -> list[str]:
    """Paths of all files below a folder, relative to it, sorted; none if there is no folder."""
    with reported(folder):
        store, inside = _located(folder)
        return sorted(path.removeprefix(f"{inside}/") for path in store.find(inside))


# Any: fsspec has no types.
def _located(path: PathLike) -> tuple[Any, str]:
    """The file system of a path or URL, of which fsspec keeps one per scheme; its name of the path.

    A local path is made absolute: fsspec would take `~` and `file:` at the front for more.
    """
    scheme, remote, _ = os.fspath(path).partition("://")
    store = fsspec.filesystem(scheme if remote else "file")
    store.retries = 2  # of s3fs, beside those of `_RETRIES`
    return store, store._strip_protocol(os.fspath(path) if remote else os.path.abspath(path))


def _call(path: PathLike, method: str, *arguments: Any, **options: Any) -> Any:
    """Calls a method of a path's file system, with the path as first argument."""
    store, name = _located(path)
    return getattr(store, method)(name, *arguments, **options)


def _reason(error: Exception) -> str:
    """Why a store refused, in one line, and what to do about it."""
    told = getattr(error, "strerror", None) or str(error) or repr(error)
    line = " ".join(told.split())
    if isinstance(error, FileNotFoundError):
        return "no such file, or no such bucket"
    answer = getattr(error.__cause__, "response", None) or {}  # s3fs translates its errors
    names = f"{type(error).__name__} {line} {answer.get('Error')}"
    refused = any(word in names for word in _REFUSALS)
    if refused or isinstance(error, PermissionError):
        return f"the store refuses ({line}); check credentials, permissions and region"
    return f"the store failed ({line}); what is finished is kept: run again later"


def _whole(path: epath.Path) -> bytes:
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        raise AssayError(f"{path}: not a regular file; remove it")
    return bytes(_call(path, "cat_file"))


def _kind(path: epath.Path) -> str | None:
    """`file`, `directory`, or None if there is neither."""
    with reported(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return str(_call(path, "info")["type"])
    return None
