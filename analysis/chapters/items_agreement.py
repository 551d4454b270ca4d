"""How far the models agree on the order of a list."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Column, Finding, Folded, Heading, Picture, Section, notes, rows
from analysis.chapters import items_blocs
from analysis.chapters.items_blocs import of_list
from analysis.chapters.items_questions import SOME
from analysis.charts.heat_map import heat_map
from analysis.measures.list_scores import ALL, ListScores, every_list
from analysis.statistics import Array, kendall
from analysis.statistics.kendall import tau_b_matrix
from analysis.study import Study, Table, required, table
from analysis.words.questions import NEGATIVE, POSITIVE
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_SAMPLE = 1_000  # Items from which an interval is computed, drawn where a list is longer.
_QUESTION: Columns = dict.fromkeys(("list", "question", "framing"), pl.String)
_NUMBERS = ("kendall", "kendall_spread", "spearman", "spearman_spread")
_PAIRS: Columns = {
    **_QUESTION,
    **dict.fromkeys(("model_a", "model_b"), pl.String),
    "prompts": pl.Int64,
    **dict.fromkeys(_NUMBERS, pl.Float64),
}
_AGREEMENT: Columns = {
    **_QUESTION,
    **dict.fromkeys(("prompts", "models", "pairs", "items"), pl.Int64),
    **dict.fromkeys(
        ("kendall", "ci_low", "ci_high", "lowest", "highest", "prompt_spread", "spearman"),
        pl.Float64,
    ),
}


def tables(study: Study) -> Iterator[Table]:
    """items_pairs.csv, items_agreement.csv, and those of `items_blocs`."""
    yield table("items_pairs", make=partial(_pairs, study))
    yield table("items_agreement", make=partial(_agreement, study))
    yield from items_blocs.tables(study)


def items_pairs(scores: ListScores) -> pl.DataFrame:
    """Agreement of every two models on one list: prompt by prompt, then averaged by question.

    Returns:
      The table `items_pairs.csv`: list, question (then "positive prompts", "negative prompts" and
      "all prompts" where there are several), framing, model_a, model_b, prompts (under which both
      have an order), kendall (tau-b, mean over these prompts), kendall_spread (its standard
      deviation over them; null for one), spearman, spearman_spread.
    """
    each = _by_prompt(scores)
    frames = [pl.DataFrame(schema=_PAIRS)]
    for question, framing, at in _parts(scores):
        part = each.filter(pl.col("prompt").is_in(at.tolist()))
        keys = {"list": scores.name, "question": question, "framing": framing}
        grouped = part.group_by("model_a", "model_b", maintain_order=True).agg(
            prompts=pl.len().cast(pl.Int64),
            kendall=pl.col("kendall").mean(),
            kendall_spread=pl.col("kendall").std(),
            spearman=pl.col("spearman").mean(),
            spearman_spread=pl.col("spearman").std(),
        )
        named = grouped.with_columns(**{key: pl.lit(value) for key, value in keys.items()})
        frames.append(named.select(list(_PAIRS)))
    return pl.concat(frames)


def items_agreement(scores: ListScores, rng: np.random.Generator) -> pl.DataFrame:
    """Mean agreement of all pairs of models on one list, by question.

    Args:
      scores: the list.
      rng: draws the items from which the interval of a long list is computed.

    Returns:
      The table `items_agreement.csv`: list, question, framing, prompts, models, pairs, items,
      kendall (mean of tau-b over pairs and prompts), ci_low, ci_high (95 %, the items taken as a
      random sample; models and prompts fixed), lowest and highest (means over prompts of the pair
      that agrees least and most), prompt_spread (standard deviation over the prompts of the mean
      over pairs; null for one prompt), spearman (mean).
    """
    pairs, each = items_pairs(scores), _by_prompt(scores)
    shares = _shares(scores, rng)
    found = []
    for question, framing, at in _parts(scores):
        own = pairs.filter(question=question)
        known = [p for p in at.tolist() if p in shares]
        if not known:
            continue
        over = each.filter(pl.col("prompt").is_in(known)).group_by("prompt", maintain_order=True)
        means = over.agg(pl.col("kendall", "spearman").mean())
        value = float(means["kendall"].to_numpy().mean())
        share = np.mean([shares[p] for p in known], axis=0)
        low, high = kendall.sum_interval(share, value, scores.items.height)
        models = {*own["model_a"], *own["model_b"]}
        counts = (len(known), len(models), own.height, scores.items.height)
        ends = (own["kendall"].min(), own["kendall"].max())
        spread = means["kendall"].std()
        numbers = (value, low, high, *ends, spread, means["spearman"].mean())
        found.append((scores.name, question, framing, *counts, *numbers))
    return pl.DataFrame(found, schema=_AGREEMENT, orient="row")


def _parts(scores: ListScores) -> list[tuple[str, str, Array]]:
    """`ListScores.parts`, and the framings before all prompts, which come last."""
    *each, last = scores.parts()
    return [*each, *scores.framings(), last] if each else [last]


def square(pairs: pl.DataFrame, question: str = "") -> pl.DataFrame:
    """Kendall's tau of one list under one question as a square table: model, then the models.

    Args:
      pairs: rows of `items_pairs` of one list.
      question: one of its questions; "" for the last, which is all prompts.
    """
    own = pairs.filter(question=question or pairs["question"][-1])
    both = pl.concat([own["model_a"], own["model_b"]])
    models = both.unique(maintain_order=True).to_list()
    values = np.full((len(models), len(models)), np.nan)
    np.fill_diagonal(values, 1.0)
    for a, b, tau in own.select("model_a", "model_b", "kendall").iter_rows():
        i, j = models.index(a), models.index(b)
        values[i, j] = values[j, i] = tau
    schema: Columns = {"model": pl.String, **dict.fromkeys(models, pl.Float64)}
    return pl.DataFrame([models, *values.T], schema=schema, orient="col")


def _by_prompt(scores: ListScores) -> pl.DataFrame:
    """Prompt (its place), model_a, model_b, kendall, spearman: every pair that has an order."""
    found = []
    for p in range(scores.prompts.height):
        known = np.flatnonzero(scores.known[:, p])
        if len(known) < 2:
            continue
        x = scores.percentiles[known, p]
        kendall, spearman = tau_b_matrix(x), np.corrcoef(x)
        for i, j in itertools.combinations(range(len(known)), 2):
            names = (scores.models[known[i]], scores.models[known[j]])
            found.append((p, *names, float(kendall[i, j]), float(spearman[i, j])))
    names = ("prompt", "model_a", "model_b", "kendall", "spearman")
    types = (pl.Int64, pl.String, pl.String, pl.Float64, pl.Float64)
    return pl.DataFrame(found, schema=dict(zip(names, types, strict=True)), orient="row")


def _shares(scores: ListScores, rng: np.random.Generator) -> dict[int, Array]:
    """Place of a prompt -> each item's share in the mean tau of the pairs of models under it."""
    at = sample(scores, rng)
    shares = {}
    for p in range(scores.prompts.height):
        known = np.flatnonzero(scores.known[:, p])
        if len(known) > 1:
            weights = np.ones((len(known), len(known))) - np.eye(len(known))
            x = scores.percentiles[known, p][:, at]
            shares[p] = kendall.contributions(x, weights[None] / weights.sum())[0]
    return shares


