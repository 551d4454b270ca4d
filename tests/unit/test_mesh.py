"""The mesh: where arrays lie changes no reward, and meshes that cannot work are refused."""

import dataclasses
import functools
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
QUICK = [("gqa-llama3", 2, 2)]
MESHES = [
    ("gqa-llama3", 4, 1),  # candidates alone are divided
    ("qwen3_moe", 2, 2),  # experts
    ("gpt_neox", 2, 2),  # biases, which are added once
    *(((12, kv_heads), 1, 4) for kv_heads in (3, 1)),  # divided unevenly, and one for all
]


@pytest.fixture(scope="module")
def rewards_of(checkpoint, pair_of):
    """Name in `MESHES`, and axes -> rewards behind a shared prefix, and by the plain pass."""

    @functools.cache
    def rewards(name, data=1, model=1) -> tuple[np.ndarray, np.ndarray]:
        opened = pair_of(name).checkpoint if isinstance(name, str) else with_heads(*name)
        scorer = parity.restore(opened, mesh=parity.make_mesh(data, model)).scorer
        prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
        behind_prefix = parity.respond(scorer, prompt, candidates)
        return behind_prefix, scorer.plain_rewards(parity.sequences_of(prompt, candidates))

    def with_heads(heads, kv_heads):
        shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": 48}
        return checkpoint(f"kv{kv_heads}-of-{heads}", intermediate_size=48, **shape)

    return rewards


@pytest.mark.parametrize(("name", "data", "model"), slow.all_but(QUICK, MESHES))
def test_the_shape_of_the_mesh_leaves_rewards_unchanged(rewards_of, name, data, model):
    """The same bytes where only candidates are divided."""
    alone = rewards_of(name)
    for actual, expected in zip(rewards_of(name, data, model), alone, strict=True):
        parity.assert_close(actual, expected, scale=expected.std(), tolerance=1e-5)
    if model == 1:
        np.testing.assert_array_equal(rewards_of(name, data, model)[0], alone[0])


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
    (mapped,) = (one for one in traced.eqns if one.primitive.name == "shard_map")
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
