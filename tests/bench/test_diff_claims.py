"""A short version of the nulls of `bench.claims.changes`, and that its claims can appear in it."""

import numpy as np
import polars as pl
import pytest

from bench.claims import changes

FORMS, STEMS, KINDS = 4, 20, 10  # spellings of a stem, stems of a kind, kinds
OTHERS = 2000  # tokens of no kind


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def stems():
    """The number of each token's stem: those of the kinds first, in `FORMS` spellings each."""
    several = np.repeat(np.arange(STEMS * KINDS), FORMS)
    return np.concatenate([several, STEMS * KINDS + np.arange(OTHERS)])


@pytest.fixture(scope="module")
def words(stems):
    own = stems[stems < STEMS * KINDS]
    return pl.DataFrame(
        {
            "list": ["kinds"] * len(own),
            "words": [f"kind {stem // STEMS}" for stem in own],
            "token_id": pl.Series(np.arange(len(own)), dtype=pl.UInt32),
            "stem": [f"stem {stem}" for stem in own],
        }
    )


def _appeared(draws, words):
    return sum(changes.said(rewards, words)[changes.MOVED] for rewards in draws)


def test_tastes_for_no_kind_are_hardly_ever_called_a_shift(rng, stems, words):
    draws = [changes.made_up(stems, rng) for _ in range(20)]
    assert _appeared(draws, words) <= 4  # 1 is expected; more than 4 by chance: one time in 400
    apart = words.with_columns(stem=pl.col("token_id").cast(pl.String))
    assert _appeared(draws, apart) >= 8  # spellings of one stem are no evidence of their own


def test_a_planted_taste_for_a_kind_fails_the_limit(rng, stems, words):
    rewards = dict(changes.made_up(stems, rng))
    for _, after in rewards.values():
        after[: FORMS * STEMS] -= 3  # a fall, which must count as a rise does
    assert all(changes.said(rewards, words).values())
