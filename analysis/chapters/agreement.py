"""How far the models agree: square matrices of rank statistics, and every pair."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import polars as pl
from scipy.cluster import hierarchy

from analysis.blocks import Block, Files, Finding, Folded, Heading, Mark, Marks, Picture, notes
from analysis.charts.heat_map import heat_map
from analysis.columns import KENDALL, Column, Spec, ends, several
from analysis.measures.shared_tokens import NOTHING_SHARED, shared_rankings
from analysis.sentences import decimals, part_of
from analysis.statistics import Array, kendall, ranks
from analysis.statistics.kendall import FEWEST, Order, pair_interval
from analysis.statistics.ranks import Ranking, rank_biased_overlap
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, table
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

_Matrix: TypeAlias = Callable[[Sequence[Ranking]], Array]
ONE_MODEL = "Only one model was scored: agreement needs two."
PAIRS = Spec(
    "kendall_pairs_<prompt>",
    (
        *(*several("model", "model_a model_b"), KENDALL),
        *ends("fixed", "95 % for all pairs under the prompt together"),
        Column("stems", "count"),
    ),
    title="Pairs of models",
)
_PERSISTENCE = 0.9  # Of rank-biased overlap, as in the paper.
# Table -> what its numbers are, and how its chart is read.
_MATRICES = {
    "kendall_tau": (
        "Kendall’s τ",
        "Kendall’s τ-b on the shared vocabulary (1: the same order, −1: the opposite one); "
        "models that agree stand together.",
    ),
    "spearman": ("Spearman’s ρ", "Spearman’s ρ, as τ, but far disagreements weigh more."),
    "rbo": (
        "rank-biased overlap",
        "rank-biased overlap, how many of the highest tokens are the same; 0 means none.",
    ),
}


def _tables(study: Study) -> Iterator[Table]:
    """Of each prompt the matrices and the pairs."""
    matrices: dict[str, _Matrix] = {"kendall_tau": kendall.tau_matrix, "spearman": _rhos}
    matrices["rbo"] = partial(overlaps, p=_PERSISTENCE)
    for prompt in study.run.vocabulary_prompts:
        orders = functools.cache(partial(_orders, study, prompt))
        for name, matrix in matrices.items():
            yield table(name, prompt, make=partial(_matrix_of, orders, matrix))
        yield table("kendall_pairs", prompt, make=partial(_pairs_of, study, prompt, orders))


def kendall_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b of every pair of models: the table `kendall_tau_<prompt>.csv`.

    Args:
      rewards: token, and one column per model, as `tokens.shared_rewards` makes them.

    Returns:
      A square table: model, then one column per model, both in the order of `rewards`.
    """
    return _square(_rankings(rewards), kendall.tau_matrix)


