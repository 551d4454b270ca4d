import re
from pathlib import Path

import polars as pl
import pytest

from analysis.words.categories import categories
from analysis.words.lexicons import LexiconError


@pytest.fixture
def write(write):
    return lambda text: write("mine.csv", text)


def test_the_built_in_list_has_enough_words_of_each_category_once():
    table = categories()
    counts = dict(table.group_by("category").len().iter_rows())
    assert {c: counts.pop(c) for c in ("agency", "communion")} == {"agency": 20, "communion": 20}
    assert set(counts.values()) == {8}
    assert table.height <= 120
    assert not table["word"].is_duplicated().any()
    scales = dict(table.group_by("scale").agg(pl.col("category").n_unique()).iter_rows())
    assert scales == {"Big Two": 2, "moral virtues": 5, "moral vices": 5}


def test_a_file_of_ones_own_replaces_it_and_is_one_scale_by_its_name(write):
    table = categories(write("word,category\n Gold ,metals\noak,trees\noak,trees\n"))
    assert table.rows() == [("gold", "metals", "mine"), ("oak", "trees", "mine")]


def test_the_example_of_the_guide_can_be_read(write):
    page = (Path(__file__).parents[4] / "docs/extend/word-categories.md").read_text()
    (text,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    counts = categories(write(text)).group_by("category").len().sort("category")
    assert counts.rows() == [("metals", 8), ("trees", 8)]


def test_a_word_on_both_sides_of_a_scale_is_left_out_of_it(write):
    text = "word,category,scale\noak,trees,a\nOak,woods,a\noak,trees,b\nelm,trees,a\n"
    assert categories(write(text)).rows() == [("oak", "trees", "b"), ("elm", "trees", "a")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,kind\na,b\n", r"mine\.csv: no column 'category'; it needs word, category"),
        ("word,category\na,\n", r"mine\.csv: no rows, or an empty cell"),
    ],
)
def test_another_file_is_refused_in_a_line(write, text, message):
    with pytest.raises(LexiconError, match=message):
        categories(write(text))
    with pytest.raises(LexiconError, match=r"nowhere\.csv: No such file"):
        categories("nowhere.csv")
