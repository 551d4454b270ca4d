"""Which models agree and which disagree, in sentences."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import Finding
from analysis.chapters.blocs import RELATIONS
from analysis.sentences import at_most, bounds, listed, span
from analysis.study import Study

# Models, other models and relation of every claim under one prompt.
_Claims: TypeAlias = tuple[tuple[str, str, str], ...]
_SAID = {
    "alike": "rank alike",
    "agree": "agree more than chance",
    "opposed": "oppose one another",
    "disagree": "disagree more than chance",
}
# The same of all words, for a reader in a hurry.
_PLAIN = {
    "alike": "tend to rank the words alike",
    "agree": "rank the words somewhat alike",
    "opposed": "rank the words in largely opposite ways",
    "disagree": "rank the words in partly opposite ways",
}
_NAMED = 3  # Prompts, and pairs of blocs, that a sentence names.


def findings(study: Study) -> Iterator[Finding]:
    """All prompts in plain words; then tau, in one sentence for prompts under equal blocs."""
    same: dict[_Claims, list[str]] = {}
    for (prompt,), blocs in study.tables.of("blocs").items():
        if claims := _claims(blocs):
            same.setdefault(claims, []).append(prompt)
    ordered = sorted(same.items(), key=lambda item: not _opposing(item[0]))
    if not ordered:
        return
    plain = " ".join(_plainly(study, claims, prompts) for claims, prompts in ordered[:_NAMED])
    yield Finding(text=plain, picture=f"kendall_tau_{ordered[0][1][0]}")
    for claims, prompts in ordered:
        text = _measured(study, claims, prompts)
        yield Finding(text=text, picture=f"kendall_tau_{prompts[0]}")


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


def _claims(blocs: pl.DataFrame) -> _Claims:
    held = blocs.filter(pl.col("relation").is_in(RELATIONS))
    return tuple(held.select("models", "other_models", "relation").rows())


def _opposing(claims: _Claims) -> list[tuple[str, str, str]]:
    return [claim for claim in claims if claim[2] in ("opposed", "disagree")]


def _plainly(study: Study, claims: _Claims, prompts: list[str]) -> str:
    """Who opposes whom, or where nobody does, who ranks alike."""
    said = []
    for models, others, relation in (_opposing(claims) or claims)[:_NAMED]:
        first, second = (who(study, slugs.split()) for slugs in (models, others))
        names = first if models == others else f"{first} on one side and {second} on the other"
        said.append(f"{names} {_PLAIN[relation]}")
    return f"Asked {_prompts(study, prompts)}, {'; '.join(said)}."


def _measured(study: Study, claims: _Claims, prompts: list[str]) -> str:
    within, between = [], []
    for models, others, relation in claims:
        each = (study.tables["blocs", prompt] for prompt in prompts)
        rows = (blocs.filter(models=models, other_models=others) for blocs in each)
        tau = _tau([row.row(0, named=True) for row in rows])
        if models == others:
            within.append(f"{who(study, models.split())} {_SAID[relation]} ({tau})")
        else:
            two = " and ".join(_bloc(study, slugs.split()) for slugs in (models, others))
            between.append(f"{two} {_SAID[relation]} ({tau})")
    parts = within + between[:_NAMED]
    if (more := len(between) - _NAMED) > 0:
        pairs = "pairs of blocs oppose" if more > 1 else "pair of blocs opposes"
        parts.append(f"{more} more {pairs} one another or disagree{'s' * (more == 1)}")
    error = max(_error(study.tables["kendall_pairs", prompt]) for prompt in prompts)
    each = " under each prompt" if len(prompts) > 1 else ""
    return (
        f"Under {_prompts(study, prompts)}, {'; '.join(parts)}. τ is Kendall’s, over the shared "
        f"tokens; the 95% intervals of the pairs, which hold together{each}, are ±{at_most(error)} "
        "or narrower."
    )


def _bloc(study: Study, models: Sequence[str]) -> str:
    first = study.names[models[0]]
    return first if len(models) == 1 else f"the bloc of {first}"


def _prompts(study: Study, prompts: list[str]) -> str:
    names = [study.prompt_names[prompt] for prompt in prompts]
    return listed(names) if len(names) <= _NAMED else f"{len(names)} prompts such as {names[0]}"


def _tau(rows: list[dict[str, Any]]) -> str:  # Any: cells of a table
    """Mean tau, over the prompts from the lowest to the highest, and the range of its pairs."""
    mean = f"τ {span(np.array([row['kendall'] for row in rows]))}"
    pairs = rows[0]["pairs"]
    if pairs == 1:
        return mean
    low, high = min(row["lowest"] for row in rows), max(row["highest"] for row in rows)
    return f"mean {mean}; {pairs} pairs from {bounds(low, high)}"


def _error(pairs: pl.DataFrame) -> float:
    """The widest half of an interval."""
    above, below = pl.col("ci_high") - pl.col("kendall"), pl.col("kendall") - pl.col("ci_low")
    widest = pairs.filter(pl.col("kendall").is_not_nan()).select(pl.max_horizontal(above, below))
    return float(widest.to_series().to_numpy().max())
