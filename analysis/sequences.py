"""What the search found: optimal and pessimal sequences, their traces, and who else likes them."""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis import checks
from analysis.load import Run
from analysis.manifests import RunError, Search
from engine.runs import schema
from engine.runs.schema import Columns

_PATH = re.compile(
    rf"{schema.SEQUENCES_DIR}/model=(?P<model>[^/]+)/prompt=(?P<prompt>[^/]+)"
    r"/direction=(?P<direction>max|min)/(?P<method>[^/]+)-seed(?P<seed>\d+)\.parquet$"
)
_KEYS: Columns = {
    "model": pl.String,
    "prompt": pl.String,
    "direction": pl.String,
    "method": pl.String,
    "seed": pl.Int64,
}


def searches(run: Run) -> Iterator[tuple[dict, pl.DataFrame, Search]]:
    """Every search of the run, by path: its keys, its rows sorted by step, and its record.

    A search that several run folders hold is taken once.

    Raises:
      RunError: a file of another form or with other bytes than the manifest names, a reward that
        is not finite, or two different searches of the same keys.
    """
    seen: dict[tuple, pl.DataFrame] = {}
    for path, record in run.searches.items():
        found = _PATH.search(path.as_posix())
        if found is None:
            raise RunError(f"{path}: not the path of a search")
        if record.sha256 is not None:
            checks.check_bytes(path, record.sha256)
        checks.check_schema(path, schema.SEQUENCE_COLUMNS)
        frame = pl.read_parquet(path, glob=False, hive_partitioning=False)
        broken = pl.col("reward").is_null() | ~pl.col("reward").is_finite()
        steps = frame.select(list(schema.SEQUENCE_COLUMNS)).sort("step")
        checks.refuse(steps, broken, f"{path}: rewards that are not finite, steps")
        keys = found.groupdict() | {"seed": int(found["seed"])}
        name = tuple(keys[key] for key in _KEYS)
        if name in seen and not steps.equals(seen[name]):
            raise RunError(f"{path}: another search of that name is in another run")
        if name not in seen and steps.height:
            yield {key: keys[key] for key in _KEYS}, steps, record
        seen[name] = steps


def sequences_table(run: Run) -> pl.DataFrame:
    """The best sequence of every search.

    Returns:
      The table `sequences.csv`: model, prompt, direction, method, seed, length (tokens), reward,
      percentile (0 to 1: share of the model's single tokens under that prompt that score below;
      null where the vocabulary was not scored), text, round_trips (the text tokenises to these
      ids), flops (spent by the whole search), reward_from_text (float32, of the text as a chat
      would tokenise it), rejected (candidates that did not round-trip; both null where the manifest
      says nothing); by model, prompt, direction, method, seed. Of equal rewards the earliest
      counts.
    """
    rows = []
    singles: dict[tuple[str, str], np.ndarray] = {}
    for keys, steps, record in searches(run):
        best = steps.sort("reward", "step", descending=[keys["direction"] == "max", False])
        row = best.row(0, named=True)
        cell = (keys["model"], keys["prompt"])
        if cell in run.results and cell not in singles:
            singles[cell] = np.sort(run.rewards(*cell)[1])
        rows.append(
            {
                **keys,
                "length": len(row["token_ids"] or []),
                "reward": row["reward"],
                "percentile": percentile(singles.get(cell), row["reward"]),
                "text": row["text"],
                "round_trips": row["round_trips"],
                "flops": steps["flops"].max(),
                "reward_from_text": record.reward_from_text,
                "rejected": record.rejected,
            }
        )
    table = pl.DataFrame(rows, schema=_KEYS | _FOUND)
    return table.sort(*_KEYS)


def sequence_traces(run: Run) -> pl.DataFrame:
    """How each search went: the keys of `sequences_table`, step, reward, best (so far), flops."""
    frames = []
    for keys, steps, _ in searches(run):
        so_far = pl.col("reward").cum_max() if keys["direction"] == "max" else None
        best = pl.col("reward").cum_min() if so_far is None else so_far
        named = {name: pl.lit(value, dtype=_KEYS[name]) for name, value in keys.items()}
        frames.append(steps.select(**named, step="step", reward="reward", best=best, flops="flops"))
    empty = pl.DataFrame(schema=_KEYS | _TRACE)
    return pl.concat([empty, *frames])


