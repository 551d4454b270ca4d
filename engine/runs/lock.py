"""One command at a time writes a run: `hold` takes the run's lock, `confirm` makes sure of it.

The lock is a file in the run folder that names its holder, who rewrites it every `BEAT_S` seconds.
It is stale when its process is gone from this host, or when it has stayed the same for `STALE_S`
seconds by the next command's clock; that command then takes it over. The clocks of two hosts are
never compared, and neither are times of files.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import NoReturn

from etils import epath

from engine.errors import AssayError
from engine.runs import storage

NAME = ".lock"
BEAT_S = 15.0
STALE_S, STORE_STALE_S = 60.0, 300.0  # a store repeats a write for up to four minutes: `storage`
_POLL_S = 1.0

_tokens: dict[str, str] = {}  # of the locks that this process takes or holds -> run folder


class LockError(AssayError):
    """Another command writes the run."""


def _machine() -> str:
    """Boot and process namespace, which name a host or a container; "" where there is no /proc."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str:
    """When a process of this machine started; "" where the system does not say so."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()  # a name may hold spaces
        return "ended" if fields[0] in "ZX" else fields[19]
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """What a lock says about the command that holds it; by default, a command of this process."""

    command: str
    token: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    host: str = dataclasses.field(default_factory=socket.gethostname)
    machine: str = dataclasses.field(default_factory=_machine)
    pid: int = dataclasses.field(default_factory=os.getpid)
    started: str = dataclasses.field(default_factory=lambda: _started(os.getpid()))
    began: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )
    beats: int = 0  # how often it has rewritten the lock

    @classmethod
    def of(cls, run: epath.Path) -> "Holder | None":
        """The holder that the lock of a run names; None where there is none, or it names none."""
        content = storage.read_if_there(run / NAME)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            fields = json.loads(content or b"")
            return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})
        return None

    @property
    def content(self) -> bytes:
        """The content of the lock."""
        return json.dumps(dataclasses.asdict(self)).encode()

    def __str__(self) -> str:
        return f"`assay {self.command}` on {self.host}, process {self.pid}, since {self.began}"

    @property
    def is_local(self) -> bool:
        """Whether this process can see the holder's process."""
        return self.machine == _machine() != ""

    @property
    def is_gone(self) -> bool:
        """Whether the holder ran here and has ended."""
        if not self.is_local:
            return False
        if self.pid == os.getpid():  # an earlier call may have been unable to remove its lock
            return self.token not in _tokens
        with contextlib.suppress(PermissionError):  # another user's process
            try:
                os.kill(self.pid, 0)  # sends nothing
            except ProcessLookupError:
                return True
        now = _started(self.pid)
        return "" not in (now, self.started) and now != self.started  # the number was given again


@contextlib.contextmanager
def hold(run: str, command: str, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a run folder, which is made if need be, for a `command` that messages name.

    Raises:
      LockError: another command holds the lock, and `wait` is not set.
      AssayError: the folder cannot be written.
    """
    folder = storage.path_of(run)
    holder, stop = Holder(command=command), threading.Event()
    if storage.is_file(folder):
        raise AssayError(f"run {folder}: a file; allowed: a folder")
    new = not storage.is_remote(folder) and not storage.exists(folder)
    with storage.reported(f"run {folder}"):
        if new:
            folder.mkdir(parents=True, exist_ok=True)
    beats = threading.Thread(target=_beat, args=[folder, holder, stop], daemon=True)
    _tokens[holder.token] = str(folder)
    try:
        _take(folder, holder, wait)
        beats.start()
        yield
    finally:
        stop.set()
        _tokens.pop(holder.token, None)
        if beats.ident is not None:  # the lock was taken
            beats.join()
            with contextlib.suppress(AssayError):
                if _holds(folder, holder):
                    storage.remove(folder / NAME)
        if new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # refuses where something was written


def confirm(run: epath.Path) -> None:
    """Raises LockError if this process has lost its lock of the run, or another one holds one."""
    mine, holder = token_of(run), Holder.of(run)
    if mine and (holder is None or holder.token not in _tokens):
        by = f"taken over by {holder}" if holder else "removed"
        raise LockError(f"run {run}: the lock of this command was {by}; run it again to go on")
    if not mine and holder is not None and not holder.is_gone:
        _refuse(run, holder)


def token_of(run: epath.Path) -> str:
    """Identity of the lock that this process holds on a run; "" where it holds none."""
    return next((token for token, folder in _tokens.items() if folder == str(run)), "")


def holder_of(run: epath.Path) -> Holder | None:
    """Who holds the lock of a run; None where nobody does, or a process that is gone."""
    holder = Holder.of(run)
    return None if holder is None or holder.is_gone else holder


def _take(run: epath.Path, holder: Holder, wait: bool) -> None:
    """Writes the lock as soon as there is none, or a stale one."""
    seen, since = None, None  # what the lock said last, and since when
    limit_s = STORE_STALE_S if storage.is_remote(run) else STALE_S
    while not storage.create(run / NAME, holder.content):
        present, now, first = Holder.of(run), time.monotonic(), since is None
        alive = not first and present not in (seen, None)  # the lock was rewritten
        if since is None or present != seen:
            seen, since = present, now
        stale = now - since >= limit_s
        if present is not None and present.is_local:
            alive, stale = not present.is_gone, present.is_gone
        if stale:
            # Of several that take it over at once, the last one has it; `confirm` stops the others.
            storage.write_atomic(run / NAME, holder.content)
            return
        if present is not None and alive and not wait:
            _refuse(run, present)
        if first:
            doing = "waiting for" if wait else f"up to {limit_s:.0f} s to see if it runs:"
            who = present or "an unknown command"
            print(f"run {run} is locked; {doing} {who}", file=sys.stderr, flush=True)
        time.sleep(_POLL_S)


def _beat(run: epath.Path, holder: Holder, stop: threading.Event) -> None:
    """Rewrites the lock until `stop` is set, or until it is another command's."""
    while not stop.wait(BEAT_S):
        holder = dataclasses.replace(holder, beats=holder.beats + 1)
        # A file system that fails now may work at the next beat; `confirm` tells the command.
        with contextlib.suppress(AssayError):
            if not _holds(run, holder):
                return
            storage.write_atomic(run / NAME, holder.content)


def _holds(run: epath.Path, holder: Holder) -> bool:
    present = Holder.of(run)
    return present is not None and present.token == holder.token


def _refuse(run: epath.Path, holder: Holder) -> NoReturn:
    raise LockError(f"run {run}: in use by {holder}; allowed: one command at a time, or --wait")
