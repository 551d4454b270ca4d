"""Reward against how often a word is used, beside its sentiment (Fig 3D)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.chapters import sentiment
from analysis.charts.estimates import estimates
from analysis.charts.look import PANELS
from analysis.columns import MODEL, PROMPT, Spec
from analysis.measures.matched_words import CELL, by_model_and_prompt
from analysis.sentences import counted, significant, unclear
from analysis.statistics import Array, regression
from analysis.study import Absent, Analysis, Study, Table, required, table
from analysis.words import lexicons

SLOPES = Spec(
    "frequency_slopes",
    (
        *(MODEL, PROMPT),
        *sentiment.slope_columns(
            "reward per unit of natural log frequency; with "
            "`--config.options.frequency_join=paper` a token counts once for each part of speech "
            "of its word"
        ),
    ),
    page="model prompt slope ci_low ci_high stderr p q n",
)


def _tables(study: Study) -> Iterator[Table]:
    """The slopes. For them: ("frequency_points",)."""
    made = study.tables
    yield table("frequency_points", make=partial(_points, study), file=False)
    yield table(SLOPES.name, make=lambda: frequency_slopes(made["frequency_points"]))


def frequency_points(points: pl.DataFrame, frequency: pl.DataFrame) -> pl.DataFrame:
    """Tokens of known sentiment and known frequency.

    Args:
      points: what `sentiment.sentiment_points` returns.
      frequency: what `lexicons.frequency` returns; a token counts once for each row of its word.

    Returns:
      model, prompt, token_id, token, word, log_frequency (natural log of occurrences per
      million words), value, reward.
    """
    joined = points.join(
        frequency, on="word", how="inner", validate="m:m", maintain_order="left_right"
    )
    log_frequency = pl.col("per_million").log().alias("log_frequency")
    return joined.select(*CELL, "token_id", "token", "word", log_frequency, "value", "reward")


def frequency_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on log frequency and value together: the table `SLOPES`.

    `points` is what `frequency_points` returns.
    """
    return SLOPES.frame(
        {**cell, **sentiment.slope_of(regression.ols(*_data(words)))}
        for cell, words in by_model_and_prompt(sentiment.with_stems(points))
    )


def _data(words: pl.DataFrame) -> tuple[Array, Array, Array]:
    """What `regression.ols` takes."""
    design = words.select("log_frequency", "value").to_numpy()
    return words["reward"].to_numpy(), design, words["stem"].to_numpy()


def _points(study: Study) -> pl.DataFrame:
    try:
        graded = study.tables["sentiment_points"]
    except Absent as absent:
        raise Absent(f"Frequency needs the words of the sentiment lexicon. {absent}") from absent
    path = study.options.frequency
    try:
        frequency = lexicons.frequency(path, study.options.frequency_join)
    except lexicons.NoPackage as error:
        raise Absent(f"No word frequencies: {error}.") from error
    points = frequency_points(graded, frequency)
    return required(points, f"No matched word is in {path or 'wordfreq'}.")


def _slopes_drawn(study: Study) -> Iterator[Block]:
    slopes = study.tables[SLOPES.name]
    label = "change of reward where a word is ten times as common, sentiment held"
    many = len(study.scored) > PANELS
    unit = "one standard deviation of its rewards" if many else "its own scale"
    shown = sentiment.in_deviations(study, slopes) if many else slopes
    question = pl.col("prompt").replace(study.prompt_names)
    ten_times = pl.col("slope", "ci_low", "ci_high") * math.log(10)
    shown = shown.with_columns(ten_times, question=question)
    draw = partial(estimates, shown, study.names, label, value="slope", row="question")
    draw = partial(draw, form="number")
    caption = (
        "Right of zero, commoner words score higher at equal sentiment. 95% intervals; each "
        f"model’s unit is {unit}. The table is per unit of natural logarithm."
    )
    yield Picture("frequency_slopes", caption, partial(draw, panel="name", shared=many))
    yield from (*SLOPES.rows(slopes), Text(sentiment.FAMILY, "how"))


def findings(slopes: pl.DataFrame, prompts: Mapping[str, str]) -> Iterator[Finding]:
    """One sentence for each prompt under which a slope is sure.

    Args:
      slopes: the table `SLOPES`.
      prompts: prompt id -> how the page calls it, in the order of the sentences.
    """
    for prompt, _ in sentiment.in_order(significant(slopes), list(prompts)):
        above, below = "commoner words score higher", "commoner words score lower"
        clause = counted(slopes.filter(prompt=prompt), "slope", above, below, "lower")
        text = f"Asked {prompts[prompt]}, {clause}, among words of equal sentiment in the lexicon."
        yield Finding(text=text, picture="frequency_slopes")


ANALYSIS = Analysis(
    id="frequency",
    title="Frequency",
    lead="Do models prefer common words? Among the words of the sentiment lexicon, reward is "
    "regressed on the logarithm of frequency and on valence together.",
    make=_tables,
    parts=(_slopes_drawn,),
    told=(lambda s: findings(s.tables[SLOPES.name], s.prompt_names),),
    marks=lambda s: sentiment.slope_marks(
        s, s.tables[SLOPES.name], "from one word to one ten times as common", math.log(10)
    ),
    described=lambda study: unclear(study.tables[SLOPES.name], "slopes of reward on frequency"),
    caveats=lambda study: (
        sentiment.SPELLINGS[study.options.match_trim],
        "Common words are also shorter and better trained; the slope cannot tell these apart.",
    ),
)
