"""`step_size=auto`, and models that are too large for this machine."""

import jax
import pytest

from engine import mesh as meshes
from engine import planning
from engine.errors import AssayError
from engine.planning import LEAST_STEP, DeviceRoom, Model, SweepWork
from engine.scoring.reward_passes import RewardScorer
from tests.support.parity import make_mesh
from tests.support.sweeps import ONE

AUTO = dict(step_size=None)
ALONE = make_mesh(1)


@pytest.fixture
def free(monkeypatch):
    """Bytes of free host memory, as this process sees them from now on."""

    def leave(bytes_: int) -> None:
        monkeypatch.setattr(meshes, "free_memory", lambda: bytes_)

    return leave


def steps(run) -> dict[str, int]:
    return {path: result.ways[0]["step_size"] for path, result in run.results().items()}


def needed(checkpoint, step: int, own: int = 3) -> int:
    """Bytes that a sweep needs on one CPU device."""
    model = Model.of([checkpoint]).on(DeviceRoom("cpu"), "float32")
    prefix = len(checkpoint.template.split(ONE["greatest"]).prefix)
    return planning.account(model, SweepWork(prefix=prefix, own=own, step_size=step)).total


def test_a_result_that_was_begun_keeps_its_step_and_its_bytes(tiny, run, other_run):
    other_run.sweep([tiny], ONE)
    run.sweep([tiny], ONE)
    next((run.folder / "scores").rglob("part-*")).unlink()
    assert run.sweep([tiny], ONE, **AUTO) == 100
    assert run.hashes() == other_run.hashes()
    assert run.sweep([tiny], ONE, **AUTO) == 0


@pytest.fixture
def device_of_256(monkeypatch):
    """Devices whose memory suffices for steps of 256 candidates, though the account says more."""
    right = RewardScorer.score

    def score(scorer, *part):
        if scorer.step_size > 256:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GB")
        return right(scorer, *part)

    monkeypatch.setattr(RewardScorer, "score", score)


def test_a_step_for_which_memory_fails_is_halved(tiny, run, other_run, device_of_256):
    assert run.sweep([tiny], ONE, **AUTO) == other_run.sweep([tiny], ONE, step_size=256)
    assert set(steps(run).values()) == {256}
    assert run.hashes() == other_run.hashes()


def test_a_step_that_the_user_named_is_not_halved(tiny, run, device_of_256):
    with pytest.raises(AssayError, match=r"out of memory.*step_size=512"):
        run.sweep([tiny], ONE, step_size=512)
    assert not any(result.parts for result in run.results().values())


def test_devices_along_data_do_not_change_the_step(tiny, free):
    chosen = []
    for data in (1, 4):
        room = DeviceRoom.of(make_mesh(data))._replace(usable=needed(tiny, 256))
        placed = Model.of([tiny]).on(room, "float32")
        chosen.append(planning.fitting_step(placed, SweepWork(prefix=22, own=3)))
    assert chosen[0] == chosen[1]


def test_a_model_that_is_too_large_is_refused_before_anything_is_written(tiny, run, free):
    free(needed(tiny, LEAST_STEP) // 2)
    with pytest.raises(AssayError, match=r"^tiny: needs \d+ MiB") as refused:
        run.sweep([tiny], ONE, **AUTO)
    assert "--config.check_memory=false" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not run.folder.exists()
    with pytest.raises(AssayError, match=r"^tiny: needs"):
        run.score([tiny], ONE, "list", ["love"], **AUTO)
    assert not run.folder.exists()
    run.sweep([tiny], ONE, check_memory=False, **AUTO)
    assert run.sweep([tiny], ONE, **AUTO) == 0  # nothing is loaded for what is complete


def test_a_step_that_is_too_large_is_refused_with_one_that_fits(tiny, run, free):
    free(needed(tiny, 256))
    with pytest.raises(AssayError, match="step_size=256 "):
        run.sweep([tiny], ONE, mesh=ALONE, step_size=4096)
    assert run.sweep([tiny], ONE, mesh=ALONE, step_size=256)


def test_a_self_check_that_is_too_large_is_refused_unless_the_list_is_short(tiny, run, free):
    free(needed(tiny, 512))
    many = dict(mesh=ALONE, step_size=16, self_check=100_000)
    with pytest.raises(AssayError, match="self_check=1 "):
        run.sweep([tiny], ONE, **many)
    assert not run.folder.exists()
    assert run.score([tiny], ONE, "short", ["love", "hate"], **many) == 2


def test_a_model_that_the_mesh_does_not_fit_does_not_keep_others_from_being_computed(
    checkpoint, tiny, run
):
    odd = checkpoint("odd", intermediate_size=99, seed=1)
    with pytest.raises(AssayError, match="1 of 2 models failed: odd"):
        run.sweep([odd, tiny], ONE, mesh=make_mesh(1, 2), **AUTO)
    with pytest.raises(AssayError, match=r"^mesh\.model=2; allowed: divisors of .* ffn_width=99"):
        run.sweep([odd], ONE, mesh=make_mesh(1, 2), **AUTO)
