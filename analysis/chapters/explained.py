"""What explains agreement: a map of the models, and which of their traits predict it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    PROMPT,
    Block,
    Column,
    Finding,
    Heading,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.figures import style
from analysis.figures.model_map import map_of_models
from analysis.sentences import decimals, listed, q_value
from analysis.significant_effects import significant
from analysis.statistics import Array
from analysis.statistics.inference import with_q
from analysis.statistics.similarity import (
    joint,
    mantel,
    metric_mds,
    pair_places,
    pairs_of,
    permutations,
)
from analysis.study import NO_VOCABULARY, Absent, Study, Table, table
from engine.runs.schema import Columns

_LEAST = 4  # Models: three have three pairs, and six orders are too few for a p-value.
_MDS: Columns = {"model": pl.String, **dict.fromkeys(("x", "y", "stress"), pl.Float64)}
_RSA: Columns = {
    "predictor": pl.String,
    "pairs": pl.Int64,
    **dict.fromkeys(("pearson_r", "mantel_p", "beta", "r_squared"), pl.Float64),
}


def tables(study: Study) -> Iterator[Table]:
    """mds_<prompt>.csv and rsa.csv."""
    for prompt in study.run.vocabulary_prompts:
        yield table("mds", prompt, make=partial(_map, study, prompt))
    yield table("rsa", make=partial(_rsa, study))


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


def predictors(models: pl.DataFrame) -> dict[str, Array]:
    """Similarities of the models' traits, which may explain their agreement (Fig 2C).

    Args:
      models: model, base, developer, size_b, rewardbench_rank, as `model_info.describe` returns.

    Returns:
      Trait -> square matrix. base: 1 where the base families are equal, else 0 (versions of one
      family count as equal: only so do the paper's numbers come out); developer: likewise; size:
      1 / (1 + |difference in B|); rank: 1 / (1 + |difference of RewardBench rank|). A trait that
      is not known of every model, or is the same for all pairs, is left out.
    """
    traits = {
        "base": _equal([family(base) for base in models["base"]]),
        "developer": _equal(models["developer"].to_list()),
        "size": _near(models["size_b"].to_list()),
        "rank": _near(models["rewardbench_rank"].to_list()),
    }
    known = {name: matrix for name, matrix in traits.items() if matrix is not None}
    return {name: matrix for name, matrix in known.items() if np.ptp(pairs_of(matrix)) > 0}


def rsa_table(
    matrix: pl.DataFrame,
    explained_by: Mapping[str, Array],
    rng: np.random.Generator,
    draws: int,
) -> pl.DataFrame:
    """Representational similarity analysis: which similarities of traits go with agreement.

    Base, developer and size go together (one developer trains on one base): read the joint
    coefficients beside the single correlations. The permutations treat all models as exchangeable.
    Models that were trained from one another's weights or data are not, and the p of a trait that
    separates them is too small.

    Args:
      matrix: similarity of the models, such as `agreement.kendall_matrix` returns.
      explained_by: trait -> matrix [M, M] in the order of `matrix`; see `predictors`.
      rng: draws the permutations; with few models all permutations are taken.
      draws: number of permutations at most.

    Returns:
      predictor, pairs (of models), pearson_r, mantel_p (one-sided), beta (standardised, all
      predictors together), r_squared (of the joint regression, the same in every row).
    """
    models = _ordered(matrix)
    keep = [matrix.columns[1:].index(model) for model in models]
    values = matrix.select(matrix.columns[1:]).to_numpy()[np.ix_(keep, keep)]
    stack = np.array([m[np.ix_(keep, keep)] for m in explained_by.values()])
    orders, exact = permutations(len(models), draws, rng)
    places = pair_places(orders)
    betas, r_squared = joint(values, stack)
    tests = mantel(values, stack, places, exact)
    each = [
        (name, len(pairs_of(values)), *test, beta, r_squared)
        for name, test, beta in zip(explained_by, tests, betas.tolist(), strict=True)
    ]
    return pl.DataFrame(each, schema=_RSA, orient="row")


def family(base: str | None) -> str | None:
    """Name of a base model without its version: "Llama 3.1" is of the family "Llama"."""
    return None if base is None else re.sub(r"[\s-]*v?\d[\w.]*$", "", base).strip() or base


def _map(study: Study, prompt: str) -> pl.DataFrame:
    return mds_table(_comparable(study, prompt), np.random.default_rng(study.options.seed))


def _rsa(study: Study) -> pl.DataFrame:
    """`rsa_table` of every prompt, with q over all traits and prompts."""
    frames, reasons = [], []
    for (prompt,) in study.tables.of("kendall_tau"):
        try:
            frames.append(_under_prompt(study, prompt))
        except Absent as reason:
            reasons.append(str(reason))
    if not frames:
        missing = (why for key, why in study.tables.absent.items() if key[0] == "kendall_tau")
        raise Absent(next(iter([*reasons, *missing]), NO_VOCABULARY))
    return with_q(pl.concat(frames), p="mantel_p", q="mantel_q")


def _under_prompt(study: Study, prompt: str) -> pl.DataFrame:
    matrix = _comparable(study, prompt)
    if len(_ordered(matrix)) < _LEAST:
        raise Absent(f"What explains agreement takes {_LEAST} models or more.")
    by = predictors(study.described.filter(pl.col("model").is_in(matrix.columns[1:])))
    if not by:
        raise Absent("No base, developer, size or rank is known of every model and varies.")
    rng = np.random.default_rng(study.options.seed)
    found = rsa_table(matrix, by, rng, study.options.permutations)
    return found.select(pl.lit(prompt).alias("prompt"), *_RSA)


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
      table: rows of `rsa.csv` of one prompt.
    """
    figure = style.canvas(7.6, 0.42 * table.height + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    _bars(left, table, "pearson_r", "mantel_q", "alone: Pearson’s r", style.TOP)
    _bars(right, table, "beta", "", "jointly: standardised β", style.BOTTOM)
    left.set_yticks(range(table.height), [style.name(p) for p in table["predictor"]])
    left.invert_yaxis()
    return figure


def _bars(
    ax: style.Axes, table: pl.DataFrame, key: str, q_key: str, label: str, colour: str
) -> None:
    values = np.array(table[key].cast(pl.Float64).fill_null(np.nan).to_list())
    ax.barh(range(table.height), np.nan_to_num(values), color=colour, height=0.62)
    reach = max(0.2, float(np.nanmax(np.abs(np.append(values, 0.0)))))
    for at, value in enumerate(values):
        text = decimals(value) if np.isfinite(value) else "undefined"
        if q_key and np.isfinite(value):
            text += f"  ({q_value(table[q_key][at])})"
        ax.text(max(np.nan_to_num(value), 0) + 0.03 * reach, at, text, va="center", fontsize=8)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    ax.set_xlim(min(0.0, float(np.nanmin(np.append(values, 0.0)))) - 0.05 * reach, 1.75 * reach)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(label)


def section(study: Study) -> Section:
    """Map and bars, prompt by prompt, then the table."""
    prompts = study.run.vocabulary_prompts
    rsa = study.tables.get("rsa")
    blocks = [block for prompt in prompts for block in _under(study, prompt)]
    if rsa is not None:
        blocks += rows(rsa, _COLUMNS, "rsa.csv", "Traits of the models and their agreement")
    else:
        blocks += notes([study.tables.reason("rsa")])
    return Section(
        id="explained",
        title="What explains agreement",
        label="Explained",
        lead="Models that share a base, a developer, a size or a rank may agree for that reason. "
        "The map shows which models are close; the bars test each trait, alone and with the "
        "others.",
        blocks=blocks,
        findings=[] if rsa is None else list(findings(rsa)),
        caveats=(
            "Models trained from one another’s weights, or on one another’s preference data, "
            "mostly share their base too: the two cannot be told apart.",
            "Pairs that share a model are not independent. Coefficients of correlated traits are "
            "unreliable.",
        ),
    )


def _under(study: Study, prompt: str) -> list[Block]:
    blocks: list[Block] = []
    points, rsa = study.tables.get("mds", prompt), study.tables.get("rsa")
    if points is not None:
        caption = (
            "Each model is a point; the further apart two stand, the less alike they rank the "
            "shared vocabulary. Directions mean nothing. Where the stress is high, distances are "
            "only approximate."
        )
        draw = partial(map_of_models, points, study.described, study.names)
        blocks.append(Picture(f"mds_{prompt}", caption, draw))
    each = None if rsa is None else rsa.filter(prompt=prompt)
    if each is not None and each.height:
        caption = (
            "How well a shared trait predicts agreement over the pairs of models. The p-values "
            "come from permuting the models; q corrects them over all traits and prompts."
        )
        blocks.append(Picture(f"rsa_{prompt}", caption, partial(predictor_bars, each)))
    blocks += notes([study.tables.reason("mds", prompt)])
    return [Heading(f"Under “{prompt}”"), *blocks] if points is not None else blocks


def findings(rsa: pl.DataFrame) -> Iterator[Finding]:
    """One sentence for each prompt under which a trait surely goes with agreement.

    Args:
      rsa: `rsa.csv`.
    """
    for (prompt,), each in significant(rsa, "mantel_q").group_by("prompt", maintain_order=True):
        traits = [
            f"{name} (r = {r:.2f}, {q_value(q)})"
            for name, r, q in each.select("predictor", "pearson_r", "mantel_q").iter_rows()
        ]
        text = (
            f"Under “{prompt}”, models that are alike in {listed(traits)} agree more: Pearson’s r "
            f"with Kendall’s τ over {each['pairs'][0]} pairs of models; q by Mantel’s test, "
            f"{rsa.height} tests."
        )
        yield Finding(text=text, picture=f"rsa_{prompt}")


_COLUMNS: tuple[Column, ...] = (
    PROMPT,
    ("predictor", "trait", "text"),
    ("pairs", "pairs", "count"),
    ("pearson_r", "Pearson’s r", "fixed"),
    ("mantel_p", "p (Mantel)", "p"),
    ("mantel_q", "q", "p"),
    ("beta", "β, jointly", "fixed"),
    ("r_squared", "R², jointly", "fixed"),
)
