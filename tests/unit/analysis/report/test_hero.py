"""The finding above the words: the same ten words under two opposite questions."""

import numpy as np
import pytest

from analysis.chapters import framing
from analysis.report import hero

WORDS = [f" {a}{b}{c}" for a in "abcdefgh" for b in "aeiou" for c in "nrstl"]


@pytest.fixture
def told(make_run, study_of):
    """The finding of models by the sign of their rewards under "worst", beside "greatest"."""

    def of(*signs):
        rng = np.random.default_rng(0)
        scores = {}
        for at, sign in enumerate(signs):
            rewards = rng.normal(size=len(WORDS))
            noise = rng.normal(size=len(WORDS))
            scores[f"m{at}", "greatest"] = rewards
            scores[f"m{at}", "worst"] = sign * rewards + 0.2 * noise
        path = make_run({"v": WORDS}, {f"m{at}": "v" for at in range(len(signs))}, scores)
        return hero.story(study_of(path, framing))

    return of


def test_models_that_rate_words_as_before_are_counted(told):
    found = told(1, -1, -1)
    assert found.text == "1 of 3 models hardly reads the question"
    assert [slug for slug, *_ in found.panels][1:] == ["m0"]
    for _, _, lines in found.panels:
        assert len(lines) == 10
        for side in (0, 1):
            assert len({line.ends[side] for line in lines}) == 10
    turned, same = (lines for *_, lines in found.panels)
    assert np.corrcoef(np.array([line.ends for line in turned]).T)[0, 1] < 0
    assert np.corrcoef(np.array([line.ends for line in same]).T)[0, 1] > 0.5


@pytest.mark.parametrize("signs", [(-1, -1), (0, 0)])
def test_nothing_is_said_where_every_model_reads_the_question(told, signs):
    assert told(*signs) is None
