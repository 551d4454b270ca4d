"""Commands as several processes on this machine: what they compute, and what they refuse."""

import shutil
import socket

import pytest

from engine.runs import lock
from tests.support import processes
from tests.support.folders import files_of
from tests.support.processes import (
    HOST,
    ROOT,
    SMALL,
    assert_one_line_each,
    assert_quiet_but_for_the_first,
    run_to_the_end,
)


@pytest.fixture
def model(checkpoint):
    return f"--checkpoint={checkpoint().path}"


SEARCH = ("length=2", "steps=1", "candidates=8", "topk=8", "direction=max", "prompts=greatest")


@pytest.mark.slow
def test_a_search_writes_with_two_processes_what_it_writes_with_one(command, model, tmp_path):
    """As a sweep does: `test_ending_together`. `result.json` alone names the processes."""
    flags = [model, *(f"--config.{setting}" for setting in SEARCH)]
    assert command("search", *flags, f"--run={tmp_path}/1").code == 0
    place = processes.by_open_mpi
    ended = run_to_the_end("search", 2, *flags, f"--run={tmp_path}/n", place=place)
    assert_quiet_but_for_the_first(ended)
    alone, several = (
        {path: held for path, held in files_of(tmp_path / run).items() if "result" not in path}
        for run in "1n"
    )
    assert several == alone != {}


@pytest.mark.slow
def test_processes_with_other_source_files_are_refused_and_warnings_name_their_process(
    model, tmp_path
):
    """One host has another version of a function, which warns."""
    for package in ("engine", "launch", "configs"):
        shutil.copytree(ROOT / package, tmp_path / package)
    other, function = tmp_path / "engine/sweep/setup.py", "def _code_hash() -> str:\n"
    text = other.read_text()
    assert function in text
    warns = "    import warnings\n\n    warnings.warn('it is old')\n"
    other.write_text(text.replace(function, function + warns))
    elsewhere = ["env", f"--chdir={tmp_path}", f"PYTHONPATH={tmp_path}"]
    ended = run_to_the_end(
        "sweep",
        2,
        model,
        *SMALL,
        f"--run={tmp_path}/run",
        before=lambda index: elsewhere if index else [],
        place=processes.by_environment,
    )
    assert ended[1].err.pop(0) == f"sweep: process 1 of 2 ({socket.gethostname()}): it is old"
    pattern = rf"process 1 of 2 \({HOST}\): .*source files.*"
    assert_one_line_each(ended, 2, pattern)
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {lock.NAME}


def test_a_port_that_is_taken_is_one_line(command, model, tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        place, _ = processes.by_flags(port, 2, 0)
        done = command("sweep", model, f"--run={tmp_path}/run", *place)
    assert f"port {port}" in done.refusal()
    assert not (tmp_path / "run").exists()
