"""Reward against the sentiment of a word (Fig 3A-C, A3, A4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import MODEL, PROMPT, Block, Column, Picture, Section, notes, rows
from analysis.figures import style, word_points
from analysis.figures.word_points import SIDES
from analysis.matched_words import (
    CELL,
    Matcher,
    by_model_and_prompt,
    matched_rewards,
    matches,
    matches_block,
)
from analysis.run import Run
from analysis.statistics import Array, regression
from analysis.statistics.effect_sizes import auc, cohens_d
from analysis.study import NO_VOCABULARY, Absent, Study, Table, required, table
from analysis.words import lexicons
from analysis.words.matching import match
from engine.runs.schema import Columns

SLOPES: Columns = {**dict.fromkeys(("slope", "stderr", "p"), pl.Float64), "n": pl.Int64}
_EFFECTS: Columns = {
    **dict.fromkeys(("cohens_d", "auc", "ci_low", "ci_high", "p"), pl.Float64),
    **dict.fromkeys(("n_positive", "n_negative"), pl.Int64),
}


def tables(study: Study) -> Iterator[Table]:
    """sentiment_slopes.csv.

    For other chapters and the page: ("sentiment_points",), ("bing_points",), ("bing_effects",) and
    ("matches", "sentiment" or "bing").
    """
    for name, lexicon in (("sentiment", "afinn"), ("bing", "bing")):
        yield table("matches", name, make=partial(_matches, study, lexicon), file=False)
        yield table(f"{name}_points", make=partial(_points, study, lexicon), file=False)
    made = study.tables
    yield table("sentiment_slopes", make=lambda: sentiment_slopes(made["sentiment_points"]))
    yield table("bing_effects", make=lambda: valence_effects(made["bing_points"]), file=False)


def sentiment_points(
    run: Run, models: Sequence[str], lexicon: pl.DataFrame, trim: bool = False
) -> pl.DataFrame:
    """Tokens that are words of a lexicon, with their rewards.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      lexicon: what `lexicons.afinn` (or `bing`) returns.
      trim: as in `words.matching.match`.

    Returns:
      model, prompt, token_id, token, word, value (or valence), reward.
    """
    return matched_rewards(run, models, partial(match, lexicon=lexicon, trim=trim))


def sentiment_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on value, separately for positive (> 0) and negative (<= 0) words.

    Errors are clustered by word: the spellings of one word have the same value and similar
    rewards. A slope is NaN where too few words, or words of one value, matched.

    Args:
      points: what `sentiment_points` returns.

    Returns:
      The table `sentiment_slopes.csv`: model, prompt, valence, slope (reward per unit of value),
      stderr, p (two-sided, against 0), n (tokens).
    """
    fits = []
    sides = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
    for cell, own in by_model_and_prompt(points):
        for valence, chosen in sides.items():
            y, x, word = (
                own.filter(chosen)[name].to_numpy() for name in ("reward", "value", "word")
            )
            fits.append({**cell, "valence": valence, **slope_of(regression.ols(y, x, word))})
    return pl.DataFrame(fits, schema={**CELL, "valence": pl.String, **SLOPES})


def slope_of(fit: regression.Fit) -> dict[str, float]:
    """slope, stderr and p of the first predictor of a fit, and n."""
    slope, stderr, p = (float(v[1]) for v in (fit.coefficients, fit.stderr, fit.p))
    return {"slope": slope, "stderr": stderr, "p": p, "n": fit.n}


def valence_effects(points: pl.DataFrame) -> pl.DataFrame:
    """Positive against negative words of a lexicon without grades (Bing, Fig A3).

    Args:
      points: `sentiment_points` of `lexicons.bing`.

    Returns:
      model, prompt, cohens_d, auc (probability that a positive word scores higher), ci_low,
      ci_high (of auc, 95 %), p (of auc against 1/2; both clustered by word, as the slopes are),
      n_positive, n_negative (tokens).
    """
    effects = []
    for cell, own in by_model_and_prompt(points):
        (good, good_words), (bad, bad_words) = (
            (side["reward"].to_numpy(), side["word"].to_numpy())
            for side in (own.filter(valence=valence) for valence in SIDES)
        )
        numbers = (cohens_d(good, bad), *auc(good, bad, good_words, bad_words))
        numbers += (len(good), len(bad))
        effects.append({**cell, **dict(zip(_EFFECTS, numbers, strict=True))})
    return pl.DataFrame(effects, schema={**CELL, **_EFFECTS})


def _matcher(study: Study, name: str) -> tuple[Matcher, str, str]:
    """Matcher of a lexicon, its source, and how its words are compared."""
    options = study.options
    path = {"afinn": options.afinn, "bing": options.bing}[name]
    if name == "bing" and not path:
        raise Absent("No Bing lexicon was named (options.bing).")
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    try:
        lexicon = lexicons.afinn(path) if name == "afinn" else lexicons.bing(path)
    except lexicons.LexiconError as error:
        raise Absent(f"No lexicon: {error}.") from error
    how = "trimmed, any case" if options.match_trim else "not trimmed, any case"
    return partial(match, lexicon=lexicon, trim=options.match_trim), path or "AFINN-111", how


