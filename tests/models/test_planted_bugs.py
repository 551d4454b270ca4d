"""A parity test that passes with RoPE removed is no test: each bug here must fail its check."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from engine.checkpoint import rules
from engine.models import decoder, heads
from tests.models import parity, reference


def no_rope(patch):
    patch.setattr(decoder, "rotate", lambda x, angles: x)


def interleaved_rope(patch):
    def rotate(x, angles):
        cos, sin = (a[:, :, None, :] for a in angles)
        first, second = x[..., ::2], x[..., 1::2]
        pairs = [first * cos - second * sin, second * cos + first * sin]
        return jnp.stack(pairs, axis=-1).reshape(x.shape)

    patch.setattr(decoder, "rotate", rotate)


def other_rope(**changes):
    def plant(patch):
        right = decoder.inverse_frequencies
        patch.setattr(
            decoder,
            "inverse_frequencies",
            lambda rope, size: right(dataclasses.replace(rope, **changes), size),
        )

    return plant


def tiled_heads(patch):
    """Query head i reads key/value head i % K, not i // G."""
    queries, output = decoder.Layer.queries, decoder.Layer.output

    def tiled(self, x, angles):
        right = queries(self, x, angles)
        C, T, K, G, H = right.shape
        return right.reshape(C, T, G, K, H).swapaxes(2, 3)

    patch.setattr(decoder.Layer, "queries", tiled)
    patch.setattr(decoder.Layer, "output", lambda self, x: output(self, x.swapaxes(2, 3)))


def no_mask_in_whole_sequences(patch):
    patch.setattr(jnp, "tril", lambda ones: ones)


def no_mask_among_candidates(patch):
    def attend(queries, keys, values, past, visible, at):
        return right(queries, keys, values, past, visible, jnp.full_like(at, keys.shape[1] - 1))

    right = decoder._attend
    patch.setattr(decoder, "_attend", attend)


def prefix_mask(change):
    def plant(patch):
        right = decoder._attend
        patch.setattr(
            decoder,
            "_attend",
            lambda q, k, v, past, visible, at: right(q, k, v, past, change(visible), at),
        )

    return plant


def no_scale(patch):
    patch.setattr(decoder, "_scaled", lambda logits, queries: logits)


def other_eps(patch):
    right = decoder.rms_norm
    patch.setattr(decoder, "rms_norm", lambda x, weight, eps: right(x, weight, 1e-6))


def no_last_norm(patch):
    patch.setattr(heads, "rms_norm", lambda x, weight, eps: x)


def last_norm_without_weight(patch):
    right = heads.rms_norm
    patch.setattr(heads, "rms_norm", lambda x, w, eps: right(x, jnp.ones_like(w), eps))


def gelu(patch):
    patch.setattr(jax.nn, "silu", jax.nn.gelu)


def positions_from_zero(patch):
    right = decoder.Decoder._angles
    patch.setattr(
        decoder.Decoder, "_angles", lambda self, at: right(self, at - at.min(-1, keepdims=True))
    )


def last_layer_reads_one_position_early(patch):
    right = decoder._take
    patch.setattr(decoder, "_take", lambda x, at: right(x, jnp.maximum(at - 1, 0)))


def reward_read_at_the_padding(patch):
    right = decoder.Decoder.respond
    patch.setattr(
        decoder.Decoder,
        "respond",
        lambda self, prefix, x, shared, last, depths: right(
            self, prefix, x, shared, jnp.full_like(last, x.shape[1] - 1), depths
        ),
    )


def no_relu(patch):
    patch.setattr(jax.nn, "relu", lambda x: x)


