"""Lowers the engine's passes for TPUs that are not there; libtpu compiles them without a TPU."""

import os
import sys
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from bench.random_model import linear_head
from engine import mesh as meshes
from engine.checkpoint import layouts, restore
from engine.models.config import DecoderConfig
from engine.scoring.reward_passes import RewardScorer
from engine.search.gcg import State, build_step
from engine.search.objective import StepInputs
from engine.settings import SearchSettings
from engine.types import Candidates, KeyValues, Prefix

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
_DTYPE = jnp.dtype("bfloat16")
_CANDIDATES = 128  # in one step of a sweep, on each device along `data`
_POSITIONS = 2  # of a candidate: its token and the template's closing one
_PREFIX = 64  # positions of the prompt's prefix
_LENGTH = 2  # tokens of a searched reply
_SEARCHED = 8  # candidates of one step of a search, on all devices


def has_compiler() -> bool:
    """Whether libtpu is installed."""
    return find_spec("libtpu") is not None or os.path.isdir(os.path.join(_ASIDE, "libtpu"))


def mesh() -> Mesh:
    """A `data` × `model` mesh, 2 × 2, over the chips of a v6e that need not be there."""
    os.environ.update(_WITHOUT_TPU)
    jax.config.update("jax_platforms", "cpu")  # jax itself must not look for a TPU
    if _ASIDE not in sys.path:
        sys.path.append(_ASIDE)
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices
    auto = (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh((2, 2), ("data", "model"), axis_types=auto, devices=devices)


class Passes:
    """The passes of one model on one mesh, lowered through what the engine itself calls."""

    def __init__(self, decoder: DecoderConfig, mesh: Mesh):
        self.decoder, self.mesh = decoder, mesh
        self.graph, self.params = restore.abstract(decoder, [linear_head(decoder)], mesh, _DTYPE)
        # Any: the engine types its passes as functions; jax's class of lowered ones is not public.
        self.scorer: Any = RewardScorer.build(self.graph, self.params, mesh, step_size=_CANDIDATES)

    def step(self) -> Any:
        """A step of a sweep."""
        rows = _CANDIDATES * self.mesh.shape["data"]
        counts = self._shape((rows,), jnp.int32, "C")
        ids = self._shape((rows, _POSITIONS), jnp.int32, "CT")
        candidates = Candidates(ids=ids, shared=counts, last=counts)
        return self.scorer.score_step.lower(self.params, self._prefix(), candidates)

    def prompt(self) -> Any:
        """The prefix of a prompt."""
        ids = self._shape((_PREFIX,), jnp.int32)
        gates = self._shape((1,), jnp.int32)
        return self.scorer.prefill_step.lower(self.params, ids, gates)

    def search(self) -> Any:
        """A step of the default search."""
        settings = SearchSettings.of(
            length=_LENGTH, candidates=_SEARCHED, direction="max", dtype=_DTYPE.name
        )
        sequences = (1, settings.buffer, settings.length)
        state = State(
            keys=self._shape((1, 2), jnp.uint32),
            step=self._shape((), jnp.int32),
            buffer=self._shape(sequences, jnp.int32),
            buffer_rewards=self._shape(sequences[:2], jnp.float32),
            best=self._shape((1, settings.length), jnp.int32),
            best_rewards=self._shape((1,), jnp.float32),
        )
        inputs = StepInputs(
            prefix=self._prefix(room=_LENGTH),
            length=self._shape((), jnp.int32),
            suffix=self._shape((_POSITIONS - 1,), jnp.int32),
            allowed=self._shape((self.decoder.vocab_size,), jnp.bool_),
            signs=self._shape((1,), jnp.float32),
        )
        expand: Any = build_step(self.graph, self.mesh, settings)[0]
        return expand.lower(self.params, inputs, state)

    def place(self) -> Any:
        """What writes a layer's query weights into their stack when a checkpoint is restored."""
        layout, axes, config = "(NH)D", "LD(NH)", self.decoder  # in the file, and in the model
        place: Any = restore._place.__wrapped__  # without what was compiled before
        whole, split = (meshes.sharding(self.mesh, a) for a in (axes, layouts.letters(layout)))
        jitted = place(layouts.permutation(layout, "D(NH)"), -1, 1, whole)
        shape = layouts.split_shape(layout, config.sizes)
        layer = jax.ShapeDtypeStruct(shape, _DTYPE, sharding=split)
        stack = (config.num_layers, config.width, config.num_heads * config.head_size)
        kept = jax.ShapeDtypeStruct(stack, _DTYPE, sharding=whole)
        return jitted.lower(kept, np.int32(1), layer)

    def _prefix(self, room: int = 0) -> Prefix:
        config = meshes.with_whole_kv_heads(self.mesh, self.decoder)
        positions = -(-(_PREFIX + room) // 16) * 16
        shape = (config.num_layers, positions, config.num_kv_heads, config.head_size)
        kept = self._shape(shape, _DTYPE, "LPKH")
        gates = self._shape((0,), jnp.float32)
        return Prefix(key_values=KeyValues(keys=kept, values=kept), gates=(gates,))

    def _shape(self, shape: tuple[int, ...], dtype: Any, axes: str = "") -> Any:
        place = meshes.sharding(self.mesh, axes)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)
