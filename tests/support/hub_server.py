"""A server on the loopback that speaks the protocol of the Hugging Face Hub, and can misbehave.

It answers what `huggingface_hub` asks when it downloads: revisions, listings of files, metadata of
files, and their bytes. Large files are redirected to a host of another name with a signed URL,
as by the hub, and ranges are served.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.folders import files_of

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
        self.url = ""
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.broken: list[tuple[str, int]] = []  # pattern of requests -> bytes that they get

    def add(self, name: str, folder: Path, branch: str = "main") -> str:
        """Commits the files of a folder to a branch; returns the commit."""
        files = files_of(folder)
        repository = self.repositories.setdefault(name, Repository({}, {}))
        described = [name, branch, {path: _sha1(content) for path, content in files.items()}]
        commit = hashlib.sha1(repr(described).encode()).hexdigest()
        repository.commits[commit] = files
        repository.names[branch] = commit
        return commit

    def breaks(self, pattern: str, after: int) -> None:
        """Connections of requests `METHOD path` that match the pattern end after some bytes."""
        self.broken.append((pattern, after))

    def files(self) -> list[tuple[str, bytes]]:
        """Path and content of every file of every commit."""
        commits = [files for r in self.repositories.values() for files in r.commits.values()]
        return [file for files in commits for file in files.items()]

    def downloads(self, name: str) -> list[str]:
        """Requests for the content of a large file of some repository."""
        hashes = tuple(f"/{sha256(content)}" for path, content in self.files() if path == name)
        return [path for path in self.requests if path.startswith(hashes)]


@contextlib.contextmanager
def running() -> Iterator[Hub]:
    """The server, until the end of the block."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Answers,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


class _Answers(BaseHTTPRequestHandler):
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
        request, broken = f"{self.command} {self.path}", self.hub.broken
        end = next((end for pattern, end in broken if re.search(pattern, request)), None)
        self._serve(self.path.split("?")[0], end)

    def log_message(self, format, *arguments) -> None:  # its name in the base class
        pass

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

    def _serve(self, path: str, end: int | None) -> None:
        if re.fullmatch("/[0-9a-f]{64}", path):
            return self._content(path.strip("/"), end)
        if found := re.fullmatch("/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            name, what, revision = map(urllib.parse.unquote, found.groups())
        elif found := re.fullmatch("/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, what = map(urllib.parse.unquote, found.groups())
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
        self._file(name, repository, commit, what, end)

    def _row(self, name: str, content: bytes) -> dict:
        row = {"type": "file", "path": name, "size": len(content), "oid": _sha1(content)}
        if _LARGE.search(name):
            row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return row

    def _file(
        self, name: str, repository: Repository, commit: str, path: str, end: int | None
    ) -> None:
        if repository.gated:
            message = f"Access to model {name} is restricted."
            return self.error(repository.gated, "GatedRepo", message)
        content = repository.commits[commit].get(path)
        if content is None:
            return self.error(404, "EntryNotFound")
        headers = {"X-Repo-Commit": commit}
        if not _LARGE.search(path):
            return self.answer(200, {**headers, "ETag": f'"{_sha1(content)}"'}, content, end)
        elsewhere = self.hub.url.replace("127.0.0.1", "localhost")
        size, digest = len(content), sha256(content)
        headers |= {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{digest}"'}
        headers["Location"] = f"{elsewhere}/{digest}?{SIGNATURE}"
        self.answer(302, headers)

    def _json(self, value: object) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _content(self, digest: str, end: int | None) -> None:
        """A large file, by its hash and signed URL alone."""
        content = next((c for _, c in self.hub.files() if sha256(c) == digest), None)
        if content is None or not self.path.endswith(SIGNATURE):
            return self.answer(403)
        if not (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))):
            return self.answer(200, {}, content, end)
        piece = content[int(wanted[1]) : int(wanted[2] or len(content)) + 1]
        place = f"bytes {wanted[1]}-{int(wanted[1]) + len(piece) - 1}/{len(content)}"
        self.answer(206, {"Content-Range": place}, piece, end)


def _sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git does


def sha256(content: bytes) -> str:
    """What the hub names a large file by."""
    return hashlib.sha256(content).hexdigest()
