"""Commands as several processes on this machine: what they compute, and what they refuse."""

import shutil
import socket

import pytest

from launch import sweep
from tests.support import processes
from tests.support.processes import (
    HOST,
    ROOT,
    SMALL,
    assert_one_line_each,
    assert_quiet_but_for_the_first,
    bytes_of,
    run_to_the_end,
)


@pytest.fixture
def checkpoints(checkpoint):
    """Kind -> flag: a reward model, and a language model."""
    kinds = {"reward": checkpoint(), "language": checkpoint("lm", head="lm")}
    return {kind: f"--checkpoint={one.path}" for kind, one in kinds.items()}


@pytest.fixture
def items(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("love\nwar and love\nthe truth\nlove\n")
    return path


# --- Same results -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept_by_one(checkpoint, tmp_path_factory):
    """Flags of a sweep, and the files that one process writes: this one, on its four devices."""
    flags = [f"--checkpoint={checkpoint().path}", *SMALL, "--config.prompts=greatest"]
    folder = tmp_path_factory.mktemp("one")
    assert sweep.main([*flags, f"--run={folder}"]) == 0
    files = bytes_of(folder)
    assert len(files) == 4
    return flags, files


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        processes.by_flags,
        processes.by_environment,
        processes.by_slurm,
        processes.by_open_mpi,
    ],
)
def test_a_sweep_of_two_processes_writes_what_one_writes(swept_by_one, tmp_path, place):
    flags, files = swept_by_one
    ended = run_to_the_end("sweep", 2, *flags, f"--run={tmp_path}/two", place=place)
    assert_quiet_but_for_the_first(ended)
    assert ended[0].out == [f"{tmp_path}/two/scores: 1 model × 1 prompt, 288 new rewards"]
    assert bytes_of(tmp_path / "two") == files


CASES = {
    "sweep": ("reward", [*SMALL, "--config.mode=text"]),
    "score": ("reward", [*SMALL]),
    "logprobs": ("language", [*SMALL]),
    "search": (
        "reward",
        [
            "--config.length=3",
            "--config.steps=4",
            "--config.candidates=16",
            "--config.topk=8",
        ],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_command_writes_with_2_and_4_processes_what_it_writes_with_one(
    command, checkpoints, items, tmp_path, name
):
    kind, own = CASES[name]
    flags = [checkpoints[kind], *own, "--config.prompts=greatest"]
    flags += [f"--items={items}"] if name == "score" else []
    assert command(name, *flags, f"--run={tmp_path}/1").code == 0
    assert len(bytes_of(tmp_path / "1")) > 0
    # Two processes sweep in the test above.
    for count in (4,) if name == "sweep" else (2, 4):
        ended = run_to_the_end(name, count, *flags, f"--run={tmp_path}/{count}")
        assert_quiet_but_for_the_first(ended)
        assert bytes_of(tmp_path / str(count)) == bytes_of(tmp_path / "1")
    if name != "sweep":  # one path for all of them
        return
    again = run_to_the_end(name, 2, *flags, f"--run={tmp_path}/4")
    assert_quiet_but_for_the_first(again)
    assert "complete already" in again[0].out[0]


@pytest.mark.slow
def test_a_universal_search_of_two_processes_writes_what_one_writes(
    command, checkpoints, stranger, tmp_path
):
    """Also with a model of another tokenizer, which reads the text."""
    flags = [f"{checkpoints['reward']},{stranger.path}", "--config.prompts=greatest,best"]
    flags += ["--config.universal=mean"]
    flags += ["--config.length=2", "--config.steps=2", "--config.candidates=16", "--config.topk=8"]
    flags += ["--config.direction=max", "--config.transfer=False"]
    assert command("search", *flags, f"--run={tmp_path}/1").code == 0
    assert len(bytes_of(tmp_path / "1")) == 4  # of two judges, and two vocabularies
    ended = run_to_the_end("search", 2, *flags, f"--run={tmp_path}/2")
    assert_quiet_but_for_the_first(ended)
    assert bytes_of(tmp_path / "2") == bytes_of(tmp_path / "1")


# --- Refusals ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_with_other_inputs_are_refused(checkpoint, tmp_path):
    def own(index):
        return [f"--checkpoint={checkpoint(**({'head_seed': 1} if index else {})).path}"]

    ended = run_to_the_end("sweep", 2, *SMALL, f"--run={tmp_path}/run", own=own)
    pattern = (
        rf"process 1 of 2 \({HOST}\): its checkpoints differ from those of process 0 \({HOST}\)"
    )
    assert_one_line_each(ended, 2, pattern)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_with_other_source_files_are_refused_and_warnings_name_their_process(
    checkpoints, tmp_path
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
        checkpoints["reward"],
        *SMALL,
        f"--run={tmp_path}/run",
        before=lambda index: elsewhere if index else [],
    )
    assert ended[1].err.pop(0) == f"sweep: process 1 of 2 ({socket.gethostname()}): it is old"
    pattern = rf"process 1 of 2 \({HOST}\): its source files differ from those of process 0 .*"
    assert_one_line_each(ended, 2, pattern)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_that_make_other_tokens_of_a_prompt_are_refused(checkpoint, tmp_path):
    """The chat template was edited on one host, and nobody verifies it."""
    ours, edited = checkpoint().path, tmp_path / "edited"
    shutil.copytree(ours, edited)
    template = edited / "tokenizer/chat_template.jinja"
    template.write_text("Now: " + template.read_text())
    flags = [*SMALL, "--config.prompts=greatest", "--config.verify=false"]
    ended = run_to_the_end(
        "sweep",
        2,
        *flags,
        f"--run={tmp_path}/run",
        own=lambda index: [f"--checkpoint={edited if index else ours}"],
    )
    what = "inputs of scores/model=tiny/prompt=greatest"
    pattern = rf"process 1 of 2 \({HOST}\): its {what} differ from those of process 0 .*"
    assert_one_line_each(ended, 2, pattern)
    assert not list(tmp_path.glob("run/**/*.parquet"))


@pytest.mark.slow
def test_run_folders_that_are_not_shared_are_refused(checkpoints, tmp_path):
    ended = run_to_the_end(
        "sweep", 2, checkpoints["reward"], *SMALL, own=lambda i: [f"--run={tmp_path}/{i}/run"]
    )
    pattern = rf"process 1 of 2 \({HOST}\): run {tmp_path}/1/run: not the folder that process 0 .*"
    assert_one_line_each(ended, 2, pattern)
    assert list(tmp_path.rglob("run")) == []


def test_values_that_are_wrong_are_one_line(command, checkpoints, tmp_path):
    flags = [checkpoints["reward"], f"--run={tmp_path}/run"]
    done = command("sweep", *flags, "--coordinator=here", "--processes=2", "--process=0")
    assert (done.code, done.out) == (2, [])
    assert done.err == ["sweep: coordinator 'here'; allowed: host:port"]
    done = command("sweep", *flags, "--coordinator=here:1234", "--processes=2", "--process=2")
    assert done.err == ["sweep: process 2 of 2; allowed: 0 to the number of processes - 1"]
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        place, _ = processes.by_flags(port, 2, 0)
        done = command("sweep", *flags, *place)
    assert (done.code, done.out) == (2, [])
    assert done.err == [
        f"sweep: port {port}, the coordinator's: Address already in use; "
        "allowed: a coordinator whose port is free"
    ]
    assert not (tmp_path / "run").exists()
