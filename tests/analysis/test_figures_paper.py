"""Every figure of an analysis draws its finished table, awkward tokens and gaps included."""

import math

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures import (
    agreement,
    humans,
    identity,
    objectives,
    replies,
    sequences,
    slopes,
    style,
    tokens,
    variance,
    words,
)
from analysis.sequences import spending
from tests.analysis import made

NAMES, PROMPTS = made.NAMES, made.PROMPTS


def rng():
    return np.random.default_rng(0)


def draw(figure, tmp_path):
    """Saves as the report does: warnings, such as that of a missing glyph, are errors."""
    assert isinstance(figure, Figure)
    paths = style.save(figure, tmp_path, "figure")
    assert all(path.stat().st_size > 0 for path in paths.values())


def chosen(table):
    gap = made.humans_gap(table)["item"]
    return [*gap.head(3), *gap.tail(3)]


def groups():
    return made.identity(rng()).with_columns(q=pl.col("p"))


MAKERS = {
    "mds": lambda: agreement.mds(made.mds(rng()), made.models(), NAMES),
    "rsa": lambda: agreement.rsa(made.rsa()),
    "oblong": lambda: agreement.heat_map(made.square(rng()).head(2), NAMES, "ρ"),
    "human": lambda: agreement.heat_map(made.square(rng(), ["human", *NAMES]), NAMES, "τ"),
    "fans": lambda: slopes.fans(made.sentiment_slopes(rng()), NAMES, PROMPTS),
    "dots": lambda: slopes.dots(made.frequency_slopes(rng()), NAMES, PROMPTS, "slope"),
    "ends": lambda: tokens.ends(made.ends(rng()), NAMES, 8, "reward", "sum"),
    "logprobs": lambda: tokens.ends(made.ends(rng(), "logprob"), {}, 3, "logprob", "log"),
    "correlation": lambda: humans.correlation(made.humans_correlation(rng()), NAMES),
    "gaps": lambda: humans.gaps(made.humans_gap(made.humans_ranks(rng())), 10),
    "ranks": lambda: humans.trajectories(
        made.humans_ranks(rng()), NAMES, chosen(made.humans_ranks(rng()))
    ),
    "groups": lambda: identity.groups(groups().filter(prompt="worst"), NAMES),
    "traces": lambda: sequences.traces(made.sequence_traces(rng()), NAMES),
    "budgets": lambda: sequences.budgets(spending(made.sequence_traces(rng())), NAMES),
    "costs": lambda: sequences.costs(made.sequences(rng()), NAMES),
    "objectives": lambda: objectives.makeup(made.objectives(rng()), NAMES),
    "replies": lambda: replies.against_logprobs(made.item_logprobs_points(rng()), NAMES),
    "shares": lambda: variance.shares(made.variance()),
    "sentiment": lambda: words.sentiment(
        made.points(rng()), made.sentiment_slopes(rng()).filter(prompt="worst"), NAMES
    ),
    "frequency": lambda: words.frequency(
        made.points(rng()), made.frequency_slopes(rng()).filter(prompt="worst"), NAMES
    ),
    "swarms": lambda: words.swarms(made.points(rng()), NAMES),
    "effects": lambda: variance.effects(made.bing_effects(rng()), NAMES, "AUC"),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_the_figure_draws_its_table(maker, tmp_path):
    draw(maker(), tmp_path)


def test_every_model_has_a_panel_in_its_own_colour():
    figure = slopes.dots(made.frequency_slopes(rng()), NAMES, PROMPTS, "slope")
    colours = style.colours(NAMES)
    panels = {ax.get_title(loc="left"): ax for ax in figure.axes if ax.get_visible()}
    assert list(panels) == list(NAMES.values())
    for model, name in NAMES.items():
        assert panels[name].lines[0].get_color() == colours[model]


def test_what_is_not_known_of_an_objective_has_no_bar():
    figure = objectives.makeup(made.objectives(rng()), NAMES)
    plain, gated = figure.axes[:3], figure.axes[3:]
    assert [len(ax.patches) for ax in gated] == [19, 19, 19]
    assert [len(ax.patches) for ax in plain] == [2, 0, 0]
    weights = made.objectives(rng())["weight"].to_list()[:19]
    bars = [patch for patch in gated[1].patches if isinstance(patch, Rectangle)]
    assert [bar.get_width() for bar in bars] == pytest.approx(weights)


def test_an_item_keeps_its_reward_and_its_log_probability_as_a_point():
    points = made.item_logprobs_points(rng())
    figure = replies.against_logprobs(points, NAMES)
    own = points.select("logprob", next(iter(NAMES))).rows()
    shown = [xy for line in figure.axes[0].lines[1:] for xy in zip(*line.get_data(), strict=True)]
    assert sorted(shown) == sorted(own)


def test_a_fan_has_the_slope_of_the_table():
    table = made.sentiment_slopes(rng()).head(1).with_columns(slope=pl.lit(0.5))
    figure = slopes.fans(table, NAMES, PROMPTS)
    line = figure.axes[0].lines[1]  # The first underlines the title.
    assert line.get_ydata()[-1] / line.get_xdata()[-1] == pytest.approx(0.5)


def test_a_word_keeps_its_reward_and_nearly_its_valence_as_a_point():
    points = made.points(rng()).filter(model="qrm-gemma-2-27b")
    slopes_ = made.sentiment_slopes(rng()).filter(model="qrm-gemma-2-27b", prompt="worst")
    (ax,) = words.sentiment(points, slopes_, NAMES).axes
    for side, cloud in (("positive", ax.lines[1]), ("negative", ax.lines[4])):
        own = points.filter(valence=side).sort("value", "token_id")
        assert cloud.get_ydata().tolist() == own["reward"].to_list()
        assert np.abs(cloud.get_xdata() - own["value"].to_numpy()).max() < 1 / 3


def test_the_line_through_the_words_has_the_slope_of_the_table_and_meets_their_mean():
    points = made.points(rng()).filter(model="qrm-gemma-2-27b")
    slopes_ = made.frequency_slopes(rng()).filter(model="qrm-gemma-2-27b", prompt="worst")
    (ax,) = words.frequency(points, slopes_, NAMES).axes
    x, y = ax.lines[-1].get_data()
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(slopes_["slope"][0])
    middle = np.interp(points["log_frequency"].mean(), x, y)
    assert middle == pytest.approx(points["residual"].mean())


def test_words_of_one_slice_of_a_swarm_stand_apart():
    points = made.points(rng(), 400).filter(model="qrm-gemma-2-27b")
    (ax,) = words.swarms(points, NAMES).axes
    negative = ax.lines[1]
    assert sorted(negative.get_ydata()) == sorted(points.filter(valence="negative")["reward"])
    assert len(set(zip(*(np.round(v, 6) for v in negative.get_data()), strict=True))) == len(
        negative.get_ydata()
    )
    assert np.abs(negative.get_xdata()).max() <= 0.5


def test_an_interval_of_a_slope_is_two_standard_errors_wide_on_each_side():
    table = made.frequency_slopes(rng()).head(1).with_columns(slope=pl.lit(1.0))
    figure = slopes.dots(table, NAMES, PROMPTS, "slope")
    ends = figure.axes[0].collections[0].get_paths()[0].vertices[:, 0]
    assert ends.tolist() == pytest.approx([1 - 1.96 * 0.08, 1 + 1.96 * 0.08])


def test_slopes_that_are_not_defined_leave_a_gap(tmp_path):
    table = made.sentiment_slopes(rng()).with_columns(
        slope=pl.when(pl.col("prompt") == "best").then(math.nan).otherwise("slope"),
        stderr=pl.lit(None, dtype=pl.Float64),
    )
    draw(slopes.fans(table, NAMES, PROMPTS), tmp_path)
    draw(slopes.dots(table.filter(valence="positive"), NAMES, PROMPTS, "slope"), tmp_path)


def test_trajectories_pass_through_the_ranks_of_the_table():
    table = made.humans_ranks(rng())
    figure = humans.trajectories(table, NAMES, ["$y$"])
    row = table.filter(item="$y$").row(0, named=True)
    expected = [row["human_rank"], *(row[model] for model in NAMES)]
    assert list(figure.axes[0].lines[0].get_ydata()) == expected
    assert figure.axes[1].get_yscale() == "log"


def test_gaps_show_the_furthest_items_of_each_end():
    table = made.humans_gap(made.humans_ranks(rng()))
    upper, lower = humans.gaps(table, 3).axes
    shown = [[label.get_text() for label in ax.get_yticklabels()] for ax in (upper, lower)]
    items = table.sort("gap", "item", descending=[True, False])["item"].to_list()
    assert shown == [
        [style.token(i, 34) for i in items[:3]],
        [style.token(i, 34) for i in items[:-4:-1]],
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lists_of_few_items_are_drawn(count, tmp_path):
    draw(humans.gaps(made.humans_gap(made.humans_ranks(rng())).head(count), 10), tmp_path)


def test_a_group_that_differs_surely_has_a_filled_dot():
    table = groups().filter(prompt="best").head(2).with_columns(p=0.01, q=pl.Series([0.01, 0.5]))
    figure = identity.groups(table, NAMES)
    faces = [
        line.get_markerfacecolor() for line in figure.axes[0].lines if line.get_marker() == "o"
    ]
    assert sorted(face == "white" for face in faces) == [False, True]


def test_a_point_alone_and_points_in_one_place_have_a_map(tmp_path):
    alike = made.mds(rng()).with_columns(x=pl.lit(0.0), y=pl.lit(0.0))
    draw(agreement.mds(alike, made.models(), NAMES), tmp_path)


def test_bars_that_do_not_start_at_zero_say_where():
    figure = tokens.ends(made.ends(rng()), NAMES, 3, "reward", "sum")
    assert figure.get_supxlabel() == "sum (bars start midway between the ends)"


@pytest.mark.parametrize("seed", range(3))
def test_the_names_on_a_map_stay_inside_its_frame(seed):
    points = made.mds(np.random.default_rng(seed))
    figure = agreement.mds(points, made.models(), NAMES)
    figure.canvas.draw()
    for ax in figure.axes:
        frame = ax.get_window_extent()
        for label in ax.texts:
            box = label.get_window_extent()
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1, label.get_text()


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
