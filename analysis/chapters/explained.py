"""What explains agreement: a map of the models, and which of their traits predict it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    P_AND_Q,
    PROMPT,
    Block,
    Column,
    Finding,
    Heading,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.figures import style
from analysis.figures.model_map import map_of_models
from analysis.sentences import decimals, listed, q_value
from analysis.significant_effects import significant
from analysis.statistics import Array
from analysis.statistics.mantel import joint, mantel, pair_places, pairs_of, permutations
from analysis.statistics.mds import metric_mds
from analysis.statistics.multiplicity import with_q
from analysis.study import NO_VOCABULARY, Absent, Study, Table, table
from engine.runs.schema import Columns

_LEAST = 4  # Models: three have three pairs, and six orders are too few for a p-value.
_MDS: Columns = {"model": pl.String, **dict.fromkeys(("x", "y", "stress"), pl.Float64)}
_RSA: Columns = {
    "predictor": pl.String,
    **dict.fromkeys(
        ("pearson_r", "mantel_p", "spearman_rho", "spearman_mantel_p", "beta", "permutation_p"),
        pl.Float64,
    ),
}
_FIT: Columns = {"pairs": pl.Int64, **dict.fromkeys(("r_squared", "p", "max_vif"), pl.Float64)}


def tables(study: Study) -> Iterator[Table]:
    """mds_<prompt>.csv, rsa_<prompt>.csv and rsa_fit.csv.

    For these: ("explanation", prompt), what `rsa_table` returns, the fit beside every predictor.
    """
    prompts = study.run.vocabulary_prompts
    for prompt in prompts:
        yield table("mds", prompt, make=partial(_map, study, prompt))
    for prompt in prompts:
        explain = partial(_explanation, study, prompt)
        yield table("explanation", prompt, make=explain, file=False)
    for prompt in prompts:
        yield table("rsa", prompt, make=partial(_predictors, study, prompt))
    yield table("rsa_fit", make=partial(_fits, study))


def mds_table(matrix: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Models as points whose distances are 1 - tau as nearly as two dimensions allow (Fig 2B).

    Args:
      matrix: what `agreement.kendall_matrix` returns.
      rng: draws the random starts.

    Returns:
      The table `mds_<prompt>.csv`: model, x, y, stress (Kruskal's stress-1, the same in every
      row). Models that score every token alike are left out.
    """
    models = _ordered(matrix)
    values = matrix.filter(pl.col("model").is_in(models)).select(models).to_numpy()
    distances = np.clip(1 - values, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    points, stress = metric_mds(distances, rng)
    return pl.DataFrame([models, *points.T, [stress] * len(models)], schema=_MDS, orient="col")


def predictors(
    models: pl.DataFrame, lineage: Mapping[str, str | None] | None = None
) -> dict[str, Array]:
    """Similarities of the models' traits, which may explain their agreement (Fig 2C).

    Args:
      models: model, base, developer, size_b, rewardbench_rank, as `model_info.describe` returns.
      lineage: slug -> the reward model or preference data it was trained from.

    Returns:
      Trait -> square matrix. base: 1 where the base families are equal, else 0 (versions of one
      family count as equal: only so do the paper's numbers come out); developer: likewise; size:
      1 / (1 + |difference in B|); rank: 1 / (1 + |difference of RewardBench rank|); lineage: 1
      where equal. A trait that is not known of every model, or is the same for all pairs, is left
      out.
    """
    lines = [(lineage or {}).get(model) for model in models["model"]]
    traits = {
        "base": _equal([family(base) for base in models["base"]]),
        "developer": _equal(models["developer"].to_list()),
        "size": _near(models["size_b"].to_list()),
        "rank": _near(models["rewardbench_rank"].to_list()),
        "lineage": _equal(lines),
    }
    known = {name: matrix for name, matrix in traits.items() if matrix is not None}
    return {name: matrix for name, matrix in known.items() if np.ptp(pairs_of(matrix)) > 0}


def rsa_table(
    matrix: pl.DataFrame,
    explained_by: Mapping[str, Array],
    rng: np.random.Generator,
    draws: int,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Representational similarity analysis: which similarities of traits go with agreement.

    Base, developer, lineage and size go together (one developer trains on one base, QRM and URM
    start from Skywork's weights): read the joint coefficients beside the single correlations. The
    permutations treat all models as exchangeable. Where models come from a few lineages they are
    not, and the p of a trait that separates the lineages is too small.

    Args:
      matrix: similarity of the models, such as `agreement.kendall_matrix` returns.
      explained_by: trait -> matrix [M, M] in the order of `matrix`; see `predictors`.
      rng: draws the permutations; with few models all permutations are taken.
      draws: number of permutations at most.

    Returns:
      The table `rsa_<prompt>.csv` without its q: predictor, pearson_r, mantel_p (one-sided),
      spearman_rho, spearman_mantel_p, beta (standardised, all predictors together), permutation_p
      (two-sided);
      and one row on the joint regression: pairs, r_squared, p, max_vif.
    """
    models = _ordered(matrix)
    keep = [matrix.columns[1:].index(model) for model in models]
    values = matrix.select(matrix.columns[1:]).to_numpy()[np.ix_(keep, keep)]
    stack = np.array([m[np.ix_(keep, keep)] for m in explained_by.values()])
    orders, exact = permutations(len(models), draws, rng)
    places = pair_places(orders)
    together = joint(values, stack, places, exact)
    each = []
    for name, predictor, beta, p in zip(
        explained_by, stack, together.beta, together.p, strict=True
    ):
        plain = mantel(values, predictor, places, exact, rank=False)
        rank = mantel(values, predictor, places, exact, rank=True)
        numbers = (plain.correlation, plain.p, rank.correlation, rank.p, float(beta), float(p))
        each.append((name, *numbers))
    fit = (len(pairs_of(values)), together.r_squared, together.r_squared_p, together.max_vif)
    return (
        pl.DataFrame(each, schema=_RSA, orient="row"),
        pl.DataFrame([fit], schema=_FIT, orient="row"),
    )


def family(base: str | None) -> str | None:
    """Name of a base model without its version: "Llama 3.1" is of the family "Llama"."""
    return None if base is None else re.sub(r"[\s-]*v?\d[\w.]*$", "", base).strip() or base


def _map(study: Study, prompt: str) -> pl.DataFrame:
    return mds_table(_comparable(study, prompt), np.random.default_rng(study.options.seed))


def _explanation(study: Study, prompt: str) -> pl.DataFrame:
    """`rsa_table` of one prompt, the row of the fit repeated beside every predictor."""
    matrix = _comparable(study, prompt)
    if len(_ordered(matrix)) < _LEAST:
        raise Absent(f"What explains agreement takes {_LEAST} models or more.")
    known = study.described.filter(pl.col("model").is_in(matrix.columns[1:]))
    by = predictors(known, {slug: info.lineage for slug, info in study.infos.items()})
    if not by:
        raise Absent("No base, developer, size or rank is known of every model and varies.")
    rng = np.random.default_rng(study.options.seed)
    each, fit = rsa_table(matrix, by, rng, study.options.permutations)
    return each.join(fit, how="cross")


def _predictors(study: Study, prompt: str) -> pl.DataFrame:
    """`rsa_table` of one prompt with q."""
    if reason := study.tables.reason("explanation", prompt):
        raise Absent(reason)
    return corrected(_by_prompt(study, "explanation"))[prompt]


def corrected(explanations: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """`rsa_<prompt>.csv` of every prompt: the p-values with their q.

    Args:
      explanations: prompt -> the first table of `rsa_table`. A family is one kind of test of all
        traits under all prompts.
    """
    everything = pl.concat(
        each.select(pl.lit(prompt).alias("prompt"), *_RSA) for prompt, each in explanations.items()
    )
    for p, q in _Q.items():
        everything = with_q(everything, p=p, q=q)
    return {prompt: everything.filter(prompt=prompt).drop("prompt") for prompt in explanations}


_Q = {
    "mantel_p": "mantel_q",
    "spearman_mantel_p": "spearman_mantel_q",
    "permutation_p": "permutation_q",
}


def _fits(study: Study) -> pl.DataFrame:
    """The joint fits of all prompts, which are one family."""
    fits = [_fit(prompt, each) for (prompt,), each in study.tables.of("explanation").items()]
    if not fits:
        reasons = (why for key, why in study.tables.absent.items() if key[0] == "explanation")
        raise Absent(next(reasons, NO_VOCABULARY))
    return with_q(pl.concat(fits))


def _comparable(study: Study, prompt: str) -> pl.DataFrame:
    """Kendall's tau under `prompt`, of two or more models that have an order."""
    matrix = study.tables["kendall_tau", prompt]
    if len(_ordered(matrix)) < 2:
        raise Absent("Fewer than two models have an order: the others score every token alike.")
    return matrix


def _ordered(matrix: pl.DataFrame) -> list[str]:
    """Models of a square table that do not score every token alike (no NaN on the diagonal)."""
    names = matrix.columns[1:]
    diagonal = np.diag(matrix.select(names).to_numpy())
    return [name for name, value in zip(names, diagonal, strict=True) if not np.isnan(value)]


def _equal(values: Sequence[str | None]) -> Array | None:
    if any(value is None for value in values):
        return None
    return np.array([[float(a == b) for b in values] for a in values])


def _near(values: Sequence[float | None]) -> Array | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return np.array([[1 / (1 + abs(a - b)) for b in known] for a in known])


@style.styled
def predictor_bars(table: pl.DataFrame) -> style.Figure:
    """How well each trait of the models predicts their agreement, alone and jointly.

    Args:
      table: `rsa_<prompt>.csv`.
    """
    figure = style.canvas(7.6, 0.42 * table.height + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    _bars(left, table, "pearson_r", "mantel_q", "alone: Pearson’s r", style.TOP)
    _bars(right, table, "beta", "permutation_q", "jointly: standardised β", style.BOTTOM)
    left.set_yticks(range(table.height), [style.name(p) for p in table["predictor"]])
    left.invert_yaxis()
    return figure


def _bars(
    ax: style.Axes, table: pl.DataFrame, key: str, q_key: str, label: str, colour: str
) -> None:
    values = np.array(table[key].cast(pl.Float64).fill_null(np.nan).to_list())
    ax.barh(range(table.height), np.nan_to_num(values), color=colour, height=0.62)
    reach = max(0.2, float(np.nanmax(np.abs(np.append(values, 0.0)))))
    for at, (value, q) in enumerate(zip(values, table[q_key], strict=True)):
        known = np.isfinite(value)
        text = f"{decimals(value)}  ({q_value(q)})" if known else "undefined"
        ax.text(max(np.nan_to_num(value), 0) + 0.03 * reach, at, text, va="center", fontsize=8)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set_xlim(min(0.0, float(np.nanmin(np.append(values, 0.0)))) - 0.05 * reach, 1.75 * reach)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(label)


def section(study: Study) -> Section:
    """Map and bars, prompt by prompt, then the joint regressions."""
    prompts = study.run.vocabulary_prompts
    blocks: list[Block] = []
    if study.tables.of("mds"):
        blocks = [block for prompt in prompts for block in _under(study, prompt)]
    else:
        blocks = notes(study.tables.reason("mds", prompt) for prompt in prompts)
    fits = study.tables.get("rsa_fit")
    if fits is not None:
        blocks += [
            *rows(fits, _FITS, "rsa_fit.csv", "The joint regressions"),
            Text(_FAMILIES, "how"),
        ]
    return Section(
        id="explained",
        title="What explains agreement",
        label="Explained",
        lead="Models that share a base, a developer, a size or a rank may agree for that reason. "
        "The map shows which models are close; the bars test each trait, alone and with the "
        "others.",
        blocks=blocks or notes([NO_VOCABULARY]),
        findings=list(findings(_by_prompt(study, "rsa"), _pairs(study))),
        caveats=(
            "Lineage is confounded with the base: models trained from one another’s weights, or on "
            "one another’s preference data, mostly share their base too.",
            "Pairs that share a model are not independent. Coefficients of correlated traits are "
            "unreliable even where p is small.",
        ),
    )


def _under(study: Study, prompt: str) -> list[Block]:
    blocks: list[Block] = [Heading(f"Under “{prompt}”")]
    points = study.tables.get("mds", prompt)
    if points is not None:
        caption = (
            "Each model is a point; the further apart two stand, the less alike they rank the "
            "shared vocabulary. Directions mean nothing. Where the stress is high, distances are "
            "only approximate."
        )
        draw = partial(map_of_models, points, study.described, study.names)
        blocks.append(Picture(f"mds_{prompt}", caption, draw))
    each = study.tables.get("rsa", prompt)
    if each is not None:
        caption = (
            "How well a shared trait predicts agreement over the pairs of models. The p-values "
            "come from permuting the models; q corrects them."
        )
        blocks.append(Picture(f"rsa_{prompt}", caption, partial(predictor_bars, each)))
        blocks += rows(each, _COLUMNS, f"rsa_{prompt}.csv")
    return blocks + notes(study.tables.reason(name, prompt) for name in ("mds", "rsa"))


_FAMILIES = (
    "Each q corrects one column of p over all traits and prompts (Benjamini and Hochberg). The "
    "joint regressions are corrected on their own."
)


def _by_prompt(study: Study, name: str) -> dict[str, pl.DataFrame]:
    """Prompt -> its table `name`."""
    return {prompt: each for (prompt,), each in study.tables.of(name).items()}


def _pairs(study: Study) -> dict[str, int]:
    """Prompt -> pairs of models whose agreement is explained."""
    explained = _by_prompt(study, "explanation")
    return {prompt: int(each["pairs"][0]) for prompt, each in explained.items()}


def findings(tests: Mapping[str, pl.DataFrame], pairs: Mapping[str, int]) -> Iterator[Finding]:
    """One sentence for each prompt under which a trait surely goes with agreement.

    Args:
      tests: prompt -> `rsa_<prompt>.csv`.
      pairs: prompt -> pairs of models.
    """
    count = sum(each.height for each in tests.values())
    for prompt, each in tests.items():
        certain = significant(each, "mantel_q")
        if certain.height == 0:
            continue
        traits = [
            f"{name} (r = {r:.2f}, {q_value(q)})"
            for name, r, q in certain.select("predictor", "pearson_r", "mantel_q").iter_rows()
        ]
        text = (
            f"Under “{prompt}”, models that are alike in {listed(traits)} agree more: Pearson’s r "
            f"with Kendall’s τ over {pairs[prompt]} pairs of models; q by Mantel’s test, {count} "
            "tests."
        )
        yield Finding(text=text, picture=f"rsa_{prompt}")


def _fit(prompt: str, each: pl.DataFrame) -> pl.DataFrame:
    """The joint fit of one prompt, one row."""
    count = pl.lit(each.height, dtype=pl.Int64).alias("predictors")
    return each.head(1).select(pl.lit(prompt).alias("prompt"), count, *_FIT)


_COLUMNS: tuple[Column, ...] = (
    ("predictor", "trait", "text"),
    ("pearson_r", "Pearson’s r", "fixed"),
    ("mantel_p", "p (Mantel)", "p"),
    ("mantel_q", "q", "p"),
    ("spearman_rho", "Spearman’s ρ", "fixed"),
    ("spearman_mantel_p", "p (Mantel)", "p"),
    ("spearman_mantel_q", "q", "p"),
    ("beta", "β, jointly", "fixed"),
    ("permutation_p", "p (permutation)", "p"),
    ("permutation_q", "q", "p"),
)
_FITS: tuple[Column, ...] = (
    PROMPT,
    ("predictors", "traits", "count"),
    ("pairs", "pairs", "count"),
    ("r_squared", "R²", "fixed"),
    *P_AND_Q,
    ("max_vif", "largest variance inflation", "number"),
)
