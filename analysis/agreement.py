"""How far the models agree: square matrices of rank statistics, and what they agree on."""

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from analysis import overlap, ranks, scaling, similarity
from engine.runs.schema import Columns

Statistic = Callable[[np.ndarray, np.ndarray], float]


def square(columns: list[np.ndarray], statistic: Statistic) -> np.ndarray:
    """`statistic` of every pair of `columns` (M arrays [N]); float64 [M, M], symmetric.

    The diagonal is computed too: it is NaN, not 1, where a column has no order of its own.
    """
    matrix = np.empty((len(columns), len(columns)))
    for i, x in enumerate(columns):
        for j, y in enumerate(columns[: i + 1]):
            matrix[i, j] = matrix[j, i] = statistic(x, y)
    return matrix


def kendall_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b of every pair of models: the table `kendall_tau_<prompt>.csv`.

    Args:
      rewards: token, and a column a model, as `tokens.shared_rewards` makes them.

    Returns:
      A square table: model, then a column a model, both in the order of `rewards`.
    """
    # Ranked once a model rather than twice a pair; tau needs no more than the order.
    return _matrix(rewards, ranks.dense_ranks, ranks.kendall_tau)


def spearman_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rho of every pair of models: the table `spearman_<prompt>.csv`.

    Takes and returns the same shapes as `kendall_matrix`.
    """
    return _matrix(rewards, ranks.average_ranks, ranks.pearson)


def rbo_matrix(rewards: pl.DataFrame, p: float = 0.9, truncated: bool = False) -> pl.DataFrame:
    """Rank-biased overlap of every pair of models: the table `rbo_<prompt>.csv`.

    Args:
      rewards: as in `kendall_matrix`.
      p: persistence.
      truncated: the paper's form (`overlap.truncated_overlap`), without extrapolation and with
        ties in the order of the tokens.
    """
    if truncated:
        measure = functools.partial(overlap.truncated_overlap, p=p)
        return _matrix(rewards, ranks.dense_ranks, measure)
    return _matrix(rewards, overlap.places, functools.partial(overlap.placed_overlap, p=p))


