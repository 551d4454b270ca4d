"""Claims about frequency: words whose frequency is shuffled, synthetic and with real rewards."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.chapters import frequency, sentiment
from analysis.run import Run
from analysis.words import lexicons
from bench.claims import Rate, rates_of
from bench.claims.sentiment import cells, coded, synthetic
from bench.support.shuffles import bands, relabelled, shuffled

_ALPHA = 0.05
_REAL = "real rewards, stems shuffled within valence bands"
_MADE = "synthetic: reward follows valence, not frequency"


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """False-alarm rates of slopes on frequency and of the sentences on them."""
    graded = sentiment.sentiment_points(run, list(run.models), lexicons.afinn())
    known = frequency.frequency_points(graded, lexicons.frequency()).drop("residual")
    points, words = coded(known)
    valence = bands(words["value"].to_numpy())

    def real_null(points: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        labels = shuffled(words["log_frequency"].to_numpy(), valence, rng)
        return relabelled(points, words, "log_frequency", labels)

    rng = np.random.default_rng(1)
    made = synthetic(rng)
    own = made.select("word", "value").unique("word").sort("word")
    often = 0.4 * own["value"].to_numpy() + rng.normal(scale=2, size=own.height)
    made = relabelled(made.with_columns(log_frequency=0.0), own, "log_frequency", often)
    for known, null, said in ((points, real_null, _REAL), (made, _synthetic_null, _MADE)):
        rng = np.random.default_rng(0)
        yield from rates_of(said, (_claims(null(known, rng), rng) for _ in range(draws)))


def _claims(points: pl.DataFrame, rng: np.random.Generator) -> dict[str, bool]:
    """Which claims appear; of the slopes of a draw one counts."""
    slopes = frequency.frequency_slopes(points)
    return {
        "frequency: slope p": slopes["p"][int(rng.integers(slopes.height))] < _ALPHA,
        "frequency: slope sentence": any(frequency.findings(slopes, *cells(points))),
    }


def _synthetic_null(points: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    word = points["word"].rank("dense").to_numpy() - 1
    own = rng.normal(size=word.max() + 1)[word] + 0.5 * rng.normal(size=points.height)
    return points.with_columns(reward=0.5 * pl.col("value") + pl.Series(own))
