"""Gemma 2, Qwen 2 and 3, Mistral: rewards are torch's, and each of their traps would show."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from engine.checkpoint import layouts
from engine.errors import AssayError
from engine.models import decoder, heads
from engine.models.config import DecoderConfig, Rope
from tests.support import families, parity, reference
from tests.support.parity import Pair

CHECKS = {
    "layers": parity.check_layers,
    "plain pass": parity.check_plain,
    "response pass": parity.check_response,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", families.CONFIGS)
def test_hidden_states_and_rewards_are_those_of_torch(pair_of, name, check):
    pair = pair_of(name)
    CHECKS[check](pair.model, pair.restored)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("name", families.CONFIGS)
def test_candidates_of_one_length_behind_the_whole_prefix_score_as_in_torch(pair_of, name, length):
    pair = pair_of(name)
    parity.check_candidates(pair.model, pair.restored, parity.whole_candidates(length))


def test_candidates_longer_than_the_window_score_as_in_torch(pair_of):
    pair = pair_of("gemma2")
    length = families.WINDOW + 7
    parity.check_candidates(pair.model, pair.restored, parity.whole_candidates(length))


def configured(**changes):
    """The same weights under other static numbers."""

    def plant(patch, pair: Pair) -> parity.Restored:
        card = pair.checkpoint.card
        other = dataclasses.replace(card, decoder=dataclasses.replace(card.decoder, **changes))
        return parity.restore(dataclasses.replace(pair.checkpoint, card=other))

    return plant


def left_out(**changes):
    """Parameters of the checkpoint that the decoder does not use."""
    return lambda patch, pair: pair.restored.under(**changes)


def coded(change):
    """The code with a bug, traced anew."""

    def plant(patch, pair: Pair) -> parity.Restored:
        change(patch)
        return pair.restored.rebuilt()

    return plant


def no_offset(module):
    def change(patch):
        right = decoder.rms_norm
        patch.setattr(module, "rms_norm", lambda x, weight, eps, **_: right(x, weight, eps))

    return coded(change)


def soft_cap_before_the_scale(patch):
    def logits(self, dots):
        cap = self.config.attention_softcap
        return cap * jnp.tanh(dots / cap) * self.config.query_scale

    patch.setattr(decoder.Decoder, "_logits", logits)


def soft_cap_after_the_mask(patch):
    """A masked logit is capped too, so that what follows a position is seen after all."""
    right, choose = jax.nn.softmax, jnp.where

    def softmax(logits, where=None):
        return right(logits) if where is None else right(choose(where, logits, -3.0))

    def where(condition, kept, other):
        masked = isinstance(other, float) and other == -jnp.inf
        return choose(condition, kept, -3.0 if masked else other)

    patch.setattr(jax.nn, "softmax", softmax)  # of whole sequences
    patch.setattr(jnp, "where", where)  # of candidates


def final_soft_cap_on_rewards(patch):
    right = heads.LinearHead.reward
    patch.setattr(
        heads.LinearHead, "reward", lambda self, hidden: 30 * jnp.tanh(right(self, hidden) / 30)
    )


def exact_gelu(patch):
    patch.setitem(decoder._ACTIVATIONS, "gelu_tanh", lambda x: jax.nn.gelu(x, approximate=False))


def norm_after_rope(patch):
    """The q and k norms read what is rotated already."""
    right = decoder.rotate

    def keys_values(self, x, angles):
        normed = self._norm(x, self.attention_norm)
        keys = right(jnp.einsum("CTD,DKH->CTKH", normed, self.k[...]), angles)
        return self._norm(keys, self.k_norm), jnp.einsum("CTD,DKH->CTKH", normed, self.v[...])

    def queries(self, x, angles):
        q = jnp.einsum("CTD,DNH->CTNH", self._norm(x, self.attention_norm), self.q[...])
        q = self._norm(right(q, angles), self.q_norm)
        return q.reshape(*q.shape[:2], self.k.shape[1], -1, self.config.head_size)

    patch.setattr(decoder.Layer, "keys_values", keys_values)
    patch.setattr(decoder.Layer, "queries", queries)


def zeroed(*names: str):
    """A parameter that is never filled."""

    def plant(patch, pair: Pair) -> parity.Restored:
        restored = parity.restore(pair.checkpoint)
        for name in names:
            parameter = restored.scorer.params["decoder"]["layers"][name]
            parameter.set_value(jnp.zeros_like(parameter[...]))
        return restored

    return plant


def swapped(first: str, second: str):
    """Two parameters filled from each other's tensor."""

    def plant(patch, pair: Pair) -> parity.Restored:
        restored = parity.restore(pair.checkpoint)
        layers = restored.scorer.params["decoder"]["layers"]
        values = layers[first][...], layers[second][...]
        layers[first].set_value(values[1])
        layers[second].set_value(values[0])
        return restored

    return plant


