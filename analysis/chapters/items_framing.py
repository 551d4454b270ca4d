"""One model's orders of a list under different prompts: wordings, questions, framings (Fig A6).

Part of the chapter `items_agreement`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Picture
from analysis.charts.cells import between_prompts
from analysis.charts.estimates import estimates
from analysis.columns import LIST, MODEL, Column, Spec, ends, several
from analysis.measures.list_scores import ALL_MODELS, ListScores, every_list, of_list, sample
from analysis.statistics import Array, kendall
from analysis.statistics.kendall import FEWEST, tau_b_matrix
from analysis.study import Study, Table, required, table

WORDING, QUESTION, FRAMING = "other wording", "other question", "opposite framing"
SHARED = "other question, same wording"
KINDS = (WORDING, QUESTION, FRAMING, SHARED)
WORDING_LESS, QUESTION_LESS = "wording less question", "question less framing"
_CONTRASTS = {
    WORDING: (1.0, 0.0, 0.0, 0.0),
    QUESTION: (0.0, 1.0, 0.0, 0.0),
    FRAMING: (0.0, 0.0, 1.0, 0.0),
    SHARED: (0.0, 0.0, 0.0, 1.0),
    WORDING_LESS: (1.0, -1.0, 0.0, 0.0),
    QUESTION_LESS: (0.0, 1.0, -1.0, 0.0),
}
BETWEEN = Spec(
    "items_between_prompts",
    (
        *(LIST, MODEL, *several("text", "question_a question_b")),
        Column("pairs", "count", help="of prompts"),
        Column("kendall", "fixed", help="mean of τ-b between two prompts of the model"),
        *(*several("fixed", "spread", "standard deviation"), *several("fixed", "lowest highest")),
    ),
)
PROMPT_KINDS = Spec(
    "items_prompt_kinds",
    (
        *(LIST, MODEL.but(help="and `all models`")),
        Column(
            "kind",
            title="second prompt",
            help="`other wording`; `other question`, in another wording; `opposite framing`, in "
            "the same or another wording; `other question, same wording`; and two differences",
        ),
        Column("models", "count"),
        Column("pairs", "count", "pairs of prompts", "of prompts"),
        Column("items", "count"),
        Column("kendall", "fixed", "mean τ", "mean of τ-b"),
        *ends("fixed", "95 %, over items; they reach 0 as in items_agreement.csv"),
    ),
    page="kind models pairs kendall ci_low ci_high",
)


def tables(study: Study) -> Iterator[Table]:
    """items_between_prompts.csv and items_prompt_kinds.csv."""
    yield table(BETWEEN.name, make=partial(_between, study))
    yield table(PROMPT_KINDS.name, make=partial(_kinds, study))


def items_between_prompts(scores: ListScores) -> pl.DataFrame:
    """The table `BETWEEN` of one list, in the order of the models and questions."""
    names = scores.prompts["question"].to_list()
    upper = np.triu_indices(len(names), 1)
    frames = []
    for m, model in enumerate(scores.models):
        taus = pl.Series(tau_b_matrix(scores.percentiles[m])[upper], dtype=pl.Float64)
        a, b = ([names[i] for i in side] for side in upper)
        each = pl.DataFrame({"question_a": a, "question_b": b, "kendall": taus})
        tau = pl.col("kendall")
        known = each.filter(tau.is_not_nan())
        grouped = known.group_by("question_a", "question_b", maintain_order=True).agg(
            pairs=pl.len(),
            kendall=tau.mean(),
            spread=tau.std(),
            lowest=tau.min(),
            highest=tau.max(),
        )
        frames.append(BETWEEN.frame(grouped, list=scores.name, model=model))
    return pl.concat(frames)


def items_prompt_kinds(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Kendall's tau between two prompts of each model, by what distinguishes the prompts.

    The other question is of the same framing ("best" and "greatest"); in the same wording it makes
    orders alike too. Opposite framings are taken together, whatever their wordings. Where framings
    are not known, pairs are of wordings of one question, or of no kind. Intervals take the items as
    a random sample; models and prompts are fixed.

    Args:
      scores: the list.
      rng: draws the items from which the intervals of a long list are computed.

    Returns:
      The table `PROMPT_KINDS`. "all models" is the mean over them, and its pairs are those of all.
    """
    at, size = sample(scores, rng), scores.items.height
    counts = np.zeros((len(scores.models), len(KINDS)), dtype=np.int64)
    values = np.full(counts.shape, math.nan)
    shares = np.full((*counts.shape, len(at)), math.nan)
    for m, known in enumerate(scores.known):
        x = scores.percentiles[m, known]
        masks = _masks(scores.prompts.filter(pl.Series(known)))
        counts[m] = masks.sum(axis=(1, 2)) // 2
        weights = masks / np.maximum(2 * counts[m], 1)[:, None, None]
        taus = tau_b_matrix(x)
        values[m] = np.where(counts[m] > 0, (weights * taus).sum(axis=(1, 2)), math.nan)
        shares[m] = kendall.contributions(x[:, at], weights)
    rows = []
    for kind, contrast in _CONTRASTS.items():
        used = np.flatnonzero(contrast)
        sign = np.array(contrast)[used]
        models = np.flatnonzero((counts[:, used] > 0).all(axis=1))
        each = [(scores.models[m], models[[i]]) for i, m in enumerate(models)]
        for name, chosen in [*each, (ALL_MODELS, models)] if each else []:
            value = float((values[np.ix_(chosen, used)] @ sign).mean())
            share = np.einsum("mkn,k->mn", shares[np.ix_(chosen, used)], sign).mean(axis=0)
            tau = kendall.sum_interval(share, value, size)
            pairs = int(counts[np.ix_(chosen, used)].sum())
            counts_of = (len(chosen), pairs, size)
            rows.append((scores.name, name, kind, *counts_of, *tau[:3]))
    return PROMPT_KINDS.frame(rows)


