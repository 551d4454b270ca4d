"""Steps of sweeps and searches, compiled for a TPU: no copies of weights, small collectives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compiled import chips, hlo, products
from engine.planning import flops
from tests.compiled.compile_small import CANDIDATES, DECODER, LAYERS, OWN, PREFIX, PROGRAMS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not chips.has_compiler(), reason="needs libtpu, which is not there"),
]
ROOT = Path(__file__).resolve().parents[2]
CHANGED = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # by tests/conftest.py


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, hlo.Program]:
    """Name of a program of `compile_small` -> it."""
    folder = tmp_path_factory.mktemp("programs")
    command = [sys.executable, "-m", "tests.compiled.compile_small", str(folder), *PROGRAMS]
    environment = {name: value for name, value in os.environ.items() if name not in CHANGED}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=900)
    return {name: hlo.Program((folder / f"{name}.hlo").read_text()) for name in PROGRAMS}


@pytest.fixture(scope="module")
def programs(compiled) -> dict[int, hlo.Program]:
    """Size of the axis `model` -> step of a sweep."""
    return {n: compiled[f"score-{n}"] for n in (1, 2)}


@pytest.mark.parametrize("name", ["score-1", "score-2", "gcg", "gcg-2"])
def test_no_weight_is_copied_transposed_or_converted(compiled, name):
    copies = compiled[name].weight_copies()
    assert [(c.op, str(c.array), c.times) for c in copies] == []


def test_weights_in_orders_that_a_tpu_copies_are_seen(compiled):
    copied = {str(c.array) for c in compiled["planted"].weight_copies()}
    width, size = DECODER.width, DECODER.head_size
    assert f"bf16[{LAYERS},{width},{DECODER.num_heads},{size}]" in copied  # q
    assert f"bf16[{LAYERS},{width},{DECODER.num_kv_heads},{size}]" in copied  # k, v


def test_matmuls_in_float32_are_seen(compiled):
    assert ("f32", "f32") in compiled["planted"].matmuls()


def test_a_search_widens_no_weight(compiled):
    assert compiled["gcg"].upcasts() == []
    assert ("f32", "f32") not in compiled["gcg"].matmuls()


def of_vocabulary(program: hlo.Program) -> set[str]:
    """Arrays with a number for each position and token of the whole vocabulary."""
    every = (a for body in program.computations.values() for i in body for a in i.arrays)
    return {str(a) for a in every if a.shape[:-1] and a.shape[-1] == DECODER.vocab_size}


def test_devices_along_model_keep_the_slopes_of_their_own_tokens(compiled):
    assert of_vocabulary(compiled["gcg"])  # one device has all
    assert of_vocabulary(compiled["gcg-2"]) == set()


@pytest.mark.parametrize("model", [1, 2])
def test_every_matmul_reads_bfloat16(programs, model):
    assert set(programs[model].matmuls()) == {("bf16", "bf16")}


@pytest.mark.parametrize("model", [1, 2])
def test_matmuls_do_what_is_counted_and_no_more(programs, model):
    counted = CANDIDATES * flops.response(DECODER, OWN, PREFIX) / model
    assert products.matmul_flops(programs[model]) == pytest.approx(counted, rel=5e-3)


def test_layers_are_one_loop_and_the_last_layer_is_behind_it(programs):
    rounds = {n for n in programs[1].times.values() if n > 1}
    assert rounds == {LAYERS - 1}


def test_devices_along_data_send_one_another_nothing_but_rewards(programs):
    sent = programs[1].collectives()
    assert {c.kind for c in sent} == {"all-gather"}
    assert sum(c.bytes for c in sent) == 4 * CANDIDATES


def test_devices_along_model_add_up_two_parts_a_layer_in_bfloat16(programs):
    sums = [c for c in programs[2].collectives() if c.kind == "all-reduce"]
    rows = {"loop": CANDIDATES * OWN, "last": CANDIDATES}  # the last layer computes rewards alone
    layers = {"loop": LAYERS - 1, "last": 1}
    expected = sum(2 * layers[k] * rows[k] * DECODER.width * 2 for k in rows)
    embedded = CANDIDATES * OWN * DECODER.width * 2  # rows of the divided embedding, once
    assert {array.dtype for c in sums for array in c.arrays} == {"bf16"}
    assert sum(c.bytes for c in sums) == expected + embedded


@pytest.mark.parametrize("model", [1, 2])
def test_a_step_returns_one_array_and_asks_the_host_for_nothing(programs, model):
    program = programs[model]
    ops = {i.op for body in program.computations.values() for i in body}
    assert not ops & {"infeed", "outfeed", "send", "recv"}
    assert [a.dtype for a in program.root(program.entry).arrays] == ["f32"]
