"""`assay` as a shell sees it: its commands, its version, locks, closed pipes, and folders."""

import errno
import os
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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


def test_a_terminal_without_unicode_gets_escapes():
    posix = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "launch"]
    done = subprocess.run(
        command, env={**os.environ, **posix}, cwd=LAUNCH.parent, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"[--flag=value \u2026]" in done.stdout and done.stdout.isascii()


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


def test_folders_that_cannot_be_written_are_one_line_each(
    command, checkpoint, tmp_path, monkeypatch
):
    """As on a file system that is mounted read-only: root may write into any other folder."""
    folder, model, make = tmp_path / "disk", checkpoint().path, os.mkdir

    def refuse(path, *mode, **how):
        if str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return make(path, *mode, **how)

    inputs = runs.small_run(tmp_path / "run")
    monkeypatch.setattr(os, "mkdir", refuse)
    flags = [f"--checkpoint={model}", f"--run={folder}/run"]
    assert command("sweep", *flags).refusal() == f"sweep: run {folder}/run: Read-only file system"
    flags = [f"--source={model.parent / 'hf'}", f"--checkpoint={folder}/checkpoint"]
    line = f"convert: checkpoint {folder}/checkpoint: Read-only file system"
    assert command("convert", *flags).err[-1] == line
    flags = [f"--run={inputs}", f"--report={folder}/report"]
    line = f"analyze: {folder}/report: Read-only file system; choose another folder"
    assert command("analyze", *flags).err[-1] == line


def test_a_full_standard_output_is_one_line():
    command = [sys.executable, "-m", "launch.models", "--json"]
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
