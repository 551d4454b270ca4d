"""What explains agreement: a map of the models, and which of their traits predict it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, notes
from analysis.charts.estimates import estimates
from analysis.charts.look import Chart
from analysis.charts.model_map import map_of_models
from analysis.columns import MODEL, PROMPT, Column, Spec, q, several
from analysis.sentences import listed, q_value, significant, unclear
from analysis.statistics import Array
from analysis.statistics.similarity import (
    joint,
    mantel,
    metric_mds,
    pair_places,
    pairs_of,
    permutations,
)
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, table

_LEAST = 4  # Models: three have three pairs, and six orders are too few for a p-value.
_MDS = (MODEL, *several("number", "x y stress", "Kruskal's stress-1, the same in every row"))
MDS = Spec("mds_<prompt>", _MDS)
RSA = Spec(
    "rsa",
    (
        *(PROMPT, Column("predictor", title="trait", help="`base`, `developer`, `size`, `rank`")),
        Column("pairs", "count", help="of models"),
        Column("pearson_r", "fixed", "Pearson’s r", "of the trait's similarity with Kendall's τ"),
        *(Column("mantel_p", "p", "p (Mantel)", "one-sided"), q(of="mantel_p")),
        Column("beta", "fixed", "β, jointly", "standardised, all predictors together"),
        Column("r_squared", "fixed", help="of the joint regression of the prompt"),
    ),
    title="Traits of the models and their agreement",
)
_RSA = Spec("rsa", [column for column in RSA.columns if column.key not in ("prompt", "mantel_q")])
_KINDS = ("alone: Pearson’s r", "jointly: standardised β")


def _tables(study: Study) -> Iterator[Table]:
    for prompt in study.run.vocabulary_prompts:
        yield table("mds", prompt, make=partial(_map, study, prompt))
    yield table(RSA.name, make=partial(_rsa, study))


def mds_table(matrix: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Models as points whose distances are 1 - tau as nearly as two dimensions allow (Fig 2B).

    Args:
      matrix: what `agreement.kendall_matrix` returns.
      rng: draws the random starts.

    Returns:
      The table `MDS`, without models that score every token alike.
    """
    models = _ordered(matrix)
    values = matrix.filter(pl.col("model").is_in(models)).select(models).to_numpy()
    distances = np.clip(1 - values, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    points, stress = metric_mds(distances, rng)
    return MDS.frame(zip(models, *points.T, [stress] * len(models), strict=True))


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
    traits: dict[str, tuple[list[Any], Callable[..., float]]] = {  # Any: names or numbers
        "base": ([family(base) for base in models["base"]], _equal),
        "developer": (models["developer"].to_list(), _equal),
        "size": (models["size_b"].to_list(), _near),
        "rank": (models["rewardbench_rank"].to_list(), _near),
    }
    known = {
        name: np.array([[alike(a, b) for b in values] for a in values])
        for name, (values, alike) in traits.items()
        if None not in values
    }
    return {name: matrix for name, matrix in known.items() if np.ptp(pairs_of(matrix)) > 0}


def rsa_table(
    matrix: pl.DataFrame, explained_by: Mapping[str, Array], rng: np.random.Generator, draws: int
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
      The table `RSA` of one prompt, without prompt and q.
    """
    keep = [matrix.columns[1:].index(model) for model in _ordered(matrix)]
    values = matrix.select(matrix.columns[1:]).to_numpy()[np.ix_(keep, keep)]
    stack = np.array([m[np.ix_(keep, keep)] for m in explained_by.values()])
    orders, exact = permutations(len(keep), draws, rng)
    betas, r_squared = joint(values, stack)
    tests = mantel(values, stack, pair_places(orders), exact)
    each = [
        (name, len(pairs_of(values)), *test, beta, r_squared)
        for name, test, beta in zip(explained_by, tests, betas.tolist(), strict=True)
    ]
    return _RSA.frame(each)


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
    return RSA.frame(pl.concat(frames))


def _under_prompt(study: Study, prompt: str) -> pl.DataFrame:
    matrix = _comparable(study, prompt)
    if len(_ordered(matrix)) < _LEAST:
        raise Absent(f"What explains agreement takes {_LEAST} models or more.")
    by = predictors(study.described.filter(pl.col("model").is_in(matrix.columns[1:])))
    if not by:
        raise Absent("No base, developer, size or rank is known of every model and varies.")
    rng = np.random.default_rng(study.options.seed)
    rsa = rsa_table(matrix, by, rng, study.options.permutations)
    return rsa.with_columns(prompt=pl.lit(prompt))


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


def _equal(a: str, b: str) -> float:
    return float(a == b)


def _near(a: float, b: float) -> float:
    return 1 / (1 + abs(a - b))


def _drawn(study: Study) -> Iterator[Block]:
    """Map and tests, prompt by prompt."""
    rsa = study.tables.get("rsa")
    for prompt in study.run.vocabulary_prompts:
        points = study.tables.get("mds", prompt)
        if points is None:
            yield from notes([study.tables.reason("mds", prompt)])
            continue
        caption = (
            f"Asked {study.prompt_names[prompt]}: each model is a point; the further apart two "
            "stand, the less alike they rank the shared vocabulary. Directions mean nothing. Where "
            "the stress is high, distances are only approximate."
        )
        yield Heading(study.prompt_names[prompt])
        draw = partial(map_of_models, points, study.described, study.names)
        yield Picture(f"mds_{prompt}", caption, draw)
        each = None if rsa is None else rsa.filter(prompt=prompt)
        if each is not None and each.height:
            caption = (
                "How well a shared trait predicts agreement over the pairs of models. The p-values "
                "come from permuting the models; q corrects them over all traits and prompts."
            )
            yield Picture(f"rsa_{prompt}", caption, partial(tests, each))


def tests(rsa: pl.DataFrame) -> Chart:
    """How well each trait of the models predicts their agreement, alone and jointly."""
    said = [q_value(each) for each in rsa["mantel_q"]]
    columns = zip(_KINDS, ("pearson_r", "beta"), (said, [""] * rsa.height), strict=True)
    shown = pl.concat(
        rsa.select("predictor", pl.lit(kind).alias("kind"), pl.Series("q", text), value=key)
        for kind, key, text in columns
    )
    label = "correlation with agreement"
    return estimates(shown, {}, label, value="value", row="predictor", colour="kind", kinds=_KINDS)


def findings(rsa: pl.DataFrame, prompts: Mapping[str, str]) -> Iterator[Finding]:
    """Under which prompts a trait surely goes with agreement."""
    for (prompt,), each in significant(rsa, "mantel_q").group_by("prompt", maintain_order=True):
        text = (
            f"Asked {prompts[str(prompt)]}, models that are alike in "
            f"{listed(each['predictor'].to_list())} agree more about words."
        )
        yield Finding(text=text, picture=f"rsa_{prompt}")


ANALYSIS = Analysis(
    id="explained",
    title="What explains agreement",
    label="Explained",
    lead="Do models agree because they share a base, a developer, a size or a rank? The map shows "
    "which models are close; each trait is tested alone, and has a weight beside the others.",
    make=_tables,
    parts=(_drawn, lambda study: RSA.rows(study.tables["rsa"])),
    told=(lambda study: findings(study.tables["rsa"], study.prompt_names),),
    described=lambda study: unclear(
        study.tables["rsa"], "links of a trait with agreement", "mantel_q"
    ),
    caveats=lambda study: (
        "Models trained from one another’s weights, or on one another’s preference data, mostly "
        "share their base too: the two cannot be told apart.",
        "Pairs that share a model are not independent. Coefficients of correlated traits are "
        "unreliable.",
    ),
)
