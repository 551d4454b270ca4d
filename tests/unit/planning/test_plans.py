"""Which mesh and step a model gets, what would fit where it does not, and how time follows."""

import dataclasses

import pytest

from configs import known_models, known_shapes
from engine.planning import fitting, machines
from engine.planning.memory import SearchWork, SweepWork, account
from launch.common.planned_models import model_of_config

SEARCH = SearchWork(prefix=64, own=10, length=8, candidates=64, attempts=2)
LLAMA, GEMMA = "skywork-reward-llama-3.1-8b", "skywork-reward-gemma-2-27b"


def planned(slug, devices, dtype=None, axis=0, search=SEARCH, **changes):
    spec, (one,) = known_models.KNOWN[slug], machines.parse(devices)
    model = model_of_config(slug, known_shapes.config_json(spec), spec)
    sweep = SweepWork(**{"prefix": 64, "own": 3} | changes)
    return fitting.plan(model, one, sweep, search, dtype, axis)


@pytest.mark.parametrize(
    ("slug", "devices", "mesh"),
    [
        (LLAMA, "v5e-8", (8, 1)),  # 14.0 GiB of weights, .5 for a step
        ("inf-orm-llama3.1-70b", "v5e-16", (1, 16)),
        (GEMMA, "v5e-8", (2, 4)),
        (GEMMA, "2xA100-40GB", (1, 2)),
    ],
)
def test_the_smallest_axis_on_which_a_model_fits_is_taken(slug, devices, mesh):
    plan = planned(slug, devices)
    assert plan.fits
    assert (plan.model.data, plan.model.model) == mesh
    assert plan.account.total <= plan.devices.usable_bytes


@pytest.mark.parametrize(
    ("devices", "would_fit", "more"),
    [
        ("v5e-2", "4 of these devices", {"devices": "v5e-4"}),
        ("cpu-64GB", "dtype=float16", {"dtype": "float16"}),
        ("cpu-8GB", "116 GiB", {"devices": "cpu-116GB"}),  # of which 90 % are usable
    ],
)
def test_what_is_said_to_fit_does_fit(devices, would_fit, more):
    plan = planned(GEMMA, devices)
    assert not plan.fits
    assert plan.would_fit == would_fit
    assert planned(GEMMA, **{"devices": devices} | more).fits


def test_a_step_is_the_named_one_or_one_that_does_not_depend_on_the_number_of_devices():
    assert planned(LLAMA, "H100", step_size=333).step_size == 333
    assert planned(LLAMA, "1xH100").step_size == planned(LLAMA, "8xH100").step_size == 2048


def test_time_is_operations_over_half_of_the_peak_of_all_devices():
    # 2 · 7·10⁹ weights, three positions, 128,256 tokens, half of 989 TFLOP/s
    expected = 2 * 7e9 * 3 * 128_256 / (0.5 * 989e12)
    assert planned(LLAMA, "1xH100").sweep_s == pytest.approx(expected, rel=0.1)
    assert planned(LLAMA, "2xH100", axis=2, prompts=3).sweep_s == pytest.approx(
        3 / 2 * planned(LLAMA, "1xH100").sweep_s
    )
    half = planned(LLAMA, "v5e-8", dtype="float16").sweep_s
    assert half == pytest.approx(3 * planned(LLAMA, "v5e-8").sweep_s)
    assert planned(LLAMA, "cpu-64GB", dtype="bfloat16").sweep_s is None


@pytest.mark.parametrize(
    ("changes", "mesh"),
    [
        ({}, (2, 4)),  # a block for each direction
        ({"attempts": 1}, (1, 8)),
        ({"attempts": 64, "together": 400}, (2, 4)),  # too large for a smaller axis
    ],
)
def test_a_search_takes_the_smallest_axis_that_fits_and_leaves_no_device_idle(changes, mesh):
    search = dataclasses.replace(SEARCH, **changes)
    plan = planned(LLAMA, "v6e-8", search=search)
    assert (plan.searched.data, plan.searched.model) == mesh
    usable = plan.devices.usable_bytes
    assert plan.search_bytes == account(plan.searched, search).total <= usable
