"""Lists of replies: what each model rates first and last of them, and where an item stands."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis import ranks
from analysis.load import Run
from engine.runs import schema
from engine.runs.schema import Columns

_FEW = 3  # Prompts of a list that are shown one by one.
_ITEM: Columns = {"item_id": pl.UInt32, "item": pl.String}
_KEYS: Columns = {"list": pl.String, "prompt": pl.String, "model": pl.String}
_POINTS: Columns = {**_KEYS, **_ITEM, "reward": pl.Float32, "percentile": pl.Float64}


def items_points(run: Run, items: str, models: Sequence[str]) -> pl.DataFrame:
    """Every score of one list, a row an item, model and prompt.

    Returns:
      list, prompt, model, item_id, item, reward, percentile (share of the list that the model
      rates lower under the prompt, ties counted half, the item itself among them); by prompt, then
      in the order of `models`, then by item_id. Items that one of the models of a prompt has not
      scored are left out of it.
    """
    frames = []
    for prompt in (prompt for name, prompt in run.lists() if name == items):
        there = [model for model in models if (items, model, prompt) in run.items]
        for model in there:
            scores = run.item_scores(items, prompt, there).select("item_id", "item", reward=model)
            shares = ranks.percentiles(scores["reward"].to_numpy())
            place = pl.Series(shares, dtype=pl.Float64)
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
    """Where each item of a list stands among the models, prompt by prompt.

    Percentiles, for the rewards of two models have no common unit.

    Returns:
      The table `items_standing.csv`: list, prompt, item_id, item, n (models), mean_percentile,
      lowest and highest percentile; by list and prompt as in `points`, from the highest mean down,
      then by item_id.
    """
    return _standing(points, ["list", "prompt"], "percentile")


def over_prompts(standing: pl.DataFrame) -> pl.DataFrame:
    """`items_standing` with its prompts taken together: n, lowest and highest are of prompts."""
    return _standing(standing, ["list"], "mean_percentile")


def _standing(table: pl.DataFrame, keys: list[str], place: str) -> pl.DataFrame:
    values = pl.col(place)
    numbers = {"mean_percentile": values.mean(), "lowest": values.min(), "highest": values.max()}
    found = table.group_by([*keys, "item_id", "item"], maintain_order=True).agg(
        n=pl.len(), **numbers
    )
    groups = found.select(keys).unique(maintain_order=True).with_row_index("group")
    found = found.join(groups, on=keys, how="left", validate="m:1")
    # Means that are equal but for their rounding tie.
    mean = pl.col("mean_percentile").round(12)
    found = found.sort("group", mean, "item_id", descending=[False, True, False])
    return found.select(*keys, "item_id", "item", "n", *numbers)


def telling(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items to show of a long list: highest, most disputed and lowest, `count` of each.

    Args:
      standing: rows of `items_standing` of one list and prompt, or of `over_prompts` of one list.
      count: items a group.

    Returns:
      The groups, each from the highest mean down. Disputed are those of the rest whose lowest and
      highest percentile lie furthest apart; the group is not there where all lie together. All
      items are one group where there are no more than three times `count`.
    """
    if standing.height <= 3 * count:
        return [standing]
    width = (pl.col("highest") - pl.col("lowest")).round(12)
    rest = standing[count:-count].with_row_index("at").filter(width > 0)
    widest = rest.sort(width, "at", descending=[True, False]).head(count)
    groups = [standing.head(count), widest.sort("at").drop("at"), standing.tail(count)]
    return [group for group in groups if group.height]


def both_ends(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The first and the last `count` rows of a sorted table, or all where it has no more."""
    if table.height <= 2 * count:
        return table
    return pl.concat([table.head(count), table.tail(count)])


def prompts_of(table: pl.DataFrame) -> list[str]:
    """The prompts of one list, in order."""
    return table["prompt"].unique(maintain_order=True).to_list()


def one_by_one(prompts: Sequence[str]) -> bool:
    """Whether the prompts of a list are few enough to be shown each."""
    return len(prompts) <= _FEW


def lists_of_items(run: Run) -> list[str]:
    """Names of the lists that were scored, but for those that a search wrote of its own finds."""
    names = dict.fromkeys(items for items, _ in run.lists())
    return [items for items in names if not items.startswith(schema.FOUND)]
