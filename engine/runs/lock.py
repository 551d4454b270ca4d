"""One command at a time writes a run: `hold` takes the run's lock, `confirm` makes sure of it.

The lock is a file in the run folder that names its holder, who rewrites it every `BEAT_S` seconds.
A lock is stale when its process is gone from this host, or when its content did not change for as
long as it says (`stale_after_s`), as the next command's own clock counts it; that command then
takes it over. The clocks of two hosts are never compared, and neither are times of files.

A late write does harm: it would overwrite the lock of a command that took over. So a lock is
rewritten without patience (`engine.runs.patience`), directly after it was read. The command's other
writes are patient; a lock in a store is stale only after such a write has succeeded or failed.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

from etils import epath

from engine.errors import AssayError
from engine.runs import patience, storage

NAME = ".lock"
BEAT_S = 15.0
STALE_S = 60.0  # on a disk; in a store, plus the holder's patience
_LONGEST_GAP_S = 15.0  # between two looks at a lock, of an observer that counts its age
_SETTLE_S = 0.5  # between taking a stale lock over and reading it back
_POLL_S = 1.0

_held: dict[str, "Lock"] = {}  # run folder -> the lock that this process holds
_live: set[str] = set()  # tokens of the locks that this process takes or holds


class LockError(AssayError):
    """Another command writes the run."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """What a lock says about the command that holds it."""

    token: str
    host: str
    machine: str  # boot and process namespace, within which a process id means something
    pid: int
    process_began: str  # as the operating system counts it: a process id may be given again
    command: str
    began: str  # UTC
    stale_after_s: float  # seconds without a change after which the lock is stale

    @classmethod
    def here(cls, command: str, stale_after_s: float) -> "Holder":
        """This process."""
        return cls(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            machine=_machine(),
            pid=os.getpid(),
            process_began=process_began(os.getpid()),
            command=command,
            began=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            stale_after_s=stale_after_s,
        )

    @classmethod
    def read(cls, data: bytes) -> "Holder | None":
        """The holder that a lock's content names; None where it names none."""
        try:
            fields = {"stale_after_s": STALE_S, **json.loads(data)}  # earlier versions lack it
            return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self) -> str:
        return f"`assay {self.command}` on {self.host}, process {self.pid}, since {self.began}"

    @property
    def is_local(self) -> bool:
        """Whether this process can see the holder's process."""
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    @property
    def is_gone(self) -> bool:
        """Whether the holder ran here and has ended.

        A call of this process may have ended without its lock: the store refused to remove it.
        """
        if not self.is_local:
            return False
        if self.pid == os.getpid() and self.process_began == process_began(self.pid):
            return self.token not in _live
        return not is_running(self.pid, self.process_began)


@contextlib.contextmanager
def hold(run: str, command: str, *, wait: bool = False) -> Iterator["Lock"]:
    """Holds the lock of a run folder, which is made if need be.

    Args:
      run: the folder.
      command: name of the command, for the message to others.
      wait: wait for a command that holds the lock, instead of refusing.

    Raises:
      LockError: another command holds the lock.
      AssayError: the folder cannot be written.
    """
    folder = storage.path_of(run)
    made = _make(folder)
    lock = Lock(folder / NAME, Holder.here(command, _stale_after_s(folder)))
    try:
        lock.take(wait)
        _held[str(folder)] = lock
        yield lock
    finally:
        if _held.get(str(folder)) is lock:
            del _held[str(folder)]
        lock.release()
        _remove_empty(made)


def confirm(run: epath.Path) -> None:
    """Makes sure that no other command writes the run.

    Raises:
      LockError: the lock that this process holds was taken over or removed, or this process holds
        none and another one does.
    """
    lock, holder = _held.get(str(run)), _holder(run / NAME)
    if lock is not None and (holder is None or holder.token != lock.holder.token):
        by = f"taken over by {holder}" if holder else "removed"
        raise LockError(f"run {run}: the lock of this command was {by}; run it again to go on")
    if lock is None and holder is not None and not holder.is_gone:
        _refuse(run, holder)


def holder_of(run: epath.Path) -> Holder | None:
    """Who holds the lock of a run; None where nobody does, or a process that is gone."""
    holder = _holder(run / NAME)
    return None if holder is None or holder.is_gone else holder


