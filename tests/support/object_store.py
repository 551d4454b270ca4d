"""A real S3 server on this machine, and a proxy in front of it that fails as stores do."""

import contextlib
import dataclasses
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from moto.server import ThreadedMotoServer

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
    """What the proxy does instead of passing the server's answer on."""

    status: int = 0  # of the answer; 0 closes the connection without one
    code: str = ""  # of S3, in the body of the answer
    after: bool = False  # whether the request reaches the server, so that only its answer is lost
    hangs: bool = False  # whether no answer comes, and the connection stays


SLOW_DOWN = Fault(503, "SlowDown")
CUT = Fault()
CUT_AFTER = Fault(after=True)
HANG = Fault(hangs=True)
EXPIRED = Fault(403, "ExpiredToken")
DENIED = Fault(403, "AccessDenied")

Faults = Callable[[Request], Fault | None]


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
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield Store(f"http://{host}:{port}")
    finally:
        server.stop()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client: object) -> None:
        """Says nothing of clients that are gone: they were told to fail."""


class Proxy:
    """Passes requests on to a server; `faults` says which of them fail, and how."""

    def __init__(self, url: str):
        self.faults: Faults = lambda request: None
        self.requests: list[Request] = []
        self._target = urlsplit(url)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                pass

            def handle_any(self) -> None:
                data = _body(self)
                fault = proxy._decide(self.command, self.path)
                if fault is None or fault.after:
                    status, headers, answer = proxy._forward(
                        self.command, self.path, dict(self.headers.items()), data
                    )
                if fault is None:
                    _answer(self, status, headers, answer)
                elif fault.status:
                    code = f"<Code>{fault.code}</Code><Message>{fault.code}</Message>"
                    text = f"<Error>{code}</Error>".encode()
                    _answer(self, fault.status, {"Content-Type": "application/xml"}, text)
                else:
                    proxy._closed.wait(60 if fault.hangs else 0)
                    self.close_connection = True

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

        return Handler

    def _decide(self, method: str, path: str) -> Fault | None:
        with self._lock:
            request = Request(len(self.requests) + 1, method, path)
            self.requests.append(request)
            return self.faults(request)

    def _forward(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {k: v for k, v in headers.items() if k.lower() not in _OF_A_CONNECTION}
        connection = http.client.HTTPConnection(self._target.hostname, self._target.port)
        with contextlib.closing(connection):
            connection.request(method, path, body=data, headers=sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()


_OF_A_CONNECTION = ("connection", "transfer-encoding", "expect", "content-length")


def _body(handler: http.server.BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    data = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        data += handler.rfile.read(size)
        handler.rfile.readline()
    while handler.rfile.readline().strip():  # trailers
        pass
    return data


def _answer(
    handler: http.server.BaseHTTPRequestHandler,
    status: int,
    headers: Mapping[str, str],
    data: bytes,
) -> None:
    with contextlib.suppress(ConnectionError):  # of a client that was killed
        handler.send_response(status)
        for name, value in headers.items():
            if name.lower() not in (*_OF_A_CONNECTION, "date", "server"):
                handler.send_header(name, value)
        lengths = [value for name, value in headers.items() if name.lower() == "content-length"]
        of_head = handler.command == "HEAD" and lengths  # the length of what GET would answer
        handler.send_header("Content-Length", lengths[0] if of_head else str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
