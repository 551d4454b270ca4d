"""`make test-device` says which device is tested, and tests nothing but what was asked for."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.support.tolerances import TOLERANCES

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k not in ("COMPILE", "DEVICE")}
    return subprocess.run(
        [sys.executable, "-m", "tests.support.device", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_the_first_line_names_the_device_and_the_tolerances():
    done = run("cpu", "-n", "0", "-p", "no:cacheprovider", "-k", "full_precision and qwen3")
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"parity tests on cpu (cpu), jax {jax.__version__}; ")
    assert all(f"{dtype} {allowed:.1e}" in first for dtype, allowed in TOLERANCES.items())
    assert done.returncode == 0 and "1 passed" in rest[-1], done.stdout


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="needs a machine without accelerators")
def test_without_an_accelerator_nothing_is_tested():
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("parity tests: no accelerator, JAX sees only the CPU")
    assert done.stderr.count("\n") == 1


def test_another_device_is_refused():
    done = run("gpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "DEVICE='gpu'; allowed: 'cpu', 'accelerator'\n"