class Lock:
    """The lock file of one command, which rewrites it from a thread while it holds it."""

    def __init__(self, path: epath.Path, holder: Holder):
        self.path, self.holder = path, holder
        self._beats = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, wait: bool) -> None:
        """Takes the lock.

        Raises:
          LockError: another command holds it and `wait` is not set.
        """
        _live.add(self.holder.token)
        told = False
        watch = _Watch()
        while not self._taken(watch):
            holder = watch.holder
            if watch.is_alive and not wait:
                _refuse(self.path.parent, holder)
            if not told:
                to_see = f"up to {watch.stale_after_s:.0f} s to see if it runs:"
                doing = "waiting for" if wait else to_see
                print(
                    f"run {self.path.parent} is locked; {doing} {holder or 'an unknown command'}",
                    file=sys.stderr,
                    flush=True,
                )
                told = True
            time.sleep(_POLL_S)
        self._thread = threading.Thread(target=self._beat, daemon=True, name="assay-lock")
        self._thread.start()

    def release(self) -> None:
        """Removes the lock, if it is still this command's."""
        self._stop.set()
        _live.discard(self.holder.token)
        if self._thread is None:
            return
        self._thread.join()
        with contextlib.suppress(AssayError):
            if self._is_own():
                storage.remove(self.path)

    def _taken(self, watch: "_Watch") -> bool:
        """One attempt to take the lock."""
        if storage.create(self.path, self._content()):
            return True
        if not watch.is_stale(_content(self.path)):
            return False
        with patience.single_attempts():  # a late one might overwrite a lock that is not stale
            storage.write_atomic(self.path, self._content())
        time.sleep(_SETTLE_S)  # of several that take it over at once, the last one has it
        return self._is_own()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            self._beats += 1
            # A file system that fails now may work at the next beat; `confirm` tells the command.
            with contextlib.suppress(AssayError), patience.single_attempts():
                if not self._is_own():
                    return
                storage.write_atomic(self.path, self._content())

    def _is_own(self) -> bool:
        holder = _holder(self.path)
        return holder is not None and holder.token == self.holder.token

    def _content(self) -> bytes:
        return json.dumps({**dataclasses.asdict(self.holder), "beats": self._beats}).encode()


class _Watch:
    """What one observer has seen of a lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._content: bytes | None = None
        self._since = self._looked = clock()
        self.is_alive = False
        self.holder: Holder | None = None

    @property
    def stale_after_s(self) -> float:
        """Seconds without a change after which the lock is stale."""
        return self.holder.stale_after_s if self.holder else STALE_S

    def is_stale(self, content: bytes) -> bool:
        """Looks at the content of a lock; says whether its holder has ended."""
        self.holder = Holder.read(content)
        now = self._clock()
        gap_s, self._looked = now - self._looked, now
        if content != self._content:
            # It changed while this process watched; one without content may have been removed.
            self.is_alive = self._content is not None and content != b""
            self._content, self._since = content, now
        elif gap_s > _LONGEST_GAP_S:  # as in an outage, in which the holder could not write either
            self._since = now
        if self.holder is not None and self.holder.is_local:
            self.is_alive = not self.holder.is_gone
            return self.holder.is_gone
        return now - self._since >= self.stale_after_s


def is_running(pid: int, began: str) -> bool:
    """Whether the process of this host that has this id, and began then, has not ended."""
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return began in ("", process_began(pid)) or process_began(pid) == ""


def process_began(pid: int) -> str:
    """When a process of this host began, as the operating system says it; "" where it does not."""
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()  # a name may hold spaces
        except OSError:
            return ""
        return "ended" if fields[0] in "ZX" else fields[19]
    command = ["ps", "-o", "lstart=", "-p", str(pid)]  # macOS
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _machine() -> str:
    """Boot and process namespace: containers may share a host's name, but not its processes."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _make(folder: epath.Path) -> list[epath.Path]:
    """Makes a local folder; returns what was made, innermost first. A store has no folders."""
    if storage.is_file(folder):
        raise AssayError(f"run {folder}: a file; allowed: a folder")
    if storage.is_remote(folder):
        return []
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with storage.reported(f"run {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    return missing


def _remove_empty(folders: list[epath.Path]) -> None:
    """Removes local folders into which no command wrote anything, innermost first.

    Looking and removing are one call: the next command may write its lock between two. (The method
    of epath is two, and the second removes a folder with all that is in it.)
    """
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _stale_after_s(folder: storage.PathLike) -> float:
    """Seconds without a change after which a lock is stale.

    A command may write for as long as its patience after it has confirmed its lock; the last beat
    before that was up to `BEAT_S` earlier, and an attempt without an answer takes half a minute.
    """
    return STALE_S + (patience.patience_s() if storage.is_remote(folder) else 0.0)


def _content(path: epath.Path) -> bytes:
    """The content of a lock; nothing where there is none."""
    return storage.read_if_there(path) or b""


def _holder(path: epath.Path) -> Holder | None:
    return Holder.read(_content(path))


def _refuse(run: epath.Path, holder: Holder | None) -> NoReturn:
    who = holder or "a command that its lock does not name"
    raise LockError(f"run {run}: in use by {who}; allowed: one command at a time, or --wait")
