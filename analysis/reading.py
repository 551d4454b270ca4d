"""Reading results: their parts, checked against vocabularies and lists."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl
from etils import epath

from engine.runs import schema, storage
from engine.runs.folder import RunFolder, read_table
from engine.runs.result import Result, RunError, refuse

_REQUESTS = 16  # to an object store, side by side.


def columns(result: Result) -> schema.Columns:
    """Columns of the parts of `result`, by name: the id first, the number last."""
    return schema.COLUMNS[result.kind]


def sources(result: Result) -> list[str] | list[bytes]:
    """What polars reads parts from: local ones from their names, objects from their bytes.

    polars could read objects itself, but it would want credentials, endpoint and retries again.
    """
    files = [result.folder / name for name in result.parts]
    if not storage.is_remote(result.folder):
        return [os.fspath(path) for path in files]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        digests = [part.sha256 for part in result.parts.values()]
        return list(pool.map(_object, files, digests))


# A report reads every part about twelve times. A part has about 100 kB: this is 400 MB at most.
@functools.lru_cache(maxsize=4096)
def _object(path: epath.Path, digest: str) -> bytes:
    """An object, which was checked when the run was opened; kept in memory, by its sha256."""
    return storage.read(path)


def scan(result: Result, beside: Sequence[str] = ()) -> pl.LazyFrame:
    """Rows of `result`, sorted by id; `beside` are objectives or layers that it has too."""
    # Neither the order of the files nor that of a scan is promised: sort. The folder names hold
    # `model=`, which polars would read as hive columns by default.
    names = [*columns(result), *beside]
    frame = pl.scan_parquet(sources(result), glob=False, hive_partitioning=False)
    return frame.select(names).sort(names[0])


def by_layer(result: Result) -> pl.DataFrame:
    """token_id, and the reward after each layer of a sweep with the lens; sorted by token_id.

    Raises RunError for a last layer that is not the reward.
    """
    layers = scan(result, result.layers).collect()
    other = pl.col(result.layers[-1]) != pl.col("reward")
    refuse(layers, other, f"{result.title}: the last layer is not the reward of token ids")
    return layers.drop("reward")


def read(result: Result, allow_incomplete: bool) -> tuple[Result, pl.DataFrame] | None:
    """`result` with the parts that exist, and its rows, all checked; None without parts.

    Raises RunError for an incomplete result, unless allowed; a damaged part; rows twice.
    """
    present = set(storage.names(result.folder))
    missing = [name for name in result.parts if name not in present]
    if not allow_incomplete and (missing or not result.complete):
        why = f"{missing[0]} is missing" if missing else "the sweep has not finished"
        raise RunError(f"{result.title} is incomplete: {why} (resume it or allow incomplete)")
    kept = dataclasses.replace(result, parts=dict(result.parts))
    kept.forget(missing)
    if not kept.parts:
        return None
    key = next(iter(columns(result)))
    rows = pl.concat(kept.frames()).sort(key)
    twice = f"{result.title}: duplicate {key.replace('_', ' ')}s"
    refuse(rows, pl.col(key).is_duplicated(), twice)
    return kept, rows


def token_ids(folder: RunFolder, path: str) -> pl.DataFrame:
    """Token ids of a vocabulary of a run, checked and sorted: each once, each with a token."""
    vocabulary, file = read_table(folder, path), folder.run / path
    refuse(vocabulary, pl.col("token_id").is_duplicated(), f"{file}: duplicate token ids")
    refuse(vocabulary, pl.col("token").is_null(), f"{file}: token ids without a token")
    return vocabulary.select("token_id").sort("token_id")


def check_scores(
    result: Result, scores: pl.DataFrame, ids: pl.DataFrame, allow_incomplete: bool
) -> None:
    """Refuses token ids that the vocabulary has not, or that have no number."""
    if scores["token_id"].equals(ids["token_id"]):
        return
    unknown = scores.join(ids, on="token_id", how="anti")
    refuse(unknown, pl.lit(True), f"{result.title}: token ids that are not in its vocabulary")
    if not allow_incomplete:
        unscored = ids.join(scores, on="token_id", how="anti")
        refuse(unscored, pl.lit(True), f"{result.title} is incomplete: no score of token ids")


def check_items(result: Result, rows: pl.DataFrame, known: dict[str, pl.DataFrame]) -> None:
    """Refuses a result with other items than those `known` of its list, which it adds."""
    items = rows.select("item_id", "item")
    refuse(items, pl.col("item").is_null(), f"{result.title}: items without a text, ids")
    first = known.setdefault(str(result.items), items)
    joined = items.join(first, on="item_id", how="inner", validate="1:1")
    differ = pl.col("item") != pl.col("item_right")
    refuse(joined, differ, f"{result.title}: other items than the rest of its list at ids")


def conversations(folder: RunFolder, result: Result) -> pl.DataFrame:
    """The list that `result` of a run scored (`schema.LIST_COLUMNS`), sorted by conversation.

    Raises:
      RunError: no such table, a damaged one, or a conversation that was scored and is not in it.
    """
    path = schema.list_path(str(result.items))
    table = read_table(folder, path).sort("conversation_id")
    message = f"{folder.run / path}: duplicate conversations"
    refuse(table, pl.col("conversation_id").is_duplicated(), message)
    unknown = scan(result).collect().join(table, on="conversation_id", how="anti")
    refuse(unknown, pl.lit(True), f"{result.title}: conversations that are not in its list")
    return table


def shared_conversations(
    folders: Mapping[epath.Path, RunFolder], results: Iterable[Result]
) -> pl.DataFrame:
    """The table of one list of conversations; refuses results whose tables differ."""
    tables = ((result, conversations(folders[result.run], result)) for result in results)
    first, table = next(tables)
    for result, other in tables:
        if not other.equals(table):
            raise RunError(
                f"{result.title}: other rows than {first.title} under the list name "
                f"{result.items!r}; allowed: one file under a name (assay score --name)"
            )
    return table


def humans(folder: RunFolder, path: str) -> pl.DataFrame:
    """Human ranks of an item list: `schema.HUMAN_COLUMNS`, sorted by item_id.

    Raises:
      RunError: not such a table, a duplicate item, or a score that is not finite.
    """
    frame, file = read_table(folder, path), folder.run / path
    refuse(frame, pl.col("item_id").is_duplicated(), f"{file}: duplicate item ids")
    finite = pl.col("elo_score").is_finite().fill_null(value=False)
    broken = ~finite | pl.col("elo_rank").is_null()
    refuse(frame, broken, f"{file}: human scores that are missing or not finite, item ids")
    return frame.sort("item_id")