def spearman_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rho of every pair of models: the table `spearman_<prompt>.csv`.

    Takes and returns the same shapes as `kendall_matrix`.
    """
    return _square(_rankings(rewards), _rhos)


def _rhos(columns: Sequence[Ranking]) -> Array:
    return ranks.pearson_matrix([column.average for column in columns])


def overlaps(columns: Sequence[Ranking], p: float) -> Array:
    """Rank-biased overlap of every two rankings [M, M]; `p` is the persistence, in (0, 1)."""
    values = np.empty((len(columns), len(columns)))
    positions = [column.positions for column in columns]
    for i, x in enumerate(positions):
        for j, y in enumerate(positions[: i + 1]):
            overlap = rank_biased_overlap(x, y, p)
            values[i, j] = values[j, i] = overlap
    return values


def kendall_pairs(
    tokens: pl.Series, orders: Mapping[str, Order], matrix: pl.DataFrame
) -> pl.DataFrame:
    """Every two models with the interval of their tau.

    Args:
      tokens: the tokens [N].
      orders: slug -> the model's order of them.
      matrix: Kendall's tau-b of every two models, as `kendall_matrix` makes it.

    Returns:
      The table `PAIRS`. Forms of one word are resampled together. NaN where a model has no order.
    """
    labels = stem_numbers(tokens)
    values = matrix.select(list(orders)).to_numpy()
    two = list(itertools.combinations(enumerate(orders), 2))
    rows = []
    for (i, a), (j, b) in two:
        interval = pair_interval(orders[a], orders[b], labels, float(values[i, j]), len(two))
        rows.append((a, b, *interval[:3], int(labels.max()) + 1))
    return PAIRS.frame(rows)


def _ordered(matrix: pl.DataFrame) -> list[str]:
    """Models of a square table that do not score every token alike (no NaN on the diagonal)."""
    names = matrix.columns[1:]
    diagonal = np.diag(matrix.select(names).to_numpy())
    return [name for name, value in zip(names, diagonal, strict=True) if not np.isnan(value)]


def _values(matrix: pl.DataFrame, models: Sequence[str]) -> Array:
    """The entries of some models of a square table [M, M]."""
    return matrix.filter(pl.col("model").is_in(models)).select(models).to_numpy()


def _pairs_of(study: Study, prompt: str, orders: Callable[[], Mapping[str, Order]]) -> pl.DataFrame:
    tokens, matrix = (study.tables[name, prompt] for name in ("shared_rewards", "kendall_tau"))
    return kendall_pairs(tokens["token"], orders(), matrix)


def _orders(study: Study, prompt: str) -> Mapping[str, Order]:
    """The order of each model that was scored under `prompt`, of two at least."""
    if len(study.models) < 2:
        raise Absent(ONE_MODEL)
    if len(study.scored_under(prompt)) < 2:
        raise Absent("Fewer than two models were scored under this prompt.")
    tokens = study.tables["shared_rewards", prompt]["token"]
    if not len(tokens):
        raise Absent(NOTHING_SHARED)
    rankings = shared_rankings(study.run, study.tables["shared_vocabulary"], prompt, tokens)
    return {model: Order.of(order) for model, order in rankings.items()}


def _matrix_of(orders: Callable[[], Mapping[str, Order]], matrix: _Matrix) -> pl.DataFrame:
    return _square({model: order.ranking for model, order in orders().items()}, matrix)


def _rankings(rewards: pl.DataFrame) -> Mapping[str, Ranking]:
    return {model: ranks.ranking(rewards[model].to_numpy()) for model in rewards.columns[1:]}


def _square(rankings: Mapping[str, Ranking], matrix: _Matrix) -> pl.DataFrame:
    """A table of the `matrix` [M, M] of the models of `rankings`.

    The diagonal is computed too: it is NaN, not 1, where a model scores every token alike.
    """
    models = list(rankings)
    schema: Columns = {"model": pl.String, **dict.fromkeys(models, pl.Float64)}
    values = matrix(list(rankings.values()))
    return pl.DataFrame([models, *values.T], schema=schema, orient="col")


def _drawn(study: Study) -> Iterator[Block]:
    """Heat maps and pairs, prompt by prompt."""
    if not study.scored:
        raise Absent(NO_VOCABULARY)
    if len(study.models) < 2:
        raise Absent(ONE_MODEL)
    prompts = study.run.vocabulary_prompts
    known = [prompt for prompt in prompts if study.tables.get("kendall_tau", prompt) is not None]
    for prompt in known:
        yield Heading(study.prompt_names[prompt])
        first, *other_maps = (_heat_map(study, name, prompt) for name in _MATRICES)
        files = Files([f"{name}_{prompt}.csv" for name in _MATRICES])
        yield from (first, Folded("Spearman’s ρ and rank-biased overlap", [*other_maps, files]))
        yield from PAIRS.rows(study.tables["kendall_pairs", prompt], prompt)
    yield from notes(study.tables.reason("kendall_tau", p) for p in prompts if p not in known)


def _heat_map(study: Study, name: str, prompt: str) -> Picture:
    matrix, tau = study.tables[name, prompt], study.tables["kendall_tau", prompt]
    models = _together(tau)
    listed = pl.Enum([*models, *(model for model in tau.columns[1:] if model not in models)])
    beside = matrix.select("model", *listed.categories).sort(pl.col("model").cast(listed))
    label, caption = _MATRICES[name]
    caption = f"Asked {study.prompt_names[prompt]}: {caption}"
    return Picture(f"{name}_{prompt}", caption, partial(heat_map, beside, study.names, label))


def _together(tau: pl.DataFrame) -> list[str]:
    """The models that have an order, those that agree next to one another (average linkage)."""
    models = _ordered(tau)
    if len(models) < 3:
        return models
    apart = 1 - _values(tau, models)[np.triu_indices(len(models), 1)]
    order = hierarchy.leaves_list(hierarchy.linkage(apart, method="average"))
    return [models[at] for at in order]


def _marks(study: Study) -> Marks | None:
    """τ of every pair of models under the prompt of the first finding."""
    first = next(findings(study), None)
    if first is None:
        return None
    prompt = first.picture.removeprefix("kendall_tau_")
    pairs = study.tables["kendall_pairs", prompt].filter(pl.col("kendall").is_not_nan())
    marks = [
        Mark(f"{study.names[a]} and {study.names[b]}", *numbers)
        for a, b, *numbers in pairs.select(
            "model_a", "model_b", "kendall", "ci_low", "ci_high"
        ).iter_rows()
    ]
    axis = f"Kendall’s τ asked {study.prompt_names[prompt]}; 1: the same order, −1: the opposite"
    return Marks.some(marks, axis, what="pairs")


def findings(study: Study) -> Iterator[Finding]:
    """How many pairs of models surely agree or disagree; prompts with disagreement first."""
    tables = [(prompt, pairs) for (prompt,), pairs in study.tables.of("kendall_pairs").items()]
    for prompt, pairs in sorted(tables, key=lambda entry: not (entry[1]["ci_high"] < 0).any()):
        known = pairs.filter(pl.col("kendall").is_not_nan(), pl.col("stems") >= FEWEST)
        sides = {"agree": pl.col("ci_low") > 0, "disagree": pl.col("ci_high") < 0}
        clauses = []
        for verb, sure in sides.items():
            most = known.filter(sure).sort("kendall", descending=verb == "agree")
            if most.height:
                a, b, tau, low, high = most.row(0)[:5]
                if pairs.height == 1:
                    clauses.append(f"{verb} more than chance (τ = {decimals(tau)})")
                    continue
                apart = ((most[1:, "ci_high"] < low) | (most[1:, "ci_low"] > high)).all()
                clauses.append(
                    f"{verb} more than chance in {part_of(most.height, known.height, 'pair')}"
                    + f", {study.names[a]} and {study.names[b]} most" * apart
                    + f" (τ {'=' if apart else 'up to' if tau > 0 else 'down to'} {decimals(tau)})"
                )
        if clauses:
            who = "the two models" if pairs.height == 1 else "models"
            text = f"Asked {study.prompt_names[prompt]}, {who} {', and '.join(clauses)}."
            yield Finding(text=text, picture=f"kendall_tau_{prompt}")


ANALYSIS = Analysis(
    id="agreement",
    title="Agreement",
    lead="How alike do two models rank the shared vocabulary, whatever the scale of their rewards? "
    "Kendall’s τ is 1 for equal orders, 0 for unrelated and −1 for opposite ones. Two models agree "
    "more than chance where the interval of τ is above 0, and disagree where it is below 0. "
    "Intervals are of 95%, for all pairs under a prompt together.",
    make=_tables,
    parts=(_drawn,),
    told=(findings,),
    marks=_marks,
)
