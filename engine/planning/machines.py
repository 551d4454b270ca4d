"""Devices as users name them, with memory and peak as their makers state; what is free here."""

import dataclasses
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.errors import AssayError

GIB = 2**30
_MOST = 100_000  # devices that a specification may name
# Share of the peak that a sweep is assumed to reach. On accelerators it was measured nowhere; the
# compiler of TPUs estimates 22 to 74 % for the listed models (docs/compiled-programs-tpu.md). On
# the CPU that `_CORE_PEAK` was measured on, a sweep reached 92 % of it.
_SHARES = {"cpu": 0.9, "gpu": 0.5, "tpu": 0.5}
# Share of the memory that a program may take. Of a GPU, jax takes 75 % by default
# (XLA_PYTHON_CLIENT_MEM_FRACTION); the memory of a TPU is what its compiler says it may take.
_USABLE = {"cpu": 0.9, "gpu": 0.75, "tpu": 1.0}
_CORE_PEAK, _CORES = 80e9, 8  # float32 FLOP/s of a CPU's core; cores of a CPU that is not here
_SOURCES = {
    "gpu": "data sheet, dense, SXM where there are several forms",
    "tpu": "Google Cloud's page of the TPU, by chip",
}
# GiB of memory; TFLOP/s of matmuls in bfloat16, and in float32 without lower precision inside.
_GPUS: dict[str, tuple[float, float, float]] = {
    "B200-180GB": (180, 2250, 80),
    "H200-141GB": (141, 989, 67),
    "H100-80GB": (80, 989, 67),
    "A100-80GB": (80, 312, 19.5),
    "A100-40GB": (40, 312, 19.5),
    "L40S-48GB": (48, 362, 91.6),
    "L4-24GB": (24, 121, 30.3),
    "T4-16GB": (16, 65, 8.1),
    "RTX4090-24GB": (24, 165, 82.6),
}
# A TPU's float32 matmuls take six passes of 16 bits ("highest" precision).
_TPUS: dict[str, tuple[float, float, float]] = {
    "v4": (31.25, 275, 275 / 6),
    "v5e": (15.75, 197, 197 / 6),
    "v5p": (95.74, 459, 459 / 6),
    "v6e": (31.25, 918, 918 / 6),
}
_ALLOWED = (
    "allowed: [<count>x]<kind> or <TPU>-<chips>, with a kind of "
    f"{', '.join((*_GPUS, *_TPUS))}, cpu (here), cpu-<n>GB; one CPU, or up to {_MOST:,} others"
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of device."""

    name: str  # as `--devices` names it
    platform: str  # `cpu`, `gpu` or `tpu`
    memory_bytes: float  # of one device
    rate_16: float | None  # FLOP/s of dense matmuls in bfloat16 at the peak; None: not known
    rate_32: float  # the same in float32
    source: str  # where the numbers come from
    usable: float  # share of the memory that a program may take

    @property
    def usable_bytes(self) -> int:
        """Bytes of a device that a program may take."""
        return int(self.memory_bytes * self.usable)

    @property
    def share(self) -> float:
        """Share of the peak that a sweep is assumed to reach."""
        return _SHARES[self.platform]

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of matmuls, as stated; None where that is not known."""
        # XLA multiplies float16 in float32 on a CPU. TPUs have no matrix units for it.
        if dtype == "float32" or (dtype == "float16" and self.platform == "cpu"):
            return self.rate_32
        slower = 3 if dtype == "float16" and self.platform == "tpu" else 1
        return None if self.rate_16 is None else self.rate_16 / slower


_STATED = [
    Kind(name, platform, gib * GIB, r16 * 1e12, r32 * 1e12, _SOURCES[platform], _USABLE[platform])
    for platform, kinds in (("gpu", _GPUS), ("tpu", _TPUS))
    for name, (gib, r16, r32) in kinds.items()
]


@dataclasses.dataclass(frozen=True)
class Devices:
    """Some devices of one kind, as a user names them."""

    name: str
    count: int
    kind: Kind


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
    import jax  # a plan of named devices asks no device

    device, count = jax.devices()[0], jax.device_count()
    if device.platform == "cpu":
        return parse("cpu")
    said = device.device_kind.lower()
    said = {"tpu v5 lite": "v5e", "tpu v6 lite": "v6e", "tpu v5": "v5p"}.get(said, said)
    words = re.split("[^a-z0-9]+", said)
    memory = (device.memory_stats() or {}).get("bytes_limit", math.inf)
    named = [kind for kind in _STATED if kind.name.lower().split("-")[0] in words]
    if not named:
        raise AssayError(
            f"devices: {device.device_kind!r} is here, whose memory and speed are not known; "
            f"{_ALLOWED} as --devices"
        )
    kind = min(named, key=lambda kind: abs(kind.usable_bytes - memory))
    return [Devices(f"{count}x{kind.name}", count, kind)]


def _parse_one(name: str) -> Devices:
    form = re.fullmatch(r"(?:(\d+)x)?([a-z0-9]+(?:-[0-9.]+gb)?)(?:-(\d+))?", name.lower())
    kind = form and _kind(form[2])
    if form and kind and not (form[3] and (form[1] or kind.platform != "tpu")):
        count = int(form[1] or form[3] or 1)
        if 1 <= count <= (1 if kind.platform == "cpu" else _MOST):
            return Devices(name, count, kind)
    raise AssayError(f"devices={name!r}; {_ALLOWED}")


def _kind(name: str) -> Kind | None:
    """The kind of a name in lower case, from which the memory may be missing if it is clear."""
    if name == "cpu":
        if (free := free_memory()) is None:
            raise AssayError(
                "devices='cpu': this system does not tell its memory; allowed: cpu-<n>GB"
            )
        affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return _cpu(free, 1.0, cores, "free memory of this machine")
    if stated := re.fullmatch(r"cpu-([1-9]\d{0,5}(?:\.\d+)?)gb", name):
        return _cpu(float(stated[1]) * GIB, _USABLE["cpu"], _CORES, "stated memory")
    name = {"v5litepod": "v5e"}.get(name, name)  # Google Cloud's name of the accelerator
    alike = [k for k in _STATED if k.name.lower() == name or k.name.lower().startswith(f"{name}-")]
    return alike[0] if len(alike) == 1 else None


def _cpu(memory: float, usable: float, cores: int, source: str) -> Kind:
    """A CPU. Its peak is assumed; in bfloat16, which depends on its instructions, none is."""
    source = f"{source}; assumed: {cores} cores of {_CORE_PEAK / 1e9:.0f} GFLOP/s"
    return Kind("cpu", "cpu", memory, None, cores * _CORE_PEAK, source, usable)


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
