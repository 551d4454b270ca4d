"""Programs for a TPU that is not there: no copies of weights, no widened operands, donated buffers.

    python -m tests.compiled.test_tpu_programs <folder> <name> …

compiles passes of a narrow decoder with heads of a true size, and writes <name>.hlo for each name
of `PROGRAMS`. The tests run it in a process of its own, because their settings of XLA
(tests/conftest.py) would change the programs; one for all, because a start takes long.
"""

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from filelock import FileLock

from engine.models import decoder, layer
from engine.models.config import DecoderConfig, Rope
from engine.models.layer import Layer, Weight
from tests.support import tpu
from tests.support.hlo import Instruction, Program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not tpu.has_compiler(), reason="needs libtpu, which is not there"),
]
ROOT = Path(__file__).resolve().parents[2]
CHANGED = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # by tests/conftest.py

# So many that the smallest stack of a chip, 134 MB of k, is as large as its vector memory: smaller
# stacks are kept in there, and a copy of one never reaches HBM. Layers cost no time, as one loop.
# Narrow ones do: at width 1,024 with 32 heads and 256 candidates a step took ten times as long.
LAYERS = 1024
DECODER = DecoderConfig(
    vocab_size=1280,
    width=512,
    ffn_width=512,
    num_layers=LAYERS,
    num_heads=8,
    num_kv_heads=2,
    head_size=128,
    rms_eps=1e-5,
    rope=Rope(theta=10_000.0),
    max_positions=1024,
)
# So many experts that those of one layer do not fit into the vector memory either.
MIXTURE = dataclasses.replace(DECODER, num_layers=2, experts=256, experts_per_token=8)
# As OLMo 2 and as Gemma 3, in one program.
AFTER = {"pre_norms": False, "post_norms": True, "qk_norm": True, "qk_norm_whole": True}
AFTER |= {"norm_offset": True, "window": 512, "window_rope": Rope(theta=1e6)}
AFTER |= {"window_layers": (True, False) * (LAYERS // 2)}
GPT = {"norm": "layer", "biases": True, "qkv_bias": True, "gated": False, "rotary_size": 32}
CONFIGS = {
    "mixture": MIXTURE,
    "after": dataclasses.replace(DECODER, **AFTER),
    "neox": dataclasses.replace(DECODER, **GPT, parallel=True),
}
AXIS = 2  # devices along `model`
PASSES = ("step", "prompt", "search")
FORMS = tuple(f"{form}-step" for form in CONFIGS)
PROGRAMS = (*PASSES, *FORMS, "place", "planted-step", "planted-place")

_jit, _layer = jax.jit, decoder.Decoder._layer


class FaultyLayer(Layer):
    """Weights in orders that a TPU copies, products in float32, and sums over `model` in float32.

    Activations and weights of gate and up are widened together, of `down` the stack of weights.
    """

    def __init__(self, config, dtype, sums, platform, of_delta=False):
        super().__init__(config, dtype, layer.FLOAT32, platform, of_delta)
        self.q = layer.zeros(config, "LDNH", dtype)
        self.k = layer.zeros(config, "LDKH", dtype)
        self.v = layer.zeros(config, "LDKH", dtype)

    def _product(self, axes: str, x: jax.Array, weight: Weight) -> jax.Array:
        if weight[...].ndim == 3:
            by_head = jnp.einsum("CTD,DNH->CTNH", x, weight[...])
            return by_head.reshape(*x.shape[:2], -1)
        wide = x.astype(jnp.float32), weight[...].astype(jnp.float32)
        return jnp.einsum(axes, *wide).astype(x.dtype)

    def _summed(self, axes: str, x: jax.Array, weight: Weight) -> jax.Array:
        if axes != "CTF,FD->CTD":
            return super()._summed(axes, x, weight)
        contracted = (((2,), (0,)), ((), ()))
        return jax.lax.dot_general(x, weight[...], contracted, preferred_element_type=jnp.float32)


def _with_wide_stack(self: decoder.Decoder, at: decoder.At) -> Layer:
    block = _layer(self, at)
    wide = jax.lax.optimization_barrier(self.stacks[0].down[...].astype(jnp.float32))
    block.down.set_value(jax.lax.dynamic_index_in_dim(wide, at.entry, 0, False))
    return block


# Any: arguments and results of jax.jit.
def _keeping_arguments(function: Any, donate_argnums: Any = (), **options: Any) -> Any:
    return _jit(function, **options)


@contextlib.contextmanager
def planted() -> Iterator[None]:
    """Decoders made within it have such layers, and nothing is donated."""
    with (
        mock.patch.object(decoder, "Layer", FaultyLayer),
        mock.patch.object(decoder.Decoder, "_layer", _with_wide_stack),
        mock.patch.object(jax, "jit", _keeping_arguments),
    ):
        yield


def compile_all(folder: Path, names: list[str]) -> None:
    """Writes the programs."""
    mesh = tpu.mesh()
    for name in names:
        with planted() if name.startswith("planted") else contextlib.nullcontext():
            config = CONFIGS.get(name.partition("-")[0], DECODER)
            lowered = getattr(tpu.Passes(config, mesh), name.rpartition("-")[2])()
        (folder / f"{name}.hlo").write_text(lowered.compile().as_text())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, Program]:
    """Name -> program; compiled once for all of pytest's workers."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "programs"
    command = [sys.executable, "-m", "tests.compiled.test_tpu_programs", str(folder), *PROGRAMS]
    environment = {name: value for name, value in os.environ.items() if name not in CHANGED}
    with FileLock(shared / "programs.lock"):
        if not (folder / f"{PROGRAMS[-1]}.hlo").exists():
            folder.mkdir(exist_ok=True)
            subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=900)
    return {name: Program((folder / f"{name}.hlo").read_text()) for name in PROGRAMS}


def in_float32(program: Program) -> list[Instruction]:
    """Matmuls with a float32 operand, but for slopes on a gradient's way back."""
    wide = []
    for matmul, operands in program.reads("dot", "convolution"):  # TPUs have convolutions
        dtypes = [array.dtype for array in operands]
        if "f32" in dtypes and (dtypes == ["f32"] * 2 or "transpose(jvp" not in matmul.op_name):
            wide.append(matmul)
    return wide


def summed(program: Program) -> set[str]:
    """Dtypes that devices add up, but for a number per candidate and position, or less."""
    sums = program.reads("all-reduce", "all-reduce-start")
    return {a.dtype for _, arrays in sums for a in arrays if a.bytes > 4 * DECODER.width}


def copied(program: Program) -> set[tuple[str, tuple[int, ...]]]:
    """Dtype and shape of everything that is written and depends on weights alone."""
    return {(i.arrays[0].dtype, i.arrays[0].shape) for i in program.weight_copies()}


@pytest.mark.parametrize("name", (*PASSES, *FORMS))
def test_no_weight_is_copied_and_bfloat16_is_multiplied_and_summed(compiled, name):
    assert copied(compiled[name]) == set()
    assert compiled[name].reads("dot", "convolution")
    assert in_float32(compiled[name]) == []
    assert summed(compiled[name]) == {"bf16"}


def test_weights_that_are_copied_or_widened_are_seen(compiled):
    found = copied(compiled["planted-step"])
    for heads in (DECODER.num_heads, DECODER.num_kv_heads):
        assert ("bf16", (LAYERS, DECODER.width, heads // AXIS, DECODER.head_size)) in found
    assert ("f32", (LAYERS, DECODER.ffn_width // AXIS, DECODER.width)) in found


def test_matmuls_and_sums_in_float32_are_seen(compiled):
    assert in_float32(compiled["planted-step"])
    assert "f32" in summed(compiled["planted-step"])


def whole_copies(program: Program) -> list[str]:
    """Copies of a chip's part of the stack that a restored layer is written into."""
    stack = program.root(program.entry).arrays[0].shape
    instructions = (i for body in program.computations.values() for i in body)
    return [i.name for i in instructions if i.op.startswith("copy") and i.arrays[0].shape == stack]


def test_a_layer_is_restored_into_the_stack_that_is_there(compiled):
    assert compiled["place"].donated() == {0}
    assert whole_copies(compiled["place"]) == []


def test_a_lost_donation_is_seen(compiled):
    assert compiled["planted-place"].donated() == set()
    assert whole_copies(compiled["planted-place"])


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]), sys.argv[2:])
