"""The page over HTTP: who may ask, and what is asked, as Starlette routes and server-sent events.

A computation belongs to the request that asked for it: its events are the body of the response, and
when the connection ends, so does the computation.
"""

import asyncio
import functools
import hmac
import ipaddress
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import analysis
from engine.errors import AssayError
from launch.common.text import one_line, say
from launch.serving import requests
from launch.serving.desk import Job
from launch.serving.explorer import Explorer

Work = Callable[[Job], object]
Works = tuple[Work | None, Work | None]  # what is short, and what waits in the queue

TOKEN = "x-assay-token"  # header of every request behind the page itself
LOCAL = ("localhost", "127.0.0.1", "::1")
_PAGE = Path(__file__).parent / "page"
_REPORT = Path(analysis.__file__).parent / "report" / "templates"
_FILES = {
    "serve.js": _PAGE / "serve.js",
    "serve.css": _PAGE / "serve.css",
    "style.css": _REPORT / "style.css",
    "explorer-text.js": _REPORT / "explorer-text.js",
    "explorer-table.js": _REPORT / "explorer-table.js",
}
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Refuses requests without the token, of other pages, or under another name of this machine.

    Args:
      app: what answers the others.
      token: in the address of the page, then in a header.
      names: of this machine, as a Host header may say them; an empty one: any address, no name, so
        that no other site's name can be made to mean this machine.
    """

    def __init__(self, app: ASGIApp, token: str, names: tuple[str, ...]):
        self._app, self._token, self._names = app, token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, with headers that keep the page to itself."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
            await send(message)

        why = self._refusal(scope)
        app = _error(403, why) if why else self._app
        try:
            await app(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass  # while its request was read
        except Exception as error:  # Starlette has answered with status 500; the server lives on
            say(f"serve: {one_line(error)}")

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; "" if it is not."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return "Host: not a name of this machine"
        if origin is not None and origin != f"http://{host}":
            return "Origin: another page"
        given = headers.get(TOKEN, "")
        if scope["path"] == "/":
            given = QueryParams(scope["query_string"]).get("token", "")
        elif not scope["path"].startswith("/api/"):
            return ""  # the page's scripts and styles, which are published
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return "token: missing or wrong; open the address that the command printed"
        return ""

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in self._names:
            return True
        try:
            return "" in self._names and bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def build(explorer: Explorer) -> Starlette:
    """The routes; `Guard` decides who reaches them."""

    async def page(request: Request) -> Response:
        return FileResponse(_PAGE / "serve.html", media_type="text/html; charset=utf-8")

    async def file(request: Request) -> Response:
        path = _FILES.get(request.path_params["name"])
        return _error(404, "no such file") if path is None else FileResponse(path)

    async def about(request: Request) -> Response:
        return JSONResponse(explorer.about)

    async def tokens(request: Request) -> Response:
        number = request.path_params["model"]
        if number not in map(str, range(len(explorer.models))):
            return _error(404, "no such model")
        return JSONResponse(explorer.tokens(int(number)))

    def asked(read: Callable[[requests.Fields], Works]) -> Any:
        """A route whose request names a computation: `read` checks it and says what to do."""

        async def answer(request: Request) -> Response:
            try:
                return await _stream(explorer, *read(requests.parse(await _body(request))))
            except AssayError as error:
                return _error(400, str(error))

        return answer

    def rank(fields: requests.Fields) -> Works:
        question = requests.question(fields, len(explorer.models))
        first = functools.partial(explorer.first_words, question=question)
        return first, functools.partial(explorer.rank, question=question)

    def reply(fields: requests.Fields) -> Works:
        question = requests.question(fields, len(explorer.models), "replies")
        texts = requests.replies(fields)
        return functools.partial(explorer.reply, question=question, replies=texts), None

    def running(fields: requests.Fields) -> Works:
        question = requests.question(fields, len(explorer.models), "reply")
        text = requests.text(fields, "reply")
        return functools.partial(explorer.running, question=question, reply=text), None

    def search(fields: requests.Fields) -> Works:
        names = ("direction", "length", "steps", "topk")
        question = requests.question(fields, len(explorer.models), *names)
        settings = requests.search(fields)
        return None, functools.partial(explorer.search, question=question, given=settings)

    def keep(fields: requests.Fields) -> Works:
        requests.only(fields, "answer")
        number = requests.whole(fields, "answer", 0, 1, 2**53)
        return None, functools.partial(explorer.keep, answer=number)

    works = {"rank": rank, "reply": reply, "running": running, "search": search, "keep": keep}
    routes = [
        Route("/", page),
        Route("/static/{name}", file),
        Route("/api/about", about),
        Route("/api/tokens/{model}", tokens),
    ]
    for name, read in works.items():
        routes.append(Route(f"/api/{name}", asked(read), methods=["POST"]))
    return Starlette(routes=routes)


async def _body(request: Request) -> bytes:
    """The body of a request; raises AssayError for one that is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > requests.BODY:
            raise AssayError(f"request: allowed: {requests.BODY:,} bytes")
    return body


async def _stream(explorer: Explorer, first: Work | None, work: Work | None) -> StreamingResponse:
    """Puts a computation into the queue; the response is its events, until either ends."""
    events: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(event: str, data: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(events.put_nowait, (event, data))

    job = Job(work, tell, first=first)
    explorer.desk.enter(job)

    async def lines() -> AsyncIterator[str]:
        event = ""
        while event != "end":
            event, data = await events.get()
            yield f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n"

    class Events(StreamingResponse):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await super().__call__(scope, receive, send)
            finally:  # the reader may be gone before the first line
                explorer.desk.leave(job)

    return Events(lines(), media_type="text/event-stream")


def _error(status: int, line: str) -> JSONResponse:
    return JSONResponse({"error": line}, status_code=status)
