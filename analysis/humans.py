"""Models against people on a list of items (EloEverything, Fig 5)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis import agreement, ranks
from analysis.load import Run
from engine.runs.schema import Columns

HUMAN = "human"
_LIST: Columns = {"list": pl.String, "prompt": pl.String}


def side_by_side(run: Run, items: str, prompt: str, models: Sequence[str]) -> pl.DataFrame | None:
    """Human scores and rewards of one list under one prompt, a row an item.

    Returns:
      item_id, item, elo_rank (1 is the best), human (elo_score: higher is better), and a column
      a model; sorted by item_id. None where the list has no human scores.
    """
    people = run.humans(items)
    there = [m for m in models if (items, m, prompt) in run.items]
    if people is None or not there:
        return None
    scores = run.item_scores(items, prompt, there)
    human = people.select("item_id", "elo_rank", human="elo_score")
    joined = scores.join(human, on="item_id", how="inner", validate="1:1")
    return joined.select("item_id", "item", "elo_rank", HUMAN, *there).sort("item_id")


def humans_correlation(table: pl.DataFrame, items: str, prompt: str) -> pl.DataFrame:
    """How far each model orders the items as people do.

    Args:
      table: what `side_by_side` returns.
      items: name of the list.
      prompt: prompt id.

    Returns:
      The table `humans_correlation.csv`: list, prompt, model, spearman, kendall (tau-b).
      Spearman's takes the list's own ranks and Kendall's the rounded Elo points with their ties,
      for so the published values come out; the other choice moves either by 0.0004 at most.
    """
    human, listed = table[HUMAN].to_numpy(), -table["elo_rank"].cast(pl.Float64).to_numpy()
    rows = [
        {
            "list": items,
            "prompt": prompt,
            "model": model,
            "spearman": ranks.spearman(listed, table[model].to_numpy()),
            "kendall": ranks.kendall_tau(human, table[model].to_numpy()),
        }
        for model in table.columns[4:]
    ]
    schema = _LIST | {"model": pl.String, "spearman": pl.Float64, "kendall": pl.Float64}
    return pl.DataFrame(rows, schema=schema)


def humans_kendall(table: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b between people and models, and among models: a square table."""
    return agreement.kendall_matrix(table.drop("item_id", "elo_rank"))


def humans_ranks(table: pl.DataFrame) -> pl.DataFrame:
    """Rank of every item for people and models: 1 is the best, ties share their mean rank.

    Returns:
      item_id, item, human_rank, and a column a model; sorted by item_id.
    """
    numbers = {
        "human_rank" if name == HUMAN else name: ranks.average_ranks(-table[name].to_numpy())
        for name in table.columns[3:]
    }
    return table.select("item_id", "item").with_columns(
        **{name: pl.Series(values, dtype=pl.Float64) for name, values in numbers.items()}
    )


def humans_gap(
    ranked: pl.DataFrame, items: str, prompt: str, humans_in_median: bool = False
) -> pl.DataFrame:
    """What the models slight and what they overrate.

    Args:
      ranked: what `humans_ranks` returns.
      items: name of the list.
      prompt: prompt id.
      humans_in_median: the release's quirk: the median runs over the models and the people
        (PAPER.md, quirk 1). Only to reproduce its Fig 5B.

    Returns:
      The table `humans_gap.csv`: list, prompt, item, human_rank, model_rank (median of the
      models' ranks), gap (model_rank - human_rank: positive where models slight the item), by
      falling gap, then by item.
    """
    columns = ranked.columns[3:] + (["human_rank"] if humans_in_median else [])
    median = np.median(ranked.select(columns).to_numpy(), axis=1)
    table = ranked.select(
        pl.lit(items).alias("list"),
        pl.lit(prompt).alias("prompt"),
        "item",
        "human_rank",
        model_rank=pl.Series(median, dtype=pl.Float64),
    )
    table = table.with_columns(gap=pl.col("model_rank") - pl.col("human_rank"))
    return table.sort("gap", "item", descending=[True, False])
