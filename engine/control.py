"""Control connections between the processes of one command.

Process 0 listens; every other process holds one connection to it. A message is one line of JSON.
Each side sends a sign of life every few seconds, so that a process that was killed, hangs or lost
its network is noticed within `SILENCE_S`. The connections are separate from those of jax, which
notices such a process after minutes and then aborts.
"""

import contextlib
import dataclasses
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.errors import AssayError

HEARTBEAT_S = 2.0  # between two signs of life
SILENCE_S = 30.0  # without a sign of life, after which a process counts as lost
_FAREWELL_S = 10.0  # for the others to read why the command ends, and to say so
_HELLO_BYTES = 4096

LOST, REFUSED = 3, 2  # exit codes: a process was killed, lost or missing; bad input

Message = dict[str, Any]  # Any: what JSON holds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a command ends early."""

    index: int  # of the process that failed
    of: int  # number of processes
    host: str  # of that process; "" where it is not known
    reason: str
    code: int  # with which every process exits

    def __str__(self) -> str:
        host = f" ({self.host})" if self.host else ""
        return f"process {self.index} of {self.of}{host}: {self.reason}"


class ProcessError(AssayError):
    """A process other than the one that raises this has failed."""

    def __init__(self, failure: Failure):
        super().__init__(str(failure))
        self.failure = failure