ODD = (False, True, False)

# What is planted, and the model in which it shows; both passes must fail.
BUGS = {
    "the first Gemma without embedding scale": (configured(embedding_scale=False), "gemma"),
    "the first Gemma's norms without 1 +": (no_offset(decoder), "gemma"),
    "the first Gemma with the exact GELU of its config.json": (coded(exact_gelu), "gemma"),
    "no soft-cap": (configured(attention_softcap=None), "gemma2"),
    "another soft-cap": (configured(attention_softcap=3.1), "gemma2"),
    "soft-cap before the scale": (coded(soft_cap_before_the_scale), "gemma2"),
    "soft-cap after the mask": (coded(soft_cap_after_the_mask), "gemma2"),
    "final soft-cap on rewards": (coded(final_soft_cap_on_rewards), "gemma2"),
    "norms of the decoder without 1 +": (no_offset(decoder), "gemma2"),
    "final norm without 1 +": (no_offset(heads), "gemma2"),
    "query scale from the head size": (configured(query_scale=None), "gemma2"),
    "no embedding scale": (configured(embedding_scale=False), "gemma2"),
    "SiLU": (configured(activation="silu"), "gemma2"),
    "exact GELU": (coded(exact_gelu), "gemma2"),
    "no norms after attention and feed-forward": (left_out(post_norms=False), "gemma2"),
    "attention's post norm and feed-forward's pre norm swapped": (
        swapped("post_attention_norm", "ffn_norm"),
        "gemma2",
    ),
    "feed-forward's norms swapped": (swapped("ffn_norm", "post_ffn_norm"), "gemma2"),
    "attention's norms swapped": (swapped("attention_norm", "post_attention_norm"), "gemma2"),
    "no window": (configured(window=None), "gemma2"),
    "window in odd layers": (configured(window_layers=ODD), "gemma2"),
    "window in all layers": (configured(window_layers=(True,) * 3), "gemma2"),
    "window one too long": (configured(window=families.WINDOW + 1), "gemma2"),
    "window one too short": (configured(window=families.WINDOW - 1), "gemma2"),
    "Qwen 2's window in all layers": (configured(window_layers=(True,) * 3), "qwen2, window"),
    "Qwen 2's window in no layer": (configured(window=None), "qwen2, window"),
    "Mistral's window in no layer": (configured(window=None), "mistral"),
    "Mistral's window in even layers": (configured(window_layers=(True, False, True)), "mistral"),
    "Mistral's window one too long": (configured(window=families.WINDOW + 1), "mistral"),
    "no biases": (left_out(qkv_bias=False), "qwen2"),
    "no q bias": (zeroed("q_bias"), "qwen2"),
    "no k bias": (zeroed("k_bias"), "qwen2"),
    "no v bias": (zeroed("v_bias"), "qwen2"),
    "no q and k norms": (left_out(qk_norm=False), "qwen3"),
    "q and k norms after RoPE": (coded(norm_after_rope), "qwen3"),
    "q and k norms swapped": (swapped("q_norm", "k_norm"), "qwen3"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_fails_parity_in_both_passes(pair_of, monkeypatch, bug):
    plant, name = BUGS[bug]
    pair = pair_of(name)
    restored = plant(monkeypatch, pair)
    for check in (parity.check_plain, parity.check_response):
        with pytest.raises(AssertionError, match="relative error"):
            check(pair.model, restored)


def test_a_conversion_without_soft_cap_is_torchs_without_and_not_with(tmp_path):
    """As the paper's library version computed; both models are of the same weights."""
    folder = reference.save(families.build("gemma2"), tmp_path / "hf")
    converted = reference.convert(folder, tmp_path / "checkpoint", softcap=False)
    restored = parity.restore(converted)
    parity.check_response(families.build("gemma2, no soft-cap"), restored)
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_response(families.build("gemma2"), restored)


def test_reading_llamas_second_norm_from_a_gemma_is_refused(monkeypatch, tmp_path):
    """`post_attention_layernorm` is Llama's pre-MLP norm and Gemma's post-attention norm."""
    monkeypatch.setattr(layouts, "_FOUR_NORMS", layouts._TWO_NORMS)
    folder = reference.save(families.build("gemma2"), tmp_path / "hf")
    with pytest.raises(AssayError, match=r"nothing uses: 'model\.layers\.0\.post_feedforward"):
        reference.convert(folder, tmp_path / "checkpoint")


# sqrt(width) as published models multiply by it: rounded to the dtype of the parameters.
@pytest.mark.parametrize(
    ("width", "dtype", "scale"),
    [
        (2304, "bfloat16", 48.0),
        (4608, "bfloat16", 68.0),
        (4608, "float16", 67.875),
        (4608, "float32", 67.88225),
    ],
)
def test_the_embedding_scale_is_rounded_to_the_parameters_dtype(width, dtype, scale):
    config = DecoderConfig(
        vocab_size=1, width=width, ffn_width=1, num_layers=1, num_heads=1, num_kv_heads=1,
        head_size=2, rms_eps=1e-6, rope=Rope(theta=1e4), max_positions=1, embedding_scale=True,
    )  # fmt: skip
    module = decoder.Decoder(config, jnp.dtype(dtype))
    module.embedding[...] = jnp.ones_like(module.embedding[...])
    embedded = module.embed(jnp.zeros((1, 1), jnp.int32))
    np.testing.assert_allclose(embedded, scale, rtol=1e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scaled_embeddings_are_torchs_in_16_bits_and_not_with_an_unrounded_scale(dtype):
    width, rng = 4608, np.random.default_rng(0)
    embedded = torch.tensor(rng.normal(size=(3, width))).to(getattr(torch, dtype))
    scale = torch.tensor(width**0.5, dtype=embedded.dtype)  # as Gemma2Model normalises
    expected = (embedded * scale).float().numpy()
    config = DecoderConfig(
        vocab_size=3, width=width, ffn_width=1, num_layers=1, num_heads=1, num_kv_heads=1,
        head_size=2, rms_eps=1e-6, rope=Rope(theta=1e4), max_positions=1, embedding_scale=True,
    )  # fmt: skip
    module = decoder.Decoder(config, jnp.dtype(dtype))
    module.embedding[...] = jnp.asarray(embedded.float().numpy(), dtype)
    actual = np.asarray(module.embed(jnp.arange(3)[None]))[0]
    np.testing.assert_array_equal(actual, expected)
    unrounded = (embedded.float() * width**0.5).to(embedded.dtype).float().numpy()
    assert np.mean(unrounded != expected) > 0.1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_llamas_norm_casts_before_it_multiplies_as_in_torch(dtype):
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    rng = np.random.default_rng(0)
    norm = LlamaRMSNorm(64, eps=1e-6).to(getattr(torch, dtype))
    norm.weight.data = torch.tensor(rng.normal(1, 0.3, 64)).to(norm.weight.dtype)
    x = torch.tensor(rng.normal(size=(50, 64))).to(norm.weight.dtype)
    expected = norm(x).detach().float().numpy()
    given, weight = (
        jnp.asarray(values.detach().float().numpy(), dtype) for values in (x, norm.weight)
    )
    actual = np.asarray(decoder.rms_norm(given, weight, 1e-6), np.float32)
    late = decoder.rms_norm(given, weight.astype(jnp.float32), 1e-6).astype(dtype)
    assert np.mean(actual != expected) < 0.01  # the last bit, where float32 sums in another order
    assert np.mean(np.asarray(late, np.float32) != expected) > 0.1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gemmas_norm_adds_one_in_float32_as_in_torch(dtype):
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 64)).astype(np.float32)
    norm = Gemma2RMSNorm(64).to(getattr(torch, dtype))
    # Not representable once one is added in 16 bits.
    norm.weight.data = torch.tensor(rng.normal(0, 0.01, 64)).to(norm.weight.dtype)
    weight = jnp.asarray(norm.weight.detach().float().numpy(), dtype)
    expected = norm(torch.tensor(x).to(norm.weight.dtype)).detach().float().numpy()
    given = jnp.asarray(x, dtype)
    actual = decoder.rms_norm(given, weight, 1e-6, offset=True)
    folded = decoder.rms_norm(given, weight + 1, 1e-6)
    different = float(np.mean(np.asarray(actual, np.float32) != expected))
    assert different < 0.01  # the last bit, where float32 sums in another order
    assert np.mean(np.asarray(folded, np.float32) != expected) > 0.2
