"""Lists of replies: what each model rates first and last of them, and where an item stands."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis import ranks
from analysis.load import Run
from engine.runs import schema
from engine.runs.schema import Columns

_FEW = 3  # Prompts of a list that are drawn one by one.
_KEYS: Columns = {"list": pl.String, "prompt": pl.String, "model": pl.String}
_ITEM: Columns = {"item_id": pl.UInt32, "item": pl.String}
_POINTS: Columns = {**_KEYS, **_ITEM, "reward": pl.Float32, "percentile": pl.Float64}
_STANDING = ("list", "item_id", "item", "n", "mean_percentile", "lowest", "highest")


def items_points(run: Run, items: str, models: Sequence[str]) -> pl.DataFrame:
    """Every score of one list, a row an item, model and prompt.

    Returns:
      list, prompt, model, item_id, item, reward, percentile (share of the list that the model
      rates lower under the prompt, ties counted half); by prompt, then in the order of `models`,
      then by item_id.
    """
    frames = []
    for prompt in (prompt for name, prompt in run.lists() if name == items):
        for model in models:
            if (items, model, prompt) not in run.items:
                continue
            scores = run.item_scores(items, prompt, [model]).rename({model: "reward"})
            place = pl.Series(ranks.percentiles(scores["reward"].to_numpy()))
            keys = {"list": pl.lit(items), "prompt": pl.lit(prompt), "model": pl.lit(model)}
            frames.append(scores.with_columns(percentile=place, **keys).select(list(_POINTS)))
    return pl.concat([pl.DataFrame(schema=_POINTS), *frames])


def items_top_bottom(points: pl.DataFrame, count: int) -> pl.DataFrame:
    """The `count` highest and lowest items of each list, prompt and model.

    Returns:
      The table `items_top_bottom.csv`: list, prompt, model, end ("top" or "bottom"), rank (1 is
      the extreme), item_id, item, reward. Ties go to the lower item_id; ends overlap in a list
      of fewer than twice `count` items.
    """
    empty = pl.DataFrame(
        schema={**_KEYS, "end": pl.String, "rank": pl.UInt32, **_ITEM, "reward": pl.Float32}
    )
    frames = []
    for _, part in points.group_by(list(_KEYS), maintain_order=True):
        for end in ("top", "bottom"):
            places = ranks.extremes(part["reward"].to_numpy(), count, highest=end == "top")
            rank = pl.Series(np.arange(1, len(places) + 1), dtype=pl.UInt32)
            frames.append(part[places].with_columns(end=pl.lit(end), rank=rank))
    return pl.concat([empty, *(frame.select(empty.columns) for frame in frames)])


def items_standing(points: pl.DataFrame) -> pl.DataFrame:
    """Where each item of a list stands over all models and prompts that scored it.

    Percentiles, for the rewards of two models have no common unit.

    Returns:
      The table `items_standing.csv`: list, item_id, item, n (scores), mean_percentile, lowest
      and highest percentile; by list, from the highest mean down, then by item_id.
    """
    place = pl.col("percentile")
    table = points.group_by("list", "item_id", "item").agg(
        n=pl.len(), mean_percentile=place.mean(), lowest=place.min(), highest=place.max()
    )
    order = table.sort("list", "mean_percentile", "item_id", descending=[False, True, False])
    return order.select(_STANDING)


def both_ends(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The first and the last `count` rows of a sorted table, or all where it has no more."""
    if table.height <= 2 * count:
        return table
    return pl.concat([table.head(count), table.tail(count)])


def telling(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items of one list to show: highest, most disputed and lowest, `count` of each.

    Args:
      standing: rows of `items_standing` of one list.
      count: items a group.

    Returns:
      The groups, each from the highest mean down; disputed are those of the widest range of
      percentiles among the rest. All items as one group where there are no more than three times
      `count`.
    """
    if standing.height <= 3 * count:
        return [standing]
    rest = standing[count:-count].with_row_index("at")
    width = pl.col("highest") - pl.col("lowest")
    disputed = rest.sort(width, -pl.col("at").cast(pl.Int64), descending=True).head(count)
    return [standing.head(count), disputed.sort("at").drop("at"), standing.tail(count)]


def drawn_alone(points: pl.DataFrame) -> list[str]:
    """The prompts of one list that have a figure of their own: all, or none of many."""
    prompts = points["prompt"].unique(maintain_order=True).to_list()
    return prompts if len(prompts) <= _FEW else []


def lists_of_items(run: Run) -> list[str]:
    """Names of the lists that were scored, but for those that a search wrote of its own finds."""
    names = dict.fromkeys(items for items, _ in run.lists())
    return [items for items in names if not items.startswith(schema.FOUND)]
