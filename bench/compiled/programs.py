"""The engine's compiled passes for a model of any shape on any mesh, without its weights."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bench.support.heads import linear_head
from engine import mesh as meshes
from engine.checkpoint.restore import abstract, parameters
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.planning import flops, memory, searches
from engine.planning.machines import Kind
from engine.planning.work import BLOCK_ROWS, SELF_CHECK, SearchWork
from engine.scoring.reward_passes import RewardScorer
from engine.search.gcg import State, build_step, first_changes, whole_replies
from engine.search.passes import StepInputs, pack
from engine.settings import SearchSettings
from engine.types import Candidates, KeyValues, Prefix

SEARCHES = ("gcg", "gcg-merged")  # steps of a search, by their method
PASSES = ("prefill", "score", "plain", *SEARCHES)
PLAIN_ROWS = SELF_CHECK  # rows of the self-check on each device


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What a pass computes on every device.

    Attributes:
      candidates: in one step of a sweep, on each device along `data`.
      own: positions of a candidate.
      prefix: positions of the prompt's prefix.
      length: tokens of a searched reply.
      searched: candidates of one step of a search, on all devices.
    """

    candidates: int
    own: int
    prefix: int = 64
    length: int = 8
    searched: int = 64

    def count(self, name: str) -> int:
        """Candidates of a pass; 0 where it has none."""
        if name in SEARCHES:
            return self.searched
        return self.candidates if name == "score" else 0


def merged_replies(method: str, candidates: int) -> int:
    """Merged replies of a step that scores so many candidates."""
    return len(whole_replies(_settings(method, candidates=candidates)))


# Any: settings are of several types.
def _settings(method: str, dtype: str = "float32", **given: Any) -> SearchSettings:
    """Settings of `gcg-merged`, which is the default, or of `gcg`, the same without merging."""
    own = given | ({} if method == "gcg-merged" else {"merge": 0})
    return SearchSettings.of(**own, direction="max", dtype=dtype)


def parameter_count(decoder: DecoderConfig, prefix: str = "decoder.") -> int:
    """Parameters of a decoder whose names begin with `prefix`."""
    named = parameters(decoder, linear_head(decoder))
    return sum(math.prod(p.shape) for name, p in named.items() if name.startswith(prefix))


def _lowered(jitted: Any, *arguments: Any) -> Any:
    """Any: the engine types its passes as functions; they are what `jax.jit` returns."""
    return jitted.lower(*arguments)


