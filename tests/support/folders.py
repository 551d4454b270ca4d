"""Folders: of models, converted as the command does it; damaged; and what is in them."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy


def convert(
    folder: Path,
    destination: Path,
    slug: str = "tiny",
    *,
    bos: str = "template",
    date: str | None = None,
    **options,
) -> Checkpoint:
    """The conversion of a Hugging Face folder; `options` are those of `convert_model`."""
    policy = TemplatePolicy(bos=bos, date=date)
    source = fetch(str(folder), None)
    return convert_model(source, destination, slug=slug, policy=policy, **options)


def edit_json(path: Path, remove: Sequence[str] = (), **changes) -> None:
    """Changes fields of a JSON file."""
    fields = json.loads(path.read_text())
    kept = {name: value for name, value in fields.items() if name not in remove}
    path.write_text(json.dumps({**kept, **changes}))


@contextlib.contextmanager
def flipped(path: Path, position: int) -> Iterator[None]:
    """One bit of a file is the other way round."""
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[position] ^= 1 << position % 8
    path.write_bytes(damaged)
    try:
        yield
    finally:
        path.write_bytes(data)


def files_of(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """Path below a folder -> bytes of every file whose name matches."""
    found = (path for path in sorted(folder.rglob(pattern)) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
