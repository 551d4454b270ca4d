"""The page's server: uvicorn in a thread, on this machine alone unless told otherwise."""

import ipaddress
import secrets
import socket
import threading
import time

import uvicorn

from engine.errors import AssayError
from launch.common.text import say
from launch.serving import app
from launch.serving.explorer import Explorer

_STARTS_S = 10.0
_CONNECTIONS = 256  # more than computations: a page has several, and some have sent no request yet


class Server:
    """A running page.

    Args:
      explorer: what answers; its desk is closed with the server.
      bound: where it listens: `bind`.
      host: the address that it was bound to.
    """

    def __str__(self) -> str:  # in what `assay serve --json` prints
        return self.address

    def __init__(self, explorer: Explorer, bound: socket.socket, host: str = "127.0.0.1"):
        self.explorer, self.token = explorer, secrets.token_urlsafe(24)
        self._socket, self._host = bound, host
        self.port: int = bound.getsockname()[1]
        guard = app.Guard(app.build(explorer), self.token, _names(host))
        config = uvicorn.Config(
            guard,
            http="h11",
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
    say(
        f"serve: --host={host}: whoever reaches this machine and knows the address may use the "
        "model; nothing is encrypted"
    )
    return (*app.LOCAL, host.lower(), socket.gethostname().lower(), "")
