"""Memory of a compiled step for TPUs that are not there, beside the planner's account of it."""

import os
from typing import Any

# Without these, the TPU runtime looks for the metadata of a machine in Google's cloud, and waits.
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_ACCELERATOR_TYPE="v5litepod-8",
    TPU_MIN_LOG_LEVEL="3",
    TPU_STDERR_LOG_LEVEL="3",
)

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from configs import known_models, known_shapes
from engine import mesh as meshes
from engine.checkpoint import restore
from engine.models.reward_model import RewardModels
from engine.planning import memory
from engine.planning.memory import Model
from engine.planning.plans import Subject
from engine.scoring.reward_passes import compiled_over_data
from engine.types import Candidates, KeyValues, Prefix
from launch.common.subjects import subject_of

PREFIX, OWN = 64, 2  # positions


def compared_step(
    topology: str, slug: str, model_axis: int, candidates: int
) -> tuple[float, float]:
    """GiB on a chip during a step: by the account, and by the compiler's plan.

    Args:
      topology: chip and shape of a slice, such as `v5e:2x4`.
      slug: of a model of configs/known_models.py, taken in bfloat16.
      model_axis: size of the mesh axis `model`.
      candidates: of a step on each chip.
    """
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    shape = (len(devices) // model_axis, model_axis)
    mesh = jax.make_mesh(
        shape, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto), devices=devices
    )
    model = subject_of_slug(slug).on("tpu", "bfloat16", *shape)
    account = memory.of_scoring(model, prefix=PREFIX, own=OWN, candidates=candidates)
    peak = _peak_bytes(model, mesh, candidates)
    return account.total / memory.GIB, peak / memory.GIB


def subject_of_slug(slug: str) -> Subject:
    """A model of configs/known_models.py."""
    spec = known_models.KNOWN[slug]
    return subject_of(slug, known_shapes.config_json(spec), spec)


def _peak_bytes(model: Model, mesh: Mesh, candidates: int) -> int:
    held, dtype = model.held, jnp.dtype(model.dtype)
    graph, params = restore._abstract(held, model.heads, dtype)
    for _, parameter in nnx.to_flat_state(params):
        axes, shape = parameter.get_metadata()["axes"], parameter.shape
        place = meshes.parameter_sharding(mesh, axes, shape)
        parameter.set_value(jax.ShapeDtypeStruct(shape, parameter.dtype, sharding=place))

    def shaped(shape, dtype, axes):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=meshes.sharding(mesh, axes))

    keys = shaped((held.num_layers, PREFIX, held.num_kv_heads, held.head_size), dtype, "LPKH")
    prefix = Prefix(
        key_values=KeyValues(keys=keys, values=keys), gates=(shaped((0,), jnp.float32, "R"),)
    )
    rows = candidates * model.data
    batch = Candidates(
        ids=shaped((rows, OWN), jnp.int32, "CT"),
        shared=shaped((rows,), jnp.int32, "C"),
        last=shaped((rows,), jnp.int32, "C"),
    )
    # Any: jax's class is not public.
    step: Any = compiled_over_data(RewardModels.respond, graph, mesh, ("", "C"), "WC")
    return step.lower(params, prefix, batch).compile().memory_analysis().peak_memory_in_bytes
