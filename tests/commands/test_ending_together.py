"""Several processes of one command: a failure, a kill or a signal of one ends all of them."""

import signal

import pytest

from engine.runs.result import Result
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

# Process 0 ends itself by a signal behind its second part.
ENDS = """
import os
from engine.runs.result import Result
right, written = Result.write, []
def write(result, *part):
    right(result, *part)
    written.append(part)
    if len(written) == 2:
        os.kill(os.getpid(), {})
Result.write = write
"""


@pytest.fixture
def flags(checkpoint):
    """Those of a sweep of two models."""
    models = checkpoint(num_hidden_layers=2), checkpoint("shallow", head_seed=1)
    listed = ",".join(str(model.path) for model in models)
    return [f"--checkpoint={listed}", *SMALL, "--config.prompts=greatest"]


@pytest.fixture
def sweeping(flags, tmp_path):
    """Number of processes -> how that sweep ended."""
    return lambda count, *more, **how: run_to_the_end(
        "sweep", count, *flags, f"--run={tmp_path}/run", *more, **how
    )


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
    killed, left = sweeping(2, heartbeat_s=10, patch=ENDS.format(9))
    assert killed.code == -signal.SIGKILL
    assert (left.code, left.out, left.err[-1]) == (3, [], f"sweep: {LOST_LINE}"), left.err
    kept = {path: part for path, part in run.parts().items() if path in named_parts(run)}
    assert len(kept) == 2
    ended = sweeping(2, place=processes.by_slurm)
    assert_quiet_but_for_the_first(ended)
    assert ended[0].out == [f"{run.folder}/scores: 2 models × 1 prompt, 376 new rewards"]
    after = run.parts()
    assert {path: after[path] for path in kept} == kept
    assert command("sweep", *flags, f"--run={whole.folder}").code == 0
    assert run.hashes() == whole.hashes()
    assert run.leftovers() == []


def test_ctrl_c_ends_a_command_with_what_is_complete(command, flags, run, monkeypatch):
    monkeypatch.setattr(Result, "write", Result.write)  # undoes what `ENDS` does
    exec(ENDS.format(int(signal.SIGINT)), {})
    done = command("sweep", *flags, f"--run={run.folder}")
    assert done.code == 130 and done.err[-1].startswith("sweep: interrupted; run it again ")
    assert named_parts(run) and named_parts(run).items() <= run.hashes().items()  # as after a kill


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
    ended = sweeping(2, "--config.step_size=auto", patch=FULL)
    pattern = rf"process 1 of 2 \({HOST}\): .*out of memory.*"
    assert_one_line_each(ended, 2, pattern)
