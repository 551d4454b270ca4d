"""A parity test that passes with RoPE removed is no test: each bug here must fail its check."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from engine.checkpoint import layouts
from engine.models import config, decoder, heads
from engine.scoring.reward_passes import Scorer
from tests.support import parity, reference


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
        right = config.inverse_frequencies
        patch.setattr(
            decoder,
            "inverse_frequencies",
            lambda rope, size: right(dataclasses.replace(rope, **changes), size),
        )

    return plant


def angles_in_bfloat16(patch):
    right = decoder.Decoder._angles

    def angles(self, positions):
        cos, sin = right(self, positions)
        angle = jnp.arctan2(sin, cos)  # what a 16-bit product of position and frequency keeps
        rounded = angle.astype(jnp.bfloat16).astype(jnp.float32)
        return jnp.cos(rounded), jnp.sin(rounded)

    patch.setattr(decoder.Decoder, "_angles", angles)


def doubled_bos(patch):
    """Every conversation begins with its first id twice."""
    right = Scorer.plain_rewards
    patch.setattr(
        Scorer,
        "plain_rewards",
        lambda self, sequences: right(self, [[ids[0], *ids] for ids in sequences]),
    )


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
    right = decoder._distances
    patch.setattr(decoder, "_distances", lambda positions: jnp.abs(right(positions)))


def response_masks(change):
    """Plants `change((on prefix, on own positions))` in what candidates see."""

    def plant(patch):
        right = decoder.Decoder._response_masks
        patch.setattr(
            decoder.Decoder, "_response_masks", lambda self, *args: change(*right(self, *args))
        )

    return plant


def no_scale(patch):
    patch.setattr(decoder.Decoder, "_logits", lambda self, dots: dots)


def other_eps(patch):
    right = decoder.rms_norm
    patch.setattr(decoder, "rms_norm", lambda x, weight, eps, **kw: right(x, weight, 1e-6, **kw))


def no_last_norm(patch):
    patch.setattr(heads, "rms_norm", lambda x, weight, eps, offset: x)


def last_norm_without_weight(patch):
    right = decoder.rms_norm
    patch.setattr(heads, "rms_norm", lambda x, w, eps, offset: right(x, jnp.ones_like(w), eps))


def gelu(patch):
    patch.setitem(decoder._ACTIVATIONS, "silu", jax.nn.gelu)


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
        lambda self, prefix, x, places, read, depths: right(
            self, prefix, x, places, jnp.full_like(read, x.shape[1] - 1), depths
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
    "llama3 factor of another size": (other_rope(factor=32.0), "gqa-llama3", parity.check_plain),
    "llama3 scaling from the whole context": (
        other_rope(original_positions=256),
        "gqa-llama3",
        parity.check_plain,
    ),
    "llama3 scaling of all frequencies": (
        other_rope(kind="linear"),
        "gqa-llama3",
        parity.check_plain,
    ),
    "RoPE's angles in bfloat16": (angles_in_bfloat16, "mha", parity.check_plain),
    "BOS doubled": (doubled_bos, "mha", parity.check_plain),
    "interleaved RoPE": (interleaved_rope, "gqa", parity.check_plain),
    "wrong head order": (tiled_heads, "gqa", parity.check_plain),
    "wrong head order, candidates": (tiled_heads, "gqa", parity.check_response),
    "no mask in whole sequences": (no_mask_in_whole_sequences, "mha", parity.check_plain),
    "no mask among candidates": (
        response_masks(lambda prefix, own: (prefix, jnp.ones_like(own))),
        "mha",
        parity.check_response,
    ),
    "prefix padding not masked": (
        response_masks(lambda prefix, own: (jnp.ones_like(prefix), own)),
        "mha",
        parity.check_response,
    ),
    "early leavers see the whole prefix": (
        response_masks(lambda prefix, own: (jnp.broadcast_to(prefix.any(0), prefix.shape), own)),
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
    """A rule table in which one rule reads its tensor differently."""

    def change(table):
        return tuple(
            dataclasses.replace(rule, **changes) if rule.parameter.endswith(parameter) else rule
            for rule in table
        )

    return change


def swapped(first: str, second: str):
    """A rule table with two parameters filled from each other's tensor."""

    def change(table):
        key = {rule.parameter.rsplit(".", 1)[1]: rule.key for rule in table}
        other = {first: key[second], second: key[first]}
        return tuple(
            dataclasses.replace(rule, key=other.get(rule.parameter.rsplit(".", 1)[1], rule.key))
            for rule in table
        )

    return change


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
    right = layouts.decoder_rules
    monkeypatch.setattr(layouts, "decoder_rules", lambda *about: IN_THE_RULES[bug](right(*about)))
    model = reference.build(reference.SPECS["mha"])
    folder = reference.save(model, tmp_path / "hf")
    restored = parity.restore(reference.convert(folder, tmp_path / "checkpoint"))
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_plain(model, restored)


def test_code_traced_anew_without_a_bug_keeps_parity(pair):
    restored = pair.restored.rebuilt()
    for check in (parity.check_layers, parity.check_plain, parity.check_response):
        check(pair.model, restored)
