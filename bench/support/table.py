"""Aligned plain-text tables, and the lines about the machine above them."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

LIBRARIES = ("jax", "jaxlib", "flax", "torch", "transformers", "numpy")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells (the first row is the header) as text: first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def spread(values: Sequence[float], form: str) -> tuple[str, str]:
    """The median and the range, as two cells."""
    low, high = form.format(np.min(values)), form.format(np.max(values))
    return form.format(np.median(values)), f"{low}..{high}"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:  # torch is a development requirement
        return "(none)"


def machine() -> str:
    """The command, the processor, its load, and the versions of the libraries."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
    versions = " ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    return "\n".join(
        [
            f"command   {' '.join(['python -m', module, *sys.argv[1:]])}",
            f"machine   {processor()}, {cores()} cores, load {os.getloadavg()[0]:.1f} at the start",
            f"versions  python {platform.python_version()} {versions}",
        ]
    )


def processor() -> str:
    """Name of the CPU, with its family, model and widest vector instructions."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    fields = {name.strip(): value.strip() for name, _, value in reversed(list(pairs))}
    widest = [f for f in ("amx_bf16", "avx512f", "avx2") if f in fields.get("flags", "").split()]
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{fields.get('model name', platform.machine())} ({family}, {' '.join(widest)})"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
