"""What commands compute, compiled for a TPU: no copies of weights, small collectives."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.compiled import chips, hlo, products
from bench.compiled.programs import merged_replies
from engine.planning import flops
from tests.compiled.compile_small import CANDIDATES, DECODER, LAYERS, OWN, PREFIX, PROGRAMS, WIDE

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


PASSES = ["prefill-1", "prefill-2", "score-1", "score-2", "search-1", "search-2"]
PLANTED = ["planted-prefill", "planted-score", "planted-search"]


@pytest.mark.parametrize("name", PASSES)
def test_no_weight_is_copied_transposed_or_converted(compiled, name):
    copies = compiled[name].weight_copies()
    assert [(c.op, str(c.array), c.times) for c in copies] == []


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("planted-score", DECODER.num_heads),  # q
        ("planted-score", DECODER.num_kv_heads),  # k, v
        ("planted-search", DECODER.num_heads),
    ],
)
def test_weights_in_orders_that_a_tpu_copies_are_seen(compiled, name, heads):
    copied = {c.array.shape for c in compiled[name].weight_copies()}
    assert (LAYERS, DECODER.width, heads // PROGRAMS[name].model, DECODER.head_size) in copied


@pytest.mark.parametrize("name", PLANTED)
def test_weights_that_are_widened_are_seen(compiled, name):
    wide = {c.array.shape for c in compiled[name].upcasts()}
    inner = DECODER.ffn_width // PROGRAMS[name].model
    assert (LAYERS, inner, DECODER.width) in wide  # down


def of_transposed(product: products.Matmul) -> bool:
    """Whether a matmul is on a gradient's way back, where slopes are float32."""
    return "transpose(jvp" in product.op_name


def in_float32(program: hlo.Program) -> list[products.Matmul]:
    """Matmuls with a float32 operand, but for slopes on the way back."""
    found = [m for m in products.matmuls(program) if "f32" in m.dtypes]
    return [m for m in found if m.dtypes == ("f32", "f32") or not of_transposed(m)]


@pytest.mark.parametrize("name", PASSES)
def test_no_matmul_reads_float32_but_slopes(compiled, name):
    assert products.matmuls(compiled[name])
    assert in_float32(compiled[name]) == []


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("planted-score", ("f32", "f32")),
        ("planted-search", ("f32", "f32")),  # of a prompt, the compiler narrows them again
        ("planted-prefill", ("bf16", "f32")),
        ("planted-score", ("bf16", "f32")),
        ("planted-search", ("bf16", "f32")),
    ],
)
def test_matmuls_that_read_float32_are_seen(compiled, name, dtypes):
    found = [m for m in in_float32(compiled[name]) if m.dtypes == dtypes]
    assert [m for m in found if not of_transposed(m)]


def large_sums(program: hlo.Program) -> set[str]:
    """Dtypes that devices add up, but for a number per candidate or less."""
    sums = [c for c in program.collectives() if c.kind == "all-reduce"]
    return {a.dtype for c in sums for a in c.arrays if a.bytes >= 4 * DECODER.width}


@pytest.mark.parametrize("name", ["prefill-2", "score-2", "search-2"])
def test_devices_along_model_add_up_in_bfloat16(compiled, name):
    assert large_sums(compiled[name]) == {"bf16"}


@pytest.mark.parametrize("name", ["planted-score", "planted-search"])
def test_sums_in_float32_are_seen(compiled, name):
    assert "f32" in large_sums(compiled[name])


def whole_copies(program: hlo.Program) -> list[str]:
    """Copies of a chip's part of the stack that `place` writes into."""
    stack = program.root(program.entry).arrays[0].shape
    every = (i for body in program.computations.values() for i in body)
    return [i.name for i in every if i.op.startswith("copy") and i.arrays[0].shape == stack]


def test_a_layer_is_restored_into_the_stack_that_is_there(compiled):
    assert compiled["place-2"].donated() == {0}
    assert whole_copies(compiled["place-2"]) == []