def spending(traces: pl.DataFrame, points: int = 80) -> pl.DataFrame:
    """What each method had reached after how many operations, over its searches.

    Args:
      traces: what `sequence_traces` returns.
      points: FLOPs at which it is told, evenly in logarithm, over the traces' range.

    Returns:
      model, prompt, direction, method, flops, median, low, high (of the best rewards so far) and n,
      the searches that had found anything by then; points without any are left out.
    """
    spent = traces.filter(pl.col("flops") > 0)
    if not spent.height:
        return pl.DataFrame(schema=_SPENDING)
    flops = spent["flops"].to_numpy()
    # geomspace meets its ends exactly: the last steps count.
    grid = pl.DataFrame(
        {"flops": np.geomspace(flops.min(), flops.max(), points)}, schema={"flops": pl.Float64}
    )
    searches = spent.select(list(_KEYS)).unique(maintain_order=True)
    reached = (
        searches.join(grid, how="cross")
        .sort("flops")
        .join_asof(
            spent.select(*_KEYS, "flops", "best").sort("flops"),
            on="flops", by=list(_KEYS), strategy="backward", check_sortedness=False,
        )
        .drop_nulls("best")
    )  # fmt: skip
    keys = ["model", "prompt", "direction", "method", "flops"]
    best = pl.col("best")
    told = reached.group_by(keys).agg(
        median=best.median(), low=best.min(), high=best.max(), n=pl.len()
    )
    return told.cast(pl.Schema(_SPENDING)).sort(keys)


def sequence_transfer(run: Run, found: pl.DataFrame) -> pl.DataFrame:
    """What other models make of a model's sequences, where an item list holds their texts.

    Args:
      run: the run.
      found: what `sequences_table` returns.

    Returns:
      source (the model searched), target, prompt, direction, method, seed, text, reward and
      percentile (the target's, as in `sequences_table`).
    """
    frames = []
    for items, target, prompt in run.items:
        own = found.filter(pl.col("prompt") == prompt).drop("reward", "percentile")
        scores = run.item_scores(items, prompt, [target]).unique("item", keep="first")
        joined = own.join(
            scores.select(text="item", reward=target), on="text", how="inner", validate="m:1"
        )
        if joined.height == 0:
            continue
        cell = (target, prompt)
        singles = np.sort(run.rewards(*cell)[1]) if cell in run.results else None
        shares = [percentile(singles, reward) for reward in joined["reward"]]
        joined = joined.with_columns(
            target=pl.lit(target), percentile=pl.Series(shares, dtype=pl.Float64)
        )
        frames.append(joined.rename({"model": "source"}).select(list(_TRANSFER)))
    table = pl.concat([pl.DataFrame(schema=_TRANSFER), *frames]).unique(maintain_order=True)
    return table.sort("source", "prompt", "direction", "method", "seed", "target", "text")


def percentile(ascending: np.ndarray | None, reward: float) -> float | None:
    """Share of `ascending` [N] below `reward`, ties half; None without any."""
    if ascending is None or len(ascending) == 0:
        return None
    sides = (np.searchsorted(ascending, np.float32(reward), side) for side in ("left", "right"))
    return float(sum(sides)) / (2 * len(ascending))


_FOUND: Columns = {
    "length": pl.Int64,
    "reward": pl.Float32,
    "percentile": pl.Float64,
    "text": pl.String,
    "round_trips": pl.Boolean,
    "flops": pl.Float64,
    "reward_from_text": pl.Float32,
    "rejected": pl.Int64,
}
_TRACE: Columns = {"step": pl.UInt32, "reward": pl.Float32, "best": pl.Float32, "flops": pl.Float64}
_SPENDING: Columns = {
    "model": pl.String,
    "prompt": pl.String,
    "direction": pl.String,
    "method": pl.String,
    "flops": pl.Float64,
    "median": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.UInt32,
}
_TRANSFER: Columns = {
    "source": pl.String,
    "target": pl.String,
    "prompt": pl.String,
    "direction": pl.String,
    "method": pl.String,
    "seed": pl.Int64,
    "text": pl.String,
    "reward": pl.Float32,
    "percentile": pl.Float64,
}
