"""The mesh: where arrays lie changes no reward, and meshes that cannot work are refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine import mesh as meshes
from engine.errors import AssayError
from tests.support import parity, slow

SHAPES = [(4, 1), (2, 2), (1, 4)]


def rewards_on(checkpoint, mesh) -> tuple[np.ndarray, np.ndarray]:
    scorer = parity.restore(checkpoint, mesh=mesh).scorer
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    behind_prefix = parity.respond(scorer, prompt, candidates)
    return behind_prefix, scorer.plain_rewards(parity.sequences_of(prompt, candidates))


@pytest.fixture(scope="module")
def on_one_device(pair):
    return rewards_on(pair.checkpoint, parity.make_mesh())


@pytest.mark.parametrize(("data", "model"), slow.all_but([(2, 2)], SHAPES))
def test_the_shape_of_the_mesh_leaves_rewards_unchanged(pair, on_one_device, data, model):
    rewards = rewards_on(pair.checkpoint, parity.make_mesh(data, model))
    for actual, expected in zip(rewards, on_one_device, strict=True):
        parity.assert_close(actual, expected, scale=expected.std(), tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_neox", "gpt2"])
def test_biases_are_added_once_on_any_mesh(pair_of, name):
    pair = pair_of(name)
    expected = rewards_on(pair.checkpoint, parity.make_mesh())
    for actual, right in zip(
        rewards_on(pair.checkpoint, parity.make_mesh(2, 2)), expected, strict=True
    ):
        parity.assert_close(actual, right, scale=right.std(), tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "model"), SHAPES)
def test_a_mixture_has_the_same_rewards_on_any_mesh(pair_of, data, model):
    """The same bytes where only candidates are divided."""
    pair, prompt, candidates = pair_of("qwen3_moe"), parity.prompt_ids(), parity.ragged_candidates()
    expected = parity.respond(pair.restored.scorer, prompt, candidates)
    scorer = parity.restore(pair.checkpoint, mesh=parity.make_mesh(data, model)).scorer
    actual = parity.respond(scorer, prompt, candidates)
    parity.assert_close(actual, expected, scale=expected.std(), tolerance=1e-5)
    assert model > 1 or np.array_equal(actual, expected)


@pytest.mark.parametrize("model", [0, 3])
def test_a_model_axis_that_does_not_divide_the_devices_is_refused(model):
    with pytest.raises(AssayError, match=rf"^mesh\.model={model}; allowed: divisors of the 4 dev"):
        meshes.build_mesh(model=model)


@pytest.mark.parametrize("field", ["num_heads", "ffn_width"])
def test_a_model_axis_that_cuts_heads_or_feed_forward_unevenly_is_refused(pair, field):
    config = dataclasses.replace(pair.checkpoint.card.decoder, num_kv_heads=2, **{field: 6})
    message = rf"^mesh\.model=4; allowed: divisors of the decoder's {field}=6$"
    with pytest.raises(AssayError, match=message):
        meshes.check_mesh(parity.make_mesh(1, 4), config)


def kv_checkpoint(checkpoint, heads: int, kv_heads: int):
    shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": 48}
    return checkpoint(f"kv{kv_heads}-of-{heads}", intermediate_size=48, **shape)


# Query heads, key/value heads, axis `model`.
REPEATED = [(8, 2, 4), (12, 3, 4), (12, 1, 4)]


@pytest.mark.parametrize(("heads", "kv_heads", "model"), slow.all_but([(12, 3, 4)], REPEATED))
def test_kv_heads_are_repeated_where_the_model_axis_does_not_divide_them(
    checkpoint, heads, kv_heads, model
):
    opened = kv_checkpoint(checkpoint, heads, kv_heads)
    expected = rewards_on(opened, parity.make_mesh())
    for actual, right in zip(
        rewards_on(opened, parity.make_mesh(4 // model, model)), expected, strict=True
    ):
        parity.assert_close(actual, right, scale=right.std(), tolerance=1e-5)


def test_arrays_without_elements_are_no_arguments_of_what_devices_compute():
    """XLA of jaxlib 0.11 crashes when it removes them, as where nothing follows a reply."""
    mesh = parity.make_mesh()
    split = meshes.over_data(lambda shared, block: block + len(shared[1]), mesh, ("", "C"), "C")
    weights, empty, block = jnp.ones(3), jnp.zeros(0, jnp.int32), jnp.ones((4, 2))
    np.testing.assert_array_equal(jax.jit(split)((weights, empty), block), block)
    traced = jax.make_jaxpr(split)((weights, empty), block)
    (mapped,) = (one for one in traced.eqns if one.primitive.name == "shard_map")
    assert all(argument.aval.size for argument in mapped.invars)
