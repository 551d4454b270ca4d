"""A run whose tokens are graded words, and their lexicon."""

import polars as pl
import pytest

import analysis

WORDS = {"love": 3.0, "joy": 2.0, "fine": 1.0, "so": 0.0, "bad": -1.0, "hate": -2.0, "evil": -3.0}


@pytest.fixture
def word_run(make_run):
    """One model under two prompts; some tokens are spelt otherwise, and one is in no lexicon."""
    tokens = [*WORDS, "Love", " love", "noise", "HATE"]
    greatest = [6.0, 5.0, 4.0, 2.0, 1.0, 0.0, -1.0, 6.0, 99.0, -50.0, 0.0]
    scores = {("m", "greatest"): greatest, ("m", "worst"): [-x for x in greatest]}
    return analysis.load(make_run({"v": tokens}, {"m": "v"}, scores))


@pytest.fixture
def lexicon():
    """word, value."""
    return pl.DataFrame({"word": list(WORDS), "value": list(WORDS.values())})
