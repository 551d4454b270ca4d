"""Claims about valence: words whose valence is shuffled, synthetic and with real rewards."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.chapters import sentiment
from analysis.run import Run
from analysis.words import lexicons
from analysis.words.stems import stems
from bench.claims import Rate, rates_of
from bench.support.shuffles import relabelled

_ALPHA = 0.05
_REAL = "real rewards, values shuffled over stems"
_MADE = "synthetic: rewards of words and spellings, no effect"


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """False-alarm rates of slopes, of Bing effects and of the sentences on both."""
    real, words = coded(sentiment.sentiment_points(run, list(run.models), lexicons.afinn()))

    def real_null(points: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        # Over all stems: inside bands of frequency, valence would still go with frequency.
        return relabelled(points, words, "value", rng.permutation(words["value"].to_numpy()))

    made = synthetic(np.random.default_rng(1))
    for points, null, said in ((real, real_null, _REAL), (made, _synthetic_null, _MADE)):
        rng = np.random.default_rng(0)
        yield from rates_of(said, (_claims(null(points, rng), rng) for _ in range(draws)))


def synthetic(rng: np.random.Generator) -> pl.DataFrame:
    """Points of 120 words in one to four spellings, five models and three prompts."""
    size = 120
    value = rng.choice([-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0], size)
    word = np.repeat(np.arange(size), rng.integers(1, 5, size))
    tokens = pl.DataFrame({"word": [f"w{i}" for i in word], "value": value[word]})
    tokens = tokens.with_row_index("token_id").with_columns(token=pl.col("word"))
    cells = [(f"m{m}", f"p{p}") for m in range(5) for p in range(3)]
    return pl.concat(
        tokens.select(
            pl.lit(model).alias("model"), pl.lit(prompt).alias("prompt"), pl.all()
        ).with_columns(reward=pl.lit(0.0))
        for model, prompt in cells
    )


def _claims(points: pl.DataFrame, rng: np.random.Generator) -> dict[str, bool]:
    """Which claims appear; of the tests of a draw one counts, because they share their words."""
    names, prompts = cells(points)
    slopes = sentiment.sentiment_slopes(points)
    slope = slopes["p"][int(rng.integers(slopes.height))]
    effects = sentiment.valence_effects(_signs(points))
    effect = effects["p"][int(rng.integers(effects.height))]
    return {
        "sentiment: slope p": slope < _ALPHA,
        "sentiment: slope sentence": any(sentiment.slope_findings(slopes, names, prompts)),
        "sentiment: Bing p": effect < _ALPHA,
        "sentiment: Bing sentence": any(sentiment.bing_findings(effects, names, prompts)),
    }


def cells(points: pl.DataFrame) -> tuple[dict[str, str], list[str]]:
    """Names of the models, and the prompts, as findings take them."""
    models, prompts = (points[name].unique(maintain_order=True) for name in ("model", "prompt"))
    return {model: model for model in models}, prompts.to_list()


def _signs(points: pl.DataFrame) -> pl.DataFrame:
    """`points` as those of a lexicon without grades."""
    positive = pl.when(pl.col("value") > 0).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    return points.with_columns(valence=positive)


def coded(points: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`points` by stem, whose forms are shuffled together.

    Returns:
      The points, with the number of the stem as their word; and word, value and log_frequency (NaN
      where unknown) of each stem, which are those of its first form.
    """
    words = points.select("word", "value").unique("word").sort("word")
    words = words.with_columns(code=stems(words["word"]).rank("dense").cast(pl.String))
    often = lexicons.frequency()
    words = words.join(often, on="word", how="left", validate="1:1", maintain_order="left")
    numbered = words.select("word", "code")
    points = points.join(numbered, on="word", how="left", validate="m:1", maintain_order="left")
    logged = pl.col("per_million").log().fill_null(np.nan)
    return (
        points.with_columns(word="code").drop("code"),
        words.select(word="code", value="value", log_frequency=logged).unique(
            "word", keep="first", maintain_order=True
        ),
    )


def _synthetic_null(points: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Rewards that words, spellings and models share, none of which knows the value."""
    word = points["word"].rank("dense").to_numpy() - 1
    token = points["token_id"].to_numpy()
    cell = points.select(pl.struct("model", "prompt").rank("dense")).to_series().to_numpy() - 1
    shape = (cell.max() + 1, word.max() + 1)
    shared = rng.normal(size=shape[1])[word] + rng.normal(size=shape)[cell, word]
    spelt = rng.normal(size=token.max() + 1)[token]
    noise = rng.normal(size=points.height) * (1 + 0.2 * np.abs(points["value"].to_numpy()))
    return points.with_columns(reward=pl.Series(shared + 0.5 * spelt + 0.5 * noise))
