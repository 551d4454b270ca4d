"""The floor of a search's step, its expected time, and the mesh that follows."""

import dataclasses

import pytest

from configs import known_models, known_shapes
from engine.planning import flops, machines, memory, plans, searches
from engine.planning.work import SearchWork
from engine.search import passes
from engine.search.gcg import first_changes
from engine.settings import SearchSettings
from launch.common.subjects import subject_of

V6E = machines.KINDS["v6e"]
SMALL = SearchWork(prefix=64, suffix=1, length=8, candidates=64, attempts=1)
LARGE = dataclasses.replace(SMALL, length=20, candidates=512)


def llama(data, model, platform="tpu"):
    spec = known_models.KNOWN["skywork-reward-llama-3.1-8b"]
    subject = subject_of("8b", known_shapes.config_json(spec), spec)
    return subject.on(platform, None, data, model)


@pytest.mark.parametrize("split", [1, 8])
def test_the_floor_of_a_small_step_is_reading_the_weights_three_times(split):
    model = llama(8 // split, split)
    read = 3 * memory.layer_bytes(model) + memory.embedding_bytes(model)
    assert split * memory.layer_bytes(model) == pytest.approx(2 * 6.98e9, rel=0.01)
    found = searches.floor_seconds(model, V6E, SMALL)
    assert found == pytest.approx(read / V6E.bytes_per_s)
    assert found > 4 * operations(model, SMALL) / 8 / V6E.rate_16  # of operations alone


def test_the_floor_of_many_candidates_is_their_operations():
    model = llama(1, 8)
    one = flops.gradient(model.config, LARGE.length, LARGE.own, LARGE.prefix)
    scored = (operations(model, LARGE) - one) / 8 / V6E.rate_16
    read = 2 * memory.layer_bytes(model) + memory.embedding_bytes(model)
    found = searches.floor_seconds(model, V6E, LARGE)
    assert found == pytest.approx(scored + read / V6E.bytes_per_s, rel=0.01)


def operations(model, work) -> float:
    """Of a step, without those of the parent behind the prompt."""
    first = [*work.first_changes, *[0] * work.merged]
    whole = flops.compiled_step(
        model.config, first, work.length, [64], work.suffix, with_gradient=True
    )
    return whole - flops.extension(model.config, work.length, 64)


@pytest.mark.parametrize("merged", [0, 6])
def test_the_least_passes_have_the_operations_of_a_step(merged):
    model, work = llama(1, 1), dataclasses.replace(LARGE, merged=merged)
    found = sum(each.operations for each in searches.least_passes(model, work))
    assert found == pytest.approx(operations(model, work), rel=1e-9)


def test_merged_replies_take_a_pass_of_their_own():
    model, work = llama(1, 1), dataclasses.replace(LARGE, merged=6)
    *others, merged = searches.passes(model, work)
    assert others == searches.passes(model, LARGE)
    assert merged == searches.least_passes(model, work)[-1]
    assert merged.positions == 6 * work.own


@pytest.mark.parametrize("work", [SMALL, LARGE])
def test_rows_and_blocks_are_those_of_the_compiled_step(work):
    changes = {"length": work.length, "candidates": work.candidates}
    settings = SearchSettings.of(**changes, direction="max", dtype="float32")
    first = first_changes(settings)
    assert list(first) == work.first_changes
    packed = passes.pack(first, work.own)
    assert packed.place.shape == (work.rows, work.row_positions)


def test_the_engine_makes_a_pass_for_each_block():
    counts = {each.name: each.runs for each in searches.passes(llama(1, 8), LARGE)}
    assert counts == {"gradient": 1, "gradient, back": 1, "candidates": 8}
    counts = {each.name: each.runs for each in searches.passes(llama(8, 1), LARGE)}
    assert counts["candidates"] == 1
    five = dataclasses.replace(SMALL, attempts=5, gradient=False)
    assert {e.name: e.runs for e in searches.passes(llama(1, 1), five)} == {
        "parents": 3,
        "candidates": 5,
    }
    cpu = searches.passes(llama(1, 1, "cpu"), SMALL)
    assert [each.name for each in cpu][2:] == ["parents", "candidates"]


def test_what_is_expected_is_no_less_than_the_floor():
    for work in (SMALL, LARGE, dataclasses.replace(LARGE, attempts=16, together=3)):
        for split in (1, 2, 4, 8):
            model = llama(8 // split, split)
            floor = searches.floor_seconds(model, V6E, work)
            assert searches.step_seconds(model, V6E, work) > floor


def test_a_small_search_is_split_over_the_model_and_one_of_many_attempts_over_data():
    models = [llama(8 // split, split) for split in (1, 2, 4, 8)]
    assert plans.plan_search(models, V6E, SMALL).model.model == 8
    many = dataclasses.replace(LARGE, attempts=64)
    assert plans.plan_search(models, V6E, many).model.model == 1
    assert plans.plan_search(models[:2], V6E, SMALL).model.model == 2  # of those that are there


def test_devices_along_model_pay_for_their_sums():
    alone, split = llama(8, 1), llama(1, 8)
    assert searches.sums_seconds(alone, V6E, 1000) == 0
    least = searches.sums_seconds(split, V6E, 0)
    assert least == pytest.approx(2 * 32 * V6E.link_s)
    sent = 2 * 32 * 2 * 7 / 8 * 1000 * 4096 * 2 / V6E.link_bytes_per_s
    assert searches.sums_seconds(split, V6E, 1000) == pytest.approx(least + sent)


def test_a_search_too_large_for_one_mesh_goes_to_another():
    models = [llama(8 // split, split) for split in (1, 8)]
    many = dataclasses.replace(SMALL, attempts=2, together=400)
    needed = [plans.search_account(model, many).total for model in models]
    assert needed[0] > plans.usable_bytes(V6E) >= needed[1]
    assert plans.plan_search(models, V6E, many).model.model == 8
