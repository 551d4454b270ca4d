"""Ranks of people beside those of models: one list of items under one prompt."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.columns import KENDALL, LIST, MODEL, PROMPT, SPEARMAN, Column, P, Spec, ends, q
from analysis.run import Run
from analysis.statistics import Array, ranks, regression
from analysis.statistics.correlation import spearman_intervals
from analysis.statistics.kendall import tau_b

HUMAN = "human"
_N = Column("n", "count", "items", "items")
CORRELATION = Spec(
    "humans_correlation",
    (
        *(LIST, PROMPT, MODEL, SPEARMAN, KENDALL, _N),
        *ends("fixed", "95 %, of spearman, over items"),
        *(P.but(help="of spearman"), q()),
    ),
    page="list prompt model spearman ci_low ci_high p q kendall n",
)
_places = partial(Column, form="count", dtype=pl.Float64)  # A number of ranks.
GAP = Spec(
    "humans_gap",
    (
        *(LIST, PROMPT, Column("item", "token")),
        _places("human_rank", title="people’s rank"),
        _places("model_rank", title="models’ rank", help="median over the models"),
        _places(
            "gap",
            help="model_rank − human_rank: positive where models "
            "rate the item lower than people do",
        ),
        _places("residual", help="model_rank − its least-squares line on human_rank"),
        Column("gap_place", "count", "place by gap"),
        Column("residual_place", "count", "place by residual", "1 is the highest"),
        Column("matches", "count", "comparisons", "comparisons by people"),
        _places(
            "nearest",
            help="residual of the model nearest to its own line, where all models are on one side; "
            "else 0",
        ),
        Column(
            "p_adjusted", "p", "p, corrected", "of nearest, corrected for all items of the list"
        ),
    ),
    page="item human_rank model_rank gap gap_place residual residual_place nearest p_adjusted "
    "matches",
)


def side_by_side(
    run: Run, items: str, prompt: str, models: Sequence[str], least_matches: int = 0
) -> pl.DataFrame | None:
    """Human scores and rewards of the list `items` under one prompt, one row per item.

    Items that people compared fewer than `least_matches` times are left out; those of which the
    number is not known are kept.

    Returns:
      item_id, item, matches (comparisons by people), human (elo_score: higher is better), and one
      column per model, in the order of `models`; sorted by item_id. None where the list has no
      human scores.
    """
    people = run.humans(items)
    scored = [m for m in models if (items, m, prompt) in run.items]
    if people is None or not scored:
        return None
    return beside(people, run.item_scores(items, prompt, scored), least_matches)


def beside(people: pl.DataFrame, scores: pl.DataFrame, least_matches: int) -> pl.DataFrame:
    """What `side_by_side` returns, of `Run.humans` and of item_id, item and a column per model."""
    human = people.select("item_id", matches="elo_matches", human="elo_score")
    joined = scores.join(human, on="item_id", how="inner", validate="1:1")
    kept = joined.filter(pl.col("matches").is_null() | (pl.col("matches") >= least_matches))
    models = scores.columns[2:]
    return kept.select("item_id", "item", "matches", HUMAN, *models).sort("item_id")


def humans_correlation(
    sides: pl.DataFrame, items: str, prompt: str, rng: np.random.Generator, draws: int
) -> pl.DataFrame:
    """Rank correlation of each model with the people, from the scores of both, ties averaged.

    The table `CORRELATION` of what `side_by_side` returns, its q over these rows; intervals take
    `draws` bootstrap samples.
    """
    models = sides.columns[4:]
    human, rewards = sides[HUMAN].to_numpy(), sides.select(models).to_numpy().T
    rhos = spearman_intervals(human, rewards, rng, draws)
    rows = []
    for model, reward, (rho, *interval) in zip(models, rewards, rhos, strict=True):
        tau = tau_b(human, reward)
        rows.append((items, prompt, model, rho, tau, sides.height, *interval))
    return CORRELATION.frame(rows)


def humans_ranks(sides: pl.DataFrame) -> pl.DataFrame:
    """Rank of every item for people and models: 1 is the best, ties share their mean rank.

    Returns:
      item_id, item, matches, human_rank, and one column per model; sorted by item_id.
    """
    ranked = sides.rename({HUMAN: "human_rank"})
    return ranked.with_columns(
        pl.Series(name, ranks.average_ranks(-ranked[name].to_numpy()), dtype=pl.Float64)
        for name in ranked.columns[3:]
    )


def humans_gap(
    ranked: pl.DataFrame,
    items: str,
    prompt: str,
    chance: Array | None = None,
    humans_in_median: bool = False,
) -> pl.DataFrame:
    """How far the models' median rank of each item is from the people's, raw and residual.

    Models and people correlate imperfectly, so models rank lower what people rank first, and
    higher what they rank last, whatever it is. The residual takes that out: it is the model rank
    less the least-squares line of the model ranks on the human ranks.

    The table `GAP` of what `humans_ranks` returns, by falling gap, then by item. `chance` is what
    `regression.largest_by_chance` returns; p_adjusted is NaN without it. `humans_in_median` is the
    quirk of the released code: the median runs over the models and the people. Only to reproduce
    the paper's Fig 5B.
    """
    model_ranks = ranked.select(ranked.columns[4:]).to_numpy()
    human = ranked["human_rank"].to_numpy()
    counted = np.column_stack([model_ranks, human]) if humans_in_median else model_ranks
    median = np.median(counted, axis=1)
    intercept, slope = regression.line(median, human)
    nearest = regression.nearest_residuals(model_ranks.T, human)
    numbers = {
        "human_rank": human,
        "model_rank": median,
        "gap": median - human,
        "residual": median - intercept - slope * human,
        "nearest": nearest,
        "p_adjusted": regression.adjusted_p(nearest, np.empty(0) if chance is None else chance),
    }
    places = {
        f"{name}_place": pl.col(name).rank("min", descending=True) for name in ("gap", "residual")
    }
    columns = pl.DataFrame(numbers, schema=dict.fromkeys(numbers, pl.Float64))
    gaps = ranked.select("item", "matches").hstack(columns).with_columns(**places)
    gaps = GAP.frame(gaps, list=items, prompt=prompt)
    return gaps.sort("gap", "item", descending=[True, False])
