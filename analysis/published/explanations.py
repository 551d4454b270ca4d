"""Which single convention explains what differs: by model, over the values of that model alone."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from analysis.published.comparison import Compared
from analysis.published.verdicts import DIFFERS, SAME, Verdict


def explanations(compared: Sequence[Compared]) -> list[dict[str, Any]]:  # Any: cells of a table
    """The readings that were tried, by model in the paper's order, that which meets most first.

    Values of several models are left out: a change of one of them is none of the other. So are
    those over the vocabulary that all scored models share, which differs where a model lacks.

    Returns:
      Rows of: model (nickname); change (name of the reading); differing: published values that
      differ in the paper's conventions, and were tried; met: of them, those that the reading
      gives; same: values that are the same, and were tried; kept: of them, those that it gives.
    """
    rows = [
        (model, change, verdict.kind, change in verdict.met)
        for model, verdict in _verdicts(compared)
        for change in verdict.tried
    ]
    names = {"model": pl.String, "change": pl.String, "kind": pl.String, "gives": pl.Boolean}
    differs, same = pl.col("kind") == DIFFERS, pl.col("kind") == SAME
    table = pl.DataFrame(rows, names, orient="row").group_by("model", "change", maintain_order=True)
    every = table.agg(
        differing=differs.sum(),
        met=(differs & pl.col("gives")).sum(),
        same=same.sum(),
        kept=(same & pl.col("gives")).sum(),
    ).to_dicts()
    models = list(dict.fromkeys(line.model for one in compared for line in one.lines))  # Table 1's
    return sorted(every, key=lambda one: (models.index(one["model"]), -one["met"], -one["kept"]))


def unexplained(every: Iterable[Mapping[str, Any]]) -> list[str]:  # Any: cells of a table
    """A sentence for each model that none of its readings gives a differing value of."""
    sentences = []
    for model, group in itertools.groupby(every, key=lambda one: one["model"]):
        rows = [one for one in group if one["differing"]]  # others: tried where nothing differs
        if rows and not any(one["met"] for one in rows):
            tried = f"none of the {len(rows)} changes gives"
            if len(rows) == 1:
                tried = f"the change {rows[0]['change']} does not give"
            sentences.append(
                f"{model}: {tried} any of the {max(one['differing'] for one in rows)} values that "
                "differ. Another reason has to be looked for."
            )
    return sentences


def alike(compared: Sequence[Compared]) -> set[str]:
    """Models with a value that is the published one, and none that differs: as in the table."""
    kinds: dict[str, set[str]] = {}
    for model, verdict in _verdicts(compared):
        kinds.setdefault(model, set()).add(verdict.kind)
    return {model for model, seen in kinds.items() if SAME in seen and DIFFERS not in seen}


def _verdicts(compared: Sequence[Compared]) -> Iterator[tuple[str, Verdict]]:
    """Model and verdict of every value that is of one model, and over its own vocabulary."""
    for one in (each for each in compared if not each.exhibit.of_shared):
        yield from ((line.model, line.verdict) for line in one.lines if line.model and line.counted)
        yield from ((each.model, each.verdict) for each in one.lists if each.verdict)
