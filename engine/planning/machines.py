"""Devices as users name them, with memory and peak as their makers state; what is free here."""

import dataclasses
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from engine import processes
from engine.errors import AssayError

GIB = 2**30
# Share of its peak that a sweep is assumed to reach; on accelerators it was measured nowhere.
SHARES = {"cpu": 0.9, "gpu": 0.5, "tpu": 0.5}
# Share of the memory that a program may take. Of a GPU, jax takes 75 % by default
# (XLA_PYTHON_CLIENT_MEM_FRACTION); the memory of a TPU is what its compiler says it may take.
_USABLE = {"cpu": 0.9, "gpu": 0.75, "tpu": 1.0}
_CORE_PEAK = 80e9  # float32 FLOP/s of a CPU's core, assumed
# GiB of memory; TFLOP/s of matmuls in 16 bits, and in float32 without lower precision inside, which
# takes a TPU six passes of 16 bits.
_KINDS: dict[str, tuple[str, float, float, float]] = {
    "B200-180GB": ("gpu", 180, 2250, 80),
    "H200-141GB": ("gpu", 141, 989, 67),
    "H100-80GB": ("gpu", 80, 989, 67),
    "A100-80GB": ("gpu", 80, 312, 19.5),
    "A100-40GB": ("gpu", 40, 312, 19.5),
    "L40S-48GB": ("gpu", 48, 362, 91.6),
    "L4-24GB": ("gpu", 24, 121, 30.3),
    "RTX4090-24GB": ("gpu", 24, 165, 82.6),
    "v4": ("tpu", 31.25, 275, 275 / 6),
    "v5e": ("tpu", 15.75, 197, 197 / 6),
    "v5p": ("tpu", 95.74, 459, 459 / 6),
    "v6e": ("tpu", 31.25, 918, 918 / 6),
}
_SAID_BY_JAX = {"tpu v5 lite": "v5e", "tpu v6 lite": "v6e", "tpu v5": "v5p"}
_ALLOWED = (
    "allowed: [<count>x]<kind> or <TPU>-<chips>, with a kind of "
    f"{', '.join(_KINDS)}; cpu (here), cpu-<n>GB"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """Some devices of one kind."""

    name: str  # as a user names them
    count: int
    kind: str  # in `_KINDS`, or `cpu`
    platform: str  # `cpu`, `gpu` or `tpu`
    memory_bytes: float  # of one device
    usable_bytes: int  # that a program may take
    peaks: Mapping[str, float]  # dtype -> FLOP/s of dense matmuls, where it is known
    source: str  # whose number the peak is


def parse(text: str) -> list[Devices]:
    """Devices of a list such as `8xH100-80GB,v5e-16,cpu-64GB,cpu`.

    A number before `x` counts devices; behind the name of a TPU it counts chips. `cpu` is this
    machine, `cpu-64GB` another one with so much memory.

    Raises:
      AssayError: an unknown name, no devices, or another form.
    """
    devices = [_parse_one(name.strip()) for name in text.split(",") if name.strip()]
    if not devices:
        raise AssayError(f"devices={text!r}; {_ALLOWED}")
    return devices


def here() -> str:
    """This machine's devices, as `parse` takes them; raises AssayError for an unknown kind."""
    device, count = jax.devices()[0], jax.device_count()
    if device.platform == "cpu":
        return "cpu"
    said = device.device_kind.lower()
    words = re.split("[^a-z0-9]+", _SAID_BY_JAX.get(said, said))
    memory = (device.memory_stats() or {}).get("bytes_limit", math.inf)
    alike = [kind for kind in _KINDS if kind.lower().split("-")[0] in words]
    if not alike:
        kind = device.device_kind
        raise AssayError(f"devices: {kind!r} is here, which is not known; {_ALLOWED} as --devices")
    of = {kind: parse(f"{count}x{kind}")[0] for kind in alike}
    return min(of.values(), key=lambda one: abs(one.usable_bytes - memory)).name


def _parse_one(name: str) -> Devices:
    if cpu := re.fullmatch(r"cpu(?:-([1-9]\d{0,5})gb)?", name.lower()):
        return _cpu(name, cpu[1])
    form = re.fullmatch(r"(v\w+)-([1-9]\d{0,4})|(?:([1-9]\d{0,4})x)?([\w-]+)", name.lower())
    said = form and (form[1] or form[4])
    kinds = [k for k in _KINDS if said in (k.lower(), k.partition("-")[0].lower())]
    if not form or len(kinds) != 1:  # of `A100` there are two
        raise AssayError(f"devices={name!r}; {_ALLOWED}")
    platform, gib, half, single = _KINDS[kinds[0]]
    slower = 3 if platform == "tpu" else 1  # TPUs have no matrix units for float16
    return Devices(
        name=name,
        count=int(form[2] or form[3] or 1),
        kind=kinds[0],
        platform=platform,
        memory_bytes=gib * GIB,
        usable_bytes=int(gib * GIB * _USABLE[platform]),
        peaks={"bfloat16": half * 1e12, "float16": half * 1e12 / slower, "float32": single * 1e12},
        source="its maker's, dense",
    )


def _cpu(name: str, gib: str | None) -> Devices:
    """A CPU, by default this one; its peak is assumed, and not known in bfloat16."""
    memory = float(gib) * GIB if gib else free_memory()
    if memory == math.inf:
        raise AssayError("devices='cpu': this system does not tell its memory; allowed: cpu-<n>GB")
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cores = 8 if gib else len(affinity(0)) if affinity else os.cpu_count() or 1
    return Devices(
        name=name,
        count=1,
        kind="cpu",
        platform="cpu",
        memory_bytes=memory,
        usable_bytes=int(memory * (_USABLE["cpu"] if gib else 1)),  # what is free here is free
        peaks=dict.fromkeys(("float16", "float32"), cores * _CORE_PEAK),
        source=f"assumed: {cores} cores of {_CORE_PEAK / 1e9:.0f} GFLOP/s",
    )


class DeviceRoom(NamedTuple):
    """The devices that models are to be loaded on, and their free memory."""

    platform: str  # `cpu`, `gpu` or `tpu`
    data: int = 1  # devices along the mesh axis `data`
    model: int = 1  # devices along the mesh axis `model`
    usable: float = math.inf  # bytes of a device, or of the host of a CPU; infinite: not known

    @classmethod
    def of(cls, mesh: Mesh) -> "DeviceRoom":
        """This machine; of several processes, that of process 0."""
        platform = mesh.devices.flat[0].platform
        usable = processes.from_first("free memory", lambda: _usable(mesh, platform))
        known = platform if platform in SHARES else "gpu"
        return cls(known, mesh.shape["data"], mesh.shape["model"], usable)


def _usable(mesh: Mesh, platform: str) -> float:
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
