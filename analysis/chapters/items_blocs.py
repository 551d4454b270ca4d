"""Who orders a list alike and who in opposite ways, asked for something good or something bad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import INTERVAL, Column
from analysis.chapters.agreement import kendall_matrix
from analysis.chapters.blocs import blocs_table, kendall_pairs
from analysis.measures.list_scores import ListScores, every_list
from analysis.sentences import decimals, listed
from analysis.statistics.kendall import FEWEST, Order
from analysis.study import Study, Table, required, table
from analysis.words.questions import ASKED_FOR
from engine.runs.schema import Columns

_KEYS: Columns = dict.fromkeys(("list", "framing"), pl.String)
_NAMED = 3  # Pairs of blocs that a sentence names.


def tables(study: Study) -> Iterator[Table]:
    """items_framed_pairs.csv and items_blocs.csv."""
    yield table("items_framed_pairs", make=partial(_pairs, study))
    yield table("items_blocs", make=partial(_blocs, study))


def items_framed_pairs(scores: ListScores) -> pl.DataFrame:
    """Every two models with the interval of their tau, framing by framing.

    The order of a model is that of its mean percentiles over the prompts of the framing.

    Returns:
      The table `items_framed_pairs.csv`: list, framing, then as `kendall_pairs`, the items taken
      as tokens.
    """
    frames = []
    for _, framing, at in scores.framings():
        models, means = scores.means(at)
        if len(models) > 1:
            items = scores.items["item"]
            each = dict(zip(models, means, strict=True))
            orders = {model: Order.of(x) for model, x in each.items()}
            matrix = kendall_matrix(pl.DataFrame({"item": items, **each}))
            pairs = kendall_pairs(items, orders, matrix)
            frames.append(_keyed(pairs, scores, framing))
    return pl.concat(frames) if frames else pl.DataFrame(schema=_KEYS)


def items_blocs(scores: ListScores, pairs: pl.DataFrame) -> pl.DataFrame:
    """Blocs of models that order one list alike, framing by framing.

    Args:
      scores: the list.
      pairs: `items_framed_pairs` of the list.

    Returns:
      The table `items_blocs.csv`: list, framing, then as `blocs_table`.
    """
    frames = []
    for (framing,), own in pairs.group_by("framing", maintain_order=True):
        there = {*own["model_a"], *own["model_b"]}
        models = [model for model in scores.models if model in there]
        frames.append(_keyed(blocs_table(own, models), scores, str(framing)))
    return pl.concat(frames) if frames else pl.DataFrame(schema=_KEYS)


def _keyed(frame: pl.DataFrame, scores: ListScores, framing: str) -> pl.DataFrame:
    return frame.select(pl.lit(scores.name).alias("list"), pl.lit(framing).alias("framing"), "*")


_NONE = "No two models scored a list under prompts whose framing is known."


def _pairs(study: Study) -> pl.DataFrame:
    frames = [items_framed_pairs(scores) for scores in every_list(study)]
    return required(pl.concat(frames, how="diagonal"), _NONE)


def _blocs(study: Study) -> pl.DataFrame:
    pairs = study.tables["items_framed_pairs"]
    each = every_list(study)
    frames = [items_blocs(scores, pairs.filter(list=scores.name)) for scores in each]
    return pl.concat(frames, how="diagonal")


def agreement_beyond_chance(
    own: Mapping[str, Any], pairs: pl.DataFrame, names: Mapping[str, str]
) -> str:
    """Whether the models agree on a list, where the interval of their mean tau leaves out 0.

    "" for fewer than 10 items.

    Args:
      own: a row of `items_agreement`.
      pairs: rows of `items_pairs` of the list.
      names: slug -> nickname.
    """
    if own["items"] < FEWEST or not (own["ci_low"] > 0 or own["ci_high"] < 0):
        return ""
    said = "agree" if own["kendall"] > 0 else "disagree"
    start = f"Asked for {ASKED_FOR[own['framing']]}, the" if own["framing"] else "The"
    text = (
        f"{start} {own['models']} models {said} on the order of the {own['items']:,} items of "
        f"“{own['list']}”, in the mean and beyond chance: mean τ = {decimals(own['kendall'])} "
        f"over {count(own['pairs'], 'pair')} of models and {count(own['prompts'], 'prompt')} "
        f"(95% interval over items {decimals(own['ci_low'])} to {decimals(own['ci_high'])})."
    )
    ends = pairs.filter(question=own["question"]).sort("kendall", "model_a", "model_b")
    if ends.height > 1:
        low, high = (
            f"{decimals(row['kendall'])} ({names[row['model_a']]} and {names[row['model_b']]})"
            for row in (ends.row(0, named=True), ends.row(-1, named=True))
        )
        text += f" The pairs run from {low} to {high}."
    return text


def opposition(pairs: pl.DataFrame, blocs: pl.DataFrame, names: Mapping[str, str]) -> str:
    """Which models order a list in opposite ways, in words; "" where no interval is below 0.

    "" for fewer than 10 items.

    Args:
      pairs: rows of `items_framed_pairs` of one list and framing.
      blocs: rows of `items_blocs` of the same.
      names: slug -> nickname.
    """
    below = pairs.filter(pl.col("ci_high") < 0, pl.col("stems") >= FEWEST).height
    if not below:  # Also where there are no rows.
        return ""
    text = (
        f"Asked for {ASKED_FOR[pairs['framing'][0]]}, {below} of {count(pairs.height, 'pair')} of "
        f"models order “{pairs['list'][0]}” in opposite ways: the interval of their τ is below 0 "
        "(95% for all pairs together; each model’s mean percentiles over the prompts)."
    )
    opposed = blocs.filter(pl.col("relation").is_in(["opposed", "disagree"]))
    opposed = opposed.sort("kendall", "models", "other_models")
    sides = ("models", "other_models", "kendall")
    said = [
        f"{_who(models, names)} against {_who(others, names)} (mean τ = {decimals(tau)})"
        for models, others, tau in opposed.head(_NAMED).select(sides).iter_rows()
    ]
    if said:
        text += f" Blocs of which every two models do: {'; '.join(said)}."
    return text


def _who(models: str, names: Mapping[str, str]) -> str:
    return listed([names[model] for model in models.split()])


def count(number: int, what: str) -> str:
    """A number of things: "1 pair", "3 pairs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def of_list(frame: pl.DataFrame | None, name: str) -> pl.DataFrame:
    """The rows of one list; none for None."""
    return pl.DataFrame() if frame is None else frame.filter(list=name)


BLOC_COLUMNS: tuple[Column, ...] = (
    ("framing", "asked", "text"),
    ("models", "bloc", "text"),
    ("other_models", "other bloc", "text"),
    ("relation", "relation", "text"),
    ("pairs", "pairs", "count"),
    ("kendall", "mean τ", "fixed"),
    *INTERVAL,
)
