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
_MOST = 100_000  # devices that a specification may name
# Share of the peak that a sweep is assumed to reach. On accelerators it was measured nowhere; the
# compiler of TPUs estimates 22 to 74 % for the listed models (docs/compiled-programs-tpu.md). On
# the CPU that `_CORE_PEAK` was measured on, a sweep reached 92 % of it.
SHARES = {"cpu": 0.9, "gpu": 0.5, "tpu": 0.5}
# Share of the memory that a program may take. Of a GPU, jax takes 75 % by default
# (XLA_PYTHON_CLIENT_MEM_FRACTION); the memory of a TPU is what its compiler says it may take.
_USABLE = {"cpu": 0.9, "gpu": 0.75, "tpu": 1.0}
_CORE_PEAK, _CORES = 80e9, 8  # float32 FLOP/s of a CPU's core; cores of a CPU that is not here
_SOURCES = {
    "gpu": "data sheet, dense, SXM where there are several forms",
    "tpu": "Google Cloud's page of the TPU, by chip",
}
# GiB of memory; TFLOP/s of matmuls in 16 bits, and in float32 without lower precision inside.
_KINDS: dict[str, tuple[str, float, float, float]] = {
    "B200-180GB": ("gpu", 180, 2250, 80),
    "H200-141GB": ("gpu", 141, 989, 67),
    "H100-80GB": ("gpu", 80, 989, 67),
    "A100-80GB": ("gpu", 80, 312, 19.5),
    "A100-40GB": ("gpu", 40, 312, 19.5),
    "L40S-48GB": ("gpu", 48, 362, 91.6),
    "L4-24GB": ("gpu", 24, 121, 30.3),
    "T4-16GB": ("gpu", 16, 65, 8.1),
    "RTX4090-24GB": ("gpu", 24, 165, 82.6),
    # Their float32 matmuls take six passes of 16 bits ("highest" precision).
    "v4": ("tpu", 31.25, 275, 275 / 6),
    "v5e": ("tpu", 15.75, 197, 197 / 6),
    "v5p": ("tpu", 95.74, 459, 459 / 6),
    "v6e": ("tpu", 31.25, 918, 918 / 6),
}
# Names of kinds in lower case; the memory may be missing where it is clear.
_NAMES = {kind.partition("-")[0].lower(): kind for kind in _KINDS if "A100" not in kind}
_NAMES |= {kind.lower(): kind for kind in _KINDS} | {"v5litepod": "v5e"}
_SAID_BY_JAX = {"tpu v5 lite": "v5e", "tpu v6 lite": "v6e", "tpu v5": "v5p"}
_ALLOWED = (
    "allowed: [<count>x]<kind> or <TPU>-<chips>, with a kind of "
    f"{', '.join(_KINDS)}, cpu (here), cpu-<n>GB; one CPU, or up to {_MOST:,} others"
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
    # Dtype -> FLOP/s of dense matmuls at the peak; without those that are not known.
    peaks: Mapping[str, float]
    source: str  # where the numbers come from


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


def here() -> list[Devices]:
    """The devices of this machine; raises AssayError where their kind is not known."""
    device, count = jax.devices()[0], jax.device_count()
    if device.platform == "cpu":
        return parse("cpu")
    said = device.device_kind.lower()
    words = re.split("[^a-z0-9]+", _SAID_BY_JAX.get(said, said))
    memory = (device.memory_stats() or {}).get("bytes_limit", math.inf)
    alike = [kind for kind in _KINDS if kind.lower().split("-")[0] in words]
    if not alike:
        raise AssayError(
            f"devices: {device.device_kind!r} is here, whose memory and speed are not known; "
            f"{_ALLOWED} as --devices"
        )
    named = [_accelerators(f"{count}x{kind}", count, kind) for kind in alike]
    return [min(named, key=lambda one: abs(one.usable_bytes - memory))]


def _parse_one(name: str) -> Devices:
    if cpu := re.fullmatch(r"(?:1x)?cpu(?:-([1-9]\d{0,5}(?:\.\d+)?)gb)?", name.lower()):
        return _cpu(name, cpu[1])
    form = re.fullmatch(r"(v\w+)-(\d+)|(?:(\d+)x)?([\w-]+)", name.lower())
    kind, count = (form[1] or form[4], int(form[2] or form[3] or 1)) if form else ("", 0)
    if kind not in _NAMES or not 1 <= count <= _MOST:
        raise AssayError(f"devices={name!r}; {_ALLOWED}")
    return _accelerators(name, count, _NAMES[kind])


def _accelerators(name: str, count: int, kind: str) -> Devices:
    platform, gib, half, single = _KINDS[kind]
    slower = 3 if platform == "tpu" else 1  # TPUs have no matrix units for float16
    return Devices(
        name=name,
        count=count,
        kind=kind,
        platform=platform,
        memory_bytes=gib * GIB,
        usable_bytes=int(gib * GIB * _USABLE[platform]),
        peaks={"bfloat16": half * 1e12, "float16": half * 1e12 / slower, "float32": single * 1e12},
        source=_SOURCES[platform],
    )


def _cpu(name: str, gib: str | None) -> Devices:
    """A CPU, by default this one, which multiplies float16 in float32.

    Its peak is assumed; in bfloat16, which depends on its instructions, none is.
    """
    if gib:
        memory, share, cores, source = float(gib) * GIB, _USABLE["cpu"], _CORES, "stated memory"
    elif (free := free_memory()) is None:
        raise AssayError("devices='cpu': this system does not tell its memory; allowed: cpu-<n>GB")
    else:
        affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        memory, share, source = free, 1.0, "free memory of this machine"
    return Devices(
        name=name,
        count=1,
        kind="cpu",
        platform="cpu",
        memory_bytes=memory,
        usable_bytes=int(memory * share),
        peaks=dict.fromkeys(("float16", "float32"), cores * _CORE_PEAK),
        source=f"{source}; assumed: {cores} cores of {_CORE_PEAK / 1e9:.0f} GFLOP/s",
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
    """Free bytes of the host of a CPU, or of the fullest local accelerator, where it tells them."""
    if platform == "cpu":
        free = free_memory()
        return math.inf if free is None else free
    stats = [device.memory_stats() or {} for device in mesh.local_devices]
    if not all("bytes_limit" in one for one in stats):
        return math.inf
    return min(int(one["bytes_limit"]) - int(one.get("bytes_in_use", 0)) for one in stats)


class Disk(NamedTuple):
    """A file system."""

    number: int
    free: int  # bytes


def free_disk(folder: str | os.PathLike[str]) -> Disk:
    """The disk that would hold a folder."""
    places = (Path(folder), *Path(folder).absolute().parents)
    place = next(place for place in places if place.exists())
    return Disk(place.stat().st_dev, shutil.disk_usage(place).free)


def free_memory() -> int | None:
    """Bytes of host memory that this process can still take; None where that is not known.

    A container's limit counts. What caches of files hold is free.
    """
    limits = list(_group_limits())
    if stated := re.search(r"^MemAvailable: +(\d+) kB$", _text(Path("/proc/meminfo")), re.M):
        limits.append(int(stated[1]) * 1024)
    return max(0, min(limits)) if limits else None


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
