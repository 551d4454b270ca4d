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
from analysis.chapters.items_questions import ITEM, ITEM_ID
from analysis.charts.cells import between_prompts
from analysis.charts.estimates import estimates
from analysis.charts.points import both_framings
from analysis.columns import LIST, MODEL, Column, Spec, ends
from analysis.ends import head_and_tail
from analysis.measures.list_scores import ALL_MODELS, ListScores, every_list, sample
from analysis.sentences import decimals
from analysis.statistics import Array, kendall
from analysis.statistics.kendall import FEWEST, tau_b_matrix
from analysis.study import Study, Table, required, table
from analysis.words.questions import NEGATIVE, POSITIVE

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
        *(LIST, MODEL, Column("question_a"), Column("question_b")),
        Column("pairs", "count", help="of prompts"),
        Column("kendall", "fixed", help="mean of τ-b between two prompts of the model"),
        Column("spread", "fixed", help="standard deviation"),
        *(Column("lowest", "fixed"), Column("highest", "fixed")),
    ),
)
PROMPT_KINDS = Spec(
    "items_prompt_kinds",
    (
        *(LIST, MODEL.but(help="and `all models`")),
        Column(
            "kind",
            title="second prompt",
            help="`other wording`; `other question`, in another wording; `opposite framing`; "
            "`other question, same wording`; and two differences",
        ),
        Column("models", "count"),
        Column("pairs", "count", "pairs of prompts", "of prompts"),
        Column("items", "count"),
        Column("kendall", "fixed", "mean τ", "mean of τ-b"),
        *ends("fixed", "95 %, over items; they reach 0 as in items_agreement.csv"),
    ),
    page="kind models pairs kendall ci_low ci_high",
)
ITEMS = Spec(
    "items_framing",
    (
        *(LIST, ITEM_ID, ITEM, Column("n", "count", help="models")),
        Column("positive", "share"),
        Column("negative", "share", help="mean percentiles"),
        Column("kept", "share", "mean of both", "their mean"),
        Column("turned", "share", "difference", "their difference"),
    ),
    page="item positive negative kept turned",
)


def tables(study: Study) -> Iterator[Table]:
    """items_between_prompts.csv, items_prompt_kinds.csv and items_framing.csv."""
    yield table(BETWEEN.name, make=partial(_between, study))
    yield table(PROMPT_KINDS.name, make=partial(_kinds, study))
    yield table(ITEMS.name, make=partial(_framing, study))


def items_between_prompts(scores: ListScores) -> pl.DataFrame:
    """Kendall's tau between the prompts, inside each model, by question.

    Returns:
      The table `BETWEEN`, in the order of the models and questions; spread is null for one pair.
    """
    names = scores.prompts["question"].to_list()
    upper = np.triu_indices(len(names), 1)
    found = []
    for m, model in enumerate(scores.models):
        taus = tau_b_matrix(scores.percentiles[m])
        each = pl.DataFrame(
            {
                "question_a": [names[i] for i in upper[0]],
                "question_b": [names[j] for j in upper[1]],
                "tau": taus[upper],
            },
            schema_overrides={"tau": pl.Float64},
        ).filter(pl.col("tau").is_not_nan())
        tau = pl.col("tau")
        grouped = each.group_by("question_a", "question_b", maintain_order=True).agg(
            pairs=pl.len().cast(pl.Int64),
            kendall=tau.mean(),
            spread=tau.std(),
            lowest=tau.min(),
            highest=tau.max(),
        )
        keys = {"list": pl.lit(scores.name), "model": pl.lit(model)}
        found.append(BETWEEN.frame(grouped.with_columns(**keys)))
    return pl.concat(found)


