"""A parity test that passes with RoPE removed is no test: every bug here must fail its checks.

One table for all decoders. A bug is planted in the code, which is then traced anew; in the rules or
the numbers by which a checkpoint is read; or in its parameters, where nothing is compiled again.
"""

import dataclasses
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from engine.checkpoint import layouts
from engine.models import decoder, delta, heads
from engine.models import layer as layers
from tests.support import folders, parity, slow, torch_models
from tests.support.parity import Pair
from tests.support.planted import instead


def configured(**changes):
    """The same weights, some of them perhaps unused, under other static numbers."""
    return lambda patch, pair: pair.restored.under(**changes)


def coded(change):
    """The code with a bug, traced anew."""

    def plant(patch, pair: Pair) -> parity.Restored:
        change(patch)
        return pair.restored.rebuilt()

    return plant


def changed(owner, name: str, change):
    """`change(right, *its arguments)` in place of a function, traced anew."""
    return coded(instead(owner, name, change))


def no_offset(module):
    return changed(module, "rms_norm", lambda right, x, weight, eps, **_: right(x, weight, eps))


def exact_gelu(patch):
    patch.setitem(layers._ACTIVATIONS, "gelu_tanh", lambda x: jax.nn.gelu(x, approximate=False))


def norms_before(patch, pair: Pair) -> parity.Restored:
    """OLMo 2's norms read the residual stream, as Llama's do."""
    names = {"attention_norm": "post_attention_norm", "ffn_norm": "post_ffn_norm"}
    patch.setattr(
        layers.Layer, "_before", lambda self, x, norm: self._norm(x, getattr(self, names[norm]))
    )
    return pair.restored.under(post_norms=False).rebuilt()


def norms_by_head(right, self, x, weight):
    """Each head of q and k is divided by its own root mean square."""
    ones = jnp.ones(x.shape[-1])
    return layers.rms_norm(x, ones, 1e-6) * weight[...].reshape(x.shape[2:])


def altered(*names: str, change):
    """Parameters, of which `change` makes others."""

    def plant(patch, pair: Pair) -> parity.Restored:
        restored = parity.restore(pair.checkpoint)
        for layer in restored.scorer.params["decoder"]["stacks"].values():
            if names[0] in layer:  # layers of two kinds have their own
                values = change(*(layer[name][...] for name in names))
                for name, value in zip(names, values, strict=True):
                    layer[name].set_value(value)
        return restored

    return plant


def swapped(first: str, second: str):
    """Two parameters filled from each other's tensor."""
    return altered(first, second, change=lambda *values: values[::-1])


def converted(name: str, change):
    """A checkpoint converted with `change(right, *its arguments)` in place of a function."""

    def plant(patch, pair: Pair) -> parity.Restored:
        instead(layouts, name, change)(patch)
        with tempfile.TemporaryDirectory() as folder:
            source = pair.checkpoint.path.parent / "hf"
            return parity.restore(folders.convert(source, Path(folder) / "checkpoint"))

    return plant


def transposed_queries(right, *about):
    """A rule that reads its tensor in another order of axes."""
    return tuple(
        dataclasses.replace(rule, layout="D(NH)") if rule.parameter.endswith(".q") else rule
        for rule in right(*about)
    )


def in_blocks(right, rule, tensor, sizes):
    """All queries, then all keys, then all values, as most fused projections have them."""
    N, K, H = (sizes[letter] for letter in "NKH")
    starts = {"q": (0, N), "k": (N, N + K), "v": (N + K, N + 2 * K)}
    start, stop = starts.get(rule.part, (0, 0))
    return tensor[start * H : stop * H] if rule.part else right(rule, tensor, sizes)


def experts_of_the_position_before(right, *args, **kw):
    weights, chosen = right(*args, **kw)
    return weights, jnp.roll(chosen, 1, axis=1)


def interleaved_rope(right, x, angles):
    cos, sin = (a[:, :, None, :] for a in angles)
    first, second = x[..., ::2], x[..., 1::2]
    pairs = [first * cos - second * sin, second * cos + first * sin]
    return jnp.stack(pairs, axis=-1).reshape(x.shape)


def other_rope(**changes):
    return changed(
        decoder,
        "inverse_frequencies",
        lambda right, rope, size: right(dataclasses.replace(rope, **changes), size),
    )


