"""TPU slices that need not be there: what is stated of their chips, devices to compile for."""

import dataclasses
import math
import os
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from engine.errors import AssayError
from engine.planning.machines import KINDS, Kind

# Without these, the TPU runtime asks the metadata server of a machine in Google's cloud which TPU
# it has, waits for the answer, and complains that there is none.
_WITHOUT_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at once
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
# `make` installs libtpu here, beside the other packages: where `import libtpu` works, every start
# of jax loads it, which prints complaints on a machine without a TPU.
_ASIDE = os.path.join(sys.prefix, "libtpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """What times of a chip's programs are computed from, beside `engine.planning.machines.Kind`.

    Attributes:
      clock_hz: of the compiler's cycles: the stated peak, divided by the operations of its matrix
        units in a cycle.
      bytes_per_s: of its memory, as stated.
      ring_bytes_per_s: into and out of one chip along one axis of a torus, both directions, from
        Google's pages.
    """

    clock_hz: float
    bytes_per_s: float
    ring_bytes_per_s: float


CHIPS = {
    "v5e": Chip(clock_hz=1.5e9, bytes_per_s=0.82e12, ring_bytes_per_s=90e9),
    "v6e": Chip(clock_hz=1.75e9, bytes_per_s=1.64e12, ring_bytes_per_s=180e9),
    "v5p": Chip(clock_hz=1.75e9, bytes_per_s=2.77e12, ring_bytes_per_s=180e9),
}


def has_compiler() -> bool:
    """Whether libtpu is installed."""
    return find_spec("libtpu") is not None or os.path.isdir(os.path.join(_ASIDE, "libtpu"))


def compiler_version() -> str:
    """Version of libtpu."""
    _find()
    return version("libtpu")


def mesh_of(topology: str, model: int) -> Mesh:
    """A `data` × `model` mesh over all chips of a slice that need not be there.

    Args:
      topology: chip and shape of the slice, such as `v5e:2x4`.
      model: size of the axis `model`.

    Raises:
      AssayError: no such chip, or no such slice of it.
    """
    chip_of(topology)
    _find()
    try:
        description = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except jax.errors.JaxRuntimeError as error:
        raise AssayError(f"slices={topology!r}: {error}") from error
    devices = description.devices
    return jax.make_mesh(
        (len(devices) // model, model),
        ("data", "model"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices,
    )


def chip_of(topology: str) -> tuple[Chip, Kind]:
    """The chip of a topology, and its memory and speed.

    Raises:
      AssayError: no such chip, or no shape behind it.
    """
    name = topology.partition(":")[0]
    if name not in CHIPS or not re.fullmatch(r"\w+:[1-9]\d*(x[1-9]\d*)+", topology):
        chips = ", ".join(CHIPS)
        raise AssayError(f"slices={topology!r}; allowed: {chips} and a shape: v5e:2x4, v5p:2x2x2")
    return CHIPS[name], KINDS[name]


def count_of(topology: str) -> int:
    """Chips of a topology."""
    return math.prod(int(n) for n in topology.partition(":")[2].split("x"))


def _find() -> None:
    """Makes libtpu importable; jax itself must not look for a TPU."""
    os.environ.update(_WITHOUT_TPU)
    jax.config.update("jax_platforms", "cpu")
    if _ASIDE not in sys.path:
        sys.path.append(_ASIDE)