class Peer:
    """The connection to another process."""

    def __init__(self, connection: socket.socket, index: int, host: str):
        self.index, self.host = index, host
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.silent = False  # whether it ended because nothing was heard
        self._socket, self._sending = connection, threading.Lock()
        self._lines = connection.makefile("rb")
        connection.settimeout(SILENCE_S)

    def send(self, message: Message) -> None:
        """Sends a message; a peer that is gone is left to its reader to notice."""
        with self._sending, contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self, limit: int = -1) -> Message | None:
        """The next message; None where the connection ended."""
        try:
            line = self._lines.readline(limit)
        except OSError as error:
            self.silent = isinstance(error, TimeoutError)
            return None
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        return None

    def drain(self, deadline: float) -> None:
        """Reads until the peer sends nothing more, or until `time.monotonic()` is `deadline`."""
        if self.silent:
            return
        with contextlib.suppress(OSError):
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        while time.monotonic() < deadline and self.read():
            pass

    def finish_sending(self) -> None:
        """Tells the peer that nothing more comes; what was sent before still arrives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self._lines.close()
            self._socket.close()


class Channel:
    """The connections of one process, and the threads that watch them."""

    def __init__(
        self,
        index: int,
        hosts: Sequence[str],
        peers: Sequence[Peer],
        fail: Callable[[Failure], Any],
    ):
        """Nothing is watched yet; see `watch`.

        Args:
          index: of this process.
          hosts: name of every process's host.
          peers: all others on process 0; process 0 on the others.
          fail: called in a thread when another process has failed; it must not return.
        """
        self.index, self.hosts, self.peers = index, hosts, peers
        self._fail, self._over = fail, threading.Event()
        self._readers = [
            threading.Thread(target=self._watch, args=[peer], daemon=True) for peer in peers
        ]

    def watch(self) -> None:
        """Starts the threads; from now on `fail` may be called."""
        for thread in [*self._readers, threading.Thread(target=self._beat, daemon=True)]:
            thread.start()

    def send(self, **message: Any) -> None:  # what JSON holds
        """Sends a message to every peer."""
        for peer in self.peers:
            peer.send(message)

    def finish(self) -> None:
        """Ends the watch because all are done, so that processes may end one by one."""
        self._over.set()
        self.send(kind="over")
        for peer in self.peers:
            peer.finish_sending()
        self._await_farewells()

    def tell(self, failure: Failure) -> None:
        """Ends the watch, and tells the peers why all must end."""
        self._over.set()
        self.send(**_message(failure))

    def leave(self) -> None:
        """Waits until this process may end after `tell`, when it has said why it ends.

        Process 0 ends first, after the others have said why they end. Where another process is
        gone, the C++ libraries below jax may abort process 0 at any time, and its line with it;
        in the others an abort is held back (`launch.common.native_output`).
        """
        if self.index != 0:
            for peer in self.peers:
                peer.finish_sending()
        self._await_farewells()

    def _await_farewells(self) -> None:
        """Reads until the peers send nothing more: what they are sent may be lost otherwise."""
        deadline = time.monotonic() + _FAREWELL_S
        for peer, thread in zip(self.peers, self._readers, strict=True):
            if thread is threading.current_thread():
                peer.drain(deadline)
            else:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            self.send(kind="alive")

    def _watch(self, peer: Peer) -> None:
        reason = "ended without a word: killed, or crashed"
        failure = Failure(
            index=peer.index, of=len(self.hosts), host=peer.host, reason=reason, code=LOST
        )
        while message := peer.read():
            if message["kind"] == "failed" and not self._over.is_set():
                failure = _failure(message)
                break
            if message["kind"] == "over":
                self._over.set()
            if message["kind"] != "alive":
                peer.inbox.put(message)
        else:
            if peer.silent:
                reason = f"gave no sign of life for {SILENCE_S:.0f} s; it or its network hangs"
                failure = dataclasses.replace(failure, reason=reason)
        if not self._over.is_set():
            self._fail(failure)


def listen(port: int, count: int, host: str, timeout_s: float) -> list[Peer]:
    """Waits on process 0 until all others have connected.

    Raises:
      AssayError: the port cannot be used.
      ProcessError: a process did not connect in time, was started twice, or belongs to a command
        with another number of processes.
    """
    try:
        server = _server(port)
    except OSError as error:
        raise AssayError(
            f"port {port}, 10,000 from the coordinator's: {error.strerror}; "
            "allowed: a coordinator whose two ports are free"
        ) from error
    deadline, peers = time.monotonic() + timeout_s, dict[int, Peer]()
    with server:
        while len(peers) < count - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = [str(i) for i in range(1, count) if i not in peers]
                reason = f"did not come within {timeout_s:g} s"
                if len(missing) > 1:
                    reason += f", nor did {', '.join(missing[1:])}"
                failure = Failure(
                    index=int(missing[0]), of=count, host="", reason=reason, code=LOST
                )
                raise _refused(peers, failure) from None
            _greet(connection, count, peers)
    hosts = [host, *(peers[i].host for i in range(1, count))]
    every = [peers[i] for i in range(1, count)]
    for peer in every:
        peer.send({"kind": "welcome", "hosts": hosts})
    return every


def connect(
    address: str, port: int, index: int, count: int, host: str, timeout_s: float
) -> tuple[Peer, list[str]]:
    """Connects a process to process 0, which may start later.

    Returns:
      The connection, and every process's host.

    Raises:
      ProcessError: process 0 did not answer in time, or refused this process.
    """
    deadline = time.monotonic() + timeout_s
    reason = f"does not answer at {address}, port {port}, within {timeout_s:g} s"

    def lost(reason: str) -> Failure:
        return Failure(index=0, of=count, host=address, reason=reason, code=LOST)

    while True:
        try:
            connection = socket.create_connection((address, port), timeout=5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                reason = f"{reason} ({error.strerror or error})"
                raise ProcessError(lost(reason)) from error
            time.sleep(0.2)
    peer = Peer(connection, 0, address)
    peer.send({"kind": "hello", "index": index, "count": count, "host": host})
    connection.settimeout(max(0.01, deadline - time.monotonic()) + SILENCE_S)  # for the others
    message = peer.read()
    connection.settimeout(SILENCE_S)
    if message and message["kind"] == "welcome":
        peer.host = message["hosts"][0]
        return peer, message["hosts"]
    if message and message["kind"] == "failed":
        raise ProcessError(_failure(message))
    raise ProcessError(lost("ended while the processes joined"))


def _message(failure: Failure) -> Message:
    return {"kind": "failed", **dataclasses.asdict(failure)}


def _failure(message: Message) -> Failure:
    return Failure(**{key: value for key, value in message.items() if key != "kind"})


def _greet(connection: socket.socket, count: int, peers: dict[int, Peer]) -> None:
    """Adds a process that says which one it is; a stranger's connection is closed."""
    connection.settimeout(5)
    peer = Peer(connection, -1, "")
    connection.settimeout(5)
    hello = peer.read(_HELLO_BYTES)
    if not hello or set(hello) != {"kind", "index", "count", "host"} or hello["kind"] != "hello":
        peer.close()
        return
    peer.index, peer.host = hello["index"], str(hello["host"])
    connection.settimeout(SILENCE_S)
    wrong = ""
    if hello["count"] != count:
        wrong = f"was started as one of {hello['count']} processes, process 0 as one of {count}"
    elif peer.index not in range(1, count) or peer.index in peers:
        wrong = "was started twice"
    if wrong:
        failure = Failure(index=peer.index, of=count, host=peer.host, reason=wrong, code=REFUSED)
        peer.send(_message(failure))
        raise _refused(peers, failure)
    peers[peer.index] = peer


def _refused(peers: dict[int, Peer], failure: Failure) -> ProcessError:
    """Tells the processes that have connected already."""
    for peer in peers.values():
        peer.send(_message(failure))
        peer.finish_sending()
    return ProcessError(failure)


def _server(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # no IPv6 on this host, or the port is taken
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
            )
    return socket.create_server(("", port), backlog=1024)