def _matches(study: Study, name: str) -> pl.DataFrame:
    return matches(study.run, study.models, *_matcher(study, name))


def _points(study: Study, name: str) -> pl.DataFrame:
    matcher, source, how = _matcher(study, name)
    own = matched_rewards(study.run, study.models, matcher)
    return required(own, f"No token matches a word of {source} ({how}).")


def in_order(points: pl.DataFrame, prompts: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each prompt that has any, in the order of `prompts`."""
    for prompt in prompts:
        own = points.filter(prompt=prompt)
        if own.height:
            yield prompt, own


_JITTER = 0.32  # Of the valences, which are whole numbers.
_LEVELS = 60  # Slices of the rewards inside which the points of a swarm are spread.
_HALF = 0.44
_Z = 1.96
_REACH = {"positive": 5.0, "negative": -5.0}  # AFINN runs from -5 to 5.


@style.styled
def clouds(points: pl.DataFrame, slopes: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Reward of each word against its valence, with a fitted line per side, one panel per model.

    Points are moved sideways by up to a third of a valence, so that they do not hide each other.

    Args:
      points: rows of `sentiment_points` for one prompt.
      slopes: rows of `sentiment_slopes.csv` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    sides = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
    figure, axes = word_points.panels(points, names)
    for model, ax in axes.items():
        for side, chosen in sides.items():
            part = points.filter(chosen, model=model).sort("value", "token_id")
            x, y = part["value"].to_numpy(), part["reward"].to_numpy()
            style.cloud(ax, x + _jitter(len(x)), y, SIDES[side])
            slope = slopes.filter(model=model, valence=side)["slope"]
            word_points.fitted_line(ax, x, y, slope, SIDES[side])
        ax.set_xticks([-5, 0, 5], ["−5", "0", "+5"])
        ax.set_xlim(-5.6, 5.6)
    figure.supxlabel("valence of the word (AFINN)", fontsize=9)
    figure.supylabel("reward", fontsize=9)
    return figure


@style.styled
def swarms(points: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Rewards of the negative and of the positive words as two swarms, one panel per model.

    The width of a swarm shows how many words have about that reward; the bar is the median.

    Args:
      points: rows of `sentiment_points` of the Bing lexicon, for one prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    figure, axes = word_points.panels(points, names)
    for model, ax in axes.items():
        own = points.filter(model=model)
        ends = np.quantile(own["reward"].to_numpy(), (0, 1))
        for place, side in enumerate(("negative", "positive")):
            y = own.filter(valence=side)["reward"].sort().to_numpy()
            if len(y):
                style.cloud(ax, place + _spread(y, ends), y, SIDES[side])
                ax.hlines(np.median(y), place - _HALF, place + _HALF, color=style.INK, lw=1.4)
        ax.set_xticks([0, 1], ["negative", "positive"])
        ax.set_xlim(-0.55, 1.55)
    figure.supylabel("reward", fontsize=9)
    return figure


def _jitter(count: int) -> Array:
    """`count` offsets that fill their range evenly, the same every time (golden ratio)."""
    return _JITTER * (2 * (np.arange(count) * 0.618034 % 1) - 1)


def _spread(ascending: Array, ends: Array) -> Array:
    """Sideways offsets of a swarm: values of one slice stand side by side, from the middle out."""
    low, high = ends
    slices = np.floor((ascending - low) / max(high - low, 1e-30) * (_LEVELS - 1)).astype(int)
    counts = np.bincount(slices, minlength=_LEVELS)
    within = np.arange(len(slices)) - (np.cumsum(counts) - counts)[slices]
    side = np.where(within % 2 == 1, 1, -1) * ((within + 1) // 2)
    return np.asarray(side * 2 * _HALF / max(counts.max(), 12))


@style.styled
def fans(slopes: pl.DataFrame, names: Mapping[str, str], prompts: Sequence[str]) -> style.Figure:
    """Reward against the valence of a word: one line per prompt and side, one panel per model.

    Lines start at zero: they show slopes, not levels. Bands are 95 % intervals of the slope.

    Args:
      slopes: `sentiment_slopes.csv`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      prompts: prompt ids, in the order of the legend.
    """
    models = [model for model in names if model in slopes["model"]]
    figure, axes = style.panels(names, models, 5, (2.1, 2.3))
    looks = style.looks(prompts)
    for model, ax in axes.items():
        for row in slopes.filter(pl.col("slope").is_finite(), model=model).iter_rows(named=True):
            if row["prompt"] in looks:
                error = _Z * (row["stderr"] if math.isfinite(row["stderr"] or math.nan) else 0.0)
                _fan(ax, row["slope"], error, _REACH[row["valence"]], *looks[row["prompt"]])
        ax.axhline(0, color=style.INK, linewidth=0.7)
        ax.axvline(0, color=style.INK, linewidth=0.7)
        ax.set_xticks([-5, 0, 5], ["−5", "0", "+5"])
    figure.supxlabel("valence of the word (AFINN)", fontsize=9)
    figure.supylabel("change of reward", fontsize=9)
    style.legend(figure, {p: looks[p] for p in prompts if p in slopes["prompt"]}, lines=True)
    return figure


def _fan(
    ax: style.Axes, slope: float, error: float, reach: float, colour: str, marker: str
) -> None:
    x = np.array([0.0, reach])
    ax.fill_between(x, (slope - error) * x, (slope + error) * x, color=colour, alpha=0.18, lw=0)
    ax.plot(x, slope * x, color=colour, marker=marker, markevery=[1], markersize=4.5)


@style.styled
def intervals(effects: pl.DataFrame, names: Mapping[str, str], label: str) -> style.Figure:
    """An area under the curve with its interval: one row per model, one marker per prompt.

    Args:
      effects: model, prompt, auc, ci_low, ci_high.
      names: slug -> nickname, in the order of the rows.
      label: what the number is, for the axis.
    """
    models = [model for model in names if model in effects["model"]]
    looks = style.looks(effects["prompt"].unique(maintain_order=True))
    figure = style.canvas(6.2, 0.2 * len(models) * len(looks) + 1.3)
    ax = figure.subplots()
    for at, model in enumerate(models):
        for nth, (prompt, (colour, marker)) in enumerate(looks.items()):
            y = at + 0.8 * ((nth + 0.5) / len(looks) - 0.5)
            part = effects.filter(model=model, prompt=prompt)
            for chance, low, high in part.select("auc", "ci_low", "ci_high").iter_rows():
                ax.plot([low, high], [y, y], color=colour, linewidth=1.4)
                ax.plot(chance, y, marker, color=colour, markersize=5)
    ax.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(models)), [style.name(names[m], 28) for m in models])
    ax.invert_yaxis()
    ax.grid(axis="x", color=style.GRID, linewidth=0.7)
    ax.set_xlabel(style.drawable(label))
    style.legend(figure, looks)
    return figure


def section(study: Study) -> Section:
    """Points, slopes, and the Bing lexicon where one is named."""
    made, names = study.tables, study.names
    prompts = list(study.run.vocabulary_prompts)
    blocks: list[Block] = []
    slopes, graded = made.get("sentiment_slopes"), made.get("sentiment_points")
    if slopes is not None and graded is not None:
        text = (
            "Each point is a token: its reward against its valence, under “{}”. Teal words are "
            "positive, brown ones are not; lines are least squares within each side."
        )
        blocks += [
            Picture(
                f"sentiment_points_{prompt}",
                text.format(prompt),
                partial(clouds, own, slopes.filter(prompt=prompt), names),
            )
            for prompt, own in in_order(graded, prompts)
        ]
        caption = (
            "A line rising to the right: better words score higher. A line falling to the left: "
            "worse words score lower. Lines start at zero, so they show slopes, not levels; bands "
            "are 95% intervals. Each model has its own unit of reward."
        )
        draw = partial(fans, slopes, names, prompts)
        blocks.append(Picture("sentiment_slopes", caption, draw))
        blocks += rows(slopes, SLOPE_COLUMNS, "sentiment_slopes.csv")
    effects, plain = made.get("bing_effects"), made.get("bing_points")
    if effects is not None and plain is not None:
        text = (
            "Rewards of the negative and the positive words of the Bing lexicon under “{}”; the "
            "bars are medians."
        )
        blocks += [
            Picture(f"bing_points_{prompt}", text.format(prompt), partial(swarms, own, names))
            for prompt, own in in_order(plain, prompts)
        ]
        label = "share of pairs in which the positive word scores higher"
        caption = "Bing lexicon: 0.5 is chance, 1 puts every positive word above every negative."
        draw = partial(intervals, effects, names, label)
        blocks.append(Picture("bing_effects", caption, draw))
        blocks += rows(effects, _BING_COLUMNS)
    blocks += notes(made.reason(name) for name in ("sentiment_slopes", "bing_effects"))
    return Section(
        id="sentiment",
        title="Sentiment",
        label="Sentiment",
        lead="Does a model’s reward follow the valence of a word? For the tokens that are words of "
        "the AFINN lexicon, the reward is regressed on valence (−5 to 5), separately for positive "
        "words and all others.",
        blocks=[*blocks, *matches_block(made, "sentiment", "bing")],
        caveats=(
            "Only words of one token are compared, in English; by default a token with a leading "
            "space matches no word, as in the paper.",
            "A slope is in the model’s own unit of reward: compare signs and prompts within a "
            "model, not sizes between models.",
        ),
    )


SLOPE_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("valence", "valence", "text"),
    ("slope", "slope", "number"),
    ("stderr", "standard error", "number"),
    ("p", "p", "p"),
    ("n", "n", "count"),
)
_BING_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("auc", "pairs in order", "fixed"),
    ("ci_low", "from", "fixed"),
    ("ci_high", "to", "fixed"),
    ("cohens_d", "Cohen’s d", "fixed"),
    ("p", "p", "p"),
    ("n_positive", "n positive", "count"),
    ("n_negative", "n negative", "count"),
)
