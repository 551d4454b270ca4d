import hypothesis.strategies as st
import polars as pl
from hypothesis import given, settings
from matplotlib import cbook

from analysis.chapters import agreement
from analysis.figures import style
from analysis.figures.heat_map import heat_map


def draw(figure, tmp_path):
    """Saves as the report does: warnings, such as that of a missing glyph, are errors."""
    paths = style.save(figure, tmp_path, "figure")
    assert all(path.stat().st_size > 0 for path in paths.values())


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@settings(max_examples=10)
@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
def test_any_text_can_be_drawn(text):
    figure = style.canvas(2, 1)
    figure.text(0, 0, style.token(text))
    figure.text(0, 0.5, style.drawable(text), fontweight="bold")
    figure.canvas.draw()


def test_what_the_font_lacks_shows_its_code_point():
    assert style.token(" 中x") == r"␣\u4e2dx"
    assert style.token("😀中国") == r"😀\u4e2d\u56fd"


def test_dollar_signs_start_no_mathematics(tmp_path):
    figure = style.canvas(2, 1)
    text = figure.text(0, 0, style.token("$x$"))
    assert not cbook.is_math_text(text.get_text())


def test_the_heat_map_writes_every_number(tmp_path):
    rewards = pl.DataFrame({"token": list("abc"), "m1": [1.0, 2.0, 3.0], "m2": [1.0, 3.0, 2.0]})
    matrix = agreement.kendall_matrix(rewards)
    figure = heat_map(matrix, {"m1": "One", "m2": "Two"}, "τ")
    assert texts(figure) == ["1.00", "0.33", "0.33", "1.00"]
    draw(figure, tmp_path)


def test_the_heat_map_shows_a_dash_where_nothing_is_defined(tmp_path):
    rewards = pl.DataFrame({"token": list("ab"), "m1": [1.0, 2.0], "m2": [3.0, 3.0]})
    matrix = agreement.kendall_matrix(rewards)
    figure = heat_map(matrix, {"m1": "One", "m2": "Two"}, "τ")
    assert texts(figure) == ["1.00", "–", "–", "–"]
    draw(figure, tmp_path)


def test_the_papers_models_keep_the_papers_colours():
    colours = style.colours(["urm-llama-3.1-8b", "new", "qrm-gemma-2-27b"])
    assert colours["qrm-gemma-2-27b"] == "#1f77b4"
    assert colours["urm-llama-3.1-8b"] == "#8c564b"
    assert colours["new"] not in ("#1f77b4", "#8c564b")


def test_a_models_colour_does_not_depend_on_the_order_of_the_models():
    assert style.colours(["b", "a", "c"]) == style.colours(["c", "a", "b"])


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        figure = style.canvas(2, 1)
        figure.text(0, 0, "x")
        paths = style.save(figure, tmp_path / name, "figure")
        written.append([paths[kind].read_bytes() for kind in ("png", "svg")])
    assert written[0] == written[1]