def tiled_heads(patch):
    """Query head i reads key/value head i % K, not i // G."""
    queries, output = layers.Layer.queries, layers.Layer.output

    def tiled(self, x, angles):
        right = queries(self, x, angles)
        C, T, K, G, H = right.shape
        return right.reshape(C, T, G, K, H).swapaxes(2, 3)

    patch.setattr(layers.Layer, "queries", tiled)
    patch.setattr(layers.Layer, "output", lambda self, y, x: output(self, y.swapaxes(2, 3), x))


def response_masks(change):
    """Plants `change((on prefix, on own positions))` in what candidates see."""
    return changed(decoder.Decoder, "_response_masks", lambda right, *args: change(*right(*args)))


def in_rule(**changes):
    """Other numbers in what the rule reads: name -> change of it."""

    def rule(right, *args):
        found = right(*args)
        return found._replace(**{k: change(getattr(found, k)) for k, change in changes.items()})

    return changed(layers.Layer, "delta_rule", rule)


def behind_padding(right, inputs, rule, past, places, see):
    """Every row shares the prefix's padding too."""
    shared = jnp.full_like(places.shared, len(past.keys))
    return right(inputs, rule, past, dataclasses.replace(places, shared=shared), see)


def each_chunk_alone(right, rule):
    first, rest = (jax.tree.map(cut, rule) for cut in (lambda x: x[:, :64], lambda x: x[:, 64:]))
    return tuple(jnp.concatenate(parts, 1) for parts in zip(right(first), right(rest), strict=True))


def no_gate(right, self, outputs, x):
    """The output of the gated delta rule without its gate."""
    normed = layers.rms_norm(outputs, self.delta_norm[...], self.config.rms_eps)
    return self._summed("CTE,ED->CTD", normed.reshape(*x.shape[:2], -1), self.delta_o)


