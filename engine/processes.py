"""The processes of one command: who writes, what all must agree on, and how all end together.

With one process, every function here does nothing. Several are joined by `join`, which
`launch.common.joining` calls before jax does. Process 0 decides and writes; it learns which process
fails, and tells the others (`engine.control`).
"""

import base64
import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from engine.control import (
    LOST,
    REFUSED,
    SILENCE_S,
    Channel,
    Failure,
    Peer,
    ProcessError,
    connect,
    listen,
)
from engine.errors import AssayError

__all__ = ["LOST", "REFUSED", "SILENCE_S", "ProcessError"]  # what commands also need
T = TypeVar("T")

_channel: Channel | None = None
_callbacks: list[Callable[[], object]] = []
_ending = threading.Lock()  # taken once, by the thread that ends the process
_CALLBACKS_S = 5.0  # for the callbacks of `at_exit`
_LONGEST_REASON = 600  # characters


def join(address: str, port: int, count: int, index: int, timeout_s: float, name: str) -> None:
    """Connects this process with the others of its command.

    From then on, a failure of any process ends every process, with one line on each.

    Args:
      address: host of process 0.
      port: on which process 0 listens.
      count: number of processes.
      index: of this process.
      timeout_s: seconds within which all must have connected.
      name: of the command, with which the lines begin.

    Raises:
      AssayError: the port cannot be used.
      ProcessError: a process did not connect in time, or does not belong to this command.
    """
    global _channel
    host = socket.gethostname()

    def fail(failure: Failure) -> NoReturn:
        end(f"{name}: {failure}", failure.code, failure if index == 0 else None)

    if index == 0:
        peers = listen(port, count, host, timeout_s)
        _channel = Channel(0, [host, *(peer.host for peer in peers)], peers, fail)
    else:
        peer, hosts = connect(address, port, index, count, host, timeout_s)
        _channel = Channel(index, hosts, [peer], fail)
    _channel.watch()  # after `end` can reach the others


def index() -> int:
    """Index of this process."""
    return _channel.index if _channel else 0


def count() -> int:
    """Number of processes."""
    return len(_channel.hosts) if _channel else 1


def writes() -> bool:
    """Whether this process reads and writes the run folder, prints progress and results."""
    return index() == 0


def from_first(what: str, make: Callable[[], T]) -> T:
    """The value of process 0, on every process.

    Args:
      what: name of the value.
      make: computes it, on process 0 alone; a JSON value if there are several processes.

    Raises:
      AssayError: this process asks for another value than process 0 sends.
    """
    if _channel is None:
        return make()
    if _channel.index == 0:
        value = make()
        _channel.send(kind="value", what=what, value=value)
        return value
    message = _channel.peers[0].inbox.get()
    if message["what"] != what:
        raise AssayError(f"computes {what!r}, but process 0 computes {message['what']!r}")
    received: T = message["value"]
    return received


def bytes_from_first(what: str, read: Callable[[], bytes | None]) -> bytes | None:
    """As `from_first`, for bytes or None."""

    def encoded() -> str | None:
        data = read()
        return None if data is None else base64.b64encode(data).decode()

    text = from_first(what, encoded)
    return None if text is None else base64.b64decode(text)


# Any: a JSON value.
def agree(what: str, value: Any) -> None:
    """Checks that a value is the same on every process; returns when all have called it.

    Args:
      what: name of the value, in the plural.
      value: a JSON value.

    Raises:
      ProcessError: on process 0; it names the first process whose value differs.
    """
    if _channel is None:
        return
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=True)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    if _channel.index != 0:
        _channel.send(kind="digest", what=what, sha256=digest)
    else:
        for peer in _channel.peers:
            message, wrong = peer.inbox.get(), ""
            if message["what"] != what:
                wrong = f"compares {message['what']!r}, but process 0 compares {what!r}"
            elif message["sha256"] != digest:
                wrong = f"its {what} differ from those of process 0 ({_channel.hosts[0]})"
            if wrong:
                raise ProcessError(_of(peer, wrong))
    from_first(what, lambda: True)


