"""Every figure of an analysis draws its finished table, awkward tokens and gaps included."""

import functools
import math

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis import CHAPTERS, blocks
from analysis.chapters import (
    list_probabilities,
    objectives,
)
from analysis.charts import look
from analysis.charts.clouds import fitted
from analysis.charts.estimates import estimates
from analysis.charts.heat_map import heat_map
from analysis.figures import reward_by_valence, style, token_bars
from analysis.figures.group_dots import group_dots
from tests.support import charts, runs, slow

MODEL = "urm-llama-3.1-8b"
PROMPTS = list(runs.PROMPTS)


@pytest.fixture
def tables(full):
    return full.tables


@pytest.fixture
def names(full):
    return full.names


def draw(figure, tmp_path):
    """Saves as the report does: warnings, such as that of a missing glyph, are errors."""
    if not isinstance(figure, Figure):
        assert "<svg" in charts.svg(figure)
        return
    paths = style.save(figure, tmp_path, "figure")
    assert all(path.stat().st_size > 0 for path in paths.values())


def name_of(chapter):
    return getattr(chapter, "id", None) or chapter.__name__.split(".")[-1]


LONG = ("agreement", "groups", "humans", "objectives", "sentiment")  # seconds each
SHORT = [chapter for chapter in CHAPTERS if name_of(chapter) not in LONG]


@pytest.mark.parametrize("chapter", slow.all_but(SHORT, CHAPTERS), ids=name_of)
def test_the_figures_of_a_chapter_draw_their_tables(chapter, full, tmp_path):
    found = blocks.pictures(chapter.section(full).blocks)
    partials = [picture.draw for picture in found if isinstance(picture.draw, functools.partial)]
    one_of_each = {drawing.func: drawing for drawing in partials}
    for drawing in one_of_each.values():
        draw(drawing(), tmp_path)


def test_figures_that_no_report_of_the_full_run_has_are_drawn_too(tables, names, tmp_path):
    oblong = tables["kendall_tau", "greatest"].head(2)
    draw(heat_map(oblong, names, "ρ"), tmp_path)
    draw(token_bars.ends(tables["framing_sum"], {}, 3, "reward", "sum"), tmp_path)


def test_every_model_has_a_panel_in_its_own_colour(tables, names):
    table = tables["frequency_slopes"]
    chart = estimates(table, names, "slope", value="slope", row="prompt", panel="name")
    paint = chart.to_dict()["spec"]["layer"][-1]["encoding"]["color"]["scale"]
    assert dict(zip(paint["domain"], paint["range"], strict=True)) == {
        names[model]: colour for model, colour in look.colours(names).items()
    }
    assert {row["name"] for row in charts.rows(chart)} == set(names.values())


def test_what_is_not_known_of_an_objective_has_no_bar(tables, names):
    table = tables["objectives"].filter(prompt="best")
    figure = objectives.makeup(table, names)
    plain, gated = figure.axes[:3], figure.axes[3:]
    assert [len(ax.patches) for ax in gated] == [19, 19, 19]
    assert [len(ax.patches) for ax in plain] == [2, 0, 0]
    bars = [patch for patch in gated[1].patches if isinstance(patch, Rectangle)]
    weights = table.filter(model=runs.GATED)["weight"].to_list()
    assert [bar.get_width() for bar in bars] == pytest.approx(weights)


def test_an_item_keeps_its_reward_and_its_log_probability_as_a_point(tables, names):
    points = tables["item_logprobs_points", "elo", "thing.chat", "lm-a"]
    figure = list_probabilities.against_logprobs(points, names)
    own = points.select("logprob", next(iter(names))).rows()
    shown = [xy for line in figure.axes[0].lines[1:] for xy in zip(*line.get_data(), strict=True)]
    assert sorted(shown) == sorted(own)


def test_a_fan_has_the_slope_of_the_table(tables, names):
    table = tables["sentiment_slopes"].head(1).with_columns(slope=pl.lit(0.5))
    figure = reward_by_valence.fans(table, names, PROMPTS)
    line = figure.axes[0].lines[1]  # The first underlines the title.
    assert line.get_ydata()[-1] / line.get_xdata()[-1] == pytest.approx(0.5)


def test_a_word_keeps_its_reward_and_nearly_its_valence_as_a_point(tables, names):
    points = tables["sentiment_points"].filter(model=MODEL, prompt="worst")
    slopes = tables["sentiment_slopes"].filter(model=MODEL, prompt="worst")
    (ax,) = reward_by_valence.clouds(points, slopes, names).axes
    sides = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
    for chosen, cloud in zip(sides.values(), (ax.lines[1], ax.lines[4]), strict=True):
        own = points.filter(chosen).sort("value", "token_id")
        assert cloud.get_ydata().tolist() == own["reward"].to_list()
        assert np.abs(cloud.get_xdata() - own["value"].to_numpy()).max() < 1 / 3


def test_the_line_through_the_words_has_the_slope_of_the_table_and_meets_their_mean(tables, names):
    points = tables["frequency_points"].filter(model=MODEL, prompt="worst")
    slopes = tables["frequency_slopes"].filter(model=MODEL, prompt="worst")
    x, y = fitted(points, slopes, "log_frequency", "residual").select("x", "y").to_numpy().T
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(slopes["slope"][0])
    middle = np.interp(points["log_frequency"].mean(), x, y)
    assert middle == pytest.approx(points["residual"].mean())


