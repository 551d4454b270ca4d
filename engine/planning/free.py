"""Memory and disk that this machine has free."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

# Control groups of versions 2 and 1: files of the limit and of what is used, and what the names of
# their caches begin with.
_VERSION_2 = ("memory.max", "memory.current", "")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


class Disk(NamedTuple):
    """A file system."""

    number: int
    free: int  # bytes


def free_memory() -> int | None:
    """Bytes of host memory that this process can still take; None where that is not known.

    A container's limit counts. What caches of files hold is free.
    """
    limits = list(_group_limits())
    if stated := re.search(r"^MemAvailable: +(\d+) kB$", _text(Path("/proc/meminfo")), re.M):
        limits.append(int(stated[1]) * 1024)
    return max(0, min(limits)) if limits else None


def device_memory(devices: Sequence[jax.Device]) -> int | None:
    """Free bytes of the fullest of some local accelerators; None where a runtime does not tell."""
    stats = [device.memory_stats() or {} for device in devices]
    if not all("bytes_limit" in one for one in stats):
        return None
    return min(int(one["bytes_limit"]) - int(one.get("bytes_in_use", 0)) for one in stats)


def free_disk(folder: str | os.PathLike[str]) -> Disk | None:
    """The disk that would hold a folder; None where that is not known."""
    places = (Path(folder), *Path(folder).absolute().parents)
    place = next(place for place in places if place.exists())
    try:
        return Disk(place.stat().st_dev, shutil.disk_usage(place).free)
    except OSError:
        return None


def _group_limits(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Free bytes of the control groups that this process is in, from the innermost to the root."""
    for line in _text(process).splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, names = (root / "memory", _VERSION_1) if controllers else (root, _VERSION_2)
        innermost = base / inside.lstrip("/")
        for folder in (innermost, *innermost.parents):
            if folder.is_relative_to(base) and (free := _group_free(folder, *names)) is not None:
                yield free


def _group_free(folder: Path, limit: str, usage: str, total: str) -> int | None:
    """Free bytes of one control group; `total` begins the names of its caches."""
    most, used = (_text(folder / name).strip() for name in (limit, usage))
    if not most.isdigit() or not used.isdigit():  # `max`, or no such file
        return None
    pattern = rf"^{total}(?:in)?active_file (\d+)$"
    cached = re.findall(pattern, _text(folder / "memory.stat"), re.M)
    return int(most) - int(used) + sum(map(int, cached))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
