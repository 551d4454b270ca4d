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
for n in range(30):
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


def start(cache, **environment):
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    kept |= {"PYTHONPATH": str(ROOT), "ASSAY_CACHE": str(cache)}
    kept |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"} | environment
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAMS],
        env=kept,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(process):
    """Standard output of a process that ended well and said nothing else."""
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def entries(cache):
    return {path.name: path.read_bytes() for path in (cache / "compiled").glob("*-cache")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that one process filled, and what that process printed."""
    cache = tmp_path_factory.mktemp("filled")
    printed = finished(start(cache))
    assert len(printed) == 30 and len(entries(cache)) >= 30
    return cache, printed


def test_the_folder_is_in_the_users_cache_by_default(enabled, tmp_path):
    assert enabled() == f"{tmp_path}/.cache/assay/compiled"
    assert Path(folder()).stat().st_mode & 0o077 == 0  # nobody else can write what is run
    assert enabled(XDG_CACHE_HOME=tmp_path / "xdg") == f"{tmp_path}/xdg/assay/compiled"
    assert enabled(ASSAY_CACHE=tmp_path / "own") == f"{tmp_path}/own/compiled"


def test_an_empty_name_or_a_folder_that_cannot_be_made_turns_it_off(enabled, tmp_path):
    assert enabled(ASSAY_CACHE="") is None
    assert list(tmp_path.iterdir()) == []
    assert enabled(HOME="/dev/null") is None


def test_a_folder_that_the_user_gave_jax_is_kept(enabled, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    programs.enable_cache()
    assert folder() == str(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_entries_whose_writer_was_killed_are_removed(enabled, tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in ("half-cache", "whole-cache", "whole-atime"):
        (folder / name).write_bytes(b"12345678")
    enabled(ASSAY_CACHE=tmp_path)
    assert sorted(p.name for p in folder.glob("*-*")) == ["whole-atime", "whole-cache"]


def test_a_second_process_compiles_nothing_that_the_first_did(filled):
    cache, printed = filled
    before = entries(cache)
    assert finished(start(cache)) == printed
    assert entries(cache) == before


def test_damaged_entries_are_compiled_again_without_a_word(filled):
    """Truncated, garbled and empty ones, of each a third."""
    cache, printed = filled  # damaged in place: the key of an entry names its folder
    whole = entries(cache)
    for index, (name, data) in enumerate(whole.items()):
        damaged = (data[: len(data) // 2], data[::-1], b"")[index % 3]
        (cache / "compiled" / name).write_bytes(damaged)
    try:
        assert finished(start(cache)) == printed
        assert set(entries(cache)) == set(whole)
    finally:
        for name, data in whole.items():
            (cache / "compiled" / name).write_bytes(data)


def test_the_size_is_bounded(filled, tmp_path):
    _, printed = filled
    assert finished(start(tmp_path, JAX_COMPILATION_CACHE_MAX_SIZE="20000")) == printed
    kept = entries(tmp_path)
    assert kept and sum(map(len, kept.values())) <= 20000
