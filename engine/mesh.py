"""The device mesh, what is split over it and how, and what this machine has free."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from engine.errors import AssayError
from engine.models.encoder_config import EncoderConfig, NetworkConfig
from engine.types import Kept, KeyValues, Updates, dimensions

# Logical axis letter (engine/types.py) -> mesh axis; other axes are replicated.
MESH_AXES = {"C": "data", "N": "model", "K": "model", "F": "model", "k": "model", "n": "model"}


def checked_mesh(mesh: Mesh | None) -> Mesh:
    """The mesh that a caller gives, or of all devices; raises AssayError for anything else."""
    if not isinstance(mesh, Mesh | None):
        raise AssayError(f"mesh={mesh!r}; allowed: a jax.sharding.Mesh, or None")
    return mesh or build_mesh()


def build_mesh(model: int = 1) -> Mesh:
    """A `data` × `model` mesh over all devices of all hosts.

    Raises:
      AssayError: `model` does not divide the number of devices.
    """
    devices = jax.device_count()
    if model < 1 or devices % model:
        raise AssayError(f"mesh.model={model}; allowed: divisors of the {devices} devices")
    return jax.make_mesh(
        (devices // model, model), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto)
    )


def one_device() -> Mesh:
    """The mesh of this process's first device alone."""
    kinds = (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh(
        (1, 1), ("data", "model"), axis_types=kinds, devices=jax.local_devices()[:1]
    )


def check_mesh(mesh: Mesh, config: NetworkConfig) -> None:
    """Raises AssayError if the axis `model` splits heads or the feed-forward unevenly."""
    model = mesh.shape["model"]
    if model > 1 and not config.shares_prefix:
        raise AssayError(f"mesh.model={model}; allowed of an encoder: 1")
    delta = ("delta_key_heads", "delta_value_heads")  # 0 without the gated delta rule
    for name in ("num_heads", "ffn_width", *delta):
        if getattr(config, name) % model:
            raise AssayError(
                f"mesh.model={model}; allowed: divisors of the decoder's {name}="
                f"{getattr(config, name)}"
            )


def with_whole_kv_heads(mesh: Mesh, config: NetworkConfig) -> NetworkConfig:
    """The decoder with its key/value heads repeated until the axis `model` divides their number.

    A query head reads the same keys and values as before. K heads on n devices become lcm(K, n):
    4 heads on 8 devices become 8, and every device holds one of them.
    """
    heads = math.lcm(config.num_kv_heads, mesh.shape["model"])
    if heads == config.num_kv_heads or isinstance(config, EncoderConfig):
        return config
    return dataclasses.replace(config, num_kv_heads=heads)


def kept_shardings(mesh: Mesh, config: NetworkConfig, stacks: int) -> Kept:
    """Sharding of each array that is kept of a prefix by a decoder of so many stacks."""
    positions = sharding(mesh, "LPKH")
    attention = KeyValues(keys=positions, values=positions)
    q, keys, v = (sharding(mesh, axes) for axes in ("LP(kh)", "LPkh", "LP(nv)"))
    values, decay = sharding(mesh, "LPnv"), sharding(mesh, "LPn")
    delta = Updates(inputs=(q, q, v), keys=keys, updates=values, decay=decay)
    if all(config.deltas) or not any(config.deltas):
        return delta if any(config.deltas) else attention
    return tuple(delta if of_delta else attention for of_delta in config.deltas[:stacks])


def sum_dtype(mesh: Mesh, dtype: jnp.dtype) -> jnp.dtype:
    """Dtype in which devices along `model` add up their parts of a layer's output.

    Parameters in bfloat16 halve what the devices send. On one device nothing is sent, and float16
    could overflow: both keep float32.
    """
    halved = mesh.shape["model"] > 1 and dtype == jnp.bfloat16
    return jnp.dtype("bfloat16" if halved else "float32")


def identity(mesh: Mesh) -> dict[str, int]:
    """What of a mesh decides the last bits of numbers, as is recorded with parts.

    Devices along `model` add up parts of one number, in an order that depends on how many they are.
    Devices along `data` do not. Results on one device along `model` do not name it.
    """
    model = mesh.shape["model"]
    return {"model_axis": model} if model > 1 else {}


def sharding(mesh: Mesh, axes: str) -> NamedSharding:
    """Sharding of an array with the axis letters `axes`; of merged ones the first is split."""
    split = (MESH_AXES.get(letters[0]) for letters in dimensions(axes))
    return NamedSharding(mesh, PartitionSpec(*split))


def parameter_sharding(mesh: Mesh, axes: str, shape: Sequence[int]) -> NamedSharding:
    """Sharding of a parameter with the axis letters `axes`.

    Embedding and output head are split over `model` by the vocabulary, or by the width if the
    vocabulary is not divisible (128,257 tokens, for instance).
    """
    if axes == "VD":
        specs = PartitionSpec("model"), PartitionSpec(None, "model")
        for size, spec in zip(shape, specs, strict=True):
            if size % mesh.shape["model"] == 0:
                return NamedSharding(mesh, spec)
    return sharding(mesh, axes)


# Any: the arguments and the result of a function on arrays.
def over_data(
    function: Callable[..., Any], mesh: Mesh, arguments: Sequence[str], result: str
) -> Callable[..., Any]:
    """A function that each device computes by itself, for its share of the axis `C`.

    All devices run one program on one shape, which the number of devices does not change. The axis
    `model` is left to the partitioner.

    Args:
      function: on the shares.
      mesh: the devices; its axis `data` divides the size of `C`.
      arguments: axis letters of the leading dimensions of each argument's arrays.
      result: axis letters of the result's arrays.
    """

    def share(axes: str) -> PartitionSpec:
        return PartitionSpec(*("data" if MESH_AXES.get(a) == "data" else None for a in axes))

    @functools.wraps(function)  # whose names of arguments a compiled program keeps
    def call(*trees: Any) -> Any:
        # Arrays without elements, such as an empty suffix, are made inside: jaxlib 0.11 crashes
        # when it removes them from the arguments.
        leaves, form = jax.tree.flatten(trees)
        filled = [[a for a in jax.tree.leaves(tree) if a.size] for tree in trees]

        def on_share(*filled: Any) -> Any:
            rest = iter(jax.tree.leaves(filled))
            arrays = [next(rest) if a.size else jnp.zeros(a.shape, a.dtype) for a in leaves]
            return function(*jax.tree.unflatten(form, arrays))

        return jax.shard_map(
            on_share,
            mesh=mesh,
            in_specs=tuple(map(share, arguments)),
            out_specs=share(result),
            axis_names={"data"},
            check_vma=False,  # what a scan carries may be the same on all devices at its beginning
        )(*filled)

    return call


# Any: trees of arrays.
def in_blocks(function: Callable[[Any, Any], Any], mesh: Mesh, shared: Any, blocks: Any) -> Any:
    """Results of (shared, one block) for blocks of work, which the devices along `data` share out.

    A device computes one block after the other, so that the number of devices changes no shape.
    `blocks` are arrays with one leading entry per block; so are the results, the same on every
    device.
    """
    count = len(jax.tree.leaves(blocks)[0])
    spare = -count % mesh.shape["data"]  # copies of the last block: as many on every device

    def on_device(shared: Any, blocks: Any) -> Any:
        def compute_block(index: Any, results: Any) -> Any:
            block = jax.tree.map(lambda b: b[index], blocks)
            # A single block is the same in every round, and XLA would compute it outside the loop,
            # or half of it there and again inside.
            index, block = jax.lax.optimization_barrier((index, block))
            return jax.tree.map(
                lambda stack, new: stack.at[index].set(new), results, function(shared, block)
            )

        block = jax.tree.map(lambda b: b[0], blocks)
        shapes = jax.eval_shape(function, shared, block)
        held = len(jax.tree.leaves(blocks)[0])
        results = jax.tree.map(lambda r: jnp.zeros((held, *r.shape), r.dtype), shapes)
        # The barrier hides the number from the compiler, which would make a loop of one block
        # another program than a loop of several.
        steps = jax.lax.optimization_barrier(jnp.int32(held))
        return jax.lax.fori_loop(0, steps, compute_block, results)

    def everywhere(array: jax.Array) -> jax.Array:  # so that nothing around the blocks is split
        return jax.lax.with_sharding_constraint(array, sharding(mesh, ""))

    def padded(array: jax.Array) -> jax.Array:
        return everywhere(jnp.pad(array, [(0, spare)] + [(0, 0)] * (array.ndim - 1), "edge"))

    results = over_data(on_device, mesh, ("", "C"), "C")(shared, jax.tree.map(padded, blocks))
    return jax.tree.map(lambda r: everywhere(r)[:count], results)


# Any: a tree of arrays, and the same tree with its arrays on devices.
def put(mesh: Mesh, tree: Any, axes: str) -> Any:
    """Places host arrays on the mesh; every process must hold all of them.

    `axes` are the letters of the arrays' leading dimensions; further dimensions are replicated.
    """

    def place(array: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(
            array.shape, sharding(mesh, axes[: array.ndim]), lambda index: array[index]
        )

    return jax.tree.map(lambda a: place(np.asarray(a)), tree)


def free_bytes(mesh: Mesh, platform: str) -> float:
    """Free bytes of the host of a CPU, or of the fullest local accelerator; infinite: not told."""
    if platform == "cpu":
        return free_memory()
    stats = [device.memory_stats() or {} for device in mesh.local_devices]
    return min(stat.get("bytes_limit", math.inf) - stat.get("bytes_in_use", 0) for stat in stats)


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