LAYERS, PLAIN, RESPONSE = (parity.check_layers,), (parity.check_plain,), (parity.check_response,)
BOTH = (*PLAIN, *RESPONSE)
# Model, the checks that it must fail -> what is planted, one of every kind. Those in the rules read
# every tensor once and find every shape as it should be.
PLANTED = {
    ("mha", PLAIN): {
        "no RoPE": changed(layers, "rotate", lambda right, x, angles: x),
        "wrong theta": other_rope(theta=500_000.0),
        "no mask in whole sequences": changed(
            decoder, "_distances", lambda right, positions: jnp.abs(right(positions))
        ),
        "q transposed": converted("decoder_rules", transposed_queries),
        "gate and up swapped": swapped("gate", "up"),
    },
    ("mha", RESPONSE): {
        "no mask among candidates": response_masks(
            lambda prefix, own: (prefix, jnp.ones_like(own))
        ),
        "prefix padding not masked": response_masks(
            lambda prefix, own: (jnp.ones_like(prefix), own)
        ),
        "early leavers see the whole prefix": response_masks(
            lambda prefix, own: (jnp.broadcast_to(prefix.any(0), prefix.shape), own)
        ),
        "candidates' positions start at 0": changed(
            decoder.Decoder,
            "_angles",
            lambda right, self, at: right(self, at - at.min(-1, keepdims=True)),
        ),
        "last layer reads one position early": changed(
            decoder, "_take", lambda right, x, at: right(x, jnp.maximum(at - 1, 0))
        ),
    },
    ("mha", LAYERS): {
        "wrong eps": changed(
            layers, "rms_norm", lambda right, x, weight, _, **kw: right(x, weight, 1e-6, **kw)
        )
    },
    ("gqa-llama3", PLAIN): {"llama3 blend left out": other_rope(low_freq_factor=3.9)},
    ("gqa", PLAIN): {
        "interleaved RoPE": changed(layers, "rotate", interleaved_rope),
        "wrong head order": coded(tiled_heads),
    },
    ("internlm2", PLAIN): {"q, k and v in blocks": converted("part_of", in_blocks)},
    ("gemma", PLAIN): {"the exact GELU of the first Gemma's config.json": coded(exact_gelu)},
    ("gemma2", BOTH): {"window one too long": configured(window=torch_models.WINDOW + 1)},
    ("gemma2", PLAIN): {
        "window in odd layers": configured(window_layers=(False, True)),
        "norms of the decoder without 1 +": no_offset(layers),
        "final norm without 1 +": no_offset(heads),
        "no embedding scale": configured(embedding_scale=False),
        "query scale from the head size": configured(query_scale=None),
        "attention's post norm and feed-forward's pre norm swapped": swapped(
            "post_attention_norm", "ffn_norm"
        ),
    },
    ("gemma3", PLAIN): {"Gemma 3's ropes the same": configured(window_rope=None)},
    ("olmo3", PLAIN): {
        "OLMo 2's norms before attention and feed-forward": norms_before,
        "OLMo 2's q and k norms by head": changed(layers.Layer, "_qk_norm", norms_by_head),
        "YaRN's blend left out": other_rope(kind="linear"),
    },
    ("smollm3", PLAIN): {"SmolLM3 rotates in all layers": configured(no_rope_layers=())},
    ("qwen2", PLAIN): {
        f"no {name}": altered(name, change=lambda bias: [jnp.zeros_like(bias)])
        for name in ("q_bias", "k_bias", "v_bias")
    },
    ("qwen3", PLAIN): {"q and k norms swapped": swapped("q_norm", "k_norm")},
    ("qwen3_5", PLAIN): {
        "no decay": in_rule(decay=jnp.zeros_like),
        "queries and keys not normed": changed(
            delta, "normed", lambda right, x: x.astype("float32")
        ),
        "queries not scaled": in_rule(q=lambda q: q * 10**0.5),
        "all of a value written": in_rule(beta=jnp.ones_like),
        "the gate of attention dropped": configured(attention_gate=False),
        "the gate of the delta rule dropped": changed(layers.Layer, "delta_output", no_gate),
        "taps in the other order": changed(
            delta, "convolve", lambda right, x, taps, before: right(x, taps[:, ::-1], before)
        ),
        "a and b swapped": swapped("delta_a", "delta_b"),
        "heads of keys tiled": changed(
            delta,
            "per_value_head",
            lambda right, x, n: jnp.concatenate([x] * (n // x.shape[-2]), -2),
        ),
        "the delta rule's norm with 1 +": altered("delta_norm", change=lambda w: [w + 1]),
    },
    ("qwen3_5", RESPONSE): {
        "conv tail not carried from the prefix": changed(
            delta, "behind_prefix", lambda right, x, past, *at: right(x, jnp.zeros_like(past), *at)
        ),
        "the state behind the prefix's padding": changed(delta, "behind", behind_padding),
        "the state not carried between chunks": changed(delta, "chunks", each_chunk_alone),
        "no decay between prefix and row": changed(
            delta, "until_end", lambda right, decay: jnp.zeros_like(decay)
        ),
    },
    ("gpt_neox", PLAIN): {
        "GPT-NeoX's feed-forward after its attention": configured(parallel=False),
        "whole heads rotated": configured(rotary_size=None),
        "LayerNorm without its mean": changed(
            layers,
            "layer_norm",
            lambda right, x, weight, bias, eps: layers.rms_norm(x, weight, eps) + bias,
        ),
    },
    ("phi3", PLAIN): {"Phi-3's longrope left out": other_rope(kind="default")},
    ("gpt2", PLAIN): {
        "no learned positions": changed(decoder.Decoder, "_placed", lambda right, self, x, at: x)
    },
    ("qwen3_moe", PLAIN): {
        "experts not renormalised": configured(experts_renormalised=False),
        "experts of the position before": changed(layers, "route", experts_of_the_position_before),
    },
}
BUGS = {bug: (plant, *case) for case, plants in PLANTED.items() for bug, plant in plants.items()}
# One of every way to plant.
QUICK = ("no RoPE", "no mask among candidates", "q transposed", "q and k norms swapped")


@pytest.mark.parametrize("bug", slow.all_but(QUICK, BUGS))
def test_a_planted_bug_fails_parity(pair_of, monkeypatch, bug):
    plant, name, checks = BUGS[bug]
    pair = pair_of(name)
    restored = plant(monkeypatch, pair)
    for check in checks:
        with pytest.raises(AssertionError, match="relative error"):
            check(pair.model, restored)


def test_code_traced_anew_without_a_bug_keeps_parity(pair_of):
    pair = pair_of("mha")
    restored = pair.restored.rebuilt()
    for check in (*LAYERS, *BOTH):
        check(pair.model, restored)
