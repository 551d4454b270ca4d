"""Kinds of devices: memory and speed as their makers state them; what this machine has."""

import dataclasses
import difflib
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

from engine.errors import AssayError
from engine.models.config import DecoderConfig, Rope
from engine.models.decoder import Layer

GIB = 2**30
TERA = 1e12
MOST = 100_000  # devices that a specification may name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of device.

    Attributes:
      name: as `--devices` names it.
      platform: `cpu`, `gpu` or `tpu`.
      memory_bytes: of one device.
      usable: share of the memory that a program may take.
      rate_16: peak FLOP/s of dense matmuls with 16-bit operands and float32 sums; None where that
        is not known.
      rate_32: the same in float32, without lower precision inside.
      bytes_per_s: of its memory.
      share: of the peak that matmuls of a sweep are assumed to reach.
      element_s: seconds that all that stands between the matmuls of a layer (norms, rotations,
        softmax) takes for one element of the residual stream or of the queries, where the share
        does not count it.
      float16_times: how many times as long a matmul takes in float16 as in bfloat16.
      link_bytes_per_s: that a device sends around a ring of devices along the axis `model`.
      link_s: the least seconds of a sum over them: assumed, measured nowhere.
      layer_s: seconds of a layer's small operations in a pass of a search.
      read_share: share of `bytes_per_s` at which such a pass reads weights.
      source: where the numbers come from.
    """

    name: str
    platform: str
    memory_bytes: float
    usable: float
    rate_16: float | None
    rate_32: float
    bytes_per_s: float
    share: float
    source: str
    element_s: float = 0.0
    float16_times: float = 1.0
    link_bytes_per_s: float = math.inf
    link_s: float = 0.0
    layer_s: float = 0.0
    read_share: float = 1.0

    def predicts(self, dtype: str) -> bool:
        """Whether a rate is known."""
        return not math.isnan(self.peak(dtype))

    def rate(self, dtype: str) -> float:
        """FLOP/s that matmuls of a sweep are assumed to reach; NaN where that is not known."""
        return self.share * self.peak(dtype)

    def peak(self, dtype: str) -> float:
        """FLOP/s of matmuls, as stated; NaN where that is not known."""
        # XLA multiplies float16 in float32 on a CPU.
        if dtype == "float32" or (dtype == "float16" and self.platform == "cpu"):
            return self.rate_32
        slower = self.float16_times if dtype == "float16" else 1.0
        return math.nan if self.rate_16 is None else self.rate_16 / slower


@dataclasses.dataclass(frozen=True)
class Devices:
    """Some devices of one kind, as a user names them."""

    name: str
    count: int
    kind: Kind


# Of a GPU, jax takes 75 % by default (XLA_PYTHON_CLIENT_MEM_FRACTION). Of a TPU's memory, the rows
# below give what its compiler says a program may take.
_USABLE = {"gpu": 0.75, "tpu": 1.0, "cpu": 0.9}
# Fitted to what the compilers of three TPUs estimate for all listed models in
# docs/compiled-programs-tpu.md (near the least squares of the relative error): the share and the
# seconds of an element to sweeps of 1,024 candidates, the seconds of a layer and the share of the
# bandwidth to searches. Tests compare them. Of the others nothing was measured.
_SHARES = {"v5e": 1.0, "v5p": 0.9, "v6e": 0.76}
_ELEMENT_S = {"v5e": 84e-12, "v5p": 40e-12, "v6e": 32e-12}
_LAYER_S = {"v5e": 65e-6, "v5p": 80e-6, "v6e": 56e-6}
_READ_SHARES = {"v5e": 0.58, "v5p": 0.52, "v6e": 0.86}
_SHARE = 0.5
_OTHER_LAYER_S = 50e-6
# By the compiler of TPUs, for whole steps of two models (docs/planning.md); no other TPU was asked.
_FLOAT16_TIMES = {"v5e": 3.1, "v5p": 2.7, "v6e": 3.1}

# Bytes/s that one device sends around a ring: by NVLink in one direction, by PCIe where there is
# none, along one axis of a TPU's torus in both directions; by their makers.
_LINKS = {
    "B200-180GB": 900e9, "H200-141GB": 450e9, "H100-80GB": 450e9, "A100-80GB": 300e9,
    "A100-40GB": 300e9, "T4-16GB": 16e9,
    "v4": 90e9, "v5e": 90e9, "v5p": 180e9, "v6e": 180e9,
}  # fmt: skip
_PCIE = 32e9
_LINK_S = {"gpu": 15e-6, "tpu": 5e-6}


def _maker(
    platform: str, rows: Sequence[tuple[str, float, float, float, float]], source: str
) -> Iterator[Kind]:
    """Kinds of one maker: name, GiB, 16-bit and float32 TFLOP/s, TB/s."""
    for name, memory, rate_16, rate_32, moved in rows:
        yield Kind(
            name=name,
            platform=platform,
            memory_bytes=memory * GIB,
            usable=_USABLE[platform],
            rate_16=rate_16 * TERA,
            rate_32=rate_32 * TERA,
            bytes_per_s=moved * TERA,
            share=_SHARES.get(name, _SHARE),
            source=source,
            element_s=_ELEMENT_S.get(name, 0.0),
            float16_times=_FLOAT16_TIMES.get(name, 3.1) if platform == "tpu" else 1.0,
            link_bytes_per_s=_LINKS.get(name, _PCIE),
            link_s=_LINK_S[platform],
            layer_s=_LAYER_S.get(name, _OTHER_LAYER_S),
            read_share=_READ_SHARES.get(name, 1.0),
        )


_NVIDIA = (
    ("B200-180GB", 180, 2250, 80, 8.0),
    ("H200-141GB", 141, 989, 67, 4.8),
    ("H100-80GB", 80, 989, 67, 3.35),
    ("A100-80GB", 80, 312, 19.5, 2.04),
    ("A100-40GB", 40, 312, 19.5, 1.56),
    ("L40S-48GB", 48, 362, 91.6, 0.86),
    ("L4-24GB", 24, 121, 30.3, 0.3),
    ("T4-16GB", 16, 65, 8.1, 0.32),
    ("RTX4090-24GB", 24, 165, 82.6, 1.01),
)
# float32 matmuls take six passes of 16 bits ("highest" precision).
_GOOGLE = (
    ("v4", 31.25, 275, 275 / 6, 1.23),
    ("v5e", 15.75, 197, 197 / 6, 0.82),
    ("v5p", 95.74, 459, 459 / 6, 2.77),
    ("v6e", 31.25, 918, 918 / 6, 1.64),
)
KINDS = {
    kind.name.lower(): kind
    for kind in (
        *_maker("gpu", _NVIDIA, "data sheet, dense, SXM where there are several forms"),
        *_maker("tpu", _GOOGLE, "Google Cloud's page of the TPU, by chip"),
    )
}
_ALIASES = {"v5litepod": "v5e"}  # Google Cloud's name of the accelerator
# Of a CPU that is not this one: eight cores at the rate of the two that Assay was measured on.
_CORES = 8
_CORE_RATE = 80e9
_CPU_SHARE = 0.92  # of the rate of the same matmuls alone, in CPU time (docs/planning.md)
_CPU_BYTES_PER_S = 20e9
_MEASURED_S = 0.5
_SMALL_LAYER = DecoderConfig(  # whose feed-forward is timed
    vocab_size=1,
    width=768,
    ffn_width=2048,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_size=2,
    rms_eps=1e-5,
    rope=Rope(theta=1e4),
    max_positions=1,
)


def parse(text: str) -> list[Devices]:
    """Devices of a list such as `8xH100-80GB,v5e-16,cpu-64GB,cpu`.

    A number before `x` counts devices; behind the name of a TPU it counts chips. `cpu` is this
    machine, `cpu-64GB` another one with so much memory.

    Raises:
      AssayError: an unknown name, no devices, or another form.
    """
    names = [name.strip() for name in text.split(",")]
    if not any(names):
        raise AssayError(f"devices={text!r}; allowed: {_allowed()}")
    return [_parse_one(name) for name in names if name]


def _parse_one(name: str) -> Devices:
    form = re.fullmatch(r"(?:(\d+)x)?([a-z0-9]+(?:-[0-9.]+gb)?)(?:-(\d+))?", name.lower())
    if form is None:
        raise AssayError(f"devices={name!r}; allowed: {_allowed()}")
    if form[2] == "cpu" and form[3]:
        raise AssayError(f"devices={name!r}; allowed: cpu (here), or with its memory: cpu-64GB")
    count, kind = form[1] or form[3] or "1", _kind(name, form[2])
    if (form[1] and form[3]) or (form[3] and kind.platform != "tpu"):
        other = f" or {kind.name}-8" if kind.platform == "tpu" else ""
        raise AssayError(f"devices={name!r}; allowed: one count, as 8x{kind.name}{other}")
    if not 1 <= int(count) <= MOST or (kind.platform == "cpu" and int(count) > 1):
        most = "1: a CPU is one device" if kind.platform == "cpu" else f"1 to {MOST:,} devices"
        raise AssayError(f"devices={name!r}: {int(count):,} devices; allowed: {most}")
    return Devices(name, int(count), kind)


def _kind(given: str, name: str) -> Kind:
    name = _ALIASES.get(name, name)
    if name in KINDS:
        return KINDS[name]
    if name == "cpu":
        return this_cpu()
    if memory := re.fullmatch(r"cpu-([0-9.]+)gb", name):
        return _stated_cpu(given, memory[1])
    alike = [kind.name for key, kind in KINDS.items() if key.startswith(f"{name}-")]
    if len(alike) == 1:
        return KINDS[alike[0].lower()]
    if len(alike) > 1:
        raise AssayError(f"devices={given!r}: which? allowed: {', '.join(alike)}")
    stems = [kind.name.partition("-")[0] for kind in KINDS.values()]
    near = difflib.get_close_matches(name.upper(), stems, 1, 0.6)
    meant = f" (meant: {near[0]}?)" if near else ", nor can memory and speed of another be given"
    raise AssayError(f"devices={given!r}: no such kind{meant}; allowed: {_allowed()}")


def _allowed() -> str:
    names = ", ".join(kind.name for kind in KINDS.values())
    return f"[<count>x]<kind> or <TPU>-<chips>, with a kind of {names}, cpu (here), cpu-<n>GB"


def _stated_cpu(given: str, memory: str) -> Kind:
    try:
        size = float(memory)
    except ValueError as error:
        raise AssayError(f"devices={given!r}; allowed: as cpu-64GB") from error
    if not 1 <= size <= 1e6:
        raise AssayError(f"devices={given!r}; allowed: 1 to 1,000,000 GB")
    return cpu(size * GIB, _CORES * _CORE_RATE, f"stated: {_CORES} cores", _USABLE["cpu"])


def cpu(
    memory: float, rate: float, source: str, usable: float = 1.0, gain: float | None = None
) -> Kind:
    """A CPU.

    Args:
      memory: bytes.
      rate: FLOP/s of float32 matmuls.
      source: of these numbers.
      usable: share of the memory that a program may take.
      gain: how many times faster a step is in bfloat16 than in float32; None where that is not
        known: it depends on the CPU's instructions.
    """
    return Kind(
        name="cpu",
        platform="cpu",
        memory_bytes=memory,
        usable=usable,
        rate_16=None if gain is None else gain * rate,
        rate_32=rate,
        bytes_per_s=_CPU_BYTES_PER_S,
        share=_CPU_SHARE,
        source=source,
    )


def this_cpu() -> Kind:
    """This machine: the memory that is free, and the measured speed of matmuls."""
    free = free_memory()
    if free is None:
        raise AssayError("devices='cpu': this system does not tell its memory; allowed: cpu-<n>GB")
    source = "measured here: free memory, float32 matmul, a feed-forward in both dtypes"
    return cpu(free, matmul_rate(), source, gain=bfloat16_gain())


def matmul_rate(shape: tuple[int, int, int] = (2048, 1024, 1024), dtype: str = "float32") -> float:
    """FLOP/s of matmuls [m, k] x [k, n] on the CPU: the best within half a second."""
    m, k, n = shape
    cpu = jax.local_devices(backend="cpu")[0]
    left, right = (jax.device_put(jnp.ones(size, dtype), cpu) for size in ((m, k), (k, n)))
    matmul = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return 2 * m * k * n / _best_s(lambda: matmul(left, right))


def bfloat16_gain() -> float:
    """How many times faster a layer's feed-forward is on this CPU in bfloat16 than in float32.

    It is the engine's own: XLA uses a CPU's instructions for bfloat16 (AMX) in some forms only, and
    rounding takes time too.
    """
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        wide, half = (_best_s(_feed_forward(jnp.dtype(d))) for d in ("float32", "bfloat16"))
    return wide / half


def _feed_forward(dtype: jnp.dtype, rows: int = 1024) -> Callable[[], jax.Array]:
    layer = Layer(_SMALL_LAYER, dtype, jnp.dtype("float32"))
    layer.for_cpu = True
    graph, params = nnx.split(layer)
    one = jax.tree.map(lambda p: p[0], params)
    apply = jax.jit(lambda params, x: x + nnx.merge(graph, params).feed_forward(x))
    x = jnp.ones((rows, 1, _SMALL_LAYER.width))
    return lambda: apply(one, x)


def _best_s(call: Callable[[], jax.Array]) -> float:
    """Seconds of a call: the least within half a second, without the first, which compiles."""
    call().block_until_ready()
    best, stop = math.inf, time.perf_counter() + _MEASURED_S
    while time.perf_counter() < stop:
        began = time.perf_counter()
        call().block_until_ready()
        best = min(best, time.perf_counter() - began)
    return best


def free_memory() -> int | None:
    """Bytes of host memory that this process can still take; None where that is not known.

    A container's limit counts (control groups, versions 1 and 2). What caches of files hold is
    free.
    """
    limits = [_available(), *_group_limits()]
    known = [limit for limit in limits if limit is not None]
    return max(0, min(known)) if known else None


def _available() -> int | None:
    found = re.search(r"^MemAvailable: +(\d+) kB$", _text(Path("/proc/meminfo")), re.M)
    return int(found[1]) * 1024 if found else None


def _group_limits(
    root: Path = Path("/sys/fs/cgroup"), own_groups: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Free bytes of the control groups that this process is in, from its own to the root's."""
    for line in _text(own_groups).splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            base = root / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        own = base / inside.lstrip("/")
        for folder in (own, *own.parents):
            free = _group_free(folder, *names)
            if free is not None:
                yield free
            if folder == base:
                break


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


def device_memory(devices: Sequence[jax.Device]) -> int | None:
    """Free bytes of the fullest of some local accelerators; None where a runtime does not tell."""
    free = []
    for device in devices:
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        free.append(int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0)))
    return min(free)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A file system: its number, and its free bytes."""

    number: int
    free: int


def free_disk(folder: str | os.PathLike[str]) -> Disk | None:
    """The disk that would hold a folder; None where that is not known."""
    for place in (Path(folder), *Path(folder).absolute().parents):
        if place.exists():
            try:
                return Disk(place.stat().st_dev, shutil.disk_usage(place).free)
            except OSError:
                return None
    return None
