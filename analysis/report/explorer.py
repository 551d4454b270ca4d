"""The token explorer's data: every reward of every token, packed into the page.

A row of the explorer is a string, with its rewards from every vocabulary in which exactly one
token decodes to it. Where several tokens of a vocabulary do, each of them is a row of its own.

A blob is base64 of gzip of little-endian values, stored a byte plane at a time: first the lowest
byte of each value, then the next. Planes of high bytes are repetitive, so gzip compresses them
better than whole values, and the float32 rewards stay exact. Ranks and percentiles are left out:
the page recomputes them from the rewards in less time than it takes to unpack them.
"""

import base64
import dataclasses
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis import display
from analysis.run import Run
from analysis.statistics import Array

_LEVEL = 5  # Of gzip: 6 and above take twice the time for half a percent.
FLAGS = ("same", "other_id", "split", "replacement", "empty", "unknown")
SPECIAL = 8  # Added to the place in FLAGS.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """What the explorer reads.

    Attributes:
      meta: names and sizes, and how tokens are shown; it refers to blobs by their place. JSON.
      blobs: see the module.
    """

    meta: Mapping[str, Any]  # Any: JSON
    blobs: Sequence[str]


def pack(
    run: Run, models: Sequence[str], names: Mapping[str, str], colours: Mapping[str, str]
) -> Packed:
    """Packs every score of `run`.

    Args:
      run: the run.
      models: slugs, in the order of the columns; those without a scored vocabulary are left out.
      names: slug -> nickname.
      colours: slug -> colour of the model.

    Returns:
      The data; its meta has no models where no vocabulary was scored.
    """
    blobs: list[str] = []
    prompts = [p for p in run.prompts if any((m, p) in run.results for m in models)]
    models = [m for m in models if any((m, p) in run.results for p in prompts)]
    if not models:
        return Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])
    keys = list(dict.fromkeys(run.same_vocabulary(model) for model in models))
    owners = {key: next(m for m in models if run.same_vocabulary(m) == key) for key in keys}
    vocabularies = [run.vocabulary(owners[key]).collect() for key in keys]
    texts, rows = union(vocabularies)
    tokens = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode()
    meta = {
        "rows": len(texts),
        "display": display.signs(texts),
        "tokens": _add(blobs, tokens),
        "prompts": [{"id": prompt, "text": run.prompts[prompt]} for prompt in prompts],
        "vocabularies": [_vocabulary(blobs, v, r) for v, r in zip(vocabularies, rows, strict=True)],
        "models": [
            {
                "slug": model,
                "name": names[model],
                "colour": colours[model],
                "vocabulary": keys.index(run.same_vocabulary(model)),
                "columns": [_column(blobs, run, model, prompt) for prompt in prompts],
            }
            for model in models
        ],
    }
    return Packed(meta=meta, blobs=blobs)


def union(vocabularies: Sequence[pl.DataFrame]) -> tuple[list[str], list[Array]]:
    """The rows of the explorer, from vocabularies with the columns token_id and token.

    Returns:
      The text of each row, and for each vocabulary the row of each of its tokens (uint32).
    """
    frames = [
        v.select("token", several=pl.col("token").is_duplicated(), vocabulary=pl.lit(i))
        for i, v in enumerate(vocabularies)
    ]
    stacked = pl.concat(frames).with_row_index("at")
    # A string may be ambiguous in one vocabulary and not in the others.
    owner = pl.when("several").then("at").otherwise(pl.col("at").min().over("token", "several"))
    stacked = stacked.with_columns(owner=owner)
    row = (pl.col("owner").rank("dense") - 1).cast(pl.UInt32)
    stacked = stacked.with_columns(row=row).sort("at")
    texts = stacked.filter(pl.col("owner") == pl.col("at"))["token"].to_list()
    rows = [stacked.filter(vocabulary=i)["row"].to_numpy() for i in range(len(vocabularies))]
    return texts, rows


def byte_planes(values: Array) -> bytes:
    """`values` [N] as little-endian bytes, a byte plane at a time."""
    little = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    return little.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def blob_of(data: bytes) -> str:
    """`data` as a blob: see the module."""
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode("ascii")


def _add(blobs: list[str], data: bytes) -> int:
    blobs.append(blob_of(data))
    return len(blobs) - 1


def _vocabulary(blobs: list[str], table: pl.DataFrame, rows: Array) -> dict[str, int]:
    kinds = table["round_trip"].replace_strict(list(FLAGS), range(len(FLAGS)), default=5)
    flags = kinds.to_numpy().astype(np.uint8) + SPECIAL * table["is_special"].to_numpy()
    ids = table["token_id"].to_numpy().astype(np.uint32)
    return {
        "size": table.height,
        "ids": _add(blobs, byte_planes(_steps(ids))),
        "rows": _add(blobs, byte_planes(_steps(rows))),
        "flags": _add(blobs, byte_planes(flags.astype(np.uint8))),
    }


def _steps(values: Array) -> Array:
    """Differences of neighbours, modulo 2^32: nearly all are 1, which compresses well."""
    return np.diff(values, prepend=np.uint32(0)).astype(np.uint32)


def _column(blobs: list[str], run: Run, model: str, prompt: str) -> int | None:
    """Rewards of one model under one prompt by place in its vocabulary; NaN where not scored."""
    if (model, prompt) not in run.results:
        return None
    ids, rewards = run.rewards(model, prompt)
    places = run.vocabulary(model).select("token_id").collect()["token_id"].to_numpy()
    dense = np.full(len(places), np.nan, dtype=np.float32)
    dense[np.searchsorted(places, ids)] = rewards
    return _add(blobs, byte_planes(dense))
