"""The processes of one command: who writes, what all must agree on, and how they all end.

With one process, every function here does nothing. `join` connects several by jax.distributed; what
they tell each other passes through the key-value store of its service, which process 0 runs.

Process 0 decides and writes. A process that fails puts its line into the store; a thread of every
process waits for that line, prints it and exits with the same code. jax notices a process that was
killed or hangs, and aborts the others with a trace, to which they add a line.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from engine.errors import AssayError

T = TypeVar("T")
INTERRUPTED = 130  # exit code: 128 + SIGINT
# Commands that have nothing to go on with: run again, they begin anew.
_BEGIN_ANEW = ("analyze", "cache", "models", "plan", "serve", "verify")
LOST, REFUSED = 3, 2  # exit codes: a process was killed, lost or missing; bad input
HEARTBEAT_S = 30  # without a sign of life, after which jax counts a process as lost
_OTHERS_S = 10.0  # for the lines of the other processes
_EXIT_S = 0.5  # from what a process prints to its end, which takes microseconds on an idle machine
_FOREVER_MS = 365 * 24 * 3600 * 1000
_LONGEST_LINE = 600  # characters
_FAILED, _PRINTED = "assay/failed", "assay/printed/"  # keys in the store

_name, _index, _hosts = "", 0, [""]
_steps = itertools.count()  # all processes exchange the same values, in the same order
_client: Any = None  # of jax, without a public type; None where there is one process
_listener = threading.Thread()
_on_abort: Any = None  # a C function, which must not be collected
_ending = threading.Lock()  # taken once, by the thread that ends the process


def join(
    name: str, coordinator: str | None, count: int | None, index: int | None, timeout_s: int
) -> None:
    """Connects this process with the others of its command, and ends all if any fails.

    Args:
      name: of the command, with which the lines begin.
      coordinator: host:port at which process 0 runs jax's service. If this, `count` or `index` is
        None, jax takes it from the cluster.
      count: number of processes.
      index: of this process.
      timeout_s: seconds within which all must have connected.
    """
    global _name, _index, _hosts, _client, _listener
    import jax
    from jax._src import distributed  # `global_state`: the store has no public name

    _name = name
    _handle_abort()
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    jax.distributed.initialize(
        coordinator,
        count,
        index,
        initialization_timeout=timeout_s,
        heartbeat_timeout_seconds=HEARTBEAT_S,
        shutdown_timeout_seconds=HEARTBEAT_S,
        cluster_detection_method=None if None in (coordinator, count, index) else "deactivate",
    )
    state, host = distributed.global_state, socket.gethostname()
    _index, _hosts, _client = state.process_id, [host] * state.num_processes, state.client
    _listener = threading.Thread(target=_listen, daemon=True)
    _listener.start()
    _hosts = _gather("hosts", host) or _hosts  # process 0 alone names others
    agree("numbers of processes", len(_hosts))  # jax does not compare them
    agree("commands", name)


def count() -> int:
    """Number of processes."""
    return len(_hosts)


def writes() -> bool:
    """Whether this process reads and writes the run folder, prints progress and results."""
    return _index == 0


def place(index: int | None = None) -> str:
    """`process 1 of 4 (host)`, of this process by default; nothing where there is only one."""
    index = _index if index is None else index
    return f"process {index} of {count()} ({_hosts[index]})" if count() > 1 else ""


def from_first(what: str, make: Callable[[], T]) -> T:
    """Returns on every process what `make` computes on process 0 alone.

    It is a JSON value if there are several processes; `what` names it.

    Raises:
      AssayError: process 0 sends a value of another name.
    """
    if _client is None:
        return make()
    key = f"assay/{next(_steps)}"
    if _index == 0:
        value = make()
        _client.key_value_set(key, json.dumps([what, value]))
        return value
    _client.key_value_set(f"{key}/{_index}", json.dumps([what, None]))  # if process 0 compares now
    sent, received = json.loads(_client.blocking_key_value_get(key, _FOREVER_MS))
    if sent != what:
        raise AssayError(f"computes {what!r}, but process 0 computes {sent!r}")
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
    """Returns once every process has called it with the same JSON value.

    If one differs, all end with a line that names the first process that differs from process 0.
    `what` names the value, in the plural.
    """
    if _client is None:
        return
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    for index, received in enumerate(_gather(what, digest)):
        if received != digest:
            reason = f"its {what} differ from those of process 0 ({_hosts[0]})"
            fail(_name, reason, REFUSED, index=index)
    from_first(what, lambda: True)


def fail(name: str, reason: str, code: int, *, index: int | None = None) -> NoReturn:
    """Ends all processes of the command `name`, with the line and exit code of the first failure.

    `index` is that of the process that failed, by default this one.
    """
    line = f"{name}: {place(index)}{': ' if count() > 1 else ''}{reason}"
    with contextlib.suppress(Exception):  # there is one process, or another was first
        _client.key_value_set(_FAILED, json.dumps([line, code]))
    with contextlib.suppress(Exception):  # there is one process, or process 0 is gone
        line, code = json.loads(_client.key_value_try_get(_FAILED))
    end(line, code)


def end(line: str, code: int) -> NoReturn:
    """Prints a line and ends this process at once, from any thread, whatever the main thread does.

    What is on disk is whole, because files are written under temporary names and renamed.
    """
    if not _ending.acquire(blocking=False):
        threading.Event().wait()  # another thread ends the process
    if "tqdm" in sys.modules:  # so that the line stands alone
        for bar in list(sys.modules["tqdm"].tqdm._instances):
            bar.close()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{_one_line(line)}\n".encode(errors="replace"))
    with contextlib.suppress(Exception):  # there is one process, or process 0 is gone
        _end_process_0_last()
    os._exit(code)


def finish() -> None:
    """Waits until every process has finished its work; then jax disconnects them."""
    global _client
    if _client is None:
        return
    agree("the end", None)
    if _index == 0:
        with contextlib.suppress(RuntimeError):  # a process was stopped just now
            _client.key_value_set(_FAILED, "null")
    _listener.join()  # it would crash if it still waited when the client is gone
    _client = None
    sys.modules["jax"].distributed.shutdown()


# Any: a JSON value.
def _gather(what: str, value: Any) -> list[Any]:
    """Returns the value of every process on process 0, and nothing on the others."""
    key, values = f"assay/{next(_steps)}", [value]
    if _index > 0:
        _client.key_value_set(f"{key}/{_index}", json.dumps([what, value]))
        return []
    for index in range(1, count()):
        sent = json.loads(_client.blocking_key_value_get(f"{key}/{index}", _FOREVER_MS))
        if sent[0] != what:
            reason = f"compares {sent[0]!r}, but process 0 compares {what!r}"
            fail(_name, reason, REFUSED, index=index)
        values.append(sent[1])
    return values


def _listen() -> None:
    """Ends this process when any process has failed; returns when all have finished."""
    with contextlib.suppress(RuntimeError):  # process 0 is gone: jax aborts this one
        if failure := json.loads(_client.blocking_key_value_get(_FAILED, _FOREVER_MS)):
            end(*failure)


def _end_process_0_last() -> None:
    """Process 0 waits until the others have printed: jax aborts them when it is gone."""
    if _index > 0:
        _client.key_value_set(f"{_PRINTED}{_index}", "")
        return
    deadline = time.monotonic() + _OTHERS_S
    while len(_client.key_value_dir_get(_PRINTED)) < count() - 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(_EXIT_S)


def _handle_abort() -> None:
    """Has an abort, before which jax prints a trace, print a line and exit with a known code."""
    global _on_abort
    import ctypes  # not at the top: one process does not need it

    def exit_lost(_: int) -> None:
        global _client
        _client = None  # the thread that aborts may hold its locks
        if _ending.locked():  # another thread prints why all end
            time.sleep(_OTHERS_S)
            os._exit(LOST)
        why = "a process was killed, hangs or did not start, or this one crashed: see above"
        end(f"{_name}: {why}", LOST)

    _on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(exit_lost)
    ctypes.CDLL(None).signal(signal.SIGABRT, _on_abort)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 2] + " …"


def stopped(name: str) -> str:
    """The line of the command `name` after Ctrl-C; says if it goes on when run again."""
    return "interrupted" if name in _BEGIN_ANEW else "interrupted; run it again to go on"
