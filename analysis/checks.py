"""Checks of loading: files against the manifest and the schema of a run."""

import dataclasses
import functools
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl
from etils import epath

from engine.runs import provenance, schema, storage
from engine.runs.reader import Result, RunError, Search

_REQUESTS = 16  # to an object store, side by side.
_NAMED = 5  # Ids that a message lists at most.
_COLUMNS = {
    schema.SCORES_DIR: schema.SCORE_COLUMNS,
    schema.ITEMS_DIR: schema.ITEM_COLUMNS,
    schema.LOGPROBS_DIR: schema.LOGPROB_COLUMNS,
    schema.ITEM_LOGPROBS_DIR: schema.ITEM_LOGPROB_COLUMNS,
    schema.CONVERSATIONS_DIR: schema.CONVERSATION_COLUMNS,
    schema.CONVERSATION_LOGPROBS_DIR: schema.CONVERSATION_LOGPROB_COLUMNS,
}


def columns(result: Result) -> schema.Columns:
    """Columns of the parts of `result`, by name: the id first, the number last."""
    return _COLUMNS[result.kind]


def sources(files: Mapping[epath.Path, str | None]) -> list[str] | list[bytes]:
    """What polars reads files from: local ones from their names, objects from their bytes.

    polars could read objects itself, but it would want credentials, endpoint and retries again.

    Args:
      files: file -> its sha256; None for a vocabulary, whose name is a hash.
    """
    if not any(map(storage.is_remote, files)):
        return [os.fspath(path) for path in files]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(_object, files, files.values()))


# A report reads every part about twelve times. A part has about 100 kB: this is 400 MB at most.
@functools.lru_cache(maxsize=4096)
def _object(path: epath.Path, digest: str | None) -> bytes:
    """An object, checked; kept in memory."""
    data = storage.read(path)
    if digest is not None:
        check_bytes(path, data, digest)
    return data


def scan(result: Result, beside: Sequence[str] = ()) -> pl.LazyFrame:
    """Rows of `result`, sorted by id; `beside` are objectives or layers that it has too."""
    # Neither the order of the files nor that of a scan is promised: sort. The folder names hold
    # `model=`, which polars would read as hive columns by default.
    files = sources({result.folder / name: digest for name, digest in result.parts.items()})
    names = [*columns(result), *beside]
    frame = pl.scan_parquet(files, glob=False, hive_partitioning=False)
    return frame.select(names).sort(names[0])


def by_layer(result: Result) -> pl.DataFrame:
    """token_id, and the reward after each layer of a sweep with the lens; sorted by token_id.

    Raises:
      RunError: a number that is not finite, or a last layer that is not the reward.
    """
    layers = scan(result, result.layers).collect()
    for name in result.layers:
        refuse(layers, _broken(name), f"{result.where}: {name} is not finite for token ids")
    other = pl.col(result.layers[-1]) != pl.col("reward")
    refuse(layers, other, f"{result.where}: the last layer is not the reward of token ids")
    return layers.drop("reward")


def present(result: Result, allow_incomplete: bool) -> Result | None:
    """`result` with the parts that exist, each checked against its sha256; None without parts."""
    there = set(storage.names(result.folder))
    missing = [name for name in result.parts if name not in there]
    if not allow_incomplete and (missing or not result.complete):
        why = f"{missing[0]} is missing" if missing else "the sweep has not finished"
        raise RunError(f"{result.where} is incomplete: {why} (resume it or allow incomplete)")
    parts = {name: digest for name, digest in result.parts.items() if name not in missing}
    if not parts and not allow_incomplete:
        raise RunError(f"{result.where} holds no scores")
    if not parts:
        return None
    beside = (*result.objectives, *result.layers)
    types = columns(result) | dict.fromkeys(beside, pl.Float32)
    files = {result.folder / name: digest for name, digest in parts.items()}
    for (path, digest), file in zip(files.items(), sources(files), strict=True):
        data = file if isinstance(file, bytes) else storage.read(path)
        check_bytes(path, data, digest)
        check_schema(path, data, types)
        check_origin(result, path, data)
    return dataclasses.replace(result, parts=parts)


def search_steps(path: epath.Path, record: Search) -> pl.DataFrame:
    """Steps of one search, checked: `schema.SEQUENCE_COLUMNS`, sorted by step."""
    steps = _table(path, schema.SEQUENCE_COLUMNS, record.sha256).sort("step")
    refuse(steps, _broken("reward"), f"{path}: rewards that are not finite, steps")
    return steps


def _table(
    path: epath.Path, types: schema.Columns, digest: str | None = None, also: str = ""
) -> pl.DataFrame:
    """The columns `types` of a file that is whole, and has these bytes; `also`, if it is there."""
    data = storage.read(path)
    check_whole(path, data)
    if digest is not None:
        check_bytes(path, data, digest)
    check_schema(path, data, types)
    there = [also] if also in pl.read_parquet_schema(io.BytesIO(data)) else []
    return pl.read_parquet(io.BytesIO(data), columns=[*types, *there])


def _broken(name: str) -> pl.Expr:
    return pl.col(name).is_null() | ~pl.col(name).is_finite()


def check_whole(path: epath.Path, data: bytes) -> None:
    """Refuses bytes that do not fit the hash in them; older files have none."""
    if provenance.is_whole(data) is False:
        raise RunError(f"{path}: damaged; remove it and run the command that wrote it again")


def check_origin(result: Result, path: epath.Path, data: bytes) -> None:
    """Refuses a part that says of itself that it belongs to another result; older parts do not."""
    if provenance.KEY not in pl.read_parquet_metadata(io.BytesIO(data)):
        return
    wanted = {"path": result.path, "fingerprint": dict(result.fingerprint)}
    if why := provenance.difference(provenance.read(data), wanted):
        raise RunError(f"{path}: belongs to something else ({why}); remove it")


