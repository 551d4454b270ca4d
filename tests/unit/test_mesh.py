"""The mesh: where arrays lie changes no reward, and meshes that cannot work are refused."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine import mesh as meshes
from engine.errors import AssayError
from tests.support import parity, slow

# Name of a model of `parity.converted`, or query and key/value heads of a tiny one, whose key/value
# heads are repeated where the axis does not divide them -> axes `data` and `model`.
QUICK = [((12, 3), 1, 4)]
MESHES = [
    ("qwen3_moe", 2, 2),  # experts
    ("gpt_neox", 2, 2),  # biases, which are added once
]


@pytest.mark.parametrize(("name", "data", "model"), slow.all_but(QUICK, MESHES))
def test_the_shape_of_the_mesh_leaves_rewards_unchanged(checkpoint, pair_of, name, data, model):
    """Behind a shared prefix, and by the plain pass."""
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()

    def with_heads(heads, kv_heads):
        shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": 48}
        shape |= {"num_hidden_layers": 2, "intermediate_size": 48}
        return checkpoint(f"kv{kv_heads}-of-{heads}", **shape)

    def rewards(*axes):
        scorer = parity.restore(opened, mesh=parity.make_mesh(*axes)).scorer
        behind_prefix = parity.respond(scorer, prompt, candidates)
        return behind_prefix, scorer.plain_rewards(parity.sequences_of(prompt, candidates))

    opened = pair_of(name).checkpoint if isinstance(name, str) else with_heads(*name)
    for actual, expected in zip(rewards(data, model), rewards(), strict=True):
        parity.assert_close(actual, expected, scale=expected.std(), tolerance=1e-5)


@pytest.mark.parametrize("model", [0, 3])
def test_a_model_axis_that_does_not_divide_the_devices_is_refused(model):
    with pytest.raises(AssayError, match=rf"^mesh\.model={model}; .* 4 "):
        meshes.build_mesh(model=model)


@pytest.mark.parametrize("field", ["num_heads", "ffn_width"])
def test_a_model_axis_that_cuts_heads_or_feed_forward_unevenly_is_refused(pair, field):
    config = dataclasses.replace(pair.checkpoint.card.decoder, num_kv_heads=2, **{field: 6})
    message = rf"^mesh\.model=4; .*{field}=6$"
    with pytest.raises(AssayError, match=message):
        meshes.check_mesh(parity.make_mesh(1, 4), config)


def test_arrays_without_elements_are_no_arguments_of_what_devices_compute():
    """XLA of jaxlib 0.11 crashes when it removes them, as where nothing follows a reply."""
    mesh = parity.make_mesh()
    split = meshes.over_data(lambda shared, block: block + len(shared[1]), mesh, ("", "C"), "C")
    weights, empty, block = jnp.ones(3), jnp.zeros(0, jnp.int32), jnp.ones((4, 2))
    np.testing.assert_array_equal(jax.jit(split)((weights, empty), block), block)
    traced = jax.make_jaxpr(split)((weights, empty), block)
    (mapped,) = (equation for equation in traced.eqns if equation.primitive.name == "shard_map")
    assert all(argument.aval.size for argument in mapped.invars)


def group(folder: Path, most: str, used: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    caches = "anon 5\nactive_file 1\ninactive_file 2\n"
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(caches)


def test_a_group_that_this_process_is_in_bounds_its_memory(tmp_path):
    (tmp_path / "own").write_text("0::/jobs/mine\n")
    group(tmp_path, "3000", 1000)
    assert list(meshes._group_limits(tmp_path, tmp_path / "own")) == [2003]
    assert 0 < meshes.free_memory() <= 2**50