def sample(scores: ListScores, rng: np.random.Generator) -> Array:
    """The items from which intervals are computed: all, or 1,000 drawn from a longer list."""
    size = scores.items.height
    return np.sort(rng.choice(size, _SAMPLE, replace=False)) if size > _SAMPLE else np.arange(size)


_ONE = "Agreement on a list takes two models that scored it under one prompt."


def _pairs(study: Study) -> pl.DataFrame:
    return required(pl.concat(map(items_pairs, every_list(study))), _ONE)


def _agreement(study: Study) -> pl.DataFrame:
    _ = study.tables["items_pairs"]
    rng = np.random.default_rng(study.options.seed)
    return pl.concat(items_agreement(scores, rng) for scores in every_list(study))


def lists_in(frame: pl.DataFrame | None) -> list[str]:
    """The lists of a table, in the order of its rows; none for None."""
    return [] if frame is None else frame["list"].unique(maintain_order=True).to_list()


def section(study: Study) -> Section:
    """Each list: a heat map over all prompts, those by question folded, and the numbers."""
    made = study.tables
    blocks: list[Block] = notes([made.reason("items_pairs")])
    for name in lists_in(made.get("items_pairs")):
        own = made["items_pairs"].filter(list=name)
        blocks += [Heading(name), *_heat_maps(study, own)]
        blocks += rows(made["items_agreement"].filter(list=name), _COLUMNS, "items_agreement.csv")
        blocs = of_list(made.get("items_blocs"), name)
        blocks += rows(blocs, items_blocs.BLOC_COLUMNS, "items_blocs.csv", f"{name}: blocs")
    return Section(
        id="items_agreement",
        title="Agreement on lists",
        label="Agreement on lists",
        lead="How alike two models order the items of a list: Kendall’s τ under each prompt, then "
        "the mean over the wordings of a question.",
        blocks=blocks,
        caveats=(
            "The interval of a mean τ takes the items as a sample of such items. It says nothing "
            "about other models: those here share bases and data.",
        ),
        findings=findings(study),
    )


