"""Bugs planted in the reward heads and in what reads them: each must fail parity with torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.convert import gates, hf_heads
from engine.models import heads
from engine.models.heads import HeadResult
from engine.scoring import reward_passes
from tests.support import slow
from tests.support.heads import PATTERN, check, load
from tests.support.planted import instead


def gate_read_at(position):
    return instead(reward_passes, "gate_position", lambda *_: position)


def gate_from(change, temperature=None):
    """`change(head, softmax weights)` in place of the scaled and transformed gate."""

    def gate(right, self, x):
        for index, layer in enumerate(self.layers):
            x = x @ layer.weight[...] + layer.bias[...]
            x = x if index == len(self.layers) - 1 else jax.nn.relu(x)
        return change(self, jax.nn.softmax(x / (temperature or self.config.gate_temperature)))

    return instead(heads.GatedHead, "gate", gate)


def coefficients(self, gate):
    gate = gate * self.logit_scale
    return self.transform[...] @ gate if self.config.transform else gate


def first_quantile(right, self, hidden, gate):
    values = jnp.einsum("CD,RD->CR", hidden, self.weight[:, 0])
    return HeadResult(jnp.sum(values * gate, axis=-1), values)


def log_variances(right, self, hidden, gate):
    """URM's second column of each objective in place of its mean."""
    self.weight.set_value(self.weight[:, ::-1])
    return right(self, hidden, gate)


def without_biases(right, self, hidden):
    return jax.nn.relu(hidden @ self.weight_in[...]) @ self.weight_out[...]


def mixed(change):
    """`change(weights of the rows)` in place of what they mix to the reward."""
    return instead(hf_heads, "_mixture", lambda right, *given: change(right(*given)))


# What is planted, one of every kind, and the head in which it shows.
BUGS = {
    "no biases in GRM's value head": (
        instead(heads.MLPHead, "reward", without_biases),
        "GRM sftreg, Llama",
    ),
    "gate read at the first occurrence": (gate_read_at(20), "QRM-Gemma"),
    "gate read at the pattern's end": (gate_read_at(50 + len(PATTERN) - 1), "QRM-Llama"),
    "no softmax temperature": (gate_from(coefficients, temperature=1.0), "ArmoRM"),
    "matrix transposed": (
        gate_from(lambda self, gate: self.transform[...].T @ (gate * self.logit_scale)),
        "QRM-Llama",
    ),
    "logit_scale ignored": (gate_from(lambda self, gate: gate), "QRM-Gemma"),
    "first quantile for their mean": (
        instead(heads.GatedHead, "__call__", first_quantile),
        "QRM-Gemma",
    ),
    "log-variances for means": (instead(heads.URMHead, "__call__", log_variances), "URM"),
    "batch norms folded without their statistics": (
        instead(gates, "_affine", lambda right, index, m: (m["weight"], m["bias"])),
        "QRM-Gemma",
    ),
    "no bias": (
        instead(heads.AffineHead, "reward", lambda right, *of: heads.LinearHead.reward(*of)),
        "LLaMA-Factory",
    ),
    "no mean in a normalised reward": (
        instead(hf_heads, "number", lambda *_: 0.0),
        "a head that OpenRLHF's user named, normalised",
    ),
    "the first row for the named one": (
        mixed(lambda mixture: np.eye(1, len(mixture))[0]),
        "a row of ten",
    ),
    "a difference the other way round": (
        mixed(lambda mixture: mixture[::-1].copy()),
        "a difference of two rows with biases",
    ),
}


@pytest.mark.parametrize("bug", slow.all_but(["first quantile for their mean", "no bias"], BUGS))
def test_a_bug_planted_in_a_head_or_its_conversion_fails_parity(tmp_path, monkeypatch, bug):
    plant, name = BUGS[bug]
    plant(monkeypatch)
    case = load(name, tmp_path)
    with pytest.raises(AssertionError, match="relative error"):
        check(case, case.restored.rebuilt())
