"""A server on the loopback that speaks the protocol of the Hugging Face Hub, and can misbehave.

It answers what `huggingface_hub` asks when it downloads: revisions, listings of files, metadata of
files, and their bytes. Small files are redirected on the same host, large ones to a second server
with a signed URL, as by the hub, and ranges are served.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIGNATURE = "X-Signature=only-for-the-client"
_LARGE = re.compile(r"\.(safetensors|bin|pt)$")  # kept as LFS files


@dataclasses.dataclass
class Repository:
    commits: dict[str, dict[str, bytes]]  # commit -> path -> content
    names: dict[str, str]  # branch or tag -> commit
    gated: int = 0  # status of a gated repository's files


class Hub:
    """The repositories, the paths that were requested, and what is to go wrong."""

    def __init__(self):
        self.url = self.content_url = ""
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.broken: list[tuple[str, int]] = []  # pattern of requests -> bytes that they get

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

    def breaks(self, pattern: str, after: int) -> None:
        """Connections of requests `METHOD path` that match the pattern end after some bytes."""
        self.broken.append((pattern, after))

    def end_of(self, request: str) -> int | None:
        return next((end for pattern, end in self.broken if re.search(pattern, request)), None)

    def downloads(self, name: str) -> list[str]:
        """Requests for the content of a large file of some repository."""
        commits = [files for r in self.repositories.values() for files in r.commits.values()]
        hashes = {sha256(files[name]) for files in commits if name in files}
        return [path for path in self.requests if any(path.startswith(f"/{h}") for h in hashes)]


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
        self.do_GET()

    def do_GET(self) -> None:
        if not re.fullmatch(r"bytes=\d+-\d+", self.headers.get("Range", "")):  # of headers
            self.hub.requests.append(self.path)
        self.serve(self.path.split("?")[0], self.hub.end_of(f"{self.command} {self.path}"))

    def log_message(self, format, *arguments) -> None:  # its name in the base class
        pass

    def serve(self, path: str, end: int | None) -> None:
        raise NotImplementedError

    def answer(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        end: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[:end])
        self.close_connection |= end is not None and end < len(content)

    def error(self, status: int, code: str, message: str = "") -> None:
        self.answer(status, {"X-Error-Code": code, "X-Error-Message": message or code})


class _Answers(_Handler):
    """The hub itself."""

    def serve(self, path: str, end: int | None) -> None:
        if found := re.fullmatch("/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            name, what, revision = map(urllib.parse.unquote, found.groups())
        elif found := re.fullmatch("/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, what = map(urllib.parse.unquote, found.groups())
        elif found := re.fullmatch("/api/resolve-cache/models/([^/]+/[^/]+)/([^/]+)/(.+)", path):
            name, commit, what = found.groups()
            content = self.hub.repositories[name].commits[commit][what]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{_sha1(content)}"'}
            return self.answer(200, headers, content, end)
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
            return self._json([self._row(*file) for file in repository.commits[commit].items()])
        self._file(name, repository, commit, what)

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
        size, digest = len(content), sha256(content)
        headers |= {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{digest}"'}
        headers["Location"] = f"{self.hub.content_url}/{digest}?{SIGNATURE}"
        self.answer(302, headers)

    def _json(self, value: object) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


class _Content(_Handler):
    """The host of large files, which knows them by hash and takes signed URLs alone."""

    def serve(self, path: str, end: int | None) -> None:
        commits = [files for r in self.hub.repositories.values() for files in r.commits.values()]
        contents = {sha256(c): c for files in commits for c in files.values()}
        content = contents.get(path.strip("/"))
        if content is None or not self.path.endswith(SIGNATURE):
            return self.answer(403)
        if not (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))):
            return self.answer(200, {}, content, end)
        piece = content[int(wanted[1]) : int(wanted[2] or len(content)) + 1]
        place = f"bytes {wanted[1]}-{int(wanted[1]) + len(piece) - 1}/{len(content)}"
        self.answer(206, {"Content-Range": place}, piece, end)


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
