"""A real S3 server on this machine, and a second door to it that fails as stores do."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app
from werkzeug.wsgi import get_input_stream

_S3 = DomainDispatcherApplication(create_backend_app)
BUCKET = "assay-tests"
KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # nothing but the keys above
}


@dataclasses.dataclass(frozen=True)
class Request:
    """What a fault is decided by."""

    number: int  # from 1
    method: str
    path: str


@dataclasses.dataclass(frozen=True)
class Fault:
    """What the proxy does instead of passing the server's answer on.

    Attributes:
      status: of the answer; 0 closes the connection without one.
      code: of S3, in the body of the answer.
      after: whether the request reaches the server, so that only its answer is lost.
      hangs: whether no answer comes, and the connection stays.
    """

    status: int = 0
    code: str = ""
    after: bool = False
    hangs: bool = False


SLOW_DOWN = Fault(503, "SlowDown")
CUT = Fault()
CUT_AFTER = Fault(after=True)
HANG = Fault(hangs=True)
EXPIRED = Fault(403, "ExpiredToken")
DENIED = Fault(403, "AccessDenied")

Faults = Callable[[Request], Fault | None]
Start = Callable[..., Any]  # of WSGI


class Store:
    """The server's objects, seen past the proxy."""

    def __init__(self, url: str):
        self.url = url
        self._s3 = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )

    def empty(self) -> None:
        """Makes the bucket, without objects."""
        self._s3.create_bucket(Bucket=BUCKET)
        for key in self.keys():
            self.delete(key)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def objects(self, folder: str) -> dict[str, bytes]:
        """Path below a folder -> bytes."""
        keys = self.keys(f"{folder}/")
        return {key.removeprefix(f"{folder}/"): self.read(key) for key in keys}

    def read(self, key: str) -> bytes:
        return self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._s3.delete_object(Bucket=BUCKET, Key=key)

    def upload(self, folder: Path, prefix: str) -> None:
        for path in Path(folder).rglob("*"):
            if path.is_file():
                self.write(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def uploads(self) -> list[str]:
        """Keys of uploads in several parts that were neither completed nor aborted."""
        found = self._s3.list_multipart_uploads(Bucket=BUCKET)
        return [upload["Key"] for upload in found.get("Uploads", ())]


@contextlib.contextmanager
def serving() -> Iterator[Store]:
    """Starts the server, on a port of its own."""
    with _serving(_S3) as url:
        yield Store(url)


class Proxy:
    """The same server behind another port; `faults` says which requests fail, and how."""

    def __init__(self) -> None:
        self.url = ""
        self.faults: Faults = lambda request: None
        self.requests: list[Request] = []
        self._lock, self._closed = threading.Lock(), threading.Event()

    @classmethod
    @contextlib.contextmanager
    def serving(cls) -> Iterator["Proxy"]:
        """Starts it."""
        proxy = cls()
        with _serving(proxy) as proxy.url:
            yield proxy
            proxy._closed.set()

    def __call__(self, environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        """Answers a request, as a WSGI application."""
        method = environ["REQUEST_METHOD"]
        fault = self._decide(method, environ["RAW_URI"])
        if fault is None:
            return _S3(environ, start_response)
        if fault.status:
            get_input_stream(environ).read()
            code = f"<Code>{fault.code}</Code><Message>{fault.code}</Message>"
            text = f"<Error>{code}</Error>".encode()
            length = ("Content-Length", str(len(text)))
            start_response(f"{fault.status} x", [("Content-Type", "application/xml"), length])
            return [] if method == "HEAD" else [text]
        if fault.after:
            run_wsgi_app(_S3, environ, buffered=True)
        self._closed.wait(60 if fault.hangs else 0)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

    def _decide(self, method: str, path: str) -> Fault | None:
        with self._lock:
            request = Request(len(self.requests) + 1, method, path)
            self.requests.append(request)
            return self.faults(request)


@contextlib.contextmanager
def _serving(app: Callable[..., Iterable[bytes]]) -> Iterator[str]:
    """Serves a WSGI application in threads; yields its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