class Programs:
    """Lowers the passes of one model on one mesh, through what the engine itself calls."""

    def __init__(
        self, decoder: DecoderConfig, head: HeadConfig, mesh: Mesh, dtype: str, work: Work
    ):
        self.decoder, self.mesh, self.work, self.dtype = decoder, mesh, work, jnp.dtype(dtype)
        self.graph, self.params = abstract(decoder, [head], mesh, self.dtype)
        self.scorer = RewardScorer.build(self.graph, self.params, mesh, step_size=work.candidates)

    def lower(self, name: str) -> Any:
        """One of `PASSES`, lowered. Any: jax's class is not public."""
        return self._search(name) if name in SEARCHES else getattr(self, f"_{name}")()

    def flops(self, name: str) -> float:
        """Operations of a pass on one device, without padding (engine/planning/flops.py)."""
        config, work, shape = self.decoder, self.work, self.mesh.shape
        if name == "prefill":
            whole = flops.extension(config, work.prefix, 0)
        elif name == "score":
            whole = work.candidates * flops.response(config, work.own, work.prefix)
        elif name == "plain":
            whole = PLAIN_ROWS * flops.extension(config, work.prefix + work.own, 0)
        else:
            settings = self._settings(name)
            first = first_changes(settings) + whole_replies(settings)
            suffix = work.own - 1
            whole = flops.compiled_step(
                config, first, work.length, [work.prefix], suffix, with_gradient=True
            )
            whole /= shape["data"]
        return whole / shape["model"]

    def layer_bytes(self) -> float:
        """Bytes of all layers' parameters on one device, which a pass reads at least once."""
        layers = parameter_count(self.decoder, "decoder.layers.")
        return layers * self.dtype.itemsize / self.mesh.shape["model"]

    def floor_seconds(self, name: str, kind: Kind) -> float:
        """Least seconds of a pass: its operations at the peak, or reading each layer once."""
        if name in SEARCHES:  # several passes
            return searches.floor_seconds(self._planned(), kind, self._search_work(name))
        return max(self.flops(name) / kind.rate_16, self.layer_bytes() / kind.bytes_per_s)

    def rounds(self, op_name: str) -> int:
        """Rounds of a loop over blocks of a search on one device; XLA does not know them."""
        if "/score/" not in op_name or "/merged/" in op_name:
            return 1  # one block of parents, or of merged replies
        settings, positions = self._settings("gcg"), self.work.length + self.work.own - 1
        rows = len(pack(first_changes(settings), positions, BLOCK_ROWS).read)
        return -(-rows // BLOCK_ROWS // self.mesh.shape["data"]) or 1

    def _prefill(self) -> Any:
        ids = self._shape((self.work.prefix,), jnp.int32)
        return _lowered(self.scorer.prefill_step, self.params, ids, self._shape((1,), jnp.int32))

    def _score(self) -> Any:
        rows = self.work.candidates * self.mesh.shape["data"]
        one = self._shape((rows,), jnp.int32, "C")
        ids = self._shape((rows, self.work.own), jnp.int32, "CT")
        candidates = Candidates(ids=ids, shared=one, last=one)
        return _lowered(self.scorer.score_step, self.params, self._prefix(), candidates)

    def _plain(self) -> Any:
        rows = PLAIN_ROWS * self.mesh.shape["data"]
        whole = -(-(self.work.prefix + self.work.own) // 16) * 16
        ids = self._shape((rows, whole), jnp.int32, "CT")
        last, gates = self._shape((rows,), jnp.int32, "C"), self._shape((rows, 1), jnp.int32, "CT")
        return _lowered(self.scorer.plain_step, self.params, ids, last, gates)

    def _search(self, method: str) -> Any:
        settings = self._settings(method)
        step = build_step(self.graph, self.mesh, settings)
        length, attempts = settings.length, 1
        prefix = self._prefix(room=length)
        inputs = StepInputs(
            prefix=jax.tree.map(
                lambda p: self._shape((1, *p.shape), p.dtype, "JLPKH"[: 1 + p.ndim]), prefix
            ),
            lengths=self._shape((1,), jnp.int32),
            suffix=self._shape((self.work.own - 1,), jnp.int32),
            allowed=self._shape((self.decoder.vocab_size,), jnp.bool_),
            signs=self._shape((attempts,), jnp.float32),
            steps=self._shape((), jnp.int32),
        )
        sequences = (attempts, settings.buffer, length)
        state = State(
            keys=self._shape((attempts, 2), jnp.uint32),
            step=self._shape((), jnp.int32),
            buffer=self._shape(sequences, jnp.int32),
            buffer_rewards=self._shape(sequences[:2], jnp.float32),
            best=self._shape((attempts, length), jnp.int32),
            best_rewards=self._shape((attempts,), jnp.float32),
        )
        return _lowered(step.expand, self.params, inputs, state)

    def _planned(self) -> memory.Model:
        return memory.Model(
            config=self.decoder,
            heads=(linear_head(self.decoder),),
            dtype=self.dtype.name,
            data=self.mesh.shape["data"],
            model=self.mesh.shape["model"],
            platform="tpu",
        )

    def _search_work(self, method: str) -> SearchWork:
        work = self.work
        return SearchWork(
            prefix=work.prefix,
            suffix=work.own - 1,
            length=work.length,
            candidates=work.searched,
            attempts=1,
            merged=merged_replies(method, work.searched),
        )

    def _settings(self, method: str) -> SearchSettings:
        sizes = {"length": self.work.length, "candidates": self.work.searched}
        return _settings(method, self.dtype.name, **sizes)

    def _prefix(self, room: int = 0) -> Prefix:
        config = meshes.with_whole_kv_heads(self.mesh, self.decoder)
        positions = -(-(self.work.prefix + room) // 16) * 16
        shape = (config.num_layers, positions, config.num_kv_heads, config.head_size)
        kept = self._shape(shape, self.dtype, "LPKH")
        gates = self._shape((0,), jnp.float32)
        return Prefix(key_values=KeyValues(keys=kept, values=kept), gates=(gates,))

    def _shape(self, shape: tuple[int, ...], dtype: Any, axes: str = "") -> Any:
        place = meshes.sharding(self.mesh, axes)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)
