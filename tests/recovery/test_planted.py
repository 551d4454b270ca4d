"""Planted truth: each analysis finds what was put in, at its rate, and nothing else.

Each claim is made on 200 draws at once: a draw is a "prompt" of the same frame wherever the
analysis treats prompts apart. Bounds are those that a true rate of 95 % (or 5 %) leaves in less
than one of a thousand sets of 200.
"""

import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.statistics.correlation import principal_axes

pytestmark = pytest.mark.slow

DRAWS = 200
COVERED = (180, 199)
ALARMS = 20


@pytest.fixture
def rng():
    return np.random.default_rng(2024)


def covered(truth, low, high):
    return int(np.sum((np.asarray(low) <= truth) & (truth <= np.asarray(high))))


def slopes(table, **keys):
    """Slope and its 95 % interval of each draw."""
    own = table.filter(**keys) if keys else table
    # Some 100 words: Student's t and the normal differ in the second digit.
    half = 1.98 * own["stderr"]
    return own["slope"], own["slope"] - half, own["slope"] + half


def word_frame(rng, words=120, spellings=3):
    """Spellings of words with a value and a log frequency that go together."""
    value = rng.integers(-5, 6, size=words).astype(float)
    log_frequency = 0.4 * value + rng.normal(scale=2.0, size=words)
    word = np.repeat(np.arange(words), spellings)
    columns = {"word": [f"w{i}" for i in word], "value": value[word]}
    columns |= {"log_frequency": log_frequency[word]}
    table = pl.DataFrame(columns).with_row_index("token_id").with_columns(token=pl.col("word"))
    return table, word


def drawn(table, **numbers):
    """`table` once for each draw, which is its prompt, with the draw's numbers [DRAWS, N]."""
    keys = [{"model": pl.lit("m"), "prompt": pl.lit(f"d{d:03d}")} for d in range(DRAWS)]
    return pl.concat(
        table.with_columns(**key, **{name: pl.Series(x[d]) for name, x in numbers.items()})
        for d, key in enumerate(keys)
    )


def scored(rng, table, word, mean):
    """`table` with the rewards of every draw: `mean` [N], what a word shares, and noise."""
    shape = (DRAWS, len(word))
    shared = rng.normal(size=(DRAWS, word.max() + 1))[:, word]
    rewards = (
        mean
        + shared
        + rng.normal(scale=0.5, size=shape) * (1 + 0.2 * abs(table["value"].to_numpy()))
    )
    return drawn(table, reward=rewards)


def test_sentiment_slopes_of_both_valences_are_recovered(rng):
    table, word = word_frame(rng)
    value = table["value"].to_numpy()
    points = scored(rng, table, word, 0.7 * np.maximum(value, 0) + 0.2 * np.minimum(value, 0) - 3)
    found = analysis.sentiment_slopes(points)
    for valence, truth in (("positive", 0.7), ("negative", 0.2)):
        _, low, high = slopes(found, valence=valence)
        assert COVERED[0] <= covered(truth, low, high) <= COVERED[1]
    assert (found.filter(valence="positive")["p"] < 0.05).sum() == DRAWS


def test_where_no_sentiment_was_planted_none_is_found(rng):
    table, word = word_frame(rng)
    found = analysis.sentiment_slopes(scored(rng, table, word, np.zeros(len(word))))
    for valence in ("positive", "negative"):
        assert (found.filter(valence=valence)["p"] < 0.05).sum() <= ALARMS


def test_a_frequency_effect_is_recovered_beside_sentiment(rng):
    table, word = word_frame(rng)
    effect = 0.15 * table["log_frequency"].to_numpy() + 0.5 * table["value"].to_numpy()
    found = analysis.frequency_slopes(scored(rng, table, word, effect))
    _, low, high = slopes(found)
    assert COVERED[0] <= covered(0.15, low, high) <= COVERED[1]


def test_the_share_of_a_framing_axis_is_recovered(rng):
    held = 0
    for _ in range(DRAWS):
        opposed, same = 2 * rng.standard_t(8, size=1000), rng.standard_t(8, size=1000)
        first, second = principal_axes(opposed + same, same - opposed, np.arange(1000))
        held += covered(0.8, first[2].low, first[2].high)
        assert first[:2] == pytest.approx((math.sqrt(0.5), -math.sqrt(0.5)), abs=0.06)
        assert second[0] * second[1] > 0
    assert COVERED[0] <= held <= COVERED[1]
