"""Compiled programs on disk: where they are, and that no state of the folder breaks a command."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from engine import programs

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
)
pytestmark = pytest.mark.slow  # `make test` stays near five minutes
PROGRAMS = """
import jax, jax.numpy as jnp
from engine import programs
programs.enable_cache()
for n in range(8):
    print(n, jax.jit(lambda x: jnp.sin(x) * n)(jnp.arange(4.0)).sum(), flush=True)
"""


def folder():
    """The cache folder that jax was given."""
    return jax.config.values["jax_compilation_cache_dir"]


@pytest.fixture
def enabled(monkeypatch, tmp_path):
    """Environment variables (None: not set) -> the cache folder that jax was given."""
    before = {name: jax.config.values[name] for name in SETTINGS}

    def enable(**environment):
        defaults = {"ASSAY_CACHE": None, "XDG_CACHE_HOME": None, "HOME": str(tmp_path)}
        for name, value in (defaults | environment).items():
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, str(value))
        jax.config.update("jax_compilation_cache_dir", None)
        programs.enable_cache()
        return folder()

    yield enable
    for name, value in before.items():
        jax.config.update(name, value)


def printed(cache):
    """Standard output of a process that compiles programs, ends well and says nothing else."""
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    kept |= {"PYTHONPATH": str(ROOT), "ASSAY_CACHE": str(cache)}
    kept |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", PROGRAMS]
    done = subprocess.run(command, env=kept, text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def entries(cache):
    return {path.name: path.read_bytes() for path in (cache / "compiled").glob("*-cache")}


def test_the_folder_is_in_the_users_cache_by_default(enabled, tmp_path):
    assert enabled() == f"{tmp_path}/.cache/assay/compiled"
    assert Path(folder()).stat().st_mode & 0o077 == 0  # nobody else can write what is run
    assert enabled(XDG_CACHE_HOME=tmp_path / "xdg") == f"{tmp_path}/xdg/assay/compiled"
    assert enabled(ASSAY_CACHE=tmp_path / "own") == f"{tmp_path}/own/compiled"


def test_its_size_is_bounded_by_us_or_by_the_user(enabled):
    enabled()
    assert jax.config.values["jax_compilation_cache_max_size"] == 2 * 1024**3
    jax.config.update("jax_compilation_cache_max_size", 20_000)
    enabled(JAX_COMPILATION_CACHE_MAX_SIZE="20000")
    assert jax.config.values["jax_compilation_cache_max_size"] == 20_000


def test_an_empty_name_or_a_folder_that_cannot_be_made_turns_it_off(enabled, tmp_path):
    assert enabled(ASSAY_CACHE="") is None
    assert list(tmp_path.iterdir()) == []
    assert enabled(HOME="/dev/null") is None


def test_a_second_process_compiles_nothing_but_damaged_entries_and_says_no_word(tmp_path):
    """Truncated, garbled and empty ones; every fourth is whole."""
    first = printed(tmp_path)
    whole = entries(tmp_path)
    assert len(first) == 8 <= len(whole)
    for index, (name, data) in enumerate(whole.items()):
        damaged = (data[: len(data) // 2], data[::-1], b"", data)[index % 4]
        (tmp_path / "compiled" / name).write_bytes(damaged)
    assert printed(tmp_path) == first
    assert set(entries(tmp_path)) == set(whole)
