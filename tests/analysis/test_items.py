"""Lists of replies: both ends of each, where an item stands, and how that is drawn."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import chapters, items
from analysis.figures import drawing
from analysis.figures.items import standings
from analysis.options import Options
from engine.runs import schema

ORDER = ["m-two", "m-one"]


@pytest.fixture
def run(small_run, add_items):
    add_items(small_run, "pets", "m-one", "greatest", {"cat": 4.0, "dog": 3.0, "<b>": 2.0})
    add_items(small_run, "pets", "m-two", "greatest", {"cat": 1.0, "dog": 1.0, "<b>": 1.5})
    add_items(small_run, "pets", "m-one", "worst", {"cat": 1.0, "dog": 0.0, "<b>": 2.0})
    add_items(small_run, schema.FOUND + "0", "m-one", "worst", {"xyz": 9.0})
    return small_run


@pytest.fixture
def points(run):
    return analysis.items_points(analysis.load(run), "pets", ORDER)


def test_a_percentile_is_the_share_of_the_list_that_is_rated_lower(points):
    assert points.columns == ["list", "prompt", "model", *points.columns[3:]]
    cells = points.filter(prompt="greatest").select("model", "item", "percentile").rows()
    assert cells == [
        ("m-two", "cat", pytest.approx(1 / 3)),
        ("m-two", "dog", pytest.approx(1 / 3)),
        ("m-two", "<b>", pytest.approx(5 / 6)),
        ("m-one", "cat", pytest.approx(5 / 6)),
        ("m-one", "dog", pytest.approx(1 / 2)),
        ("m-one", "<b>", pytest.approx(1 / 6)),
    ]


def test_ends_go_from_the_extreme_and_ties_to_the_earlier_item(points):
    table = analysis.items_top_bottom(points, 2)
    part = table.filter(model="m-two").select("end", "rank", "item", "reward").rows()
    assert part == [
        ("top", 1, "<b>", 1.5),
        ("top", 2, "cat", 1.0),
        ("bottom", 1, "cat", 1.0),
        ("bottom", 2, "dog", 1.0),
    ]
    assert table.filter(model="m-two", prompt="worst").height == 0


def test_an_item_stands_at_the_mean_of_its_percentiles(points):
    table = analysis.items_standing(points)
    assert table.columns == ["list", "item_id", "item", "n", "mean_percentile", "lowest", "highest"]
    by_hand = {
        "<b>": (5 / 6 + 1 / 6 + 5 / 6, 1 / 6, 5 / 6),
        "cat": (1 / 3 + 5 / 6 + 1 / 2, 1 / 3, 5 / 6),
        "dog": (1 / 3 + 1 / 2 + 1 / 6, 1 / 6, 1 / 2),
    }
    rows = table.select("item", "n", "mean_percentile", "lowest", "highest").rows()
    expected = [(item, 3, s / 3, low, high) for item, (s, low, high) in by_hand.items()]
    assert [row[0] for row in rows] == list(by_hand)
    for row, right in zip(rows, expected, strict=True):
        assert row[1:] == pytest.approx(right[1:])


def test_what_a_search_found_is_no_list(run):
    found = analysis.compute(analysis.load(run), {}, 2, Options(permutations=99, bootstraps=99))
    assert list(found.items_points) == ["pets"]
    assert found.items_standing["list"].unique().to_list() == ["pets"]
    assert {"items_top_bottom", "items_standing"} <= found.named().keys()


def test_no_list_is_said(small_run):
    found = analysis.compute(
        analysis.load(small_run), {}, 2, Options(permutations=99, bootstraps=99)
    )
    assert found.absent["items_standing"] == "No list of items was scored."
    assert not {"items_top_bottom", "items_standing"} & found.named().keys()


def test_the_section_names_only_figures_that_are_drawn(run, tmp_path):
    loaded = analysis.load(run)
    found = analysis.compute(loaded, {}, 2, Options(permutations=99, bootstraps=99))
    drawn = drawing.draw(loaded, found, 2, tmp_path)
    (section,) = (c for c in chapters.chapters(found) if c.id == "items")
    named = {block.figure for block in section.blocks if block.figure}
    assert (
        named
        == {"items_pets", "items_pets_greatest", "items_pets_worst"}
        == {stem for stem in drawn if stem.startswith("items_")}
    )


def test_a_list_under_many_prompts_has_one_figure(points):
    many = [points.with_columns(prompt=pl.lit(f"p{i}")) for i in range(4)]
    assert items.drawn_alone(points) == ["greatest", "worst"]
    assert items.drawn_alone(pl.concat(many)) == []


def test_colours_are_percentiles_by_prompt_or_of_one_prompt_by_model(points):
    order = analysis.items_standing(points)
    names = {"m-two": "Two", "m-one": "One"}
    image = standings(points, [order], names).axes[0].images[0].get_array()
    worst = np.array([5, 3, 1]) / 6
    greatest = np.array([(5 + 1) / 2, (2 + 5) / 2, (2 + 3) / 2]) / 6
    np.testing.assert_allclose(image, 100 * np.stack([greatest, worst], axis=1))
    alone = standings(points.filter(prompt="greatest"), [order.head(1), order.tail(2)], names)
    assert [label.get_text() for label in alone.axes[0].get_xticklabels()] == ["Two", "One"]
    np.testing.assert_allclose(
        alone.axes[0].images[0].get_array(), 100 / 6 * np.array([[5, 1], [2, 5], [2, 3]])
    )


def test_a_long_list_shows_its_ends_and_what_is_disputed_most():
    mean = np.linspace(0.95, 0.05, 10)
    width = np.array([0, 9, 1, 3, 8, 1, 8, 2, 9, 0]) / 100
    standing = pl.DataFrame({"item": range(10), "lowest": mean - width, "highest": mean + width})
    groups = items.telling(standing, 2)
    assert [group["item"].to_list() for group in groups] == [[0, 1], [4, 6], [8, 9]]
    assert [group.height for group in items.telling(standing, 4)] == [10]


@pytest.mark.parametrize("size, shown", [(4, [0, 1, 2, 3]), (5, [0, 1, 3, 4])])
def test_both_ends_of_a_long_table(size, shown):
    assert items.both_ends(pl.DataFrame({"at": range(size)}), 2)["at"].to_list() == shown
