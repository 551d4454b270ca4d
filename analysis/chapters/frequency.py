"""Reward against how often a word is used, beside its sentiment (Fig 3D)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Picture, Section, Text, notes, rows
from analysis.chapters.sentiment import (
    FAMILY,
    SLOPE_COLUMNS,
    SLOPES,
    SPELLINGS,
    in_order,
    slope_of,
    with_stems,
)
from analysis.figures import style, word_points
from analysis.measures.matched_words import CELL, by_model_and_prompt, matches_block
from analysis.significant_effects import CHOSEN, clearest, counted, interval, significant
from analysis.statistics import Array, regression
from analysis.statistics.inference import with_q
from analysis.study import Absent, Study, Table, required, table
from analysis.words import lexicons


def tables(study: Study) -> Iterator[Table]:
    """frequency_slopes.csv and matches_frequency.csv. For the figures: ("frequency_points",)."""
    made = study.tables
    yield table("frequency_points", make=partial(_points, study), file=False)
    yield table("matches", "frequency", make=partial(_matches, study))
    yield table("frequency_slopes", make=lambda: frequency_slopes(made["frequency_points"]))


def frequency_points(points: pl.DataFrame, frequency: pl.DataFrame) -> pl.DataFrame:
    """Tokens of known sentiment and known frequency.

    Args:
      points: what `sentiment.sentiment_points` returns.
      frequency: what `lexicons.frequency` returns; a token counts once for each row of its word.

    Returns:
      model, prompt, token_id, token, word, log_frequency (natural log of occurrences per
      million words), value, reward, residual (reward less the fitted part of the value, so that
      the slope of Fig 3D is the slope of these points).
    """
    joined = points.join(
        frequency, on="word", how="inner", validate="m:m", maintain_order="left_right"
    ).with_columns(log_frequency=pl.col("per_million").log())
    frames, residuals = [joined.clear()], [np.empty(0)]
    for _, own in by_model_and_prompt(with_stems(joined)):
        value = float(regression.coefficients(*_data(own))[2])
        value = 0.0 if math.isnan(value) else value
        residuals.append(own["reward"].to_numpy() - value * own["value"].to_numpy())
        frames.append(own.drop("stem"))
    columns = [*CELL, "token_id", "token", "word", "log_frequency", "value", "reward"]
    residual = pl.Series("residual", np.concatenate(residuals))
    return pl.concat(frames).select(*columns, residual)


def frequency_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on log frequency and value together.

    Args:
      points: what `frequency_points` returns.

    Returns:
      The table `frequency_slopes.csv`: model, prompt, slope (reward per unit of natural log
      frequency, at equal sentiment), stderr (clustered by stem), p, q (the family is all slopes
      of the table), n (tokens), ci_low, ci_high (95 %, by the same t as p).
    """
    fits = [
        {**cell, **slope_of(regression.ols(*_data(own)))}
        for cell, own in by_model_and_prompt(with_stems(points))
    ]
    return with_q(pl.DataFrame(fits, schema={**CELL, **SLOPES}))


def _data(own: pl.DataFrame) -> tuple[Array, Array, Array]:
    """What `regression.ols` takes."""
    design = own.select("log_frequency", "value").to_numpy()
    return own["reward"].to_numpy(), design, own["stem"].to_numpy()


def _points(study: Study) -> pl.DataFrame:
    try:
        graded = study.tables["sentiment_points"]
    except Absent as absent:
        raise Absent(f"Frequency needs the words of the sentiment lexicon. {absent}") from absent
    path = study.options.frequency
    try:
        frequency = lexicons.frequency(path, study.options.frequency_join)
    except lexicons.LexiconError as error:
        raise Absent(f"No word frequencies: {error}.") from error
    points = frequency_points(graded, frequency)
    return required(points, f"No matched word is in {path or 'wordfreq'}.")


def _matches(study: Study) -> pl.DataFrame:
    points, graded = study.tables["frequency_points"], study.tables["matches", "sentiment"]
    counts = points.group_by("model", maintain_order=True).agg(
        tokens=pl.col("token_id").n_unique().cast(pl.Int64),
        words=pl.col("word").n_unique().cast(pl.Int64),
    )
    sizes = graded.select("model", "of").unique("model")
    joined = counts.join(sizes, on="model", how="left", validate="1:1", maintain_order="left")
    source = pl.lit(study.options.frequency or "wordfreq")
    return joined.select(
        source.alias("source"), pl.lit("words of AFINN").alias("matching"), pl.all()
    )


