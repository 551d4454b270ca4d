"""Where in the tables of a run each published number stands: a function of a run and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # which looks up its numbers here
    from analysis.published.run_values import RunValues

Row = Mapping[str, Any]  # cells of `data.NUMBERS`
Finder = Callable[["RunValues", Row], float | None]  # raises `run_values.Missing`
ROUNDED = "rsa_rounded"  # table: `rounding.RoundedAgreement`
_PEOPLE = "human"


def _moment(computed: RunValues, row: Row) -> float | None:
    return computed.cell(("moments",), row["quantity"], row["model"], prompt=row["prompt"])


def _matrix(name: str) -> Finder:
    return lambda computed, row: computed.square((name, row["prompt"]), row["model"], row["other"])


def _explained(column: str) -> Finder:
    """A column of the test of one trait."""

    def find(computed: RunValues, row: Row) -> float | None:
        computed.of_all(len(computed.scored))
        return computed.cell((ROUNDED, row["prompt"]), column, predictor=row["other"])

    return find


def _joint(computed: RunValues, row: Row) -> float | None:
    """Of all traits together: the same in each row of the table."""
    computed.of_all(len(computed.scored))
    return computed.cell((ROUNDED, row["prompt"]), "r_squared")


def _sentiment(computed: RunValues, row: Row) -> float | None:
    where = {"prompt": row["prompt"], "valence": row["other"]}
    return computed.cell(("sentiment_slopes",), "slope", row["model"], **where)


def _frequency(computed: RunValues, row: Row) -> float | None:
    return computed.cell(("frequency_slopes",), "slope", row["model"], prompt=row["prompt"])


def _with_people(computed: RunValues, row: Row) -> float | None:
    return computed.cell(
        ("humans_correlation",), "spearman", row["model"], **_ranked_list(computed, row)
    )


def _gap(computed: RunValues, row: Row) -> float | None:
    where = _ranked_list(computed, row)
    computed.of_all(computed.table("humans_correlation").filter(**where).height)
    return computed.cell(("humans_gap",), "gap", item=row["other"], **where)


def _ranked_list(computed: RunValues, row: Row) -> dict[str, str]:
    """List and prompt of a row, of a list that people ranked too."""
    where = {"prompt": row["prompt"], "list": computed.compared_list()}
    if not computed.table("humans_correlation").filter(**where).height:
        raise computed.absent("humans_correlation")
    return where


def _first(computed: RunValues, row: Row) -> float | None:
    """How many models rank an item first."""
    where = _ranked_list(computed, row)
    ranked = computed.table("humans_ranks", where["list"], where["prompt"])
    models = ranked.columns[_RANKS:]
    computed.of_all(len(models))
    item = ranked.filter(item=row["other"]).select(models)
    return float((item.to_numpy() == 1).sum()) if item.height else None


_RANKS = 4  # columns before those of the models


def _among_items(computed: RunValues, row: Row) -> float | None:
    """Agreement on the list: of two models it needs no people."""
    key = computed.agreement(row["prompt"], people=row["other"] == _PEOPLE)
    return computed.square(key, row["model"], row["other"])


def _mean_agreement(computed: RunValues, row: Row) -> float | None:
    matrix = computed.table(*computed.agreement(row["prompt"]))
    models = [name for name in matrix.columns[1:] if name != _PEOPLE]
    computed.of_all(len(models))
    square = matrix.filter(~matrix["model"].is_in([_PEOPLE])).select(models).to_numpy()
    return float(square[np.triu_indices(len(models), 1)].mean())


NUMBERS: Mapping[tuple[str, str], Finder] = {  # exhibit and quantity
    **{("table_3", moment): _moment for moment in ("mean", "variance", "skewness")},
    ("figure_2a", "kendall"): _matrix("kendall_tau"),
    ("figure_2c", "pearson"): _explained("pearson_r"),
    ("figure_2c", "mantel_p"): _explained("mantel_p"),
    ("figure_2c", "r_squared"): _joint,
    ("figure_3c", "sentiment_slope"): _sentiment,
    ("figure_3d", "frequency_slope"): _frequency,
    ("figure_5a", "spearman"): _with_people,
    ("figure_5b", "rank_gap"): _gap,
    ("figure_5b", "first"): _first,
    ("figure_a1", "spearman"): _matrix("spearman"),
    ("figure_a1", "rbo"): _matrix("rbo"),
    ("figure_a5", "kendall"): _among_items,
    ("figure_a5", "mean_kendall"): _mean_agreement,
}
