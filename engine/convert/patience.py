"""How the hub's HTTP client waits for a hub that is busy, out of reach or hangs."""

import contextlib
import datetime
import email.utils
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # not in its __all__

# Waited for one answer at most; the hub counts requests in windows of five minutes.
LONGEST_S = 600.0
_FIRST_S, _LAST_S = 1.0, 30.0  # of waits whose length the hub does not say
_MARGIN_S = 1.0  # beyond what the hub asks for, which it counts in whole seconds
_SILENT_S = 60.0  # a request without an answer, where the client states no limit
_BUSY = {
    408: "request timeout",
    429: "too many requests",
    500: "internal error",
    502: "bad gateway",
    503: "unavailable",
    504: "gateway timeout",
}


class GaveUp(OfflineModeIsEnabled):
    """No answer. What is in its cache the hub's client then takes from there, as if offline."""


class Patience:
    """Sends requests again that the hub was too busy for, with one line for each wait."""

    def __init__(self, source: str, tell: Callable[[str], None]):
        """Has not waited yet.

        Args:
          source: hub id, with which lines begin.
          tell: prints a line.
        """
        self._tell = tell
        self.stopped = threading.Event()  # ends every wait and every download
        self._source = source
        self._answered = False  # whether there was any answer
        self._told_until = 0.0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, client: httpx2.Client) -> Iterator[None]:
        """Waits on behalf of a client, which has its own proxies and certificates."""
        send = client.send

        def patient(request: httpx2.Request, **options: Any) -> httpx2.Response:
            return self._send(send, request, options)

        client.send = patient  # type: ignore[method-assign]  # for a while, on this client alone
        try:
            yield
        finally:
            client.send = send  # type: ignore[method-assign]  # as it was

    def _send(
        self,
        send: Callable[..., httpx2.Response],
        request: httpx2.Request,
        options: Mapping[str, Any],
    ) -> httpx2.Response:
        """The answer that is no request to wait.

        Raises:
          GaveUp: there is none.
        """
        limits = request.extensions.setdefault("timeout", {})
        for phase in ("connect", "read", "write", "pool"):
            limits[phase] = limits.get(phase) or _SILENT_S
        began, wait = time.monotonic(), _FIRST_S
        while True:
            self._check()
            try:
                response = send(request, **options)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                reason, asked = f"cannot be reached ({error or 'no answer'})", None
                if not self._answered:
                    raise GaveUp(_unreachable(request, reason)) from error
            else:
                self._answered = True
                if response.status_code not in _BUSY:
                    response.stream = _Stream(response.stream, self._check)
                    return response
                response.close()
                status = response.status_code
                reason = f"answers {status}, {_BUSY[status]}"
                asked = _asked(response.headers)
            seconds = wait if asked is None else asked
            if time.monotonic() - began + seconds > LONGEST_S:
                at_least = "" if asked is None else f" and asks to wait {asked:,.0f} s"
                raise GaveUp(
                    f"the hub {reason}{at_least}; run it again later, complete files are kept"
                )
            self._tell_once(reason, seconds)
            self.stopped.wait(seconds)
            wait = min(2 * wait, _LAST_S)

    def _check(self) -> None:
        if self.stopped.is_set():
            raise GaveUp("the download was stopped; run it again, complete files are kept")

    def _tell_once(self, reason: str, seconds: float) -> None:
        """Prints the wait, once where several files wait at the same time."""
        with self._lock:
            now = time.monotonic()
            if now < self._told_until:
                return
            self._told_until = now + seconds
        self._tell(
            f"{self._source}: the hub {reason}; trying again in {seconds:,.0f} s, "
            f"for at most {LONGEST_S / 60:,.0f} min"
        )


class _Stream(httpx2.SyncByteStream):
    """A body that can be stopped, and whose client sees every lost connection as one to resume."""

    def __init__(self, stream: Any, check: Callable[[], None]):
        self._stream = stream
        self._check = check

    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._stream:
                self._check()
                yield part
        except httpx2.NetworkError as error:  # a reset, for one, which it does not resume
            raise httpx2.RemoteProtocolError(str(error) or "connection lost") from error

    def close(self) -> None:
        self._stream.close()


def without_query(text: str) -> str:
    """A text whose URLs lost what follows `?`: signatures, which nobody else may see."""
    return re.sub(r"(https?://[^\s?]+)\?[^\s'\")]*?([:.,]?(?:[\s'\")]|$))", r"\1\2", text)


def _unreachable(request: httpx2.Request, reason: str) -> str:
    place = f"{request.url.scheme}://{request.url.netloc.decode()}"
    return (
        f"{place} {reason}, and the hub's cache does not hold the model; check the network and "
        "HF_ENDPOINT, or name an existing folder"
    )


def _asked(headers: Mapping[str, str]) -> float | None:
    """Seconds that the hub asks to wait; None where it does not say."""
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds + _MARGIN_S
    text = headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text) + _MARGIN_S
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(text)
        now = datetime.datetime.now(date.tzinfo)
        return max((date - now).total_seconds(), 0.0) + _MARGIN_S
    return None