def items_prompt_kinds(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Kendall's tau between two prompts of each model, by what distinguishes the prompts.

    Kinds: another wording of one question; another question of the same framing ("best" and
    "greatest") in another wording; a question of the opposite framing ("best" and "worst"); another
    question of the same framing in the same wording, which makes orders alike too. Pairs of prompts
    whose framing is not known are of none of the last three. Then the differences of the first
    three.

    Args:
      scores: the list.
      rng: draws the items from which the intervals of a long list are computed.

    Returns:
      The table `PROMPT_KINDS`. "all models" is the mean over them, and its pairs are those of all.
      Intervals take the items as a random sample; models and prompts are fixed.
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
        own = tau_b_matrix(x)
        values[m] = np.where(counts[m] > 0, (weights * own).sum(axis=(1, 2)), math.nan)
        shares[m] = kendall.contributions(x[:, at], weights)
    found = []
    for kind, contrast in _CONTRASTS.items():
        used = np.flatnonzero(contrast)
        sign = np.array(contrast)[used]
        models = np.flatnonzero((counts[:, used] > 0).all(axis=1))
        each = [(scores.models[m], models[[i]]) for i, m in enumerate(models)]
        for name, chosen in [*each, (ALL_MODELS, models)] if each else []:
            value = float((values[np.ix_(chosen, used)] @ sign).mean())
            share = np.einsum("mkn,k->mn", shares[np.ix_(chosen, used)], sign).mean(axis=0)
            low, high = kendall.sum_interval(share, value, size)
            pairs = int(counts[np.ix_(chosen, used)].sum())
            counts_of = (len(chosen), pairs, size)
            found.append((scores.name, name, kind, *counts_of, value, low, high))
    return PROMPT_KINDS.frame(found)


def _masks(prompts: pl.DataFrame) -> Array:
    """Which pairs of `prompts` [P] are of each of `KINDS`: float64 [4, P, P]."""
    same, alike, worded = (
        prompts[name].to_numpy()[:, None] == prompts[name].to_numpy()[None, :]
        for name in ("question", "framing", "wording")
    )
    known = prompts["framing"].to_numpy() != ""
    framed = known[:, None] & known[None, :]
    other = ~same & framed & alike
    own = np.eye(prompts.height, dtype=bool)
    kinds = [same & ~own, other & ~worded, framed & ~alike, other & worded]
    return np.array(kinds, dtype=np.float64)


def items_framing(scores: ListScores) -> pl.DataFrame:
    """Where each item stands under the positive and the negative prompts.

    Returns:
      The table `ITEMS`: means over the models that have both framings, by falling `turned`
      (positive less negative), then by item_id. No rows without prompts of both.
    """
    both = [scores.means(scores.framed(framing)) for framing in (POSITIVE, NEGATIVE)]
    models = [model for model in both[0][0] if model in both[1][0]]
    if not models:
        return ITEMS.frame([])
    good, bad = (
        means[[names.index(model) for model in models]].mean(axis=0) for names, means in both
    )
    numbers = {"positive": good, "negative": bad, "kept": (good + bad) / 2, "turned": good - bad}
    each = scores.items.with_columns(
        list=pl.lit(scores.name),
        n=pl.lit(len(models)),
        **{name: pl.Series(values, dtype=pl.Float64) for name, values in numbers.items()},
    )
    order = pl.col("turned").round(12)
    return ITEMS.frame(each).sort(order, "item_id", descending=[True, False])


def _between(study: Study) -> pl.DataFrame:
    frames = pl.concat(map(items_between_prompts, every_list(study)))
    return required(frames, "No model scored a list under two prompts.")


def _kinds(study: Study) -> pl.DataFrame:
    _ = study.tables[BETWEEN.name]
    rng = np.random.default_rng(study.options.seed)
    frames = pl.concat(items_prompt_kinds(scores, rng) for scores in every_list(study))
    return required(frames, "No prompts of a list are wordings of one question, or have a framing.")


def _framing(study: Study) -> pl.DataFrame:
    frames = pl.concat(map(items_framing, every_list(study)))
    return required(frames, "No model scored a list under prompts of both framings.")


def drawn(study: Study, name: str) -> Iterator[Block]:
    """One list: agreement by kind of pair, question by question, and item by item."""
    kinds, between, framing = (
        pl.DataFrame() if (made := study.tables.get(spec.name)) is None else made.filter(list=name)
        for spec in (PROMPT_KINDS, BETWEEN, ITEMS)
    )
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
        yield Picture(f"items_prompt_kinds_{name}", caption_of(kinds), draw)
        title = f"{name}: two prompts of one model"
        yield from PROMPT_KINDS.rows(kinds.filter(model=ALL_MODELS), title=title)
    if between.height:
        caption = (
            "Mean τ between the prompts of every two questions, model by model. On the diagonal: "
            "between the wordings of one question."
        )
        draw = partial(between_prompts, between, study.names)
        yield Picture(f"items_between_prompts_{name}", caption, draw, 5)
    if framing.height:
        top = study.settings.figure_top
        caption = (
            "Each square is a few items, at their mean percentiles over the models. Top right: "
            "high whatever is asked. Bottom right: high under positive and low under negative "
            "prompts, as the question demands of good things."
        )
        draw = partial(both_framings, framing, max(2, top // 2))
        yield Picture(f"items_framing_{name}", caption, draw)
        yield from ITEMS.rows(head_and_tail(framing, top), title=f"{name}: item by item")


def caption_of(kinds: pl.DataFrame) -> str:
    """What the chart shows, and whose the order is where the intervals say so.

    Args:
      kinds: rows of `PROMPT_KINDS` of one list.
    """
    text = (
        "95% intervals over the items. Another question is asked in another wording; questions in "
        "the same wording stand apart. A model that follows the question reverses its order under "
        "the opposite framing."
    )
    less = kinds.filter(pl.col("items") >= FEWEST, kind=WORDING_LESS, model=ALL_MODELS)
    if less.height and less["ci_low"][0] > 0:
        text += " Two wordings of one question agree more than two questions do."
    if less.height and less["ci_high"][0] < 0:
        text += " Two questions agree more than two wordings of one question do."
    return text


def framing_beyond_chance(kinds: pl.DataFrame) -> list[str]:
    """What the opposite framing does to a list, in plain words, and with its tau.

    Nothing where the interval of the mean tau holds 0, and of fewer than 10 items.

    Args:
      kinds: rows of `PROMPT_KINDS` of one list.
    """
    own = kinds.filter(kind=FRAMING)
    mean = own.filter(pl.col("items") >= FEWEST, model=ALL_MODELS)
    if not mean.height or not (mean["ci_low"][0] > 0 or mean["ci_high"][0] < 0):
        return []
    value, low, high = mean.select("kendall", "ci_low", "ci_high").row(0)
    each = own.filter(pl.col("model") != ALL_MODELS)
    below, above = (each["ci_high"] < 0).sum(), (each["ci_low"] > 0).sum()
    order = f"the order of “{kinds['list'][0]}” in part"
    alone = ""
    if below and above:  # Their mean says what none of them does.
        reverse, keep = ("s" if number == 1 else "" for number in (below, above))
        done = (
            f"{below} of {each.height} models reverse{reverse} {order}, and {above} keep{keep} it"
        )
    else:
        done = f"the models {'reverse' if value < 0 else 'keep'} {order}"
        verb = "keep" if above else "reverse"
        alone = f" Taken alone, {below or above} of {each.height} models {verb} it."
    plain = f"Asked for something bad instead of something good, {done}."
    measured = (
        f"Between prompts for something good and for something bad, the mean τ of “"
        f"{kinds['list'][0]}” is {decimals(value)} (95% interval over items {decimals(low)} to "
        f"{decimals(high)}).{alone}"
    )
    reference = kinds.filter(kind=QUESTION, model=ALL_MODELS)["kendall"]
    if len(reference):
        measured += f" Two questions of one framing give τ = {decimals(reference[0])}."
    return [plain, measured]
