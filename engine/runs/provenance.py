"""What a file of a run says about itself: what computed it, and a hash of its bytes.

Every Parquet file of a run has a JSON object under the key `KEY` of its metadata; its keys stand in
docs/run-format.md. It holds nothing that may differ between two equal runs, such as times, hosts or
the number of devices: these would change the bytes of the file.
"""

import hashlib
import importlib.metadata
import io
import json
import platform
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from engine.runs import schema
from engine.runs.reader import Json

KEY = "assay"
NAMED = ("models", "prompts", "lists")  # what results refer to by name
VERSION = 1
# Part of every fingerprint, by platform of the devices: raised by one when the same inputs give
# other numbers than before, on the same devices and libraries, if only in their last bits.
# Fingerprints without it count as 1.
NUMERICS = {"cpu": 4, "gpu": 6, "tpu": 5}
_LIBRARIES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy", "polars")
_SEAL = b'"file_sha256": "'  # no text of the object can hold it: JSON would escape its quotes
_ZEROS = b"0" * 64
_END = b"PAR1"  # of every Parquet file that was not cut short
_PATH = re.compile(
    r"(?:items|item_logprobs|conversations|conversation_logprobs)/(?P<list>(?!model=)[^/]+)/"
)


def numerics(backend: str) -> int:
    """The number of `NUMERICS` for a platform as `jax.default_backend` names it."""
    return NUMERICS.get(backend, max(NUMERICS.values()))


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **versions}


def to_parquet(frame: pl.DataFrame, about: Json) -> bytes:
    """The bytes of a Parquet file that says `about` about itself."""
    text = json.dumps({"version": VERSION, **about, "file_sha256": _ZEROS.decode()})
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False, metadata={KEY: text})
    data = buffer.getvalue()
    place = data.rfind(_SEAL) + len(_SEAL)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:place] + digest + data[place + len(digest) :]


def is_whole(data: bytes) -> bool | None:
    """Whether a file's bytes fit the hash that they hold; None for a whole file that holds none."""
    seal = data.rfind(_SEAL)
    if seal < 0:
        return None if data.endswith(_END) else False
    place = seal + len(_SEAL)
    zeroed = data[:place] + _ZEROS + data[place + len(_ZEROS) :]
    return hashlib.sha256(zeroed).hexdigest().encode() == data[place : place + len(_ZEROS)]


def read(data: bytes) -> Json:
    """What a Parquet file that `is_whole` says about itself; of a damaged one, polars may panic."""
    about: Json = json.loads(pl.read_parquet_metadata(io.BytesIO(data))[KEY])
    return about


def of_result(content: Json, path: str, prompts: Sequence[str] = ()) -> Json:
    """What all files of a result say, from the content of a manifest.

    `prompts` are those of a search that judges several; by default the one in the path, if any.
    """
    names = dict(piece.split("=", 1) for piece in path.split("/") if "=" in piece)
    of_list = _PATH.match(path)
    chosen = {
        "models": [names["model"]],
        "prompts": list(prompts) or [names[key] for key in ("prompt",) if key in names],
        "lists": [of_list["list"]] if of_list else [],
    }
    entries = {
        kind: {name: content[kind][name] for name in chosen[kind] if name in content[kind]}
        for kind in chosen
    }
    return {"path": path, "fingerprint": content["results"][path]["fingerprint"], **entries}


def difference(about: Json, wanted: Json) -> str:
    """Where a file disagrees with the result it lies in; "" where it agrees.

    `wanted` is from `of_result`, with `rows` for a part.
    """
    if about.get("version") != VERSION:
        return f"version={about.get('version')!r}, not {VERSION}"
    for key in ("path", "fingerprint", "rows"):
        if key in wanted and about.get(key) != wanted[key]:
            return changes(about.get(key), wanted[key], key)
    for kind in NAMED:
        for name, entry in wanted.get(kind, {}).items():
            if why := contradiction(kind, name, about.get(kind, {}).get(name), entry):
                return why
    return ""


# Any: what JSON holds.
def contradiction(kind: str, name: str, present: Any, wanted: Any) -> str:
    """How two entries of a model, prompt or list disagree; "" where they agree.

    A model may have been converted from elsewhere: its hash says what it is.
    """
    if kind == "models":
        present, wanted = (
            {"checkpoint_hash": (e or {}).get("checkpoint_hash")} for e in (present, wanted)
        )
    return "" if present == wanted else f"{kind[:-1]} {name!r} with {changes(present, wanted)}"


def changes(present: object, wanted: object, name: str = "") -> str:
    """What differs between two JSON values: `dtype='float32', not 'bfloat16'`; words first.

    Token ids are left out where anything else differs: a date or a mode says why they do.
    """
    if isinstance(present, dict) and isinstance(wanted, dict):
        return ", ".join(_changed(present, wanted))
    return f"{name}={present!r}, not {wanted!r}" if name else f"{present!r}, not {wanted!r}"


def _changed(present: Json, wanted: Json) -> list[str]:
    names = [k for k in {**present, **wanted} if present.get(k) != wanted.get(k)]
    names = [k for k in names if not k.endswith("_ids")] or names
    said = []
    for key in sorted(names, key=lambda k: k.endswith("_hash")):
        if isinstance(present.get(key), dict) and isinstance(wanted.get(key), dict):
            said += [f"{key}.{one}" for one in _changed(present[key], wanted[key])]
            continue
        # A fingerprint leaves out settings that are younger than it and have their default value.
        is_now = f"{key}={present[key]!r}" if key in present else f"{key} left at its default"
        said.append(f"{is_now}, not {repr(wanted[key]) if key in wanted else 'its default'}")
    return said


def part_rows(start: int, stop: int, of: int) -> Json:
    """The entry `rows` of a part."""
    return {"start": start, "stop": stop, "of": of}


def part_span(name: str) -> tuple[int, int] | None:
    """The rows that a part's file name stands for; None for another file."""
    match = re.fullmatch(r"part-(\d{7,})-(\d{7,})\.parquet", name)
    if match is None or schema.part_name(int(match[1]), int(match[2])) != name:
        return None
    return int(match[1]), int(match[2])