@style.styled
def clouds(points: pl.DataFrame, slopes: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """Reward of each word, less the fitted part of its valence, against its frequency.

    Args:
      points: rows of `frequency_points` for one prompt.
      slopes: rows of `frequency_slopes.csv` for that prompt.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    figure, axes = word_points.panels(points, names)
    shades = style.colours(names)
    for model, ax in axes.items():
        part = points.filter(model=model)
        x, y = part["log_frequency"].to_numpy(), part["residual"].to_numpy()
        style.cloud(ax, x, y, shades[model])
        slope = slopes.filter(model=model)["slope"]
        word_points.fitted_line(ax, x, y, slope, style.INK)
    figure.supxlabel("natural logarithm of the occurrences in a million words", fontsize=9)
    figure.supylabel("reward, sentiment taken out", fontsize=9)
    return figure


@style.styled
def dots(
    slopes: pl.DataFrame, names: Mapping[str, str], prompts: Sequence[str], label: str
) -> style.Figure:
    """Slopes with their 95 % intervals: one row per prompt, one panel per model with its own scale.

    Args:
      slopes: model, prompt, slope, ci_low, ci_high, such as `frequency_slopes.csv`.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
      prompts: prompt ids, from the top.
      label: what the slope is, for the axis.
    """
    models = [model for model in names if model in slopes["model"]]
    shown = [prompt for prompt in prompts if prompt in slopes["prompt"]]
    figure, axes = style.panels(names, models, 5, (2.1, 0.26 * len(shown) + 0.95))
    looks = style.looks(prompts)
    for at, (model, ax) in enumerate(axes.items()):
        for place, prompt in enumerate(shown):
            part = slopes.filter(pl.col("slope").is_finite(), model=model, prompt=prompt)
            for slope, low, high in part.select("slope", "ci_low", "ci_high").iter_rows():
                colour, marker = looks[prompt]
                ax.plot(slope, place, marker, color=colour, markersize=5)
                if math.isfinite(low):
                    ax.hlines(place, low, high, color=colour)
        ax.axvline(0, color=style.INK, linewidth=0.8)
        first = at % style.grid_shape(len(models), 5)[1] == 0
        labels = [style.name(p, 16) for p in shown] if first else [""] * len(shown)
        ax.set_yticks(range(len(shown)), labels)
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.locator_params(axis="x", nbins=4)
    figure.supxlabel(style.drawable(label), fontsize=9)
    return figure


def section(study: Study) -> Section:
    """Points and slopes."""
    points, slopes = (study.tables.get(f"frequency_{name}") for name in ("points", "slopes"))
    blocks: list[Block] = notes([study.tables.reason("frequency_slopes")])
    if points is not None and slopes is not None:
        prompts = list(study.run.vocabulary_prompts)
        label = "change of reward for each e-fold of frequency, sentiment held"
        text = (
            "Each point is a token: its reward under “{}”, with the fitted part of its valence "
            "taken out, against its frequency. The line is the slope below."
        )
        caption = (
            "Right of zero, commoner words score higher at equal sentiment. 95% intervals; each "
            "model has its own scale."
        )
        blocks = [
            *(
                Picture(
                    f"frequency_points_{prompt}",
                    text.format(prompt),
                    partial(clouds, own, slopes.filter(prompt=prompt), study.names),
                )
                for prompt, own in in_order(points, prompts)
            ),
            Picture(
                "frequency_slopes", caption, partial(dots, slopes, study.names, prompts, label)
            ),
            *rows(slopes, [c for c in SLOPE_COLUMNS if c[0] != "valence"], "frequency_slopes.csv"),
            Text(FAMILY, "how"),
        ]
    return Section(
        id="frequency",
        title="Frequency",
        label="Frequency",
        lead="Do models prefer common words? Among the words of the sentiment lexicon, reward is "
        "regressed on the logarithm of frequency and on valence together.",
        blocks=[*blocks, *matches_block(study.tables, "frequency")],
        findings=list(findings(slopes, study.names, list(study.run.vocabulary_prompts))),
        caveats=(
            SPELLINGS[study.options.match_trim],
            "Common words are also shorter and better trained; the slope cannot tell these apart.",
        ),
    )


def findings(
    slopes: pl.DataFrame | None, names: Mapping[str, str], prompts: Sequence[str]
) -> Iterator[Finding]:
    """One sentence for each prompt under which a slope is sure.

    Args:
      slopes: `frequency_slopes.csv`, or None.
      names: slug -> nickname.
      prompts: prompt ids, in the order of the sentences.
    """
    if slopes is None:
        return
    for prompt, part in in_order(significant(slopes), prompts):
        own = slopes.filter(prompt=prompt)
        above, below = "commoner words score higher", "commoner words score lower"
        said = counted(own, "slope", above, below, "lower")
        best = clearest(part, ("model",))
        text = (
            f"Under “{prompt}”, at equal valence, {said} (q < .05 over {slopes.height} slopes). "
            f"The clearest slope{CHOSEN} is that of {names[best['model']]}: "
            f"{interval(best['slope'], best['ci_low'], best['ci_high'])} for each e-fold of "
            "frequency."
        )
        yield Finding(text=text, picture="frequency_slopes")
