"""Which mesh and step a model gets, what would fit where it does not, and how time follows."""

import dataclasses

import pytest

from configs import known_models, known_shapes
from engine.planning import machines, memory, plans
from engine.planning.work import Named, SearchWork, SweepWork
from engine.runs import parts
from launch.common.subjects import subject_of

SWEEP = SweepWork(prompts=3, prefix=64, own=3)
SEARCH = SearchWork(prefix=64, suffix=2, length=8, candidates=64, steps=500, attempts=2)
LLAMA, GEMMA = "skywork-reward-llama-3.1-8b", "skywork-reward-gemma-2-27b"


def subject(slug):
    spec = known_models.KNOWN[slug]
    return subject_of(slug, known_shapes.config_json(spec), spec)


def planned(slug, devices, dtype=None, model_axis=None, search=SEARCH, **changes):
    (one,) = machines.parse(devices)
    sweep, named = dataclasses.replace(SWEEP, **changes), Named(dtype=dtype, model_axis=model_axis)
    return plans.plan(subject(slug), one, sweep, search, named)


@pytest.mark.parametrize(
    ("slug", "devices", "mesh"),
    [
        (LLAMA, "v6e-8", (8, 1)),
        (LLAMA, "v5e-8", (8, 1)),  # 14.0 GiB of weights, .5 for a step
        ("inf-orm-llama3.1-70b", "v5e-16", (1, 16)),
        (GEMMA, "v5p-8", (8, 1)),
        (GEMMA, "v6e-8", (4, 2)),
        (GEMMA, "v5e-8", (2, 4)),
        (GEMMA, "2xH100", (2, 1)),
        (GEMMA, "2xA100-40GB", (1, 2)),
    ],
)
def test_the_smallest_axis_on_which_a_model_fits_is_taken(slug, devices, mesh):
    plan = planned(slug, devices)
    assert plan.fits
    assert (plan.model.data, plan.model.model) == mesh
    assert plan.account.total <= plan.usable_bytes


def test_a_model_that_fits_nowhere_is_told_what_would_fit():
    plan = planned(GEMMA, "v5e-2")
    assert not plan.fits
    assert plan.would_fit == "4 of these devices"
    assert planned(GEMMA, "v5e-4").fits


def test_an_8b_model_in_float32_does_not_fit_a_laptop_of_24_gb():
    plan = planned(LLAMA, "cpu-24GB")
    assert (plan.fits, plan.model.dtype) == (False, "float32")
    assert plan.would_fit == "dtype=float16"
    assert planned(LLAMA, "cpu-24GB", dtype="float16").fits
    assert not planned(LLAMA, "cpu-24GB", dtype="bfloat16").fits
    needed = int(planned(LLAMA, "cpu-8GB").would_fit.split()[0])
    assert planned(LLAMA, f"cpu-{needed}GB").fits
    assert not planned(LLAMA, f"cpu-{needed - 2}GB").fits


def test_settings_that_would_fit_do_fit():
    plan = planned(LLAMA, "v6e-8", dtype="float32", model_axis=1, step_size=16384)
    assert not plan.fits
    ways = dict(way.split("=") for way in plan.would_fit.split(" or "))
    assert ways.keys() >= {"step_size", "mesh.model"}
    fitting = {"step_size": int(ways["step_size"]), "model_axis": 1, "dtype": "float32"}
    assert planned(LLAMA, "v6e-8", **fitting).fits
    split = {"step_size": 16384, "model_axis": int(ways["mesh.model"]), "dtype": "float32"}
    assert planned(LLAMA, "v6e-8", **split).fits


def test_a_search_is_charged_for_its_prompts_and_its_method():
    model = subject(LLAMA).on("gpu", None)

    def account(**changes):
        return plans.search_account(model, dataclasses.replace(SEARCH, **changes))

    gradient, without = account(), account(gradient=False)
    assert gradient.step - without.step >= 4 * 2 * 2 * 8 * 128_256  # one-hot rows and gradient
    assert account(together=3).prefix == 3 * gradient.prefix
    assert account(together=300).step > 10 * gradient.step
    few, many = (account(enumerates=True, candidates=count).step for count in (256, 1024))
    assert many == pytest.approx(4 * few, rel=0.01)
    assert few == account(enumerates=True, candidates=256, attempts=9, together=3).step


def test_a_step_that_is_named_is_kept():
    assert planned(LLAMA, "H100", step_size=333).step_size == 333


def test_a_step_does_not_depend_on_the_number_of_devices():
    assert planned(LLAMA, "1xH100").step_size == planned(LLAMA, "8xH100").step_size


def test_time_follows_prompts_devices_and_the_vocabulary():
    one, two = planned(LLAMA, "8xH100", prompts=1), planned(LLAMA, "8xH100", prompts=2)
    assert two.sweep_s == pytest.approx(2 * one.sweep_s)
    assert planned(LLAMA, "1xH100", prompts=1).sweep_s == pytest.approx(
        63 / 8 * one.sweep_s
    )  # steps
    # 2 · 7·10⁹ weights, three positions, 128,256 tokens, half of 989 TFLOP/s
    assert 8 * one.sweep_s == pytest.approx(2 * 7e9 * 3 * 128_256 / (0.5 * 989e12), rel=0.1)


@pytest.mark.parametrize(
    ("devices", "steps", "better"),
    [("v5e-8", 16, None), ("v5e-16", 8, None), ("v5e-64", 8, 65_536), ("v5e-256", 8, 262_144)],
)
def test_no_step_crosses_the_end_of_a_part(devices, steps, better):
    plan, work = planned(LLAMA, devices, prompts=1), dataclasses.replace(SWEEP, prompts=1)
    one = plans.step_seconds(plan.model, machines.KINDS["v5e"], work, 1024)
    assert plan.sweep_s == pytest.approx(steps * one)
    assert plans.better_part_size(plan.model, work, 1024) == better
    # The engine's own cut: each part in steps of all devices.
    cut = [stop - start for start, stop in parts.ranges(128_256, work.part_size)]
    assert steps == sum(len(range(0, rows, 1024 * plan.model.data)) for rows in cut)


def test_larger_parts_fill_many_devices():
    few, many = planned(LLAMA, "v5e-64"), planned(LLAMA, "v5e-64", part_size=65_536)
    assert many.sweep_s == pytest.approx(few.sweep_s / 4)


def test_a_step_of_few_candidates_is_bound_by_reading_the_weights():
    few = planned(LLAMA, "H100", step_size=16, prompts=1)
    steps = 128_256 / 16
    assert few.sweep_s == pytest.approx(steps * memory.layer_bytes(few.model) / 3.35e12)
