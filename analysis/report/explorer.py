"""The token explorer's data, packed into the page: every token under as many prompts as it holds.

A row of the explorer is a string, with its rewards from every vocabulary in which exactly one
token decodes to it. Where several tokens of a vocabulary do, each of them is a row of its own.

A column is what one model says under one prompt. It holds three things: for each token the number
of its value among the column's different values in ascending order, from 1 (0 where not scored);
for each value its place, which is twice the number of tokens below it plus the number of those
equal to it; and that last number. Percentiles and ranks follow from them exactly. The values are
there too, rounded to the digits that the page shows: whole steps of a power of ten, at least 10,000
of them over the middle nine tenths of the column. Of more than `LIMIT` scores, the page holds those
under the first prompts alone.

A blob is base64 of gzip of little-endian values, stored a byte plane at a time: first the lowest
byte of each value, then the next. Planes of high bytes are repetitive, so gzip compresses them
better than whole values.
"""

import base64
import dataclasses
import gzip
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from analysis.report.token_sets import TokenSets
from analysis.run import Run
from analysis.sentences import shortened
from analysis.statistics import Array
from engine import display

LIMIT = 6_000_000  # Scores: about 19 MB of a page.
_STEPS = 10_000  # See the module.
_LEVEL = 5  # Of gzip: 6 and above take twice the time for half a percent.
FLAGS = ("same", "other_id", "split", "replacement", "empty", "unknown")
SPECIAL = 8  # Added to the place in FLAGS.
# Text of each row -> the filters of the rows.
Filters: TypeAlias = Callable[[Sequence[str]], Sequence[TokenSets]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """What the explorer reads."""

    # Names and sizes, and how tokens are shown; it refers to blobs by their place. JSON.
    meta: Mapping[str, Any]  # Any: JSON
    blobs: Sequence[str]  # see the module


NOTHING = Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])


def pack(
    run: Run,
    models: Sequence[str],
    names: Mapping[str, str],
    colours: Mapping[str, str],
    filters: Filters,
    first: Sequence[str] = (),
    limit: int = LIMIT,
    common: Collection[str] = (),
) -> Packed:
    """Packs the scores of `run`: see the module.

    Args:
      run: the run.
      models: slugs, in the order of the columns; those without a scored vocabulary are left out.
      names: slug -> nickname.
      colours: slug -> colour of the model.
      filters: makes the filters of the rows from their texts.
      first: ids of the prompts that the page holds first; in the order of the run by default.
      limit: largest number of scores that the page holds, of one prompt all.
      common: words in lower case; the plot names no other token where there are any.

    Returns:
      The data; its meta has no models where no vocabulary was scored.
    """
    models = [m for m in models if m in run.vocabulary_models]
    if not models:
        return NOTHING
    keys = list(dict.fromkeys(run.same_vocabulary(model) for model in models))
    places = {model: keys.index(run.same_vocabulary(model)) for model in models}
    owners = {place: model for model, place in reversed(places.items())}
    vocabularies = [run.vocabulary(owners[place]).collect() for place in range(len(keys))]
    texts, rows = union(vocabularies)
    sizes = {model: vocabularies[place].height for model, place in places.items()}
    prompts = _held(run, sizes, first or list(run.vocabulary_prompts), limit)
    blobs: list[str] = []
    columns = {
        (model, prompt): _column(blobs, run, model, prompt)
        for model in models
        for prompt in prompts
        if (model, prompt) in run.results
    }
    shorts = shortened([run.prompts[prompt] for prompt in prompts])
    words = [at for at, t in enumerate(texts) if t[:1] in " _▁" and t[1:].lower() in common]
    meta = {
        "rows": len(texts),
        "display": display.signs(texts),
        "tokens": _add(
            blobs, json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode()
        ),
        "prompts": [
            {"id": prompt, "text": run.prompts[prompt], "short": short}
            for prompt, short in zip(prompts, shorts, strict=True)
        ],
        "filters": [_filter(blobs, token_set) for token_set in filters(texts)],
        "vocabularies": [
            _vocabulary(blobs, *pair) for pair in zip(vocabularies, rows, strict=True)
        ],
        "models": [
            {
                "slug": model,
                "name": names[model],
                "colour": colours[model],
                "vocabulary": places[model],
                "of": sizes[model],
                "columns": [columns.get((model, prompt)) for prompt in prompts],
            }
            for model in models
        ],
        "words": _add(blobs, byte_planes(_steps(np.array(words, np.uint32)))),
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


def _held(run: Run, sizes: Mapping[str, int], first: Sequence[str], limit: int) -> list[str]:
    """The prompts of a page: all where their scores fit, else the first that do, one at least."""

    def scores(prompts: Collection[str]) -> int:
        return sum(sizes[m] for m, prompt in run.results if m in sizes and prompt in prompts)

    if scores(run.vocabulary_prompts) <= limit:
        return list(run.vocabulary_prompts)
    fitting = [n for n in range(1, len(first) + 1) if scores(first[:n]) <= limit]
    return list(first[: max(fitting, default=1)])


def _column(blobs: list[str], run: Run, model: str, prompt: str) -> dict[str, int]:
    """What one model says under one prompt, of its whole vocabulary: see the module."""
    ids = run.vocabulary(model).select("token_id").collect()["token_id"].to_numpy()
    token_ids, rewards = run.rewards(model, prompt)
    ranked = run.ranked(model, prompt)
    numbers = np.zeros(len(ids), dtype=np.uint32)  # 0 where not scored
    numbers[np.searchsorted(ids, token_ids)] = ranked.ranks
    equal = ranked.counts[1:].astype(np.uint32)
    places = 2 * (np.cumsum(equal, dtype=np.uint32) - equal) + equal
    return {
        "scored": len(rewards),
        "values": _add(blobs, byte_planes(numbers)),
        "places": _add(blobs, byte_planes(np.concatenate([_steps(places), equal]))),
        **_rewards(blobs, rewards),
    }


def _rewards(blobs: list[str], rewards: Array) -> dict[str, int]:
    """The different values of `rewards`, ascending and rounded: see the module."""
    values = np.unique(rewards).astype(np.float64)
    low, high = np.quantile(rewards.astype(np.float64), [0.05, 0.95])
    spread = (high - low) or (values[-1] - values[0]) or max(abs(values[0]), 1.0)
    finest = (values[-1] - values[0]) / 2**31  # The steps between neighbours are uint32.
    decimals = -math.floor(math.log10(max(spread / _STEPS, 10 * finest)))
    steps = np.rint(values * 10.0**decimals).astype(np.int64)
    blob = _add(blobs, byte_planes(np.diff(steps, prepend=steps[0]).astype(np.uint32)))
    return {"rewards": blob, "least": int(steps[0]), "decimals": decimals}


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


def _filter(blobs: list[str], token_set: TokenSets) -> dict[str, Any]:  # Any: JSON
    return {
        "label": token_set.label,
        "values": list(token_set.values),
        "rows": _add(blobs, byte_planes(_steps(token_set.rows))),
        "of": _add(blobs, byte_planes(token_set.of.astype(np.uint32))),
    }


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
