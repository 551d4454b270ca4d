"""The first seconds: what importing the engine and scoring once bring into a process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import engine
heavy = {"jax", "flax", "orbax", "transformers", "polars", "numpy"} & set(sys.modules)
assert not heavy, heavy
engine.AssayError
model = engine.load(sys.argv[1])
model.score("Who?", ["love"])
heavy = {"torch", "tensorflow", "matplotlib", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""

# Files of ours that a sweep may import: what a reader of the command has to know.
MOST = 60
SWEEP = """
import sys
from launch import sweep
assert sweep.main(sys.argv[1:]) == 0
ours = ("engine", "launch", "configs", "analysis", "demo")
found = [m for m in list(sys.modules.values()) if m.__name__.partition(".")[0] in ours]
print(*sorted(m.__name__ for m in found if getattr(m, "__file__", None)), sep="\\n")
"""


@pytest.mark.slow
def test_a_sweep_imports_few_files_and_none_of_search_and_analysis(checkpoint, tmp_path):
    flags = [f"--checkpoint={checkpoint().path}", f"--run={tmp_path / 'run'}"]
    flags += ["--config.prompts=greatest", "--config.self_check=1"]
    command = [sys.executable, "-c", SWEEP, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    _, *files = done.stdout.splitlines()
    assert not [name for name in files if name.startswith(("analysis", "demo", "engine.search"))]
    assert len(files) <= MOST, "\n".join(files)


@pytest.mark.slow
def test_importing_and_scoring_print_nothing_and_import_no_heavy_package(checkpoint):
    command = [sys.executable, "-c", SCRIPT, str(checkpoint().path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
