"""Files of a hub id, fetched by the hub's client, and one line for everything that can fail.

The client waits for a busy hub, resumes a lost connection, checks sizes, and shows a file in its
cache only when it is whole. Added here: the end of a download when its command is stopped; progress
where standard error is no terminal; comparison with the hub's hashes.
"""

import contextlib
import errno
import hashlib
import http.client
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from tqdm import tqdm

from engine import processes
from engine.errors import AssayError
from engine.progress import progress

T = TypeVar("T")
_PHASES, _SILENT_S = ("connect", "read", "write", "pool"), 60.0  # where the client has no limit
_LATER = "run it again later, complete files are kept"
_DISK = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_SHA256 = re.compile("[0-9a-f]{64}")  # name of a large file among the blobs of the cache


def snapshot(
    source: str,
    revision: str | None,
    patterns: Sequence[str],
    size: int = 0,
    cache: Path | None = None,
) -> Path:
    """Downloads the files of a hub id that match the patterns, or finds them in the hub's cache.

    Files that are complete stay in the cache when this fails; of others nothing is left.

    Args:
      source: hub id.
      revision: commit, tag or branch; None: the main branch.
      patterns: of file names.
      size: bytes that are expected, for the progress bar; 0 where that is not known.
      cache: folder to use instead of the hub's cache.

    Returns:
      The folder of the revision in the cache, which may hold other files too.

    Raises:
      AssayError: the files cannot be had; the message says why, and what to do.
    """
    from huggingface_hub import get_session, snapshot_download

    def download() -> str:
        return snapshot_download(
            source,
            revision=revision,
            allow_patterns=list(patterns),
            tqdm_class=counting,
            cache_dir=cache,
        )

    stopped = threading.Event()
    with (
        _bar(f"downloading {source}", size) as (counting, tell),
        _lines_of_the_client(source, tell),
        _ended_by(stopped, get_session()),
    ):
        try:
            return Path(_stoppable(download, stopped))
        except Exception as error:  # of the client, its HTTP and its disk: each becomes a line
            raise AssayError(_refusal(error, source, revision, cache)) from error


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


def verify(source: str, files: Sequence[Path]) -> None:
    """Compares large files with the sha256 that the hub states; the client compares sizes only.

    Args:
      source: hub id, for the message.
      files: in a folder that `snapshot` has returned.

    Raises:
      AssayError: a file differs. It is removed from the cache.
    """
    blobs = {file: file.parent / file.readlink() for file in files if file.is_symlink()}
    stated = {file: blob for file, blob in blobs.items() if _SHA256.fullmatch(blob.name)}
    total = sum(blob.stat().st_size for blob in stated.values())
    with (
        progress(total, "B", what=f"checking {source}", delay_s=5) as bar,
        ThreadPoolExecutor(4) as pool,
    ):

        def differs(file: Path) -> bool:
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            bar.update(file.stat().st_size)
            return digest != stated[file].name

        damaged = [file for file, bad in zip(stated, pool.map(differs, stated), strict=True) if bad]
    for file in damaged:
        for path in (file.resolve(), stated[file], file):  # a blob may be a link itself
            path.unlink(missing_ok=True)
    if damaged:
        names = ", ".join(file.name for file in damaged)
        raise AssayError(
            f"{source}: {names}: other bytes than the hub states (sha256); removed, run it again"
        )


class _Stopped(Exception):
    """The command is ending."""


class _Stream(httpx2.SyncByteStream):
    """A body that can be stopped, and whose client sees every lost connection as one to resume."""

    def __init__(self, stream: Any, check: Callable[[], None]):
        self._stream, self._check = stream, check

    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._stream:
                self._check()
                yield part
        except httpx2.NetworkError as error:  # a reset, for one, which it does not resume
            raise httpx2.RemoteProtocolError(str(error) or "connection lost") from error

    def close(self) -> None:
        self._stream.close()


@contextlib.contextmanager
def _ended_by(stopped: threading.Event, client: httpx2.Client) -> Iterator[None]:
    """Ends the client's requests when `stopped` is set, or when there is no answer for a minute."""
    send = client.send

    def check() -> None:
        if stopped.is_set():
            raise _Stopped

    # Any: options of the client.
    def checked(request: httpx2.Request, **options: Any) -> httpx2.Response:
        check()
        limits = request.extensions.setdefault("timeout", {})
        limits.update({phase: limits.get(phase) or _SILENT_S for phase in _PHASES})
        response = send(request, **options)
        response.stream = _Stream(response.stream, check)
        return response

    client.send = checked  # type: ignore[method-assign]  # for a while, on this client alone
    try:
        yield
    finally:
        client.send = send  # type: ignore[method-assign]  # as it was


