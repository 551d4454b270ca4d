import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from matplotlib import cbook

from analysis.chapters import distributions, framing
from analysis.figures import style
from analysis.figures.token_bars import top_bottom

AWKWARD = [
    "$x$",
    "$",
    "a$b$c$d",
    "\\$",
    "\\frac{",
    "^_{}%",
    "\x00",
    "\n",
    " love",
    "مرحبا",
    "שלום",
    "中国",
    "日本語",
    "😀",
    "👩\u200d🔬",
    "\ufffd",
    "\ue000",
    "\u202eevil",
    "<script>alert(1)</script>",
    "",
    "─" * 80,
    "क्ष",
]


def draw(figure, tmp_path):
    """Saves as the report does: warnings, such as that of a missing glyph, are errors."""
    paths = style.save(figure, tmp_path, "figure")
    assert all(path.stat().st_size > 0 for path in paths.values())


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def spread(models, prompts=("greatest",)):
    rng = np.random.default_rng(0)
    data = [(m, p, rng.normal(size=500), np.arange(500)) for p in prompts for m in models]
    return distributions.density_table(data), distributions.quantiles_table(data)


def ends(models, texts):
    rows = [
        {"model": m, "end": end, "rank": i + 1, "token": text, "reward": sign * (9.0 - i / 4)}
        for m in models
        for end, sign in (("top", 1), ("bottom", -1))
        for i, text in enumerate(texts)
    ]
    return pl.DataFrame(rows)


def test_any_token_can_be_drawn(tmp_path):
    _, quantiles = spread(["m"])
    figure = top_bottom(ends(["m"], AWKWARD), quantiles, {"m": "M"}, len(AWKWARD))
    draw(figure, tmp_path)
    assert len(texts(figure)) == 2 * len(AWKWARD)


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


def test_only_the_asked_for_tokens_are_drawn():
    _, quantiles = spread(["m"])
    figure = top_bottom(ends(["m"], list("abcdef")), quantiles, {"m": "M"}, 2)
    assert texts(figure) == ["a", "b", "a", "b"]


def test_violins_draw_a_panel_a_model_and_skip_what_was_not_scored(tmp_path):
    names = {"m1": "One", "m2": "$Two$", "m3": "Three"}
    densities, quantiles = spread(["m1", "m2"], ("greatest", "worst"))
    figure = distributions.violins(densities, quantiles, names, ["greatest", "worst"])
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["One", r"\$Two\$", "Three"]
    draw(figure, tmp_path)


def test_a_violin_of_equal_rewards_is_a_line(tmp_path):
    data = [("m", "greatest", np.full(4, 2.5), np.arange(4))]
    tables = distributions.density_table(data), distributions.quantiles_table(data)
    draw(distributions.violins(*tables, {"m": "M"}, ["greatest"]), tmp_path)


AXIS = pl.DataFrame({"model": ["m"], "axis_kind": ["same"], "loading_a": [0.6], "loading_b": [0.8]})


def test_the_contrast_shows_a_principal_axis_two_deviations_each_way():
    pairs = {"m": pl.DataFrame({"a": [-0.6, 0.6, 0.0, 0.0], "b": [-0.8, 0.8, 0.0, 0.0]})}
    figure = framing.contrast(pairs, AXIS, {"m": "M"}, ("greatest", "worst"))
    line = figure.axes[0].lines[-1]
    reach = 2 * np.sqrt(0.5)
    np.testing.assert_allclose(line.get_xdata(), [-0.6 * reach, 0.6 * reach])
    np.testing.assert_allclose(line.get_ydata(), [-0.8 * reach, 0.8 * reach])


@pytest.mark.parametrize("y", [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]])
def test_the_contrast_draws_any_pair_of_prompts(tmp_path, y):
    pairs = {"m": pl.DataFrame({"a": [1.0, 2.0, 3.0], "b": y})}
    names = {"m": "M", "other": "O"}
    figure = framing.contrast(pairs, AXIS, names, ("greatest", "worst"))
    assert len(figure.axes) == 1
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
        densities, quantiles = spread(["m"])
        figure = distributions.violins(densities, quantiles, {"m": "M"}, ["greatest"])
        paths = style.save(figure, tmp_path / name, "figure")
        written.append([paths[kind].read_bytes() for kind in ("png", "svg")])
    assert written[0] == written[1]
