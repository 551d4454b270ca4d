"""`assay`: its list of commands, its version, and what it says of a misspelt command."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from launch.__main__ import COMMANDS, main

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


@pytest.mark.parametrize("name", ["gcg", "search"])
def test_the_search_has_two_names(capsys, name):
    assert main([name, "--help"]) == 0
    assert "rate highest and lowest" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "near"),
    [("swep", " (did you mean 'sweep'?)"), ("gcgg", " (did you mean 'gcg'?)"), ("zzz", "")],
)
def test_a_misspelt_command_is_one_line(capsys, name, near):
    assert main([name, "--run=out"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"assay: {name!r} is no command{near}; `assay` lists them\n")


def test_the_version_is_that_of_the_installed_package(capsys):
    try:
        expected = (0, f"assay {version('assay')}\n", "")
    except PackageNotFoundError:
        expected = (2, "", "assay: not installed; `pip install -e .` installs it\n")
    assert (main(["--version"]), *capsys.readouterr()) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        ([], 0, rb"[--flag=value \u2026]", b""),
        (["zz\xeb"], 2, b"", rb"' is no command; `assay` lists them"),
        (
            ["import_scores", "--source=n\xe9e.csv", "--layout=elo", "--run=r"],
            2,
            b"",
            b"import_sco",
        ),
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
