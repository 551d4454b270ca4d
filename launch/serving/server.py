"""The page's server: uvicorn in a thread, on this machine alone unless told otherwise."""

import asyncio
import html
import ipaddress
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence

import h11
import uvicorn
from flax import nnx
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.scoring.reward_passes import RewardScorer
from engine.settings import SweepSettings
from launch.serving import app
from launch.serving.desk import Job
from launch.serving.explorer import Explorer, Model

HOST = "127.0.0.1"
_STARTS_S = 10.0
_REQUEST_S = 10.0  # in which a request must be there, its body too
_CONNECTIONS = 256  # more than computations: a page has several, and some have sent no request yet


class Protocol(H11Protocol):
    """HTTP of uvicorn, with a limit of time for each request: it has none of its own."""

    _late: asyncio.TimerHandle | None = None

    # Wider in the base class; a server of TCP makes no other.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Takes a piece of a request, and waits on where it is not the last one."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # no HTTP, behind a request that was answered already
            self.transport.abort()
        self._wait()

    def _wait(self) -> None:
        waits = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if waits and self._late is None:
            self._late = self.loop.call_later(_REQUEST_S, self.transport.abort)
        elif self._late is not None and not waits:
            self._late.cancel()
            self._late = None


class Server:
    """A running page.

    Args:
      explorer: what answers; its desk is closed with the server.
      bound: where it listens: `bind`.
      host: the address that it was bound to.
      framed: which pages may frame this one: see `app.Guard`.
    """

    def __str__(self) -> str:  # in what `assay serve --json` prints
        return self.address

    def __init__(
        self, explorer: Explorer, bound: socket.socket, host: str = HOST, framed: str = "'none'"
    ):
        self.explorer, self.token = explorer, secrets.token_urlsafe(24)
        self._socket, self._host = bound, host
        self.port: int = bound.getsockname()[1]
        guard = app.Guard(app.build(explorer), self.token, _names(host), framed)
        config = uvicorn.Config(
            guard,
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=[[self._socket]], name="assay-serve", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _STARTS_S
        while not self._uvicorn.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise AssayError(f"{host}:{self.port}: the server did not start")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        anywhere = ipaddress.ip_address(self._socket.getsockname()[0]).is_unspecified
        name = socket.gethostname() if anywhere else self._host
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}/?token={self.token}"

    def wait(self) -> None:
        """Returns when the server has ended; Ctrl-C is raised here."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        """Ends what is being computed, at its next step, and the server."""
        self.explorer.desk.close()
        self._uvicorn.should_exit = True
        self._thread.join(_STARTS_S)
        self._socket.close()

    def _repr_html_(self) -> str:
        """The page in a frame, where a notebook shows this object."""
        address = html.escape(self.address)
        style = "width:100%;height:900px;border:0"
        return f'<iframe src="{address}" style="{style}" title="assay"></iframe>'

    def __repr__(self) -> str:
        return f"Server({self.address})"


def explore(
    loaded: Sequence[tuple[Checkpoint, RewardScorer]], run: str | None, port: int
) -> Server:
    """Serves models that are on devices already, in threads; see `RewardModel.explore`."""
    first = loaded[0][1]
    dtype = nnx.merge(first.graph, first.params).decoder.embedding[...].dtype
    settings = SweepSettings(dtype=str(dtype), step_size=first.step_size)
    explorer = Explorer([Model.of(*pair) for pair in loaded], settings, run)
    explorer.desk.enter(Job(lambda job: explorer.warm_up(), lambda event, data: None))
    return Server(explorer, bind(HOST, port), framed=app.NOTEBOOKS)


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address of this machine; port 0 is any that is free.

    Raises AssayError for an address or a port that cannot be had.
    """
    try:  # it listens at once: a second server must not get the same port while models load
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, dualstack_ipv6=dual_stack)
    except OSError as error:
        reason = (error.strerror or "").partition(" (while")[0]
        raise AssayError(
            f"--host={host} --port={port}: {reason}; allowed: an address of this machine, "
            "and a free port (0: any)"
        ) from error


def _names(host: str) -> tuple[str, ...]:
    """What a Host header may call this machine."""
    if host in app.LOCAL:
        return app.LOCAL
    print(
        f"serve: --host={host}: whoever reaches this machine and knows the address may use the "
        "model; nothing is encrypted",
        file=sys.stderr,
    )
    return (*app.LOCAL, host.lower(), socket.gethostname().lower(), "")
