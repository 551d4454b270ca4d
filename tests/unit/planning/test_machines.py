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
        ("h100", 1, "H100-80GB", 80),
        ("2xa100-40gb", 2, "A100-40GB", 40),
        ("v5e-16", 16, "v5e", 15.75),
        ("4xv6e", 4, "v6e", 31.25),
        ("v5litepod-16", 16, "v5e", 15.75),
        ("cpu-64GB", 1, "cpu", 64),
        ("1xcpu-1.5GB", 1, "cpu", 1.5),
    ],
)
def test_devices_are_read(text, count, kind, gib):
    (devices,) = machines.parse(text)
    assert (devices.count, devices.kind.name) == (count, kind)
    assert devices.kind.memory_bytes == gib * GIB


def test_a_list_keeps_its_order():
    assert [each.name for each in machines.parse("v5e-8, cpu-8GB,H200")] == [
        "v5e-8",
        "cpu-8GB",
        "H200",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H300", "devices='H300': no such kind (meant: "),
        (
            "8xBanana",
            "devices='8xBanana': no such kind, nor can memory and speed of another be giv",
        ),
        (
            "8xMI300X",
            "devices='8xMI300X': no such kind, nor can memory and speed of another be giv",
        ),
        ("cpu-64", "devices='cpu-64'; allowed: cpu (here), or with its memory: cpu-64GB"),
        ("0xH100", "devices='0xH100': 0 devices; allowed: 1 to 100,000 devices"),
        ("v5e-0", "devices='v5e-0': 0 devices; allowed: "),
        ("999999999xL4", "devices='999999999xL4': 999,999,999 devices; allowed: "),
        ("A100", "devices='A100': which? allowed: A100-80GB, A100-40GB"),
        ("8xv5e-8", "devices='8xv5e-8'; allowed: one count, as 8xv5e or v5e-8"),
        ("H100-80GB-8", "devices='H100-80GB-8'; allowed: one count, as 8xH100-80GB"),
        ("2xcpu-64GB", "devices='2xcpu-64GB': 2 devices; allowed: 1: a CPU is one device"),
        ("cpu-0GB", "devices='cpu-0GB'; allowed: 1 to 1,000,000 GB"),
        ("cpu-1.2.3GB", "devices='cpu-1.2.3GB'; allowed: as cpu-64GB"),
        ("8 H100", "devices='8 H100'; allowed: "),
        ("-3xH100", "devices='-3xH100'; allowed: "),
        (",", "devices=','; allowed: "),
    ],
)
def test_bad_devices_are_refused_in_one_line(text, message):
    with pytest.raises(AssayError, match=re.escape(message)) as refused:
        machines.parse(text)
    assert "\n" not in str(refused.value)


def test_this_machine_has_memory_and_multiplies():
    free = machines.free_memory()
    assert 0 < free <= 2**50
    assert machines.matmul_rate((64, 64, 64)) > 1e6


def group(folder: Path, most: str, used: int, inactive: int = 0, active: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file {active}\n")


def test_the_limit_of_a_container_counts_and_caches_are_free(tmp_path):
    group(tmp_path, "1000", 400, 50, 7)
    assert machines._group_free(tmp_path, "memory.max", "memory.current", "") == 657
    group(tmp_path, "max", 400)
    assert machines._group_free(tmp_path, "memory.max", "memory.current", "") is None


def test_the_caches_of_version_1_are_those_of_the_groups_inside_too(tmp_path):
    (tmp_path / "limit").write_text("1000\n")
    (tmp_path / "usage").write_text("400\n")
    caches = "active_file 1\ninactive_file 2\ntotal_active_file 30\ntotal_inactive_file 40\n"
    (tmp_path / "memory.stat").write_text(caches)
    assert machines._group_free(tmp_path, "limit", "usage", "total_") == 670


class Accelerator:
    """What jax tells of an accelerator's memory, of which there is none here."""

    def __init__(self, used: int):
        self.used = used

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 100, "bytes_in_use": self.used}


def test_only_the_devices_of_a_mesh_are_asked_for_their_memory():
    full, empty = Accelerator(99), Accelerator(10)
    assert machines.device_memory([empty]) == 90
    assert machines.device_memory([full, empty]) == 1


def test_float16_is_slower_on_a_tpu_alone():
    v5e, h100 = machines.KINDS["v5e"], machines.KINDS["h100-80gb"]
    assert v5e.peak("float16") == pytest.approx(v5e.peak("bfloat16") / 3.1)
    assert h100.peak("float16") == h100.peak("bfloat16")


def test_a_group_that_this_process_is_in_bounds_its_memory(tmp_path):
    (tmp_path / "own").write_text("0::/jobs/mine\n")
    group(tmp_path, "3000", 1000)
    assert list(machines._group_limits(tmp_path, tmp_path / "own")) == [2000]


def test_the_disk_of_a_folder_that_is_not_there_yet_is_its_parents(tmp_path):
    disk = machines.free_disk(tmp_path / "a" / "b")
    assert disk == machines.Disk(tmp_path.stat().st_dev, disk.free) and disk.free > 0
