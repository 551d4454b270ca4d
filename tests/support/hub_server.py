"""A server on the loopback that speaks the protocol of the Hugging Face Hub, and can misbehave.

It answers what `huggingface_hub` asks when it downloads: revisions, listings of files in pages,
metadata of files, and their bytes. Small files are redirected on the same host, large ones to a
second server with a signed URL, as by the hub, and ranges are served. Its faults are real ones:
connections that end in the middle, other bytes than announced, statuses with their headers.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIGNATURE = "X-Signature=only-for-the-client"
_LARGE = re.compile(r"\.(safetensors|bin|pt)$")  # kept as LFS files
_PAGE = 3  # files of one page of a listing


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    path: str
    range: str
    authorization: str


@dataclasses.dataclass
class Fault:
    """What a request meets instead of its answer, `times` times.

    status, headers: of an answer without content; 0: the true answer, but damaged.
    after: bytes of the content after which the connection ends.
    reset: whether it ends with a reset.
    pause: seconds before an answer, or before each piece of the content.
    """

    times: int
    status: int = 0
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after: int | None = None
    reset: bool = False
    pause: float = 0.0


@dataclasses.dataclass
class Repository:
    commits: dict[str, dict[str, bytes]]  # commit -> path -> content
    names: dict[str, str]  # branch or tag -> commit
    gated: int = 0  # status of a gated repository's files


class Hub:
    """The repositories, what was asked for, and what is to go wrong."""

    def __init__(self):
        self.url = self.content_url = ""
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.stated: dict[str, int] = {}  # path -> size that is announced instead of the true one
        self.served: dict[str, bytes] = {}  # sha256 -> content that is served instead
        self._faults: list[tuple[re.Pattern, Fault]] = []
        self._lock = threading.Lock()

    def add(self, name: str, folder: Path, branch: str = "main") -> str:
        """Commits the files of a folder to a branch; returns the commit."""
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        repository = self.repositories.setdefault(name, Repository({}, {}))
        described = [name, branch, {path: _sha1(content) for path, content in files.items()}]
        commit = hashlib.sha1(repr(described).encode()).hexdigest()
        repository.commits[commit] = files
        repository.names[branch] = commit
        return commit

    def fails(self, pattern: str, times: int = 10**9, **fault) -> None:
        """Requests `METHOD path` that match the pattern meet a `Fault`."""
        self._faults.append((re.compile(pattern), Fault(times, **fault)))

    def forget(self) -> None:
        """No more faults."""
        self._faults.clear()

    def fault_of(self, request: str) -> Fault | None:
        with self._lock:
            for pattern, fault in self._faults:
                if fault.times and pattern.search(request):
                    fault.times -= 1
                    return fault
        return None

    def downloads(self, name: str) -> list[Asked]:
        """Requests for the content of a large file of some repository."""
        every = [files for r in self.repositories.values() for files in r.commits.values()]
        hashes = {sha256(files[name]) for files in every if name in files}
        return [one for one in self.asked if any(one.path.startswith(f"/{h}") for h in hashes)]


@contextlib.contextmanager
def running() -> Iterator[Hub]:
    """Both servers, until the end of the block."""
    hub = Hub()
    with contextlib.ExitStack() as stack:
        hub.url = stack.enter_context(_serving(_handler(hub, _Answers)))
        hub.content_url = stack.enter_context(_serving(_handler(hub, _Content)))
        yield hub


def point(monkeypatch, hub: Hub, cache: Path) -> None:
    """Makes `huggingface_hub` of this process use a server, with an empty cache and no login.

    The tests run offline, so its constants, which it reads from the environment once, are changed.
    """
    import huggingface_hub
    from huggingface_hub import constants

    huggingface_hub.close_session()
    values = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_TOKEN_PATH": str(cache / "no-token"),
    }
    for name, value in values.items():
        monkeypatch.setattr(constants, name, value)
    for name, value in environment(hub, cache).items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def environment(hub: Hub, cache: Path) -> dict[str, str]:
    """The same for another process."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(cache.parent / "hf-home"),
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that went away
            super().handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def log_message(self, format, *arguments) -> None:  # its name in the base class
        pass

    def _handle(self) -> None:
        headers = self.headers
        asked = Asked(
            self.command, self.path, headers.get("Range", ""), headers.get("Authorization", "")
        )
        self.hub.asked.append(asked)
        fault = self.hub.fault_of(f"{self.command} {self.path}")
        if fault and fault.status:
            time.sleep(fault.pause)
            self.answer(fault.status, fault.headers)
        else:
            self.serve(self.path.split("?")[0], fault)

    def serve(self, path: str, fault: Fault | None) -> None:
        raise NotImplementedError

    def answer(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        fault: Fault | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(content) if fault is None or fault.after is None else fault.after
        for start in range(0, end, 2**16):
            if fault and fault.pause:
                time.sleep(fault.pause)
            self.wfile.write(content[start : min(start + 2**16, end)])
        if end < len(content):
            if fault and fault.reset:
                time.sleep(0.05)  # a reset discards what has not been read yet
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                os.close(self.connection.detach())
            self.close_connection = True

    def error(self, status: int, code: str, message: str = "") -> None:
        self.answer(status, {"X-Error-Code": code, "X-Error-Message": message or code})


class _Answers(_Handler):
    """The hub itself."""

    def serve(self, path: str, fault: Fault | None) -> None:
        if found := re.fullmatch("/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            name, what, revision = map(urllib.parse.unquote, found.groups())
        elif found := re.fullmatch("/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, what = map(urllib.parse.unquote, found.groups())
        elif found := re.fullmatch("/api/resolve-cache/models/([^/]+/[^/]+)/([^/]+)/(.+)", path):
            name, commit, what = found.groups()
            return self._small(name, commit, what, fault)
        else:
            return self.error(404, "RepoNotFound")
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self.error(401, "RepoNotFound", "Invalid username or password.")
        commit = repository.names.get(revision, revision)
        if commit not in repository.commits:
            return self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if what == "revision":
            return self._json({"id": name, "sha": commit, "siblings": []})
        if what == "tree":
            return self._tree(path, repository.commits[commit])
        self._file(name, repository, commit, what)

    def _tree(self, path: str, files: Mapping[str, bytes]) -> None:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        start = int(query.get("cursor", ["0"])[0])
        rows = [self._row(name, content) for name, content in files.items()]
        after = start + _PAGE
        link = f'<{self.hub.url}{path}?recursive=true&cursor={after}>; rel="next"'
        self._json(rows[start:after], {"Link": link} if after < len(rows) else {})

    def _row(self, name: str, content: bytes) -> dict:
        row = {"type": "file", "path": name, "size": len(content), "oid": _sha1(content)}
        if _LARGE.search(name):
            row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return row

    def _file(self, name: str, repository: Repository, commit: str, path: str) -> None:
        if repository.gated:
            message = f"Access to model {name} is restricted."
            return self.error(repository.gated, "GatedRepo", message)
        content = repository.commits[commit].get(path)
        if content is None:
            return self.error(404, "EntryNotFound")
        headers = {"X-Repo-Commit": commit}
        if not _LARGE.search(path):
            headers["Location"] = f"/api/resolve-cache/models/{name}/{commit}/{path}"
            return self.answer(307, headers)
        size = self.hub.stated.get(path, len(content))
        headers |= {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{sha256(content)}"'}
        headers["Location"] = f"{self.hub.content_url}/{sha256(content)}?{SIGNATURE}"
        self.answer(302, headers)

    def _small(self, name: str, commit: str, path: str, fault: Fault | None) -> None:
        content = self.hub.repositories[name].commits[commit][path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_sha1(content)}"'}
        self.answer(200, headers, content, fault)

    def _json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json"}
        self.answer(200, {**kind, **(headers or {})}, json.dumps(value).encode())


class _Content(_Handler):
    """The host of large files, which knows them by hash and takes signed URLs alone."""

    def serve(self, path: str, fault: Fault | None) -> None:
        every = [files for r in self.hub.repositories.values() for files in r.commits.values()]
        contents = {sha256(c): c for files in every for c in files.values()} | self.hub.served
        content = contents.get(path.strip("/"))
        if content is None or not self.path.endswith(SIGNATURE):
            return self.answer(403)
        if not (wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
            return self.answer(200, {}, content, fault)
        start = int(wanted[1])
        place = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.answer(206, {"Content-Range": place}, content[start:], fault)


def _handler(hub: Hub, kind: type[_Handler]) -> type[_Handler]:
    return type(kind.__name__, (kind,), {"hub": hub})


@contextlib.contextmanager
def _serving(handler: Callable) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git does


def sha256(content: bytes) -> str:
    """What the hub names a large file by."""
    return hashlib.sha256(content).hexdigest()
