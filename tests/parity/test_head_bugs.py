"""Bugs planted in the reward heads and in what reads them: each must fail parity with torch."""

import re

import jax
import jax.numpy as jnp
import pytest

from engine.convert import gates
from engine.models import heads
from engine.models.heads import HeadResult
from tests.support import slow
from tests.support.heads import CASES, PATTERN, check, convert, restore, save


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


def gate_without_relu(patch):
    def gate(self, hidden):
        x = hidden
        for layer in self.layers:
            x = x @ layer.weight[...] + layer.bias[...]
        return coefficients(self, jax.nn.softmax(x / self.config.gate_temperature))

    patch.setattr(heads.GatedHead, "gate", gate)


def objectives_from(change):
    """`change(weights [R, Q, D])` instead of them, their mean instead of all quantiles' values."""

    def plant(patch):
        def call(self, hidden, gate):
            weight = change(self.weight[...])
            quantiles = jnp.einsum("CD,RQD->CRQ", hidden, weight)
            values = quantiles.mean(-1)
            flat = quantiles.reshape(len(hidden), -1)[:, : self.weight[..., 0].size]
            return HeadResult(jnp.sum(values * gate, axis=-1), values, flat)

        patch.setattr(heads.GatedHead, "__call__", call)

    return plant


def first_quantile(weight):
    return jnp.broadcast_to(weight[:, :1], weight.shape)


def quantiles_lead(weight):
    R, Q, D = weight.shape
    return weight.reshape(Q, R, D).swapaxes(0, 1)


def urm_weights(change):
    def plant(patch):
        def call(self, hidden, gate):
            return change(self, hidden)

        patch.setattr(heads.URMHead, "__call__", call)

    return plant


def _urm(self, hidden, column=0, squash=lambda weights: weights):
    means = jnp.einsum("CD,RD->CR", hidden, self.weight[:, column])
    x = jax.nn.selu(hidden @ self.weight_in[...] + self.bias_in)
    x = jax.nn.selu(x @ self.weight_mid[...] + self.bias_mid)
    weights = squash(x @ self.weight_out[...] + self.bias_out)
    means_right = jnp.einsum("CD,RD->CR", hidden, self.weight[:, 0])
    return HeadResult(jnp.sum(means * weights, axis=-1), means_right, jnp.zeros((len(hidden), 0)))


def relu_for_selu(patch):
    patch.setattr(jax.nn, "selu", jax.nn.relu)


def without_biases(patch):
    def reward(self, hidden):
        return jax.nn.relu(hidden @ self.weight_in[...]) @ self.weight_out[...]

    patch.setattr(heads.MLPHead, "reward", reward)


def no_relu(patch):
    patch.setattr(jax.nn, "relu", lambda x: x)


# What is planted, and the head in which it shows.
BUGS = {
    "no ReLU in INF-ORM's head": (no_relu, "INF-ORM"),
    "no biases in GRM's value head": (without_biases, "GRM sftreg, Llama"),
    "gate read at the first occurrence": (gate_read_at(20), "QRM-Gemma"),
    "gate read at the pattern's end": (gate_read_at(50 + len(PATTERN) - 1), "QRM-Llama"),
    "no ReLU in the gate": (gate_without_relu, "ArmoRM"),
    "no softmax temperature": (gate_from(coefficients, temperature=1.0), "ArmoRM"),
    "ArmoRM's temperature for QRM": (gate_from(coefficients, temperature=10.0), "QRM-Llama v2"),
    "the config's temperature ignored": (
        gate_from(coefficients, temperature=1.0),
        "QRM-Gemma, temperature in the config",
    ),
    "matrix transposed": (
        gate_from(lambda self, gate: self.transform[...].T @ (gate * self.logit_scale)),
        "QRM-Llama",
    ),
    "matrix left out": (gate_from(lambda self, gate: gate * self.logit_scale), "ArmoRM"),
    "logit_scale ignored": (gate_from(lambda self, gate: gate), "QRM-Gemma"),
    "logit_scale before the softmax": (
        gate_from(lambda self, gate: jax.nn.softmax(jnp.log(gate) * self.logit_scale)),
        "QRM-Gemma",
    ),
    "first quantile for their mean": (objectives_from(first_quantile), "QRM-Gemma"),
    "quantiles lead the rows, as many as objectives": (
        objectives_from(quantiles_lead),
        "QRM-Llama",
    ),
    "log-variances for means": (urm_weights(lambda self, h: _urm(self, h, column=1)), "URM"),
    "softmax over the weights": (
        urm_weights(lambda self, h: _urm(self, h, squash=jax.nn.softmax)),
        "URM",
    ),
    "ReLU for SELU": (relu_for_selu, "URM"),
    "all attributes for helpfulness": (urm_weights(_urm), "URM's helpfulness"),
}


QUICK = (
    "no biases in GRM's value head",
    "gate read at the pattern's end",
    "first quantile for their mean",
    "log-variances for means",
)


@pytest.mark.parametrize("bug", slow.all_but(QUICK, BUGS))
def test_a_bug_planted_in_a_head_fails_parity(loaded, monkeypatch, bug):
    plant, name = BUGS[bug]
    case = loaded(name)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        check(case, case.restored.rebuilt())


def batch_statistics_left_out(patch):
    patch.setattr(gates, "_affine", lambda index, m: (m["weight"], m["bias"]))


def another_eps(patch):
    patch.setattr(gates, "_BATCH_NORM_EPS", 1e-3)


def batch_norm_before_its_relu(patch):
    """Each norm goes into the layer below its ReLU instead of the one above."""
    right, affine = gates.read_gate, gates._affine

    def read_gate(keys, read):
        own = gates.gate_keys(keys) - {gates.LOGIT_SCALE}
        index = {key: int(re.search(r"layers\.(\d+)", key)[1]) for key in own}
        norms = {i for key, i in index.items() if key.endswith("running_mean")}
        gate = right({key for key in own if index[key] not in norms}, read)
        layers = list(gate.layers)
        for at, i in enumerate(sorted(norms)):
            module = {key.rsplit(".", 1)[1]: read(key) for key in own if index[key] == i}
            (weight, bias), (scale, shift) = layers[at], affine(i, module)
            layers[at] = weight * scale, bias * scale + shift
        return gates.Gate(layers, True)

    patch.setattr(gates, "read_gate", read_gate)


IN_THE_FOLDING = {
    "batch statistics left out": batch_statistics_left_out,
    "another eps": another_eps,
    "batch norm before its ReLU": batch_norm_before_its_relu,
}


@pytest.mark.parametrize("bug", slow.all_but(["batch norm before its ReLU"], IN_THE_FOLDING))
def test_a_bug_planted_in_the_folding_of_batch_norms_fails_parity(
    loaded, tmp_path, monkeypatch, bug
):
    IN_THE_FOLDING[bug](monkeypatch)
    case = loaded("QRM-Gemma")
    save(CASES["QRM-Gemma"], case.head, tmp_path / "hf")
    restored = restore(convert(tmp_path / "hf", tmp_path / "checkpoint"))
    with pytest.raises(AssertionError, match="relative error"):
        check(case, restored)