def _heat_maps(study: Study, pairs: pl.DataFrame) -> list[Block]:
    """Each framing, or all prompts where none is known; the rest is folded."""
    parts = pairs["question"].unique(maintain_order=True).to_list()
    shown = [part for part in parts if part in _FRAMED] or parts[-1:]
    name, last = pairs["list"][0], parts[-1]
    each = [part for part in parts[:-1] if part not in _FRAMED]
    rest = [*(each if len(each) <= SOME else []), *([last] if last not in shown else [])]
    stems = {part: f"items_kendall_{name}_{file_name(part)}" for part in parts[:-1]}
    stems[last] = f"items_kendall_{name}"
    drawn = {part: _heat_map(study, pairs, part, stems[part]) for part in (*shown, *rest)}
    folded = [Folded("Question by question", [drawn[part] for part in rest])] if rest else []
    return [*(drawn[part] for part in shown), *folded]


def _heat_map(study: Study, pairs: pl.DataFrame, question: str, stem: str) -> Picture:
    asked = question if question in (ALL, *_FRAMED) else f"“{question}”"
    caption = f"Kendall’s τ-b of every two models, {asked}: the mean over the prompts."
    draw = partial(heat_map, square(pairs, question), study.names, "Kendall’s τ")
    return Picture(stem, caption, draw, 6)


def file_name(question: str) -> str:
    """`question` as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", question)


def findings(study: Study) -> list[Finding]:
    """Whether the models agree on each list."""
    made = study.tables
    found: list[Finding] = []
    for name in lists_in(made.get("items_pairs")):
        pairs = made["items_pairs"].filter(list=name)
        for own in framed_rows(made["items_agreement"].filter(list=name)):
            picture = f"items_kendall_{name}"
            picture += f"_{file_name(own['question'])}" if own["question"] in _FRAMED else ""
            # A mean over models that oppose one another describes none of them.
            text = _opposition(study, name, own["framing"])
            text = text or items_blocs.agreement_beyond_chance(own, pairs, study.names)
            found += [Finding(text=text, picture=picture)] if text else []
    return found


def framed_rows(agreement: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of `items_agreement` of one list that sentences are about.

    One per framing, or the last where there is none: opposite framings cancel in a mean.
    """
    framed = agreement.filter(pl.col("question").is_in(_FRAMED))
    return (framed if framed.height else agreement.tail(1)).to_dicts()


def _opposition(study: Study, name: str, framing: str) -> str:
    pairs, blocs = (
        of_list(study.tables.get(f"items_{table}"), name) for table in ("framed_pairs", "blocs")
    )
    if not pairs.height or not framing:
        return ""
    pairs, blocs = pairs.filter(framing=framing), blocs.filter(framing=framing)
    return items_blocs.opposition(pairs, blocs, study.names)


_FRAMED = tuple(f"{framing} prompts" for framing in (POSITIVE, NEGATIVE))
_COLUMNS: tuple[Column, ...] = (
    ("question", "question", "text"),
    ("prompts", "prompts", "count"),
    ("models", "models", "count"),
    ("kendall", "mean τ", "fixed"),
    ("ci_low", "from", "fixed"),
    ("ci_high", "to", "fixed"),
    ("lowest", "lowest pair", "fixed"),
    ("highest", "highest pair", "fixed"),
    ("prompt_spread", "spread over prompts", "fixed"),
    ("spearman", "mean ρ", "fixed"),
)
