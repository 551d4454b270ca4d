"""Files of a hub id, fetched by the hub's own client, and one line for everything that can fail.

The client resumes a connection that was lost, checks sizes, and shows a file in its cache only when
it is whole. Added here: waiting for a hub that is busy, within bounds; progress where standard
error is no terminal; the end of a download when its command is stopped; what files hash to.
"""

import contextlib
import errno
import hashlib
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
from engine.convert.patience import GaveUp, Patience, without_query
from engine.errors import AssayError
from engine.progress import progress

T = TypeVar("T")
# Why the cache cannot be written -> what to do there.
_WRITING: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EFBIG, errno.EDQUOT), "make room there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable"),
}
_OTHER_SIZE = re.compile(r"Consistency check failed: .* of size (\d+) but has size (\d+)")
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

    with (
        _bar(f"downloading {source}", size) as (counting, tell),
        _lines_of_the_client(source, tell),
    ):
        patience = Patience(source, tell)

        def download() -> str:
            return snapshot_download(
                source,
                revision=revision,
                allow_patterns=list(patterns),
                tqdm_class=counting,
                cache_dir=cache,
            )

        try:
            with patience.of(get_session()):
                return Path(_stoppable(download, patience.stopped))
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
    """Compares large files with the sha256 that the hub states for them.

    The hub's client compares sizes only. A file that differs is removed from the cache.

    Args:
      source: hub id, for the message.
      files: in a folder that `snapshot` has returned.

    Raises:
      AssayError: a file differs.
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


def _stoppable(call: Callable[[], T], stopped: threading.Event) -> T:
    """The result of a call whose downloads end when this command is interrupted or terminated.

    The hub's client would first finish the files that it has begun.
    """
    ended, exiting = threading.Event(), threading.Event()

    def run() -> T:
        try:
            return call()
        finally:
            ended.set()

    def stop() -> None:
        exiting.set()
        stopped.set()
        ended.wait(4)  # of the seconds that a process has to end

    forget = processes.at_exit(stop)
    with ThreadPoolExecutor(1) as pool:
        try:
            future = pool.submit(run)
            while not future.done():  # a wait without end would not notice every Ctrl-C
                futures.wait([future], timeout=0.2)
            return future.result()
        except BaseException:  # KeyboardInterrupt and SystemExit too; raised again
            if exiting.is_set():
                threading.Event().wait()  # another thread ends the process
            raise
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
            if bar.disable or time.time() < bar.start_t + bar.delay:  # it is not there yet
                print(line, file=sys.stderr, flush=True)
            else:
                tqdm.write(line, file=sys.stderr)

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
    """What the client logs becomes one line each, above the progress bar, without signed URLs."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(f"{source}: {_in_one_line(record.getMessage())}")

    logger, handler = logging.getLogger("huggingface_hub"), Lines()
    before, propagates = list(logger.handlers), logger.propagate
    with warnings.catch_warnings():
        # The command has compared the disk with the size, and a full disk is a line of its own.
        warnings.filterwarnings("ignore", "Not enough free disk space", UserWarning)
        try:
            logger.handlers[:], logger.propagate = [handler], False
            yield
        finally:
            logger.handlers[:], logger.propagate = before, propagates


def _refusal(
    error: BaseException, source: str, revision: str | None, cache: Path | None = None
) -> str:
    """What went wrong, where, and what to do, in one line."""
    from huggingface_hub import constants, errors

    causes = list(_chain(error))

    def found(*kinds: type[BaseException]) -> Any:  # Any: with the attributes of its own kind
        return next((cause for cause in causes if isinstance(cause, kinds)), None)

    page = f"{constants.ENDPOINT}/{source}"
    place = f"the hub's cache {constants.HF_HUB_CACHE}" if cache is None else str(cache)
    instead = "set HF_HUB_CACHE to another folder" if cache is None else "use another disk"
    if gave_up := found(GaveUp):
        return f"{source}: {gave_up}"
    if found(errors.HFValidationError):
        return f"source={source!r}; allowed: an existing folder or a hub id owner/name"
    if found(errors.OfflineModeIsEnabled):
        return (
            f"{source}: HF_HUB_OFFLINE is set, and {place} does not hold "
            f"{'the revision ' + repr(revision) if revision else 'the model'}; unset it, or name "
            "an existing folder"
        )
    if gated := found(errors.GatedRepoError):
        who = "nobody is logged in" if gated.response.status_code == 401 else "the login has none"
        return (
            f"{source}: gated, and {who}; accept the licence at {page} and log in with "
            "`hf auth login`"
        )
    if found(errors.RevisionNotFoundError):
        name = revision or constants.DEFAULT_REVISION
        return f"{source}: no revision {name!r}; allowed: a commit, tag or branch of {page}"
    if found(errors.RepositoryNotFoundError):
        return (
            f"source={source!r}: no such folder, and no repository {page}, unless a private one; "
            "allowed: an existing folder, a hub id owner/name, or after `hf auth login` a "
            "repository that the login may read"
        )
    if found(errors.HfHubHTTPError):
        return _of_http(found(errors.HfHubHTTPError), source)
    disk = [cause for cause in causes if isinstance(cause, OSError) and cause.errno in _WRITING]
    if disk:
        return (
            f"{source}: cannot write to {place} ({disk[0].strerror}); "
            f"{_WRITING[disk[0].errno]}, or {instead}; complete files are kept"
        )
    if found(httpx2.TransportError):
        reason = _in_one_line(str(found(httpx2.TransportError))) or type(causes[-1]).__name__
        return f"{source}: the download broke off ({reason}); run it again, complete files are kept"
    if wrong := _OTHER_SIZE.match(str(error)):
        announced, came = int(wrong[1]), int(wrong[2])
        return (
            f"{source}: a file has {came:,} bytes; announced: {announced:,}; it was not kept, run "
            "it again"
        )
    return f"{source}: the download failed ({type(error).__name__}: {_in_one_line(str(error))})"


def _of_http(error: Any, source: str) -> str:  # Any: HfHubHTTPError, which is imported when needed
    status = error.response.status_code
    if status == 401:
        return (
            f"{source}: the hub refuses the login (401); log in with `hf auth login`, or unset "
            "HF_TOKEN"
        )
    if status == 403:
        return (
            f"{source}: the hub forbids {without_query(str(error.response.url))} (403); log in "
            "with `hf auth login` and an account that may read it"
        )
    return f"{source}: the hub answers: {_in_one_line(str(error))}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _in_one_line(text: str) -> str:
    return without_query(" ".join(text.split()))[:300]