def first_failure(what: str, own: str, *, alike: bool = False) -> str:
    """What went wrong on any process, told to all of them; returns when all have called it.

    Args:
      what: name of what was tried on every process.
      own: what went wrong on this one; "" where nothing did.
      alike: whether processes can go on together only if all have the same reason, or none has any.

    Returns:
      "" where nothing went wrong anywhere. Else the reason of the first process that has one; the
      process is named unless all have the same reason.

    Raises:
      ProcessError: on process 0, where reasons must be alike and are not; it names that process.
    """
    if _channel is None:
        return own
    if _channel.index != 0:
        _channel.send(kind="tried", what=what, reason=own)
        return from_first(what, lambda: "")
    reasons = [own]
    for peer in _channel.peers:
        message = peer.inbox.get()
        if message["what"] != what:
            raise ProcessError(_of(peer, f"does {message['what']!r}, but process 0 does {what!r}"))
        reasons.append(message["reason"])
    first = next((index for index, reason in enumerate(reasons) if reason), 0)
    told = reasons[first]
    if len(set(reasons)) > 1:
        failure = _failure(first, _channel.hosts[first], told)
        if alike:
            raise ProcessError(failure)
        told = str(failure)
    return from_first(what, lambda: told)


def place() -> str:
    """`process 1 of 4 (host)` where there are several, else nothing."""
    if _channel is None:
        return ""
    return f"process {_channel.index} of {len(_channel.hosts)} ({_channel.hosts[_channel.index]})"


def at_exit(callback: Callable[[], object]) -> Callable[[], None]:
    """Has a callback run when this process is ended without its main thread (`end`).

    Args:
      callback: removes a lock or a temporary file; runs in another thread, at most 5 s.

    Returns:
      A function that forgets the callback, which was not run.
    """
    _callbacks.append(callback)

    def forget() -> None:
        with contextlib.suppress(ValueError):
            _callbacks.remove(callback)

    return forget


def fail(name: str, error: BaseException, reason: str, code: int) -> NoReturn:
    """Ends this process, and all others of its command, for an error of this one.

    Args:
      name: of the command.
      error: what was raised; a `ProcessError` names another process.
      reason: what to say of it, if it is an error of this process.
      code: exit code of this and all others.
    """
    if isinstance(error, ProcessError):
        failure = error.failure
    elif _channel is None:
        end(f"{name}: {reason}", code)
    else:
        host = _channel.hosts[_channel.index]
        failure = Failure(index=index(), of=count(), host=host, reason=reason, code=code)
    end(f"{name}: {failure}", failure.code, failure)


def end(line: str, code: int, failure: Failure | None = None) -> NoReturn:
    """Ends this process at once, from any thread, whatever its main thread does.

    What is on disk is whole, because files are written under temporary names and renamed.

    Args:
      line: printed on standard error.
      code: exit code.
      failure: what the processes that this one is connected with are told.
    """
    if not _ending.acquire(blocking=False):
        threading.Event().wait()  # another thread ends the process
    if _channel and failure:
        _channel.tell(failure)
    callbacks = threading.Thread(target=_run_callbacks, daemon=True)
    callbacks.start()
    callbacks.join(_CALLBACKS_S)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{_one_line(line)}\n".encode(errors="replace"))
    if _channel:
        _channel.leave()
    os._exit(code)


def finish() -> None:
    """Waits until every process has finished its work; then they may end one by one."""
    if _channel is None:
        return
    if _channel.index == 0:
        for peer in _channel.peers:
            message = peer.inbox.get()
            if message["what"] != "the end":
                reason = f"compares {message['what']!r}, but process 0 is done"
                raise ProcessError(_of(peer, reason))
    else:
        _channel.send(kind="digest", what="the end", sha256="")
        if (message := _channel.peers[0].inbox.get())["kind"] != "over":
            raise AssayError(f"is done, but process 0 computes {message['what']!r}")
    _channel.finish()


def _of(peer: Peer, reason: str) -> Failure:
    return _failure(peer.index, peer.host, reason)


def _failure(index: int, host: str, reason: str) -> Failure:
    return Failure(index=index, of=count(), host=host, reason=reason, code=REFUSED)


def _run_callbacks() -> None:
    for callback in reversed(_callbacks):
        with contextlib.suppress(Exception):  # the process ends: the other callbacks run too
            callback()


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 2] + " …"
