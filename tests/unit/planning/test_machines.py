"""Devices as users name them, and what this machine has free."""

import re
from pathlib import Path

import pytest

from engine.errors import AssayError
from engine.planning import machines
from engine.planning.machines import GIB


@pytest.mark.parametrize(
    ("text", "count", "kind", "gib"),
    [
        ("8xH100-80GB", 8, "H100-80GB", 80),
        ("v5e-16", 16, "v5e", 15.75),
        ("4xv6e", 4, "v6e", 31.25),
    ],
)
def test_devices_are_read_in_the_order_of_a_list(text, count, kind, gib):
    last, devices = machines.parse(f"H200, {text}")
    assert (devices.name, devices.count, devices.kind) == (text, count, kind)
    assert devices.memory_bytes == gib * GIB and last.name == "H200"


@pytest.mark.parametrize("name", ["H300", "0xH100", "8xv5e-8", "cpu-0GB"])
def test_bad_devices_are_refused_in_one_line_that_names_all_kinds(name):
    for text in (name, f"L4,{name}"):
        said = f"devices='{name}'; allowed: [<count>x]<kind> or <TPU>-<chips>, with a kind of B200"
        with pytest.raises(AssayError, match=f"^{re.escape(said)}.*A100-80GB, A100-40GB.*$"):
            machines.parse(text)
    with pytest.raises(AssayError, match=r"^devices=','; allowed: "):
        machines.parse(",")


@pytest.mark.parametrize(
    ("kind", "dtype", "tera"),
    [
        ("v5e", "bfloat16", 197),
        ("v5e", "float16", 197 / 3),  # it has no units for it
        ("v5e", "float32", 197 / 6),
        ("cpu-64gb", "float32", 0.64),
        ("cpu-64gb", "bfloat16", None),
    ],
)
def test_the_peak_follows_from_the_kind_and_the_dtype(kind, dtype, tera):
    peak = machines.parse(kind)[0].peaks.get(dtype)
    assert peak == (None if tera is None else pytest.approx(tera * 1e12))


def group(folder: Path, most: str, used: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    caches = "anon 5\nactive_file 1\ninactive_file 2\n"
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(caches)


def test_a_group_that_this_process_is_in_bounds_its_memory(tmp_path):
    (tmp_path / "own").write_text("0::/jobs/mine\n")
    group(tmp_path, "3000", 1000)
    assert list(machines._group_limits(tmp_path, tmp_path / "own")) == [2003]
    assert 0 < machines.free_memory() <= 2**50


def test_all_that_is_free_here_may_be_used_and_of_a_stated_cpu_nine_tenths():
    here, stated = machines.parse("cpu,cpu-10GB")
    assert here.usable_bytes == here.memory_bytes
    assert stated.usable_bytes == 9 * 2**30