def _stoppable(call: Callable[[], T], stopped: threading.Event) -> T:
    """The result of a call whose downloads end when this command is interrupted or terminated.

    The hub's client would first finish the files that it has started.
    """
    exiting = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)

        def stop() -> None:
            exiting.set()
            stopped.set()
            futures.wait([future], timeout=4)  # of the seconds that a process has to end

        forget = processes.at_exit(stop)
        try:
            while not future.done():  # a wait without end would not notice every Ctrl-C
                futures.wait([future], timeout=0.2)
            if exiting.is_set():
                threading.Event().wait()  # another thread ends the process
            return future.result()
        finally:
            stopped.set()
            forget()


@contextlib.contextmanager
def _bar(what: str, size: int) -> Iterator[tuple[type[tqdm], Callable[[str], None]]]:
    """Shows one progress bar.

    Yields:
      A class of silent bars, as the client wants it, that feed the one. The client makes several:
      for bytes received, for bytes written, and for files. The larger number of bytes counts.
      A function that prints a line above the bar.
    """
    lock = threading.Lock()
    with progress(size or 1, "B", what=what, delay_s=5) as bar:

        def tell(line: str) -> None:
            shown = not bar.disable and time.time() >= bar.start_t + bar.delay
            (tqdm.write if shown else print)(line, file=sys.stderr)

        class Counting(tqdm):  # type: ignore[misc]  # tqdm has no types
            def __init__(self, *args: Any, **options: Any):
                self.counts_bytes = options.get("unit") == "B"
                super().__init__(*args, **{**options, "disable": True})

            def update(self, n: float | None = 1) -> None:
                with lock:
                    self.n += n or 0
                    if self.counts_bytes and self.n > bar.n:
                        bar.total = size or max(self.n, self.total or 0)
                        bar.update(self.n - bar.n)

        yield Counting, tell


@contextlib.contextmanager
def _lines_of_the_client(source: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Makes one line of everything that the client logs, without signed URLs."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(f"{source}: {_in_one_line(record.getMessage())}")

    logger, handler = logging.getLogger("huggingface_hub"), Lines()
    before, propagates = list(logger.handlers), logger.propagate
    with warnings.catch_warnings():
        # The command has compared the disk with the size, and a full disk is a line below.
        warnings.filterwarnings("ignore", "Not enough free disk space", UserWarning)
        try:
            logger.handlers[:], logger.propagate = [handler], False
            yield
        finally:
            logger.handlers[:], logger.propagate = before, propagates


def _refusal(error: BaseException, source: str, revision: str | None, cache: Path | None) -> str:
    """What went wrong, where, and what to do, in one line."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{source}"
    place = f"the hub's cache {constants.HF_HUB_CACHE}" if cache is None else str(cache)
    what = f"the revision {revision!r}" if revision else "the model"
    name = revision or constants.DEFAULT_REVISION
    lines: dict[type[BaseException], str] = {
        errors.HFValidationError: "allowed: an existing folder or a hub id owner/name",
        errors.OfflineModeIsEnabled: f"HF_HUB_OFFLINE is set, and {place} does not hold {what}; "
        "unset it, or name an existing folder",
        errors.GatedRepoError: f"gated; accept the licence at {page} and log in with "
        "`hf auth login`",
        errors.RevisionNotFoundError: f"no revision {name!r}; allowed: a commit, tag or branch of "
        f"{page}",
        errors.RepositoryNotFoundError: f"no such folder, and no repository {page}, unless a "
        "private one; allowed: an existing folder, a hub id owner/name, or after `hf auth login` a "
        "repository that the login may read",
        httpx2.ConnectError: f"{constants.ENDPOINT} cannot be reached, and {place} does not hold "
        f"{what}; check the network and HF_ENDPOINT, or name an existing folder",
    }
    causes = list(_chain(error))
    for kind, line in lines.items():
        if any(isinstance(cause, kind) for cause in causes):
            return f"{source}: {line}"
    for cause in causes:
        if isinstance(cause, errors.HfHubHTTPError):
            status, url = cause.response.status_code, str(cause.response.url).partition("?")[0]
            phrase = http.client.responses.get(status, "an error")
            answer = f"the hub answers {status}, {phrase}, for {url}"
            login = "log in with `hf auth login` and an account that may read it"
            return f"{source}: {answer}; {login if status in (401, 403) else _LATER}"
        if isinstance(cause, OSError) and cause.errno in _DISK:
            return (
                f"{source}: cannot write to {place} ({cause.strerror}); make room there, or set "
                "HF_HUB_CACHE to another folder; complete files are kept"
            )
    reason = _in_one_line(str(error)) or type(causes[-1]).__name__
    return f"{source}: the download failed ({type(error).__name__}: {reason}); {_LATER}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _in_one_line(text: str) -> str:
    """A text without line ends, and without the signatures in URLs, which nobody else may see."""
    line = " ".join(text.split())
    return re.sub(r"\?[^\s)'\"]*=[^\s)'\"]*?(?=:?(?:[\s)'\"]|$))", "", line)[:300]
