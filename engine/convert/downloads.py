"""Files of a hub id, fetched by the hub's client, and one line for everything that can fail.

The client retries, resumes a lost connection, checks sizes, and shows a file in its cache only when
it is whole. Added here: one progress bar, comparison with the hub's hashes, and no unfinished file
where the command is stopped.
"""

import _thread
import contextlib
import errno
import hashlib
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx2
from tqdm import tqdm

from engine import processes
from engine.display import progress
from engine.errors import AssayError

_LATER = "run it again later, complete files are kept"
_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_QUERY = re.compile(r"\?\S*")  # of a URL, whose signature belongs in no log
_USUAL_HEADER, _LARGEST_HEADER = 100_000, 100_000_008  # bytes of one of a safetensors file
_SHA256 = re.compile("[0-9a-f]{64}")  # name of a large file among the blobs of the cache


def snapshot(
    source: str, revision: str | None, patterns: Sequence[str], cache: Path | None = None
) -> Path:
    """Downloads the files of a hub id that match the patterns, or finds them in the cache.

    `revision` is a commit, tag or branch; None: the main branch. `cache` is used in place of the
    hub's.

    Returns:
      The folder of the revision in the cache, which may hold other files too.

    Raises:
      AssayError: the files cannot be had; the message says why, and what to do.
    """
    from huggingface_hub import snapshot_download

    with _downloading(source, revision, cache) as stopped, progress(0) as silent:
        return Path(
            snapshot_download(
                source,
                revision=revision,
                allow_patterns=list(patterns),
                cache_dir=cache,
                tqdm_class=_feeding(silent, stopped),
            )
        )


def download(
    source: str, commit: str, names: Sequence[str], sizes: Mapping[str, int], cache: Path | None
) -> None:
    """Downloads large files into the folder that `snapshot` returned, one after another.

    The client compares sizes only, so a file is compared with the sha256 that the hub states.
    `sizes` are bytes by file name, for the progress bar.

    Raises:
      AssayError: as for `snapshot`; or a file differs, and was removed.
    """
    from huggingface_hub import hf_hub_download

    total = sum(sizes.get(name, 1) for name in names)
    with (
        _downloading(source, commit, cache) as stopped,
        progress(total, "B", what=f"downloading {source}", delay_s=5) as bar,
    ):
        for name in names:
            file = hf_hub_download(
                source, name, revision=commit, cache_dir=cache, tqdm_class=_feeding(bar, stopped)
            )
            check_hash(source, Path(file))


def outline(source: str, commit: str, name: str, destination: Path) -> None:
    """Writes the header of a safetensors file, which alone is fetched, and zeros for its tensors.

    Raises:
      AssayError: as for `snapshot`; or the file has no header.
    """
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # it has no `__all__`
        build_hf_headers,
        hf_raise_for_status,
        http_backoff,
    )

    url = hf_hub_url(source, name, revision=commit, endpoint=constants.ENDPOINT)

    def first(count: int) -> tuple[bytes, int]:
        """The first bytes of the file, and how many it has."""
        wanted = {**build_hf_headers(), "range": f"bytes=0-{count - 1}"}
        answer = http_backoff("GET", url, headers=wanted, follow_redirects=True)
        hf_raise_for_status(answer)
        total = answer.headers.get("content-range", "").rpartition("/")[2]
        return answer.content, int(total) if total.isdecimal() else len(answer.content)

    with _downloading(source, commit, None):
        content, size = first(_USUAL_HEADER)
        length = 8 + int.from_bytes(content[:8], "little")
        if len(content) < length <= min(size, _LARGEST_HEADER):
            content, size = first(length)
        with destination.open("wb") as file:
            file.write(content[:length])
            file.truncate(size)


def sizes(source: str, commit: str, cache: Path | None = None) -> Mapping[str, int]:
    """File name -> bytes, of all files of a commit that `snapshot` has been called for.

    Empty where that is not known: in a cache that an older client has filled.
    """
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        files = get_cached_repo_tree(source, revision=commit, cache_dir=cache)
        return {file.path: file.size for file in files}
    except CachedRepoTreeNotFoundError:
        return {}


