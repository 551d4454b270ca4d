"""What this machine has free: memory of devices or of the host, and disk."""

import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from jax.sharding import Mesh


def free_bytes(mesh: Mesh, platform: str) -> float:
    """Free bytes of the host of a CPU, or of the fullest local accelerator; infinite: not told."""
    if platform == "cpu":
        return free_memory()
    stats = [device.memory_stats() or {} for device in mesh.local_devices]
    return min(one.get("bytes_limit", math.inf) - one.get("bytes_in_use", 0) for one in stats)


def free_disk(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """The number of the disk that would hold a folder, and its free bytes."""
    places = (Path(folder), *Path(folder).absolute().parents)
    place = next(place for place in places if place.exists())
    return place.stat().st_dev, shutil.disk_usage(place).free


def free_memory() -> float:
    """Bytes of host memory that this process can still take; infinite where that is not known.

    A container's limit counts. What caches of files hold is free.
    """
    limits = list(_group_limits())
    if stated := re.search(r"^MemAvailable: +(\d+) kB$", _text(Path("/proc/meminfo")), re.M):
        limits.append(int(stated[1]) * 1024)
    return max(0, min(limits, default=math.inf))


def _group_limits(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Free bytes of the control groups (version 2) of this process, the innermost first."""
    inside = re.search(r"^0::/(.*)$", _text(process), re.M)
    for folder in (root / inside[1], *(root / inside[1]).parents) if inside else ():
        most, used = (_text(folder / f"memory.{name}").strip() for name in ("max", "current"))
        if most.isdigit() and used.isdigit():  # not `max`, and a folder of groups
            stat = _text(folder / "memory.stat")
            cached = re.findall(r"^(?:in)?active_file (\d+)$", stat, re.M)
            yield int(most) - int(used) + sum(map(int, cached))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
