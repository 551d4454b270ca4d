"""`assay` as a shell sees it: its commands, its version, locks, closed pipes, and folders."""

import os
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from engine.runs import lock
from launch.__main__ import COMMANDS, main
from tests.support import runs

LAUNCH = Path(__file__).resolve().parents[2] / "launch"


def test_without_a_command_it_lists_every_module_of_launch_with_one_line(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:-2]] == list(COMMANDS)
    assert {*COMMANDS} == {path.stem for path in LAUNCH.glob("[!_]*.py")} - {"pipeline"}


def test_listing_the_commands_imports_no_jax():
    code = "import sys; from launch.__main__ import main; main([]); sys.exit('jax' in sys.modules)"
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, "-c", code], cwd=LAUNCH.parent, stdout=quiet, check=True)


def test_the_search_has_two_names(capsys):
    shown = [(main([name, "--help"]), capsys.readouterr().out) for name in ("gcg", "search")]
    assert shown[0] == shown[1] and shown[0][0] == 0


def test_the_version_is_that_of_the_installed_package(capsys):
    try:
        expected = (0, f"assay {version('assay-rewards')}\n", "")
    except PackageNotFoundError:
        expected = (2, "", "assay: not installed; `pip install -e .` installs it\n")
    assert (main(["--version"]), *capsys.readouterr()) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        ([], 0, rb"[--flag=value \u2026]", b""),
        (["models", "--n\xe9e=x"], 2, b"", b"models: argument"),
    ],
)
def test_a_terminal_without_unicode_gets_escapes(tmp_path, arguments, code, out, err):
    posix = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    path = os.pathsep.join([str(LAUNCH.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "launch", *(argument.encode() for argument in arguments)],
        env={**os.environ, **posix, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == code
    assert out in done.stdout
    assert err in done.stderr
    assert b"Traceback" not in done.stderr
    assert (done.stdout + done.stderr).isascii()


def test_of_two_commands_on_one_run_the_second_is_refused_or_waits(command, checkpoint, tmp_path):
    run = tmp_path / "run"
    flags = (f"--checkpoint={checkpoint().path}", f"--run={run}", "--config.prompts=greatest")
    held, done = threading.Event(), threading.Event()

    def score():
        with lock.hold(str(run), "score"):
            held.set()
            done.wait()

    threading.Thread(target=score).start()
    held.wait()
    refused = command("sweep", *flags).refusal()
    assert f"run {run}: " in refused and f"`assay score` on {os.uname().nodename}" in refused
    assert f"process {os.getpid()}" in refused
    threading.Timer(0.5, done.set).start()
    waited = command("sweep", *flags, "--wait").fine()
    assert waited.out[-1].endswith("288 new rewards") and "`assay score`" in waited.err[0]
    assert not (run / ".lock").exists()


IN_A_FOLDER = """
import sys
from launch import analyze, convert, sweep
folder, checkpoint, source, run = sys.argv[1:]
assert sweep.main([f"--checkpoint={checkpoint}", f"--run={folder}/run"]) == 2
assert convert.main([f"--source={source}", f"--checkpoint={folder}/checkpoint"]) == 2
assert analyze.main([f"--run={run}", f"--report={folder}/report"]) == 2
"""


@pytest.mark.slow
def test_folders_that_cannot_be_written_are_one_line_each(checkpoint, tmp_path):
    """On a file system that is mounted read-only: root may write into any other folder."""
    folder, model = tmp_path / "disk", checkpoint().path
    folder.mkdir()
    inputs = [model, model.parent / "hf", runs.small_run(tmp_path / "run")]
    mounted = f'mount -t tmpfs -o ro none {folder} && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mounted, "sh", sys.executable, "-c", IN_A_FOLDER]
    done = subprocess.run(
        [*command, folder, *inputs], cwd=LAUNCH.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [line for line in done.stderr.splitlines() if "Read-only" in line] == [
        f"sweep: run {folder}/run: Read-only file system",
        f"convert: checkpoint {folder}/checkpoint: Read-only file system",
        f"analyze: {folder}/report: Read-only file system; choose another folder",
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flag", ["--json", "--help"])
def test_a_full_standard_output_is_one_line(flag):
    command = [sys.executable, "-m", "launch.models", flag]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=LAUNCH.parent, stdout=full, stderr=-1, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr == "models: standard output: No space left on device\n"


def test_a_reader_that_stops_early_is_no_error():
    """As `python -m launch.models | head -1` is one."""
    command = [sys.executable, "-m", "launch.models"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=LAUNCH.parent, text=True, **pipes) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)
