"""A real S3 server on this machine."""

import contextlib
from collections.abc import Iterator

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "assay-tests"
KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # nothing but the keys above
}


class Store:
    """The objects of a bucket."""

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
            self._s3.delete_object(Bucket=BUCKET, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def objects(self, folder: str) -> dict[str, bytes]:
        """Path below a folder -> bytes."""
        keys = self.keys(f"{folder}/")
        return {key.removeprefix(f"{folder}/"): self._read(key) for key in keys}

    def _read(self, key: str) -> bytes:
        return self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


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
