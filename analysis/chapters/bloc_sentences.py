"""Which models agree and which disagree, in sentences."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import Finding
from analysis.chapters.blocs import RELATIONS
from analysis.sentences import at_most, decimals, listed, span
from analysis.study import Study

# Models, other models and relation of every claim under one prompt.
_Claims: TypeAlias = tuple[tuple[str, str, str], ...]
_Row: TypeAlias = dict[str, Any]  # Any: cells of a table
_SAID = {
    "alike": "rank alike",
    "agree": "agree more than chance",
    "opposed": "oppose one another",
    "disagree": "disagree more than chance",
}
_NAMED = 3  # Prompts, and pairs of blocs, that a sentence names.


def findings(study: Study) -> list[Finding]:
    """One sentence for all prompts under which the blocs are the same; opposition comes first."""
    alike: dict[_Claims, list[str]] = {}
    for (prompt,), table in study.tables.of("blocs").items():
        if claims := _claims(table):
            alike.setdefault(claims, []).append(prompt)
    ordered = sorted(alike.items(), key=lambda item: not _opposing(item[0]))
    return [
        Finding(text=_sentence(study, claims, prompts), picture=f"kendall_tau_{prompts[0]}")
        for claims, prompts in ordered
    ]


def who(study: Study, models: Sequence[str]) -> str:
    """The nicknames of `models`, or "all 5 models"."""
    if len(models) == len(study.names) > 2:
        return f"all {len(models)} models"
    return listed([study.names[model] for model in models])


def with_nicknames(table: pl.DataFrame, study: Study, *columns: str) -> pl.DataFrame:
    """`table` with an English list of nicknames where `columns` have slugs."""
    named = pl.col(*columns).map_elements(
        lambda slugs: listed([study.names[slug] for slug in slugs.split()]),
        return_dtype=pl.String,
    )
    return table.with_columns(named)


def _bloc(study: Study, models: Sequence[str]) -> str:
    first = study.names[models[0]]
    return first if len(models) == 1 else f"the bloc of {first}"


def _claims(table: pl.DataFrame) -> _Claims:
    held = table.filter(pl.col("relation").is_in(RELATIONS))
    return tuple(held.select("models", "other_models", "relation").rows())


def _opposing(claims: _Claims) -> bool:
    return any(relation in ("opposed", "disagree") for _, _, relation in claims)


def _sentence(study: Study, claims: _Claims, prompts: list[str]) -> str:
    within, between = [], []
    for models, others, relation in claims:
        tau = _measured([_row(study, prompt, models, others) for prompt in prompts])
        own, other = models.split(), others.split()
        if models == others:
            within.append(f"{who(study, own)} {_SAID[relation]} ({tau})")
        else:
            two = f"{_bloc(study, own)} and {_bloc(study, other)}"
            between.append(f"{two} {_SAID[relation]} ({tau})")
    asked = listed([f"“{p}”" for p in prompts]) if len(prompts) <= _NAMED else _many(prompts)
    parts = within + between[:_NAMED]
    if (more := len(between) - _NAMED) > 0:
        parts.append(f"{more} more pairs of blocs oppose one another or disagree")
    error = max(_error(study.tables["kendall_pairs", prompt]) for prompt in prompts)
    each = " under each prompt" if len(prompts) > 1 else ""
    return (
        f"Under {asked}, {'; '.join(parts)}. τ is Kendall’s, over the shared tokens; the 95% "
        f"intervals of the pairs, which hold together{each}, are ±{at_most(error)} or narrower."
    )


def _many(prompts: list[str]) -> str:
    return f"{len(prompts)} prompts (“{prompts[0]}” is the first)"


def _row(study: Study, prompt: str, models: str, others: str) -> _Row:
    table = study.tables["blocs", prompt]
    return table.filter(models=models, other_models=others).row(0, named=True)


def _measured(cells: list[_Row]) -> str:
    """Mean tau, over the prompts from the lowest to the highest, and the range of its pairs."""
    mean = f"τ {span(np.array([row['kendall'] for row in cells]))}"
    pairs = cells[0]["pairs"]
    if pairs == 1:
        return mean
    low, high = min(row["lowest"] for row in cells), max(row["highest"] for row in cells)
    return f"mean {mean}; {pairs} pairs from {decimals(low)} to {decimals(high)}"


def _error(pairs: pl.DataFrame) -> float:
    """The widest half of an interval."""
    above, below = pl.col("ci_high") - pl.col("kendall"), pl.col("kendall") - pl.col("ci_low")
    widest = pairs.filter(pl.col("kendall").is_not_nan()).select(pl.max_horizontal(above, below))
    return float(widest.to_series().to_numpy().max())
