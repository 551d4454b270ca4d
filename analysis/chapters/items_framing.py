"""One model's orders of a list under different prompts: wordings, questions, framings (Fig A6)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import INTERVAL, Block, Column, Finding, Heading, Picture, Section, notes, rows
from analysis.chapters.items_agreement import lists_in, sample
from analysis.chapters.items_blocs import of_list
from analysis.ends import head_and_tail
from analysis.figures import prompt_pairs
from analysis.measures.list_scores import ITEM, ListScores, every_list
from analysis.sentences import decimals
from analysis.statistics import Array, kendall
from analysis.statistics.kendall import FEWEST, tau_b_matrix
from analysis.study import Study, Table, required, table
from analysis.words.questions import NEGATIVE, POSITIVE
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

ALL_MODELS = "all models"
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
_BETWEEN: Columns = {
    **dict.fromkeys(("list", "model", "question_a", "question_b"), pl.String),
    "pairs": pl.Int64,
    **dict.fromkeys(("kendall", "spread", "lowest", "highest"), pl.Float64),
}
_KINDS: Columns = {
    **dict.fromkeys(("list", "model", "kind"), pl.String),
    **dict.fromkeys(("models", "pairs", "items"), pl.Int64),
    **dict.fromkeys(("kendall", "ci_low", "ci_high"), pl.Float64),
}
_KEPT: Columns = {
    "list": pl.String,
    **ITEM,
    "n": pl.Int64,
    **dict.fromkeys(("positive", "negative", "kept", "turned"), pl.Float64),
}


def tables(study: Study) -> Iterator[Table]:
    """items_between_prompts.csv, items_prompt_kinds.csv and items_framing.csv."""
    yield table("items_between_prompts", make=partial(_between, study))
    yield table("items_prompt_kinds", make=partial(_kinds, study))
    yield table("items_framing", make=partial(_framing, study))


def items_between_prompts(scores: ListScores) -> pl.DataFrame:
    """Kendall's tau between the prompts, inside each model, by question.

    Returns:
      The table `items_between_prompts.csv`: list, model, question_a, question_b (the same: two
      wordings of one question), pairs (of prompts), kendall (mean of tau-b), spread (standard
      deviation; null for one pair), lowest, highest. In the order of the models and questions.
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
        found.append(grouped.with_columns(**keys).select(list(_BETWEEN)))
    return pl.concat([pl.DataFrame(schema=_BETWEEN), *found])


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
      The table `items_prompt_kinds.csv`: list, model (and "all models": the mean over them), kind,
      models, pairs (of prompts, in all models), items, kendall (mean of tau-b), ci_low, ci_high
      (95 %, the items taken as a random sample; models and prompts fixed).
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
            ends = kendall.sum_interval(share, value, size)
            pairs = int(counts[np.ix_(chosen, used)].sum())
            found.append((scores.name, name, kind, len(chosen), pairs, size, value, *ends))
    return pl.DataFrame(found, schema=_KINDS, orient="row")


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
      The table `items_framing.csv`: list, item_id, item, n (models), positive and negative (mean
      percentile over the models that have both), kept (their mean: high or low whatever is asked),
      turned (positive less negative); by falling `turned`, then by item_id. No rows without prompts
      of both framings.
    """
    both = [scores.means(scores.framed(framing)) for framing in (POSITIVE, NEGATIVE)]
    models = [model for model in both[0][0] if model in both[1][0]]
    if not models:
        return pl.DataFrame(schema=_KEPT)
    good, bad = (
        means[[names.index(model) for model in models]].mean(axis=0) for names, means in both
    )
    numbers = {"positive": good, "negative": bad, "kept": (good + bad) / 2, "turned": good - bad}
    each = scores.items.with_columns(
        list=pl.lit(scores.name),
        n=pl.lit(len(models), pl.Int64),
        **{name: pl.Series(values, dtype=pl.Float64) for name, values in numbers.items()},
    )
    order = pl.col("turned").round(12)
    return each.sort(order, "item_id", descending=[True, False]).select(list(_KEPT))


def _between(study: Study) -> pl.DataFrame:
    frames = pl.concat(map(items_between_prompts, every_list(study)))
    return required(frames, "No model scored a list under two prompts.")


def _kinds(study: Study) -> pl.DataFrame:
    _ = study.tables["items_between_prompts"]
    rng = np.random.default_rng(study.options.seed)
    frames = pl.concat(items_prompt_kinds(scores, rng) for scores in every_list(study))
    return required(frames, "No prompts of a list are wordings of one question, or have a framing.")


def _framing(study: Study) -> pl.DataFrame:
    frames = pl.concat(map(items_framing, every_list(study)))
    return required(frames, "No model scored a list under prompts of both framings.")


def section(study: Study) -> Section:
    """Each list: agreement by kind of pair, question by question, and item by item."""
    made, names, top = study.tables, study.names, study.settings.figure_top
    between, kinds, framing = (
        made.get(f"items_{name}") for name in ("between_prompts", "prompt_kinds", "framing")
    )
    reasons = ("between_prompts", "prompt_kinds", "framing")
    blocks: list[Block] = notes(made.reason(f"items_{name}") for name in reasons)
    for name in lists_in(between):
        blocks.append(Heading(name))
        own = of_list(kinds, name)
        if own.height:
            kinds_drawn = partial(prompt_pairs.kinds_of_pairs, own, names, KINDS)
            blocks.append(Picture(f"items_prompt_kinds_{name}", caption_of(own), kinds_drawn))
            shown = own.filter(model=ALL_MODELS)
            blocks += rows(shown, _COLUMNS, "items_prompt_kinds.csv", unfolded=True)
        caption = (
            "Mean τ between the prompts of every two questions, model by model. On the diagonal: "
            "between the wordings of one question."
        )
        draw = partial(prompt_pairs.between_prompts, of_list(between, name), names)
        blocks.append(Picture(f"items_between_prompts_{name}", caption, draw, 5))
        own = of_list(framing, name)
        if own.height:
            caption = (
                "Each point is an item, at its mean percentile over the models. Top right: high "
                "whatever is asked. Bottom right: high under positive and low under negative "
                "prompts, as the question demands of good things."
            )
            draw = partial(prompt_pairs.both_framings, own, max(2, top // 2))
            blocks.append(Picture(f"items_framing_{name}", caption, draw))
            ends = head_and_tail(own, top)
            blocks += rows(ends, _ITEM_COLUMNS, "items_framing.csv", f"{name}: item by item")
    return Section(
        id="items_framing",
        title="Lists under different prompts",
        label="Prompts of lists",
        lead="Does a model order a list by the question, by its wording, or alike whatever is "
        "asked? Kendall’s τ between the orders that one model gives under two prompts.",
        blocks=blocks,
        caveats=(
            "The intervals take the items as a sample and the prompts as they are: they say "
            "nothing about other questions.",
        ),
        findings=findings(study),
    )


def caption_of(kinds: pl.DataFrame) -> str:
    """What the figure shows, and whose the order is where the intervals say so.

    Args:
      kinds: rows of `items_prompt_kinds` of one list.
    """
    text = (
        "Another question is asked in another wording; questions in the same wording stand apart. "
        "A model that follows the question reverses its order under the opposite framing."
    )
    less = kinds.filter(pl.col("items") >= FEWEST, kind=WORDING_LESS, model=ALL_MODELS)
    if less.height and less["ci_low"][0] > 0:
        text += " Two wordings of one question agree more than two questions do."
    if less.height and less["ci_high"][0] < 0:
        text += " Two questions agree more than two wordings of one question do."
    return text


def findings(study: Study) -> list[Finding]:
    """What the opposite framing does to each list."""
    kinds = study.tables.get("items_prompt_kinds")
    found = []
    for name in lists_in(kinds):
        text = framing_beyond_chance(of_list(kinds, name))
        found += [Finding(text=text, picture=f"items_prompt_kinds_{name}")] if text else []
    return found


def framing_beyond_chance(kinds: pl.DataFrame) -> str:
    """What the opposite framing does to a list, where the interval of its tau leaves out 0.

    "" for fewer than 10 items.

    Args:
      kinds: rows of `items_prompt_kinds` of one list.
    """
    own = kinds.filter(kind=FRAMING)
    mean = own.filter(pl.col("items") >= FEWEST, model=ALL_MODELS)
    if not mean.height or not (mean["ci_low"][0] > 0 or mean["ci_high"][0] < 0):
        return ""
    value, low, high = mean.select("kendall", "ci_low", "ci_high").row(0)
    each = own.filter(pl.col("model") != ALL_MODELS)
    below, above = (each["ci_high"] < 0).sum(), (each["ci_low"] > 0).sum()
    reference = kinds.filter(kind=QUESTION, model=ALL_MODELS)["kendall"]
    beside = (
        f" Two questions of one framing give τ = {decimals(reference[0])}."
        if len(reference)
        else ""
    )
    order = f"the order of “{kinds['list'][0]}” in part"
    if below and above:  # Their mean says what none of them does.
        reverse, keep = ("s" if number == 1 else "" for number in (below, above))
        done = (
            f"{below} of {each.height} models reverse{reverse} {order}, and {above} keep{keep} it"
        )
    else:
        done = f"the models {'reverse' if value < 0 else 'keep'} {order}"
        beside = f" Taken alone, {below or above} of {each.height} do.{beside}"
    return (
        f"Asked for something bad instead of something good, {done}: mean τ = {decimals(value)} "
        f"between the two (95% interval over items {decimals(low)} to {decimals(high)}).{beside}"
    )


_COLUMNS: tuple[Column, ...] = (
    ("kind", "second prompt", "text"),
    ("models", "models", "count"),
    ("pairs", "pairs of prompts", "count"),
    ("kendall", "mean τ", "fixed"),
    *INTERVAL,
)
_ITEM_COLUMNS: tuple[Column, ...] = (
    ("item", "item", "token"),
    ("positive", "positive", "share"),
    ("negative", "negative", "share"),
    ("kept", "mean of both", "share"),
    ("turned", "difference", "share"),
)
