"""Kinds of devices as users name them: memory and peak as their makers state them."""

import dataclasses
import os
import re

from engine.errors import AssayError
from engine.planning.free import free_memory

GIB = 2**30
MOST = 100_000  # devices that a specification may name
# Share of the peak that a sweep is assumed to reach. On accelerators it was measured nowhere; the
# compiler of TPUs estimates 22 to 74 % for the listed models (docs/compiled-programs-tpu.md). On
# the CPU that `_CORE_PEAK` was measured on, a sweep reached 92 % of it.
SHARES = {"cpu": 0.9, "gpu": 0.5, "tpu": 0.5}
# Share of the memory that a program may take. Of a GPU, jax takes 75 % by default
# (XLA_PYTHON_CLIENT_MEM_FRACTION); a TPU's row below says what its compiler says it may take.
_USABLE = {"cpu": 0.9, "gpu": 0.75, "tpu": 1.0}
_CORE_PEAK, _CORES = 80e9, 8  # float32 FLOP/s of a CPU's core; cores of a CPU that is not here


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of device."""

    name: str  # as `--devices` names it
    platform: str  # `cpu`, `gpu` or `tpu`
    memory_bytes: float  # of one device
    rate_16: float | None  # FLOP/s of dense matmuls in bfloat16 at the peak; None: not known
    rate_32: float  # the same in float32, without lower precision inside
    source: str  # where the numbers come from
    usable: float  # share of the memory that a program may take

    @property
    def usable_bytes(self) -> int:
        """Bytes of a device that a program may take."""
        return int(self.memory_bytes * self.usable)

    @property
    def share(self) -> float:
        """Share of the peak that a sweep is assumed to reach."""
        return SHARES[self.platform]

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of matmuls, as stated; None where that is not known."""
        # XLA multiplies float16 in float32 on a CPU. TPUs have no matrix units for it.
        if dtype == "float32" or (dtype == "float16" and self.platform == "cpu"):
            return self.rate_32
        slower = 3 if dtype == "float16" and self.platform == "tpu" else 1
        return None if self.rate_16 is None else self.rate_16 / slower


@dataclasses.dataclass(frozen=True)
class Devices:
    """Some devices of one kind, as a user names them."""

    name: str
    count: int
    kind: Kind


def _gpu(name: str, gib: float, rate_16: float, rate_32: float) -> Kind:
    """A GPU, from its GiB and TFLOP/s."""
    source = "data sheet, dense, SXM where there are several forms"
    rates = rate_16 * 1e12, rate_32 * 1e12
    return Kind(name, "gpu", gib * GIB, *rates, source, _USABLE["gpu"])


def _tpu(name: str, gib: float, rate_16: float) -> Kind:
    """A TPU; float32 matmuls take six passes of 16 bits ("highest" precision)."""
    rates, source = (rate_16 * 1e12, rate_16 * 1e12 / 6), "Google Cloud's page of the TPU, by chip"
    return Kind(name, "tpu", gib * GIB, *rates, source, _USABLE["tpu"])


_STATED = (
    _gpu("B200-180GB", 180, 2250, 80),
    _gpu("H200-141GB", 141, 989, 67),
    _gpu("H100-80GB", 80, 989, 67),
    _gpu("A100-80GB", 80, 312, 19.5),
    _gpu("A100-40GB", 40, 312, 19.5),
    _gpu("L40S-48GB", 48, 362, 91.6),
    _gpu("L4-24GB", 24, 121, 30.3),
    _gpu("T4-16GB", 16, 65, 8.1),
    _gpu("RTX4090-24GB", 24, 165, 82.6),
    _tpu("v4", 31.25, 275),
    _tpu("v5e", 15.75, 197),
    _tpu("v5p", 95.74, 459),
    _tpu("v6e", 31.25, 918),
)
KINDS = {kind.name.lower(): kind for kind in _STATED}
_ALLOWED = (
    "allowed: [<count>x]<kind> or <TPU>-<chips>, with a kind of "
    f"{', '.join(kind.name for kind in _STATED)}, cpu (here), cpu-<n>GB; one CPU, or up to "
    f"{MOST:,} others"
)


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


def _parse_one(name: str) -> Devices:
    form = re.fullmatch(r"(?:(\d+)x)?([a-z0-9]+(?:-[0-9.]+gb)?)(?:-(\d+))?", name.lower())
    kind = form and _kind(form[2])
    if form and kind and not (form[3] and (form[1] or kind.platform != "tpu")):
        count = int(form[1] or form[3] or 1)
        if 1 <= count <= (1 if kind.platform == "cpu" else MOST):
            return Devices(name, count, kind)
    raise AssayError(f"devices={name!r}; {_ALLOWED}")


def _kind(name: str) -> Kind | None:
    """The kind of a name in lower case, from which the memory may be missing if it is clear."""
    if name == "cpu":
        return _this_cpu()
    if stated := re.fullmatch(r"cpu-([1-9]\d{0,5}(?:\.\d+)?)gb", name):
        return _cpu(float(stated[1]) * GIB, _USABLE["cpu"], _CORES, "stated memory")
    name = {"v5litepod": "v5e"}.get(name, name)  # Google Cloud's name of the accelerator
    alike = [kind for key, kind in KINDS.items() if key == name or key.startswith(f"{name}-")]
    return alike[0] if len(alike) == 1 else None


def _this_cpu() -> Kind:
    free = free_memory()
    if free is None:
        raise AssayError("devices='cpu': this system does not tell its memory; allowed: cpu-<n>GB")
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return _cpu(free, 1.0, cores, "free memory of this machine")


def _cpu(memory: float, usable: float, cores: int, source: str) -> Kind:
    """A CPU. Its peak is assumed; in bfloat16, which depends on its instructions, none is."""
    source = f"{source}; assumed: {cores} cores of {_CORE_PEAK / 1e9:.0f} GFLOP/s"
    return Kind("cpu", "cpu", memory, None, cores * _CORE_PEAK, source, usable)
