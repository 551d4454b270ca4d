"""Blocs of models of which every two agree, and the tokens that a bloc agrees on."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.statistics import Array, ranks
from analysis.statistics.kendall import Order, concordant_shares, pair_interval
from analysis.statistics.similarity import blocs
from analysis.words.spellings import words
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

_PAIRS: Columns = {
    **dict.fromkeys(("model_a", "model_b"), pl.String),
    **dict.fromkeys(("kendall", "ci_low", "ci_high", "concordant", "discordant"), pl.Float64),
    "stems": pl.Int64,
}
CLEAR = 0.3  # Mean tau beyond which models are said to rank alike, or to oppose one another.
RELATIONS = ("alike", "agree", "opposed", "disagree")  # Those that are claimed.
_MEANS = ("kendall", "lowest", "highest", "ci_low", "ci_high")
_BLOCS: Columns = {
    "bloc": pl.Int64,
    "models": pl.String,
    "other": pl.Int64,
    "other_models": pl.String,
    "relation": pl.String,
    "pairs": pl.Int64,
    **dict.fromkeys(_MEANS, pl.Float64),
}
_CONSENSUS: Columns = {
    "bloc": pl.Int64,
    "models": pl.String,
    "end": pl.String,
    "rank": pl.UInt32,
    "token": pl.String,
    **dict.fromkeys(("percentile", "spread", "lowest", "highest"), pl.Float64),
}


def kendall_pairs(
    tokens: pl.Series, orders: Mapping[str, Order], kendall: pl.DataFrame
) -> pl.DataFrame:
    """Every two models with the interval of their tau.

    Args:
      tokens: the tokens [N].
      orders: slug -> the model's order of them.
      kendall: Kendall's tau-b of every two models, as `agreement.kendall_matrix` makes it.

    Returns:
      The table `kendall_pairs_<prompt>.csv`: model_a, model_b, kendall, ci_low, ci_high (95 % for
      all pairs together; forms of one word are resampled together), concordant and discordant
      (shares of the pairs of tokens that both models put in the same, and in the opposite order;
      the rest is tied), stems. NaN where a model has no order.
    """
    labels = stem_numbers(tokens)
    values = kendall.select(list(orders)).to_numpy()
    two = list(itertools.combinations(enumerate(orders), 2))
    found = []
    for (i, a), (j, b) in two:
        tau = float(values[i, j])
        numbers = (np.nan,) * 4
        if not np.isnan(tau):
            interval = pair_interval(orders[a], orders[b], labels, tau, len(two))
            numbers = (*interval, *concordant_shares(orders[a].ranking, orders[b].ranking, tau))
        found.append((a, b, tau, *numbers, int(labels.max()) + 1))
    return pl.DataFrame(found, schema=_PAIRS, orient="row")


def blocs_table(
    pairs: pl.DataFrame, models: Sequence[str], without_order: Sequence[str] = ()
) -> pl.DataFrame:
    """Groups of models of which every two agree, and how every two groups stand to one another.

    Complete linkage over the lower ends of the intervals, cut at 0: tau of every two models of a
    bloc is above 0. The intervals hold together, so that also holds of pairs chosen by their tau,
    and the mean of their ends bounds the mean tau of any pairs.

    Args:
      pairs: as `kendall_pairs` makes them.
      models: slugs of the models that have an order, in the order in which they are named.
      without_order: slugs of those that score every token alike.

    Returns:
      The table `blocs_<prompt>.csv`: bloc (from 1, the largest first), models (slugs, joined by a
      space), other and other_models (the bloc itself, then the later ones), relation, pairs,
      kendall (mean over the pairs), lowest, highest, ci_low, ci_high (of the mean). The relation
      of a bloc to itself is "alike" where the interval of the mean is above `CLEAR`, otherwise
      "agree", and "alone" for one model. To another bloc, if tau of every pair is below 0 beyond
      its interval, it is "opposed" where the interval of the mean is below -`CLEAR` and otherwise
      "disagree"; "unclear" if not. Models without an order have a row of "no order" each, without
      a bloc.
    """
    place = {model: i for i, model in enumerate(models)}
    numbers = np.zeros((3, len(models), len(models)))
    for row in pairs.iter_rows(named=True):
        if row["model_a"] in place and row["model_b"] in place:
            i, j = place[row["model_a"]], place[row["model_b"]]
            values = [row[name] for name in ("kendall", "ci_low", "ci_high")]
            numbers[:, i, j] = numbers[:, j, i] = values
    groups = blocs(np.nan_to_num(numbers[1], nan=-1.0))
    found = []
    for a, b in itertools.combinations_with_replacement(range(len(groups)), 2):
        cells = [(i, j) for i in groups[a] for j in groups[b] if a != b or i < j]
        own = numbers[:, [i for i, _ in cells], [j for _, j in cells]]
        means = _means(own)
        names = [" ".join(models[i] for i in groups[g]) for g in (a, b)]
        relation = _relation(a == b, own)
        found.append((a + 1, names[0], b + 1, names[1], relation, len(cells), *means))
    lacking = [(None, model, None, None, "no order", 0, *(np.nan,) * 5) for model in without_order]
    return pl.DataFrame([*found, *lacking], schema=_BLOCS, orient="row")


def blocs_of(table: pl.DataFrame) -> list[list[str]]:
    """Slugs of the models of each bloc of at least two, in the order of `blocs_table`."""
    own = table.filter(pl.col("relation").is_in(["alike", "agree"]))
    return [models.split() for models in own["models"]]


def _means(own: Array) -> tuple[float, ...]:
    """Mean tau, lowest, highest and the interval of the mean of `own` [3, pairs]."""
    if own.shape[1] == 0:
        return (np.nan,) * 5
    tau, low, high = own
    return float(tau.mean()), *map(float, (tau.min(), tau.max(), low.mean(), high.mean()))


def _relation(same: bool, own: Array) -> str:
    """How the models of a bloc, or of two, stand to one another; `own` [3, pairs]."""
    _, low, high = own
    if same and not len(low):
        return "alone"
    if same:
        return "alike" if low.mean() > CLEAR else "agree"
    if high.max() >= 0:
        return "unclear"
    return "opposed" if high.mean() < -CLEAR else "disagree"


def consensus(rewards: pl.DataFrame) -> pl.DataFrame:
    """Mean and spread of each token's percentiles over the models.

    Args:
      rewards: token, and one column per model, as `tokens.shared_rewards` makes them.

    Returns:
      token, percentile (mean over the models of the token's percentile in each, 0 to 1), spread
      (their standard deviation, ddof 1; NaN for one model), lowest and highest (of them), by
      falling percentile, then by token.
    """
    models = rewards.columns[1:]
    each = np.stack([ranks.percentiles(rewards[model].to_numpy()) for model in models])
    alone = len(models) == 1
    spread = np.full(rewards.height, np.nan) if alone else each.std(axis=0, ddof=1)
    means = rewards.select("token").with_columns(
        percentile=pl.Series(each.mean(axis=0), dtype=pl.Float64),
        spread=pl.Series(spread, dtype=pl.Float64),
        lowest=pl.Series(each.min(axis=0), dtype=pl.Float64),
        highest=pl.Series(each.max(axis=0), dtype=pl.Float64),
    )
    return means.sort("percentile", "token", descending=[True, False])


def consensus_ends(
    rewards: pl.DataFrame, groups: Sequence[Sequence[str]], count: int
) -> pl.DataFrame:
    """The words that the models of each bloc score highest and lowest, and those they dispute.

    Args:
      rewards: token, and one column per model, as `tokens.shared_rewards` makes them.
      groups: slugs of the models of each bloc.
      count: words at each end. Of spellings that differ by case and outer spaces, the first counts.

    Returns:
      The table `consensus_<prompt>.csv`: bloc (from 1), models (slugs, joined by a space), end
      ("highest" and "lowest" by percentile, "disputed" by spread; one model disputes nothing),
      rank (1 is the extreme), token, percentile (mean over the models, 0 to 1), spread (their
      standard deviation, ddof 1), lowest, highest (of a model).
    """
    frames = [pl.DataFrame(schema=_CONSENSUS)]
    for bloc, models in enumerate(groups, 1):
        means = consensus(rewards.select("token", *models))
        ends = {"highest": means, "lowest": means.sort("percentile", "token")}
        if len(models) > 1:
            ends["disputed"] = means.sort("spread", "token", descending=[True, False])
        for end, ordered in ends.items():
            keys = {"bloc": pl.lit(bloc), "models": pl.lit(" ".join(models)), "end": pl.lit(end)}
            own = first_words(ordered, count).with_row_index("rank", 1).with_columns(**keys)
            frames.append(own.select(list(_CONSENSUS)).cast(pl.Schema(_CONSENSUS)))
    return pl.concat(frames)


def first_words(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The first `count` rows of `table`, one of those that differ only by case and outer space."""
    # The ends hold many spellings of one word, so a longer head is searched.
    head = table.head(100 * count)
    numbered = head.with_columns(_word=pl.Series(words(head["token"])))
    return numbered.unique("_word", keep="first", maintain_order=True).head(count).drop("_word")