def check_hash(source: str, file: Path) -> None:
    """Removes a large file of the cache that differs from its sha256, and raises AssayError.

    The hash is the name that the file links to.
    """
    blob = file.parent / file.readlink() if file.is_symlink() else file
    if not _SHA256.fullmatch(blob.name):
        return
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != blob.name:
        for path in (file.resolve(), blob, file):  # a blob may be a link itself
            path.unlink(missing_ok=True)
        raise AssayError(
            f"{source}: {file.name}: other bytes than the hub states (sha256); removed, run it "
            "again"
        )


@contextlib.contextmanager
def _downloading(
    source: str, revision: str | None, cache: Path | None
) -> Iterator[threading.Event]:
    """One line for what fails; where the command is stopped, the client removes what it began."""
    ended, stopped = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        _thread.interrupt_main()  # does nothing where SIGINT is ignored
        ended.wait(4)  # of the seconds that a process has to end

    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_without_signatures)
    forget = processes.at_exit(stop)
    try:
        yield stopped
    except AssayError:
        raise
    except Exception as error:  # of the client, its HTTP and its disk: each becomes a line
        raise AssayError(f"{source}: {_reason(error, source, revision, cache)}") from error
    finally:
        forget()
        ended.set()


def _without_signatures(record: logging.LogRecord) -> bool:
    """Takes what follows the question mark of a URL, such as a signature, out of a line."""
    record.msg, record.args = _QUERY.sub("", record.getMessage()), ()
    return True


def _feeding(bar: tqdm, stopped: threading.Event) -> type[tqdm]:
    """A class of silent bars that feed one bar with the bytes of one file.

    For a file the client may make two, for bytes received and for bytes written, which overlap.
    """
    before = bar.n

    class Feeding(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *args: object, **options: object):
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            self.n += n or 0
            bar.update(max(before + self.n - bar.n, 0))

    return Feeding


def _reason(error: Exception, source: str, revision: str | None, cache: Path | None) -> str:
    """What went wrong, where, and what to do, in one line."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{source}"
    place = f"the hub's cache {constants.HF_HUB_CACHE}" if cache is None else str(cache)
    lacks = f"{place} does not hold {f'the revision {revision!r}' if revision else 'the model'}"
    name = revision or constants.DEFAULT_REVISION
    lines: dict[type[BaseException], str] = {
        errors.HFValidationError: "allowed: an existing folder or a hub id owner/name",
        errors.OfflineModeIsEnabled: f"HF_HUB_OFFLINE is set, and {lacks}; "
        "unset it, or name an existing folder",
        errors.GatedRepoError: f"gated; accept the licence at {page} and log in with "
        "`hf auth login`",
        errors.RevisionNotFoundError: f"no revision {name!r}; allowed: a commit, tag or branch of "
        f"{page}",
        errors.RepositoryNotFoundError: f"no such folder, and no repository {page}, unless a "
        "private one; allowed: an existing folder, a hub id owner/name, or after `hf auth login` a "
        "repository that the login may read",
        httpx2.ConnectError: f"{constants.ENDPOINT} cannot be reached, and {lacks}; check the "
        "network and HF_ENDPOINT, or name an existing folder",
    }
    cause: BaseException | None = error
    while cause is not None:
        for kind, line in lines.items():
            if isinstance(cause, kind):
                return line
        if isinstance(cause, OSError) and cause.errno in _DISK:
            return (
                f"cannot write to {place} ({cause.strerror}); make room there, or set "
                "HF_HUB_CACHE to another folder; complete files are kept"
            )
        cause = cause.__cause__ or cause.__context__
    said = _QUERY.sub("", " ".join(str(error).split()))[:300]
    return f"the download failed ({type(error).__name__}: {said}); {_LATER}"
