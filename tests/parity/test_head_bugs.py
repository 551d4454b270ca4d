"""Bugs planted in the reward heads and in what reads them: each must fail parity with torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.convert import gates, hf_heads
from engine.models import heads
from engine.models.heads import HeadResult
from tests.support import slow
from tests.support.heads import PATTERN, check, load


def gate_read_at(position):
    return lambda patch: patch.setattr(
        "engine.scoring.reward_passes.gate_position", lambda ids, pattern: position
    )


def gate_from(change, temperature=None):
    """`change(head, softmax weights)` in place of the scaled and transformed gate."""

    def plant(patch):
        def gate(self, hidden):
            x = hidden
            for index, layer in enumerate(self.layers):
                x = x @ layer.weight[...] + layer.bias[...]
                x = x if index == len(self.layers) - 1 else jax.nn.relu(x)
            return change(self, jax.nn.softmax(x / (temperature or self.config.gate_temperature)))

        patch.setattr(heads.GatedHead, "gate", gate)

    return plant


def coefficients(self, gate):
    gate = gate * self.logit_scale
    return self.transform[...] @ gate if self.config.transform else gate


def objectives_from(change):
    """`change(weights [R, Q, D])` instead of them."""

    def plant(patch):
        def call(self, hidden, gate):
            values = jnp.einsum("CD,RQD->CRQ", hidden, change(self.weight[...])).mean(-1)
            return HeadResult(jnp.sum(values * gate, axis=-1), values)

        patch.setattr(heads.GatedHead, "__call__", call)

    return plant


def first_quantile(weight):
    return jnp.broadcast_to(weight[:, :1], weight.shape)


def log_variances(patch):
    """URM's second column of each objective in place of its mean."""
    right = heads.URMHead.__call__

    def call(self, hidden, gate):
        self.weight.set_value(self.weight[:, ::-1])
        return right(self, hidden, gate)

    patch.setattr(heads.URMHead, "__call__", call)


def without_biases(patch):
    def reward(self, hidden):
        return jax.nn.relu(hidden @ self.weight_in[...]) @ self.weight_out[...]

    patch.setattr(heads.MLPHead, "reward", reward)


def no_statistics(patch):
    patch.setattr(gates, "_affine", lambda index, m: (m["weight"], m["bias"]))


def no_bias(patch):
    patch.setattr(heads.AffineHead, "reward", heads.LinearHead.reward)


def no_mean(patch):
    patch.setattr(hf_heads, "number", lambda hf, name: 0.0)


def first_row(patch):
    patch.setattr(hf_heads, "_mixture", lambda reward, names, labels: np.eye(1, len(names))[0])


def difference_reversed(patch):
    mixture = hf_heads._mixture
    patch.setattr(hf_heads, "_mixture", lambda *given: mixture(*given)[::-1].copy())


# What is planted, one of every kind, and the head in which it shows.
BUGS = {
    "no biases in GRM's value head": (without_biases, "GRM sftreg, Llama"),
    "gate read at the first occurrence": (gate_read_at(20), "QRM-Gemma"),
    "gate read at the pattern's end": (gate_read_at(50 + len(PATTERN) - 1), "QRM-Llama"),
    "no softmax temperature": (gate_from(coefficients, temperature=1.0), "ArmoRM"),
    "matrix transposed": (
        gate_from(lambda self, gate: self.transform[...].T @ (gate * self.logit_scale)),
        "QRM-Llama",
    ),
    "logit_scale ignored": (gate_from(lambda self, gate: gate), "QRM-Gemma"),
    "first quantile for their mean": (objectives_from(first_quantile), "QRM-Gemma"),
    "log-variances for means": (log_variances, "URM"),
    "batch norms folded without their statistics": (no_statistics, "QRM-Gemma"),
    "no bias": (no_bias, "LLaMA-Factory"),
    "no mean in a normalised reward": (no_mean, "a head that OpenRLHF's user named, normalised"),
    "the first row for the named one": (first_row, "a row of ten"),
    "a difference the other way round": (
        difference_reversed,
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
