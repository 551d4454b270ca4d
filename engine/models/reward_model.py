"""Reward models on one decoder: the prefix pass, the response pass, and the plain pass."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder, behind
from engine.models.heads import OBJECTIVES, HeadConfig, Readout
from engine.types import Candidates, Places, Prefix


class RewardModels(nnx.Module):
    """M reward models that read one decoder, each at its own depth. Usually M = 1.

    Models trained on one frozen decoder, or on its first layers, cost one pass together.
    """

    def __init__(
        self,
        config: DecoderConfig,
        heads: Sequence[HeadConfig],
        dtype: jnp.dtype,
        *,
        objectives: str = "none",
    ):
        self.decoder = Decoder(config, dtype)
        self.objectives = objectives
        self.readouts = nnx.List(Readout(head) for head in heads)
        self.depths = tuple(sorted({head.depth for head in heads}))

    def prefill(self, ids: Int[Array, "P"], gate_at: Int[Array, "M"]) -> Prefix:
        """The prefix pass: once a prompt. `gate_at` is where each model's head reads the prompt."""
        key_values, residuals = self.decoder.prefill(ids, gate_at)
        gates = tuple(
            readout.gate(residuals[readout.config.depth - 1, m])
            for m, readout in enumerate(self.readouts)
        )
        return Prefix(key_values=key_values, gates=gates)

    def respond(self, prefix: Prefix, candidates: Candidates) -> Float[Array, "W C"]:
        """Rewards of candidates behind a shared prefix; rows as `columns`."""
        places = behind(candidates.shared, candidates.ids.shape[1])
        x, read = self.decoder.embed(candidates.ids), candidates.last[:, None]
        return self.respond_embedded(prefix, x, places, read)[..., 0]

    def respond_embedded(
        self,
        prefix: Prefix,
        x: Float[Array, "C T D"],
        places: Places,
        read: Int[Array, "C E"],
    ) -> Float[Array, "W C E"]:
        """Rewards of embedded rows, of which they are a differentiable function.

        A row may hold several replies, each continuing the prefix by itself; `read` are their
        reward positions.
        """
        residuals = self.decoder.respond(prefix.key_values, x, places, read, self.depths)
        flat = [r.reshape(-1, r.shape[-1]) for r in residuals]
        return self._read(flat, prefix.gates).reshape(-1, *read.shape)

    def extend(self, prefix: Prefix, ids: Int[Array, "T"], length: Int[Array, ""]) -> Prefix:
        """The prefix with `ids` behind its first `length` positions; gates stay the prompt's."""
        key_values = self.decoder.extend(prefix.key_values, self.decoder.embed(ids[None]), length)
        return Prefix(key_values=key_values, gates=prefix.gates)

    def plain(
        self, ids: Int[Array, "C T"], last: Int[Array, "C"], gate_at: Int[Array, "C M"]
    ) -> Float[Array, "W C"]:
        """Rewards of whole sequences, nothing shared and nothing left out."""
        with jax.named_scope("plain"):
            rows, streams = jnp.arange(ids.shape[0]), self.decoder.forward(ids, self.depths)
            by_depth = dict(zip(self.depths, streams, strict=True))
            gates = tuple(
                jax.vmap(readout.gate)(by_depth[readout.config.depth][rows, gate_at[:, m]])
                for m, readout in enumerate(self.readouts)
            )
            return self._read([x[rows, last] for x in streams], gates)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """What each model's rows of a result are: the reward, then its objectives if asked for."""
        return tuple(readout.config.columns(self.objectives) for readout in self.readouts)

    def _read(
        self, residuals: Sequence[Float[Array, "C D"]], gates: Sequence[Array]
    ) -> Float[Array, "W C"]:
        """W = all columns of all models, one after the other."""
        by_depth = dict(zip(self.depths, residuals, strict=True))
        asked = OBJECTIVES.index(self.objectives)  # how many kinds of columns beside the reward
        rows = []
        with jax.named_scope("head"):
            for readout, gate in zip(self.readouts, gates, strict=True):
                reward, *objectives = readout(by_depth[readout.config.depth], gate)
                rows += [reward[None], *(kind.T for kind in objectives[:asked])]
        return jnp.concatenate(rows)
