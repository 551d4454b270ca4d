"""What `bench.compiled.hlo` reads from programs whose contents are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bench.compiled import hlo, products
from engine import mesh as meshes
from engine.checkpoint import layouts, restore
from tests.support import parity

LAYERS, WIDTH, ROWS = 5, 256, 8


def program(function, *arguments, **options) -> hlo.Program:
    # pjit's text names parameters after the function's arguments.
    return hlo.Program(jax.jit(function, **options).lower(*arguments).compile().as_text())


def stacked(dtype=jnp.float32):
    return jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), dtype)


def rows(dtype=jnp.float32):
    return jax.ShapeDtypeStruct((ROWS, WIDTH), dtype)


def test_a_loop_runs_as_often_as_it_counts():
    def loop(params, x):
        return jax.lax.fori_loop(1, LAYERS, lambda i, x: jnp.sin(x @ params[i]), x)

    assert LAYERS - 1 in program(loop, stacked(), rows()).times.values()


def test_a_loop_of_unknown_length_runs_as_often_as_the_caller_says():
    def loop(params, x, count):
        with jax.named_scope("score"):
            return jax.lax.fori_loop(0, count, lambda i, x: jnp.sin(x @ params[i]), x)

    arguments = (stacked(), rows(), jax.ShapeDtypeStruct((), jnp.int32))
    text = jax.jit(loop).lower(*arguments).compile().as_text()
    read = hlo.Program(text, lambda op_name: 7 if "score" in op_name else 1)
    assert 7 in read.times.values()


def test_a_weight_that_is_converted_in_a_loop_is_a_copy_in_each_round():
    def loop(params, x):
        def layer(i, x):
            weight = jax.lax.optimization_barrier(params[i].astype(jnp.float32))
            return jnp.sin(x @ weight)

        return jax.lax.fori_loop(0, LAYERS, layer, x)

    copies = program(loop, stacked(jnp.bfloat16), rows()).upcasts()
    assert sum(c.bytes for c in copies) >= LAYERS * WIDTH * WIDTH * 4


def test_what_depends_on_data_is_no_copy_of_a_weight():
    def product(params, x):
        return x @ x.T + jnp.sum(params)

    assert program(product, stacked(), rows()).weight_copies() == []


def test_copies_of_weights_that_have_another_name_are_not_overlooked():
    def product(weights, x):
        return x @ weights[0]

    with pytest.raises(ValueError, match="no parameter of the program is named params"):
        program(product, stacked(), rows()).weight_copies()


def test_an_all_reduce_counts_its_payload_in_each_round():
    mesh = parity.make_mesh(1, 2)

    def loop(params, x):
        return jax.lax.fori_loop(0, LAYERS, lambda i, x: jnp.sin(x @ params[i]), x)

    placed = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        for a, spec in ((stacked(), (None, "model", None)), (rows(), (None, "model")))
    ]
    sums = [c for c in program(loop, *placed).collectives() if c.kind == "all-reduce"]
    assert sum(c.bytes for c in sums) == LAYERS * ROWS * WIDTH * 4


@pytest.mark.parametrize("donated", [True, False])
def test_donated_arguments_are_seen(donated):
    def add(params, x):
        return params.at[0].add(x)

    wanted = (0,) if donated else ()
    layer = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    assert program(add, stacked(), layer, donate_argnums=wanted).donated() == set(wanted)


def check_restoring_in_place(axes):
    order = layouts.permutation("(NH)D", axes.replace("K", "N"))
    place = restore._place.__wrapped__  # without what was compiled before
    jitted: Any = place(order, -1, 1, meshes.sharding(parity.make_mesh(), ""))
    layer = jax.ShapeDtypeStruct((4, WIDTH // 4, WIDTH), jnp.float32)
    text = jitted.lower(stacked(), np.int32(1), layer).compile().as_text()
    assert hlo.Program(text).donated() == {0}


@pytest.mark.parametrize("axes", ["D(NH)", "(KH)D"])
def test_restoring_writes_into_the_stack_that_is_there(axes):
    check_restoring_in_place(axes)


def test_restoring_into_a_second_stack_is_seen(monkeypatch):
    right = jax.jit
    monkeypatch.setattr(jax, "jit", lambda f, donate_argnums=(), **kept: right(f, **kept))
    with pytest.raises(AssertionError):
        check_restoring_in_place("D(NH)")


def test_matmuls_in_a_loop_count_in_each_round():
    def loop(params, x):
        return jax.lax.fori_loop(0, LAYERS, lambda i, x: jnp.sin(x @ params[i]), x)

    counted = products.matmul_flops(program(loop, stacked(), rows()))
    assert counted == LAYERS * 2 * ROWS * WIDTH * WIDTH


@pytest.mark.parametrize(
    ("options", "each"),
    [
        ({"padding": "VALID"}, 6 * 3),  # places of the result, times the kernel's
        ({"padding": ((1, 1),)}, 8 * 3 - 2),  # two products read padding
        ({"padding": ((1, 1),), "window_strides": (2,)}, 4 * 3 - 1),
        ({"padding": ((0, 0),), "lhs_dilation": (2,)}, 20),  # 13 places, without the zeros between
    ],
)
def test_products_with_padding_are_not_counted(options, each):
    """TPUs write batched matmuls as convolutions that read mostly padding."""
    given, kernel = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4, 8, 5), (3, 5, 7)))
    settings = {"window_strides": (1,), "dimension_numbers": ("NHC", "HIO", "NHC"), **options}

    def convolve(x, w):
        return jax.lax.conv_general_dilated(x, w, **settings)

    counted = products.matmul_flops(program(convolve, given, kernel))
    assert counted == 2 * 4 * 5 * 7 * each