def _masks(prompts: pl.DataFrame) -> Array:
    """Which pairs of `prompts` [P] are of each of `KINDS`: float64 [4, P, P]."""
    same, alike, worded = (
        prompts[name].to_numpy()[:, None] == prompts[name].to_numpy()[None, :]
        for name in ("question", "framing", "wording")
    )
    known = prompts["framing"].to_numpy() != ""
    framed = known[:, None] & known[None, :]
    other = ~same & framed & alike
    itself = np.eye(prompts.height, dtype=bool)
    kinds = [same & ~itself, other & ~worded, framed & ~alike, other & worded]
    return np.array(kinds, dtype=np.float64)


def _between(study: Study) -> pl.DataFrame:
    frames = pl.concat(map(items_between_prompts, every_list(study)))
    return required(frames, "No model scored a list under two prompts.")


def _kinds(study: Study) -> pl.DataFrame:
    _ = study.tables[BETWEEN.name]
    rng = np.random.default_rng(study.options.seed)
    frames = pl.concat(items_prompt_kinds(scores, rng) for scores in every_list(study))
    return required(frames, "No prompts of a list are wordings of one question, or have a framing.")


_CAPTION = (
    "95% intervals over the items. Another question is asked in another wording; questions in the "
    "same wording stand apart; opposite framings are taken together, whatever their wordings. A "
    "model that follows the question reverses its order under the opposite framing."
)


def drawn(study: Study, name: str) -> Iterator[Block]:
    """One list: agreement by kind of pair, and question by question."""
    kinds, between = (of_list(study, spec, name) for spec in (PROMPT_KINDS, BETWEEN))
    if kinds.height:
        shown = [kind for kind in KINDS if kind in kinds["kind"]]
        draw = partial(
            estimates,
            kinds.filter(pl.col("kind").is_in(shown)).select(
                "model", "kind", "kendall", "ci_low", "ci_high"
            ),
            study.names | {ALL_MODELS: ALL_MODELS},
            "Kendall’s τ between two prompts of one model",
            value="kendall",
            colour="kind",
            kinds=shown,
        )
        yield Picture(f"items_prompt_kinds_{name}", _CAPTION, draw)
        title = f"{name}: two prompts of one model"
        yield from PROMPT_KINDS.rows(kinds.filter(model=ALL_MODELS), title=title)
    if between.height:
        caption = (
            "Mean τ between the prompts of every two questions, model by model. On the diagonal: "
            "between the wordings of one question."
        )
        draw = partial(between_prompts, between, study.names)
        yield Picture(f"items_between_prompts_{name}", caption, draw)


def framing_beyond_chance(kinds: pl.DataFrame) -> str:
    """What the opposite framing does to a list.

    "" where the interval of the mean tau holds 0, and of fewer than 10 items; `kinds` are of one
    list.
    """
    opposite = kinds.filter(kind=FRAMING)
    mean = opposite.filter(pl.col("items") >= FEWEST, model=ALL_MODELS)
    if not mean.height or not (mean["ci_low"][0] > 0 or mean["ci_high"][0] < 0):
        return ""
    each = opposite.filter(pl.col("model") != ALL_MODELS)
    below, above = (each["ci_high"] < 0).sum(), (each["ci_low"] > 0).sum()
    order = f"the order of “{kinds['list'][0]}” in part"
    done = f"the models {'reverse' if mean['kendall'][0] < 0 else 'keep'} {order}"
    if below and above:  # Their mean says what none of them does.
        done = f"of {each.height} models {below} reverse {order}, and {above} keep it"
    return f"Asked for something bad instead of something good, {done}."