# What is planted, the model in which it shows, the check that it must fail.
IN_THE_CODE = {
    "no RoPE": (no_rope, "mha", parity.check_plain),
    "no RoPE, candidates": (no_rope, "mha", parity.check_response),
    "wrong theta": (other_rope(theta=500_000.0), "mha", parity.check_plain),
    "llama3 scaling left out": (other_rope(kind="default"), "gqa-llama3", parity.check_plain),
    "llama3 blend left out": (other_rope(low_freq_factor=3.9), "gqa-llama3", parity.check_plain),
    "linear scaling left out": (other_rope(kind="default"), "mqa-linear", parity.check_plain),
    "interleaved RoPE": (interleaved_rope, "gqa", parity.check_plain),
    "wrong head order": (tiled_heads, "gqa", parity.check_plain),
    "wrong head order, candidates": (tiled_heads, "gqa", parity.check_response),
    "no mask in whole sequences": (no_mask_in_whole_sequences, "mha", parity.check_plain),
    "no mask among candidates": (no_mask_among_candidates, "mha", parity.check_response),
    "prefix padding not masked": (prefix_mask(jnp.ones_like), "mha", parity.check_response),
    "early leavers see the whole prefix": (
        prefix_mask(lambda visible: jnp.broadcast_to(visible.any(0), visible.shape)),
        "mha",
        parity.check_response,
    ),
    "candidates' positions start at 0": (positions_from_zero, "mha", parity.check_response),
    "last layer reads one position early": (
        last_layer_reads_one_position_early,
        "mha",
        parity.check_response,
    ),
    "reward read at the padding": (reward_read_at_the_padding, "mha", parity.check_response),
    "softmax without scale": (no_scale, "mqa-linear", parity.check_plain),
    "wrong eps": (other_eps, "mha", parity.check_layers),
    "wrong eps, rewards": (other_eps, "mha", parity.check_plain),
    "no last norm": (no_last_norm, "mha", parity.check_plain),
    "last norm without weight": (last_norm_without_weight, "mha", parity.check_plain),
    "GELU for SiLU": (gelu, "mha", parity.check_layers),
}


@pytest.mark.parametrize("bug", IN_THE_CODE)
def test_a_bug_planted_in_the_code_fails_parity(pair_of, monkeypatch, bug):
    plant, name, check = IN_THE_CODE[bug]
    pair = pair_of(name)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        check(pair.model, pair.restored.rebuilt())


def test_an_mlp_head_without_its_relu_fails_parity(pair_of, monkeypatch):
    pair = pair_of("mha", "score")
    no_relu(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        mlp = reference.mlp_head(pair.model.config.hidden_size)
        parity.check_plain(pair.model, pair.restored.rebuilt(), mlp)


def read_as(parameter: str, **changes):
    """The rule table with a rule that reads its tensor differently."""
    return tuple(
        dataclasses.replace(rule, **changes) if rule.parameter.endswith(parameter) else rule
        for rule in rules.DECODER_RULES
    )


def swapped(first: str, second: str):
    """The rule table with two parameters filled from each other's tensor."""
    key = {rule.parameter.rsplit(".", 1)[1]: rule.key for rule in rules.DECODER_RULES}
    other = {first: key[second], second: key[first]}
    return tuple(
        dataclasses.replace(rule, key=other.get(rule.parameter.rsplit(".", 1)[1], rule.key))
        for rule in rules.DECODER_RULES
    )


# Each reads every tensor once and finds every shape as it should be.
IN_THE_RULES = {
    "q transposed": read_as(".q", layout="D(NH)"),
    "o's heads last": read_as(".o", layout="D(HN)"),
    "v's heads last": read_as(".v", layout="(HK)D"),
    "gate and up swapped": swapped("gate", "up"),
    "k and v swapped": swapped("k", "v"),
    "norms swapped": swapped("attention_norm", "ffn_norm"),
}


@pytest.mark.parametrize("bug", IN_THE_RULES)
def test_a_bug_planted_in_the_rules_fails_parity(tmp_path, monkeypatch, bug):
    monkeypatch.setattr(rules, "DECODER_RULES", IN_THE_RULES[bug])
    model = reference.build(reference.SPECS["mha"])
    folder = reference.save(model, tmp_path / "hf")
    restored = parity.restore(reference.convert(folder, tmp_path / "checkpoint"))
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_plain(model, restored)


def test_code_traced_anew_without_a_bug_keeps_parity(pair):
    restored = pair.restored.rebuilt()
    for check in (parity.check_layers, parity.check_plain, parity.check_response):
        check(pair.model, restored)
