"""Several processes of one command: a failure, a kill or a signal of one ends all of them."""

import shutil
import signal
import time

import pytest

from tests.support import processes
from tests.support.processes import (
    HOST,
    LOST_LINE,
    SMALL,
    assert_one_line_each,
    assert_quiet_but_for_the_first,
    run_to_the_end,
)
from tests.support.sweeps import Run

LONG = ("--config.part_size=4", "--config.step_size=4", "--config.prompts=greatest,best")


@pytest.fixture
def flags(checkpoint):
    """Those of a long sweep."""
    models = checkpoint(), checkpoint("shallow", num_hidden_layers=2, head_seed=1)
    return ["--checkpoint=" + ",".join(str(one.path) for one in models), *LONG]


@pytest.fixture
def sweeping(flags, tmp_path):
    """Number of processes -> that sweep, started."""

    def start(count, *more, **how):
        run = f"--run={tmp_path}/run"
        return processes.running("launch.sweep", count, *flags, run, *more, **how)

    return start


def named_parts(run):
    """Path -> sha256 of every part for which its result vouches."""
    results = run.results() if (run.folder / "run.json").exists() else {}
    return {
        f"{folder}/{name}": part.sha256
        for folder, result in results.items()
        for name, part in result.parts.items()
    }


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_a_restart_computes_what_is_missing(
    command, flags, sweeping, tmp_path
):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    with sweeping(2, heartbeat_s=10) as started:
        while not run.parts() and started.running():
            time.sleep(0.01)
        started.send(0, signal.SIGKILL)
        killed, left = started.wait()
    assert killed.code == -signal.SIGKILL
    assert (left.code, left.out, left.err[-1]) == (3, [], f"sweep: {LOST_LINE}"), left.err
    assert left.seconds < 30
    kept = {path: said for path, said in run.parts().items() if path in named_parts(run)}
    with sweeping(2) as started:
        assert_quiet_but_for_the_first(started.wait())
    after = run.parts()
    assert {path: after[path] for path in kept} == kept
    assert command("sweep", *flags, f"--run={whole.folder}").code == 0
    assert run.hashes() == whole.hashes()
    assert run.leftovers() == []


@pytest.mark.slow
def test_ctrl_c_ends_a_command_with_what_is_complete(sweeping, tmp_path):
    run = Run(tmp_path / "run")
    with sweeping(1, devices=2) as started:
        while not named_parts(run) and started.running():
            time.sleep(0.01)
        started.send(0, signal.SIGINT)
        ended = started.wait()
    assert_one_line_each(ended, 130, "interrupted; run it again .*")
    assert named_parts(run).items() <= run.hashes().items()  # so it goes on as after a kill


@pytest.mark.slow
def test_a_model_that_fails_on_one_process_ends_all_and_is_named(checkpoint, tmp_path):
    good, other, lost = checkpoint(), checkpoint("other", seed=1), tmp_path / "lost"
    shutil.copytree(other.path, lost)
    shutil.rmtree(lost / "params/layers/001")

    def own(index):
        return [f"--checkpoint={lost if index else other.path},{good.path}"]

    flags = [*SMALL, "--config.prompts=greatest", f"--run={tmp_path}/run"]
    pattern = rf"process 1 of 2 \({HOST}\): model other: .*damaged checkpoint.*"
    ended = run_to_the_end("sweep", 2, *flags, own=own)
    assert_one_line_each(ended, 2, pattern)


FULL = """
from engine.scoring.reward_passes import RewardScorer
right = RewardScorer.score
def score(scorer, *part):
    if not processes.writes():
        raise MemoryError
    return right(scorer, *part)
RewardScorer.score = score
"""


@pytest.mark.slow
def test_a_process_that_is_out_of_memory_ends_the_others_and_no_step_is_halved(sweeping):
    with sweeping(2, "--config.step_size=auto", patch=FULL) as started:
        ended = started.wait()
    pattern = rf"process 1 of 2 \({HOST}\): .*out of memory.*"
    assert_one_line_each(ended, 2, pattern)