def test_a_lost_donation_is_seen(compiled):
    assert compiled["planted-place"].donated() == set()
    assert whole_copies(compiled["planted-place"])


def of_vocabulary(program: hlo.Program) -> set[str]:
    """Arrays with a number for each position and token of the whole vocabulary."""
    every = (a for body in program.computations.values() for i in body for a in i.arrays)
    return {str(a) for a in every if a.shape[:-1] and a.shape[-1] == DECODER.vocab_size}


def test_devices_along_model_keep_the_slopes_of_their_own_tokens(compiled):
    assert of_vocabulary(compiled["search-1"])  # one device has all
    assert of_vocabulary(compiled["search-2"]) == set()


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
def test_a_step_returns_one_array(programs, model):
    assert [a.dtype for a in programs[model].root(programs[model].entry).arrays] == ["f32"]


@pytest.mark.parametrize("name", ["search-1", "search-2"])
def test_a_step_of_a_search_returns_replies_and_rewards_alone(compiled, name):
    results = compiled[name].root(compiled[name].entry).arrays
    assert [a.dtype for a in results] == ["s32", "f32", "f32"]
    replies = 8 + merged_replies("gcg-merged", 8)  # of 2 tokens; candidates and merged ones
    assert sum(a.bytes for a in results) <= replies * (2 + 1) * 4 + 4  # and their parent's reward


@pytest.mark.parametrize("name", PASSES)
def test_no_pass_asks_the_host_for_anything(compiled, name):
    every = [i for body in compiled[name].computations.values() for i in body]
    assert not {i.op for i in every} & {"infeed", "outfeed", "send", "recv"}
    called = {i.text.partition('custom_call_target="')[2].partition('"')[0] for i in every}
    assert not [target for target in called if "host" in target.lower() or "callback" in target]


def in_attention(program: hlo.Program, scope: str, letters: str) -> Counter[int]:
    """Rounds -> matmuls of a part of a program whose einsum has an operand with such axes."""
    found = [m for m in products.matmuls(program) if f"/{scope}" in m.op_name]
    return Counter(m.times for m in found if f",{letters}->" in m.op_name)


# Name of the program, part of it, layers, and products with keys and with values of the prefix:
# a gradient has as many on its way back.
ON_PREFIX = [
    ("score-1", "", LAYERS, 2),
    ("score-2", "", LAYERS, 2),
    ("search-1", "gradient", WIDE.num_layers, 4),
    ("search-2", "gradient", LAYERS, 4),
    ("search-1", "score", WIDE.num_layers, 4),  # of candidates, and of merged replies
    ("search-2", "score", LAYERS, 4),
    ("search-1", "score/merged", WIDE.num_layers, 2),
    ("search-2", "score/merged", LAYERS, 2),
]


@pytest.mark.parametrize(("name", "scope", "layers", "products_a_layer"), ON_PREFIX)
def test_all_candidates_meet_the_prefix_in_one_matmul(
    compiled, name, scope, layers, products_a_layer
):
    """A batched one, with a part for each key/value head."""
    expected = {layers - 1: products_a_layer, 1: products_a_layer}  # the last layer is no loop's
    assert in_attention(compiled[name], scope, "PKH") == expected


@pytest.mark.parametrize("name", ["prefill-1", "prefill-2"])
def test_a_prompts_positions_meet_in_one_matmul(compiled, name):
    assert in_attention(compiled[name], "", "CSKH") == {LAYERS: 2}


@pytest.mark.parametrize(
    ("name", "scope"),
    [("score-1", ""), ("score-2", ""), ("search-1", "gradient"), ("search-1", "score/merged")],
)
def test_few_own_positions_are_multiplied_and_added_up(compiled, name, scope):
    assert in_attention(compiled[name], scope, "CSKH") == {}


def test_own_positions_in_tiny_matmuls_are_seen(compiled):
    assert in_attention(compiled["planted-score"], "", "CSKH") == {LAYERS - 1: 2, 1: 2}
    for scope in ("gradient", "score/merged"):
        assert in_attention(compiled["planted-search"], scope, "CSKH")