def check_bytes(path: epath.Path, data: bytes, digest: str) -> None:
    """Refuses the bytes of a file if their sha256 is not `digest`."""
    if hashlib.sha256(data).hexdigest() != digest:
        check_whole(path, data)
        raise RunError(f"{path}: not the bytes that the manifest names (sha256)")


def check_vocabulary(path: epath.Path, model: str) -> pl.DataFrame:
    """Token ids of the vocabulary in `path`, checked and sorted: each once, each with a token."""
    if not storage.is_file(path):
        raise RunError(f"{path}: no such vocabulary, which {model} needs")
    vocabulary = _table(path, schema.VOCAB_COLUMNS)
    refuse(vocabulary, pl.col("token_id").is_duplicated(), f"{path}: duplicate token ids")
    refuse(vocabulary, pl.col("token").is_null(), f"{path}: token ids without a token")
    return vocabulary.select("token_id").sort("token_id")


def check_scores(result: Result, ids: pl.DataFrame, allow_incomplete: bool) -> None:
    """Refuses numbers that are not finite, and token ids that are duplicate, unknown or missing."""
    scores = _finite(result)
    if scores["token_id"].equals(ids["token_id"]):
        return
    unknown = scores.join(ids, on="token_id", how="anti")
    refuse(unknown, pl.lit(True), f"{result.where}: token ids that are not in its vocabulary")
    drawn = "tokens" in result.fingerprint and scores.height == result.fingerprint["rows"]
    if not allow_incomplete and not drawn:  # else some tokens of the vocabulary are all it has
        unscored = ids.join(scores, on="token_id", how="anti")
        refuse(unscored, pl.lit(True), f"{result.where} is incomplete: no score of token ids")


def check_items(results: Iterable[Result]) -> None:
    """Refuses numbers that are not finite, and results of one list with different items."""
    known: dict[str, pl.DataFrame] = {}
    for result in results:
        items = _finite(result).select("item_id", "item")
        refuse(items, pl.col("item").is_null(), f"{result.where}: items without a text, ids")
        first = known.setdefault(str(result.items), items)
        both = items.join(first, on="item_id", how="inner", validate="1:1")
        differ = pl.col("item") != pl.col("item_right")
        refuse(both, differ, f"{result.where}: other items than the rest of its list at ids")


def conversations(result: Result) -> pl.DataFrame:
    """The list that `result` scored (`schema.LIST_COLUMNS`), sorted by conversation.

    Raises:
      RunError: no such table, a damaged one, a number that is not finite, or a conversation that
        was scored and is not in the table.
    """
    path = result.run / schema.list_path(str(result.items))
    if not storage.is_file(path):
        raise RunError(f"{path}: no such list, which {result.where} needs")
    table = _table(path, schema.LIST_COLUMNS, also=schema.GIVEN).sort("conversation_id")
    refuse(table, pl.col("conversation_id").is_duplicated(), f"{path}: duplicate conversations")
    unknown = _finite(result).join(table, on="conversation_id", how="anti")
    refuse(unknown, pl.lit(True), f"{result.where}: conversations that are not in its list")
    return table


def shared_conversations(results: Iterable[Result]) -> pl.DataFrame:
    """The table of one list of conversations; refuses results whose tables differ."""
    tables = ((result, conversations(result)) for result in results)
    first, table = next(tables)
    for result, other in tables:
        if not other.equals(table):
            raise RunError(
                f"{result.where}: other rows than {first.where} under the list name "
                f"{result.items!r}; allowed: one file under a name (assay score --name)"
            )
    return table


def humans(path: epath.Path) -> pl.DataFrame:
    """Human ranks of an item list: `schema.HUMAN_COLUMNS`, sorted by item_id.

    Raises:
      RunError: not such a table, a duplicate item, or a score that is not finite.
    """
    frame = _table(path, schema.HUMAN_COLUMNS)
    refuse(frame, pl.col("item_id").is_duplicated(), f"{path}: duplicate item ids")
    broken = _broken("elo_score") | pl.col("elo_rank").is_null()
    refuse(frame, broken, f"{path}: human scores that are missing or not finite, item ids")
    return frame.sort("item_id")


def check_schema(path: epath.Path, data: bytes, columns: schema.Columns) -> None:
    """Refuses a file that is not parquet, or that lacks one of `columns` with its type."""
    try:
        actual = pl.read_parquet_schema(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RunError(f"{path}: not a parquet file") from error
    wrong = [name for name, dtype in columns.items() if actual.get(name) != dtype]
    if wrong:
        raise RunError(
            f"{path}: column {wrong[0]} is {actual.get(wrong[0], 'absent')}; "
            f"expected {columns[wrong[0]]}"
        )


def refuse(frame: pl.DataFrame, condition: pl.Expr, message: str) -> None:
    """Raises RunError with the ids (first column) of the rows where `condition` holds."""
    ids = frame.filter(condition)[frame.columns[0]].unique().sort().to_list()
    if ids:
        named = ", ".join(map(str, ids[:_NAMED]))
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        raise RunError(f"{message} {named}{more}")


def _finite(result: Result) -> pl.DataFrame:
    scores = scan(result, result.objectives).collect()
    key, *_, number = columns(result)
    ids = key.replace("_", " ") + "s"
    for name in (number, *result.objectives):
        if scores[name].is_finite().fill_null(value=False).all():
            continue
        refuse(scores, _broken(name), f"{result.where}: {name}s that are not finite, {ids}")
    each = scores[key].to_numpy()
    if not (each[1:] > each[:-1]).all():
        refuse(scores, pl.col(key).is_duplicated(), f"{result.where}: duplicate {ids}")
    return scores
