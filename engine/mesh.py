"""The device mesh, which logical axis lies on which mesh axis, and the shardings that follow."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from engine.errors import AssayError
from engine.models.config import DecoderConfig

# Logical axis letter (engine/types.py) -> mesh axis. Letters that are absent are replicated.
MESH_AXES = {"C": "data", "N": "model", "K": "model", "F": "model"}


def build_mesh(model: int = 1) -> Mesh:
    """A `data` x `model` mesh over all devices of all hosts; `data` takes what `model` leaves.

    `jax.pmap`'s successor: named axes, explicit shardings, one program.

    Raises:
      AssayError: `model` does not divide the number of devices.
    """
    devices = jax.device_count()
    if model < 1 or devices % model:
        raise AssayError(f"mesh.model={model}; allowed: divisors of the {devices} devices")
    return jax.make_mesh(
        (devices // model, model), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto)
    )


def check_mesh(mesh: Mesh, config: DecoderConfig) -> None:
    """Refuses a mesh whose `model` axis cuts a key/value head or the feed-forward unevenly."""
    model = mesh.shape["model"]
    for name in ("num_kv_heads", "ffn_width"):
        if getattr(config, name) % model:
            raise AssayError(
                f"mesh.model={model}; allowed: divisors of the decoder's {name}="
                f"{getattr(config, name)}"
            )


def sharding(mesh: Mesh, axes: str) -> NamedSharding:
    """Sharding of an array whose dimensions are the letters `axes`."""
    return NamedSharding(mesh, PartitionSpec(*(MESH_AXES.get(letter) for letter in axes)))


def parameter_sharding(mesh: Mesh, axes: str, shape: Sequence[int]) -> NamedSharding:
    """Sharding of a parameter. Embedding and output head are split over `model` where they can be.

    By the vocabulary; by the width where that is a number like 128,257.
    """
    if axes == "VD":
        for size, spec in zip(
            shape, (PartitionSpec("model"), PartitionSpec(None, "model")), strict=True
        ):
            if size % mesh.shape["model"] == 0:
                return NamedSharding(mesh, spec)
    return sharding(mesh, axes)


def parameter_shardings(mesh: Mesh, params: Any) -> Any:
    """The tree of `params` with each parameter replaced by its sharding."""
    return jax.tree.map(
        lambda p: parameter_sharding(mesh, p.get_metadata()["axes"], p.shape),
        params,
        is_leaf=lambda p: isinstance(p, nnx.Variable),
    )


def put(mesh: Mesh, tree: Any, axes: str) -> Any:
    """Places host arrays that every process holds whole; `axes` names their leading dimensions."""

    def place(array: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(
            array.shape, sharding(mesh, axes[: array.ndim]), lambda index: array[index]
        )

    return jax.tree.map(lambda a: place(np.asarray(a)), tree)
