"""One command at a time writes a run on a disk: `hold` takes the run's lock.

The lock is the operating system's (filelock), on the file `.lock` in the run folder. The system
releases it when its process ends, however it ends. The file's text says who holds it. A run in an
object store has no lock.
"""

import contextlib
import datetime
import errno
import os
import socket
import sys
from collections.abc import Iterator

import filelock
from etils import epath

from engine.errors import AssayError
from engine.runs import storage

NAME = ".lock"
_POLL_S = 0.2
# What a file system says that has no locks, such as Lustre mounted without them.
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


@contextlib.contextmanager
def hold(run: str, command: str, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a run folder, which is made if need be, for a `command` that messages name.

    In an object store there is no lock. The folder is removed again if nothing was written.

    Raises:
      AssayError: another command holds the lock, and `wait` is not set; or the folder cannot be
        written.
    """
    folder = storage.path_of(run)
    if storage.is_remote(folder):
        yield
        return
    if storage.is_file(folder):
        raise AssayError(f"run {folder}: a file; allowed: a folder")
    new, taken, lock = not storage.exists(folder), False, _lock(folder)
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    who = f"`assay {command}` on {socket.gethostname()}, process {os.getpid()}, since {began}"
    try:
        with storage.reported(f"run {folder}"):
            _take(lock, folder, wait)
            taken = True
            (folder / NAME).write_text(who)
        yield
    finally:
        if taken:
            with contextlib.suppress(OSError):
                os.unlink(folder / NAME)  # before the release: filelock notices, and waits anew
            lock.release()
        if new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # refuses where something was written


def last_holder(run: epath.Path) -> str:
    """Who holds the lock of a run, or held it when it was killed; "" where it has none."""
    return (storage.read_if_there(run / NAME) or b"").decode(errors="replace")


def holder_of(run: epath.Path) -> str:
    """Who holds the lock of a run; "" where nobody does."""
    who = last_holder(run)
    if who:
        with contextlib.suppress(OSError), _lock(run).acquire(timeout=0):  # a Timeout: it is held
            return ""
    return who


def _lock(run: epath.Path) -> filelock.BaseFileLock:
    return filelock.FileLock(os.fspath(run / NAME), poll_interval=_POLL_S, fallback_to_soft=False)


def _take(lock: filelock.BaseFileLock, run: epath.Path, wait: bool) -> None:
    """Acquires the lock; goes on without one on a disk that has no locks."""
    timeout = 0
    while not lock.is_locked:
        os.makedirs(run, exist_ok=True)  # by filelock a folder that cannot be made would look gone
        try:
            lock.acquire(timeout)
        except filelock.Timeout:
            who = last_holder(run) or "another command"
            if not wait:
                message = f"run {run}: in use by {who}; allowed: one command at a time, or --wait"
                raise AssayError(message) from None
            print(f"run {run} is locked; waiting for {who}", file=sys.stderr, flush=True)
            timeout = -1
        except FileNotFoundError:  # the folder went with the command that held the lock
            continue
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            print(f"run {run}: on a disk without locks; run one command at a time", file=sys.stderr)
            return
