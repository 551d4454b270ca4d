"""Training of the demo's heads, on features whose answer is known."""

import numpy as np
import polars as pl
import pytest

from demo import training


def test_words_have_the_log_odds_of_their_texts():
    texts = pl.DataFrame({"text": ["A fine film."] * 6 + ["A dull film."] * 4})
    texts = texts.with_columns(label=pl.Series([1] * 6 + [0] * 4))
    valences = dict(training.word_valences(texts, "rt").rows())
    assert valences == pytest.approx(
        {"dull": np.log(2 / 6), "film": np.log(8 / 6), "fine": np.log(8 / 2)}
    )


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_head_learns_which_replies_are_better_and_has_rewards_of_sd_1(kind, monkeypatch):
    monkeypatch.setattr(training, "STEPS", 800)
    monkeypatch.setattr(training, "PAIRS", 128)
    rng = np.random.default_rng(0)
    inputs = rng.normal(3, 2, (400, 16)).astype(np.float32)
    valence = (inputs[:, 0] - inputs[:, 1]) / 2
    rows = pl.DataFrame({"prompt": ["a"] * 200 + ["b"] * 200, "sign": 1, "valence": valence})
    tensors = training.train(kind, rows, inputs, inputs[None])
    rewards = inputs
    for layer in ["score"] if kind == "linear" else ["score.0", "score.2"]:
        rewards = np.maximum(rewards, 0) if layer == "score.2" else rewards
        rewards = rewards @ tensors[f"{layer}.weight"].T + tensors.get(f"{layer}.bias", 0)
    assert np.corrcoef(rewards[:, 0], valence)[0, 1] > 0.95
    np.testing.assert_allclose(rewards.std(), 1, rtol=1e-3)