def mds_table(matrix: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Models as points whose distances are 1 - tau as nearly as two dimensions allow (Fig 2B).

    Args:
      matrix: what `kendall_matrix` returns.
      rng: of the random starts.

    Returns:
      The table `mds_<prompt>.csv`: model, x, y, stress (Kruskal's stress-1, the same in every
      row). Models without an order are left out.
    """
    models = _ordered(matrix)
    values = matrix.filter(pl.col("model").is_in(models)).select(models).to_numpy()
    distances = np.clip(1 - values, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    points, stress = scaling.metric_mds(distances, rng)
    rows = {"model": models, "x": points[:, 0], "y": points[:, 1], "stress": [stress] * len(models)}
    return pl.DataFrame(rows, schema=_MDS)


def predictors(
    models: pl.DataFrame, lineage: Mapping[str, str | None] | None = None
) -> dict[str, np.ndarray]:
    """What could make two models agree, as square matrices (Fig 2C).

    Args:
      models: model, base, developer, size_b, rewardbench_rank, as `models.describe` returns.
      lineage: slug -> what reward model or preference data it grew from.

    Returns:
      base: 1 where the base families are equal (Llama 3 and 3.2 are: the paper's numbers come
      out so only), else 0; developer: likewise; size: 1 / (1 + |difference in B|); rank: 1 / (1 +
      |difference of RewardBench rank|); lineage, where it is given. One that is not known of
      every model, or is the same for all pairs, is absent.
    """
    lines = [(lineage or {}).get(model) for model in models["model"]]
    families = [family(base) for base in models["base"]]
    alike = {"base": families, "developer": models["developer"].to_list()}
    near = {"size": models["size_b"].to_list(), "rank": models["rewardbench_rank"].to_list()}
    found = {name: _alike(values) for name, values in alike.items()}
    found |= {name: _near(values) for name, values in near.items()}
    found["lineage"] = _alike(lines)
    there = {name: matrix for name, matrix in found.items() if matrix is not None}
    return {n: m for n, m in there.items() if np.ptp(similarity.vector(m)) > 0}


def rsa_table(
    matrix: pl.DataFrame,
    explained_by: Mapping[str, np.ndarray],
    rng: np.random.Generator,
    permutations: int = 9_999,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Representational similarity analysis: which likeness of models goes with agreement.

    Base, developer, lineage and size go together (one developer trains on one base, QRM and URM
    grow from Skywork's weights): read the joint betas beside the single correlations. Models are
    permuted as if any might have been like any other; a handful of lineages that happen to be
    alike makes the p of whatever sets them apart too small.

    Args:
      matrix: similarity of the models, such as `kendall_matrix` returns.
      explained_by: name -> matrix [M, M] in the order of `matrix`; see `predictors`.
      rng: of the permutations; with few models all of them are taken.
      permutations: how many at most.

    Returns:
      The table `rsa_<prompt>.csv`: predictor, pearson_r, mantel_p (one-sided), spearman_rho,
      spearman_mantel_p, beta (standardised, all predictors together), permutation_p (two-sided);
      and one row on the joint regression: pairs, r_squared, p, max_vif.
    """
    models = _ordered(matrix)
    keep = [matrix.columns[1:].index(model) for model in models]
    values = matrix.select(matrix.columns[1:]).to_numpy()[np.ix_(keep, keep)]
    stack = np.array([m[np.ix_(keep, keep)] for m in explained_by.values()])
    orders, exact = similarity.permutations(len(models), permutations, rng)
    together = similarity.joint(values, stack, orders, exact)
    rows = []
    for name, predictor, beta, p in zip(
        explained_by, stack, together.beta, together.p, strict=True
    ):
        plain = similarity.mantel(values, predictor, orders, exact, rank=False)
        rank = similarity.mantel(values, predictor, orders, exact, rank=True)
        numbers = (plain.correlation, plain.p, rank.correlation, rank.p, float(beta), float(p))
        rows.append(dict(zip(_RSA, (name, *numbers), strict=True)))
    fit = {
        "pairs": [len(similarity.vector(values))],
        "r_squared": [together.r_squared],
        "p": [together.r_squared_p],
        "max_vif": [together.max_vif],
    }
    return pl.DataFrame(rows, schema=_RSA), pl.DataFrame(fit, schema=_FIT)


def family(base: str | None) -> str | None:
    """Name of a base model without its version: "Llama 3.1" is of the family "Llama"."""
    return None if base is None else re.sub(r"[\s-]*v?\d[\w.]*$", "", base).strip() or base


_RSA: Columns = {
    "predictor": pl.String,
    **dict.fromkeys(
        ("pearson_r", "mantel_p", "spearman_rho", "spearman_mantel_p", "beta", "permutation_p"),
        pl.Float64,
    ),
}


_MDS: Columns = {"model": pl.String, **dict.fromkeys(("x", "y", "stress"), pl.Float64)}
_FIT: Columns = {"pairs": pl.Int64, **dict.fromkeys(("r_squared", "p", "max_vif"), pl.Float64)}


def _ordered(matrix: pl.DataFrame) -> list[str]:
    """Models of a square table that have an order of their own (no NaN on the diagonal)."""
    names = matrix.columns[1:]
    diagonal = np.diag(matrix.select(names).to_numpy())
    return [name for name, value in zip(names, diagonal, strict=True) if not np.isnan(value)]


def _alike(values: list) -> np.ndarray | None:
    if any(value is None for value in values):
        return None
    return np.array([[float(a == b) for b in values] for a in values])


def _near(values: list) -> np.ndarray | None:
    if any(value is None for value in values):
        return None
    return np.array([[1 / (1 + abs(a - b)) for b in values] for a in values])


def consensus(rewards: pl.DataFrame) -> pl.DataFrame:
    """Where the models together put each token.

    Args:
      rewards: token, and a column a model, as `tokens.shared_rewards` makes them.

    Returns:
      token, percentile (mean over the models of the token's percentile in each, 0 to 1) and
      spread (their standard deviation, ddof 0), by falling percentile, then by token.
    """
    models = rewards.columns[1:]
    each = np.stack([ranks.percentiles(rewards[model].to_numpy()) for model in models])
    table = rewards.select("token").with_columns(
        percentile=pl.Series(each.mean(axis=0), dtype=pl.Float64),
        spread=pl.Series(each.std(axis=0), dtype=pl.Float64),
    )
    return table.sort("percentile", "token", descending=[True, False])


def pairs(matrix: pl.DataFrame) -> pl.DataFrame:
    """The pairs of a square table: a, b, value; by falling value, then a, then b; no NaN."""
    models = matrix.columns[1:]
    values = matrix.select(models).to_numpy()
    rows = [
        {"a": a, "b": models[j], "value": float(values[i, j])}
        for i, a in enumerate(models)
        for j in range(i + 1, len(models))
    ]
    schema = {"a": pl.String, "b": pl.String, "value": pl.Float64}
    table = pl.DataFrame(rows, schema=schema).filter(pl.col("value").is_not_nan())
    return table.sort("value", "a", "b", descending=[True, False, False])


def _matrix(
    rewards: pl.DataFrame, prepare: Callable[[np.ndarray], np.ndarray], statistic: Statistic
) -> pl.DataFrame:
    models = rewards.columns[1:]
    matrix = square([prepare(rewards[model].to_numpy()) for model in models], statistic)
    schema: Columns = {"model": pl.String, **dict.fromkeys(models, pl.Float64)}
    return pl.DataFrame([models, *matrix.T], schema=schema)
