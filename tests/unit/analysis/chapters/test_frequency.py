import numpy as np
import polars as pl
import pytest

import analysis

WORDS = {"love": 3.0, "joy": 2.0, "fine": 1.0, "so": 0.0, "bad": -1.0, "hate": -2.0, "evil": -3.0}


@pytest.fixture
def run(make_run):
    tokens = [*WORDS, "Love", " love", "noise", "HATE"]
    greatest = [6.0, 5.0, 4.0, 2.0, 1.0, 0.0, -1.0, 6.0, 99.0, -50.0, 0.0]
    scores = {("m", "greatest"): greatest, ("m", "worst"): [-x for x in greatest]}
    return analysis.load(make_run({"v": tokens}, {"m": "v"}, scores))


@pytest.fixture
def lexicon():
    return pl.DataFrame({"word": list(WORDS), "value": list(WORDS.values())})


def test_frequency_is_fitted_beside_value(run, lexicon):
    rng = np.random.default_rng(0)
    often = pl.DataFrame({"word": list(WORDS), "per_million": np.exp(rng.normal(size=7))})
    points = analysis.frequency_points(analysis.sentiment_points(run, ["m"], lexicon), often)
    design = points.filter(prompt="greatest")
    x = np.column_stack([np.ones(design.height), design["log_frequency"], design["value"]])
    expected = np.linalg.lstsq(x, design["reward"].to_numpy(), rcond=None)[0]
    table = analysis.frequency_slopes(points)
    assert table["slope"][0] == pytest.approx(expected[1])
    assert table["n"].to_list() == [9, 9]
    residual = design["reward"].to_numpy() - expected[2] * design["value"].to_numpy()
    np.testing.assert_allclose(design["residual"], residual)