def test_words_of_one_slice_of_a_swarm_stand_apart(tables, names):
    rewards = np.random.default_rng(0).normal(size=400)
    points = tables["bing_points"].filter(model=MODEL, prompt="worst")
    points = pl.concat([points] * (400 // points.height + 1)).head(400)
    points = points.with_columns(reward=pl.Series(rewards))
    (ax,) = reward_by_valence.swarms(points, names).axes
    negative = ax.lines[1]
    assert sorted(negative.get_ydata()) == sorted(points.filter(valence="negative")["reward"])
    places = set(zip(*(np.round(v, 6) for v in negative.get_data()), strict=True))
    assert len(places) == len(negative.get_ydata())
    assert np.abs(negative.get_xdata()).max() <= 0.5


def test_an_interval_of_a_slope_is_that_of_the_table(tables, names):
    ends = {"ci_low": pl.lit(0.7), "ci_high": pl.lit(1.4)}
    table = tables["frequency_slopes"].head(1).with_columns(slope=pl.lit(1.0), **ends)
    [row] = charts.rows(estimates(table, names, "slope", value="slope"))
    assert (row["low"], row["value"], row["high"]) == (0.7, 1.0, 1.4)
    table = tables["sentiment_slopes"].head(1).with_columns(slope=pl.lit(1.0), **ends)
    band = reward_by_valence.fans(table, names, PROMPTS).axes[0].collections[0]
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(1.4 * 5)


def test_slopes_that_are_not_defined_leave_a_gap(tables, names, tmp_path):
    table = tables["sentiment_slopes"].with_columns(
        slope=pl.when(pl.col("prompt") == "best").then(math.nan).otherwise("slope"),
        **dict.fromkeys(("stderr", "ci_low", "ci_high"), pl.lit(math.nan)),
    )
    draw(reward_by_valence.fans(table, names, PROMPTS), tmp_path)
    chart = estimates(table, names, "slope", value="slope", row="prompt", panel="name")
    draw(chart, tmp_path)
    assert "best" not in {row["prompt"] for row in charts.rows(chart)}


def drawn_groups(tables, names, models):
    """The marks of the first panel of a figure of two groups."""
    over = tables["identity_models"].filter(prompt="best").head(2)
    each = tables["identity"].filter(pl.col("model").is_in(models), prompt="best")
    each = each.join(over.select("axis", "group"), on=["axis", "group"], how="semi")
    figure = group_dots(over, each, names)
    lines = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "D")]
    return figure, {
        (line.get_marker(), line.get_color(), int(line.get_ydata()[0])): line for line in lines
    }


def test_a_group_is_drawn_in_each_model_and_over_models(tables, names, tmp_path):
    figure, marks = drawn_groups(tables, names, list(names))
    colours = {*style.colours(names).values(), style.INK}
    assert {(colour, place) for _, colour, place in marks} == {
        (colour, place) for colour in colours for place in (0, 1)
    }
    over = tables["identity_models"].filter(prompt="best").head(2)
    for (_, colour, place), line in marks.items():
        if colour == style.INK:
            assert line.get_xdata()[0] == pytest.approx(100 * over["contrast"][place])
    bands = [patch.get_width() for patch in figure.axes[0].patches]
    width = over["contrast_placebo_high"] - over["contrast_placebo_low"]
    assert bands == pytest.approx((100 * width).to_list())
    draw(figure, tmp_path)


def test_one_model_has_its_own_intervals_and_no_mean(tables, names, tmp_path):
    figure, marks = drawn_groups(tables, names, [MODEL])
    assert {marker for marker, _, _ in marks} == {"o"}
    own = tables["identity"].filter(model=MODEL, prompt="best")
    over = tables["identity_models"].filter(prompt="best").head(2)
    row = own.join(over.select("axis", "group"), on=["axis", "group"], how="semi").row(
        0, named=True
    )
    ends = figure.axes[0].collections[0].get_paths()[0].vertices[:, 0]
    assert ends.tolist() == pytest.approx([100 * row["contrast_low"], 100 * row["contrast_high"]])
    draw(figure, tmp_path)


def test_bars_that_do_not_start_at_zero_say_where(tables, names):
    figure = token_bars.ends(tables["framing_sum"], names, 3, "reward", "sum")
    assert figure.get_supxlabel() == "sum (bars start midway between the ends)"


def test_prompts_keep_their_look_whatever_else_is_shown():
    assert style.looks(["worst"])["worst"] == style.looks(PROMPTS)["worst"]
    everything = style.looks([*PROMPTS, "mine", "yours"])
    assert len(set(everything.values())) == 5


@pytest.mark.parametrize(
    ("p", "said"),
    [(0.018, "p = .018"), (0.0002, "p < .001"), (None, "p undefined"), (math.nan, "p undefined")],
)
def test_p_values_read_as_in_papers(p, said):
    assert style.p_value(p) == said


def _linear(channel):
    channel = int(channel, 16) / 255
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
DEUTAN = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
]
PROTAN = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]


@pytest.mark.parametrize("sight", [np.eye(3), np.array(DEUTAN), np.array(PROTAN)])
def test_prompts_stay_apart_in_colour_blind_eyes(sight):
    colours = [style.looks(PROMPTS)[prompt][0] for prompt in PROMPTS]
    linear = np.array([[_linear(c[i : i + 2]) for i in (1, 3, 5)] for c in colours])
    seen = np.clip(linear @ sight.T, 0, 1) ** (1 / 2.4)
    apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.2
