"""Maps with names, and ranks of items for people and models."""

import numpy as np
import polars as pl
import pytest

from analysis.charts import look, model_map, ranks
from tests.support import charts, large_runs


def map_of(x, y, developers):
    slugs = list(large_runs.PAPER)[: len(x)]
    table = pl.DataFrame({"model": slugs, "x": x, "y": y, "stress": 0.14})
    bases = [large_runs.PAPER[slug] for slug in slugs]
    models = pl.DataFrame({"model": slugs, "base": bases, "developer": developers})
    return model_map.map_of_models(table, models, {slug: slug[:14] for slug in slugs})


def test_a_map_has_the_places_of_the_table():
    x, y = np.random.default_rng(0).normal(size=(2, 10))
    chart = map_of(x, y, list("aabbccddee"))
    assert "<svg" in charts.svg(chart)
    shown = charts.rows(chart)
    assert [row["x"] for row in shown] == pytest.approx(list(x), rel=1e-4)
    assert [row["y"] for row in shown] == pytest.approx(list(y), rel=1e-4)


@pytest.mark.parametrize("count", [1, 3])
def test_a_point_alone_and_points_in_one_place_have_a_map(count):
    chart = map_of([0.0] * count, [0.0] * count, [None] * count)
    assert "<svg" in charts.svg(chart)
    assert len(chart.hconcat) == 1  # Only one developer is known.


def test_trajectories_pass_through_the_ranks_of_the_table(full):
    table = full.tables["humans_ranks", "elo", "thing"]
    chart = ranks.trajectories(table, full.names, ["$y$"])
    row = table.filter(item="$y$").row(0, named=True)
    expected = [row["human_rank"], *(row[model] for model in full.names)]
    assert [cell["rank"] for cell in charts.rows(chart)] == expected
    whole, first = look.specification(chart)["vconcat"]
    assert first["encoding"]["y"]["scale"]["type"] == "log"
    assert whole["encoding"]["x"]["sort"] == ["human", *full.names.values()]


def test_gaps_show_the_furthest_items_of_each_end(full):
    table = full.tables["humans_gap"]
    rows = charts.rows(ranks.dumbbells(table, 3))
    ordered = table.sort("residual", "item", descending=[True, False])
    named = [
        f"{look.token(item)} ({place})"
        for item, place in ordered.select("item", "gap_place").rows()
    ]
    assert [row["item"] for row in rows] == [*named[:3], *named[:-4:-1]]
    first = ordered.row(0, named=True)
    numbers = [rows[0][key] for key in ("people", "predicted", "models")]
    predicted = first["model_rank"] - first["residual"]
    assert numbers == pytest.approx([first["human_rank"], predicted, first["model_rank"]], rel=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lists_of_few_items_are_drawn(full, count):
    assert "<svg" in charts.svg(ranks.dumbbells(full.tables["humans_gap"].head(count), 10))
