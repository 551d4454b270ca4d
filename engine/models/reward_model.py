"""Reward models on one decoder: the prefix pass, the response pass, and the plain pass.

Each of the last two has a form that also reads the reward after every layer: the reward lens.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from engine.models.config import DecoderConfig
from engine.models.decoder import FLOAT32, Decoder, behind
from engine.models.heads import HeadConfig, Readout
from engine.settings import OBJECTIVES
from engine.types import Candidates, KeyValues, Places, Prefix


class RewardModels(nnx.Module):
    """M reward models that share one decoder, each with its own depth and head; usually M = 1.

    Models that were trained on one frozen decoder, or on its first layers, are scored in one pass.
    """

    def __init__(
        self,
        config: DecoderConfig,
        heads: Sequence[HeadConfig],
        dtype: jnp.dtype,
        *,
        objectives: str = "none",
        sums: jnp.dtype = FLOAT32,
    ):
        self.decoder = Decoder(config, dtype, sums)
        self.objectives = objectives
        self.readouts = nnx.List(Readout(head) for head in heads)
        self.depths = tuple(sorted({head.depth for head in heads}))

    def prefill(self, ids: Int[Array, "P"], gate_at: Int[Array, "M"]) -> Prefix:
        """The prefix pass, once per prompt.

        Args:
          ids: of the prefix.
          gate_at: position at which each model's gate reads the prompt.
        """
        key_values, residuals = self.decoder.prefill(ids, gate_at)
        gates = tuple(
            readout.gate(residuals[readout.config.depth - 1, m])
            for m, readout in enumerate(self.readouts)
        )
        return Prefix(key_values=key_values, gates=gates)

    def respond(self, prefix: Prefix, candidates: Candidates) -> Float[Array, "W C"]:
        """Rewards (and objectives, if asked for) of candidates behind a prefix, as `columns`."""
        places = behind(candidates.shared, candidates.ids.shape[1])
        x, read = self.decoder.embed(candidates.ids), candidates.last[:, None]
        return self.respond_embedded(prefix, x, places, read)[..., 0]

    def respond_embedded(
        self,
        prefix: Prefix,
        x: Float[Array, "C T D"],
        places: Places,
        read: Int[Array, "C Y"],
        depth: int | None = None,
    ) -> Float[Array, "W C Y"]:
        """Rewards of embedded rows; differentiable with respect to them.

        Args:
          prefix: from `prefill` or `extend`.
          x: embedded rows. A row may hold several replies; each continues the prefix by itself.
          places: places of their positions.
          read: reward positions of the E replies of each row.
          depth: every head reads after so many layers, and gives its reward alone; by default
            after its own number.
        """
        depths = self.depths if depth is None else (depth,)
        residuals = self.decoder.respond(prefix.key_values, x, places, read, depths)
        flat = [r.reshape(-1, r.shape[-1]) for r in residuals]
        if depth is not None:
            return self._rewards(flat[0], prefix.gates).reshape(-1, *read.shape)
        return self._read(flat, prefix.gates).reshape(-1, *read.shape)

    def respond_by_layer(self, prefix: Prefix, candidates: Candidates) -> Float[Array, "W C"]:
        """`respond`, with each model's rewards after every layer behind its columns.

        The final norm and the head read the residual stream at the reward position after each
        layer. A gate keeps what it read in the prompt after the last one.
        """
        places = behind(candidates.shared, candidates.ids.shape[1])
        x, read = self.decoder.embed(candidates.ids), candidates.last[:, None]
        rows = jnp.arange(len(candidates.last))
        residuals, seen = self.decoder.respond_looking(
            prefix.key_values,
            x,
            places,
            read,
            self.depths,
            lambda x: self._rewards(x[rows, candidates.last], prefix.gates),
        )
        return self._with_layers(self._read([r[:, 0] for r in residuals], prefix.gates), seen)

    def respond_and_keep(
        self,
        prefix: Prefix,
        x: Float[Array, "C T D"],
        places: Places,
        read: Int[Array, "C Y"],
    ) -> tuple[Float[Array, "W C Y"], KeyValues]:
        """`respond_embedded` of a single model, and keys and values of all positions of x."""
        residual, own = self.decoder.respond_and_keep(prefix.key_values, x, places, read)
        flat = residual.reshape(-1, residual.shape[-1])
        return self._read([flat], prefix.gates).reshape(-1, *read.shape), own

    def extend(self, prefix: Prefix, ids: Int[Array, "T"], length: Int[Array, ""]) -> Prefix:
        """The prefix with `ids` behind its first `length` positions; the gates do not change."""
        key_values = self.decoder.extend(prefix.key_values, self.decoder.embed(ids[None]), length)
        return Prefix(key_values=key_values, gates=prefix.gates)

    def plain(
        self, ids: Int[Array, "C T"], last: Int[Array, "C"], gate_at: Int[Array, "C M"]
    ) -> Float[Array, "W C"]:
        """The plain pass: rewards of whole sequences, without a shared prefix.

        Args:
          ids: whole conversations.
          last: reward positions.
          gate_at: position at which each model's gate reads the prompt.
        """
        with jax.named_scope("plain"):
            rows, streams = jnp.arange(ids.shape[0]), self.decoder.forward(ids, self.depths)
            gates = self._gates(streams, gate_at)
            return self._read([x[rows, last] for x in streams], gates)

    def plain_by_layer(
        self, ids: Int[Array, "C T"], last: Int[Array, "C"], gate_at: Int[Array, "C M"]
    ) -> Float[Array, "W C"]:
        """`plain`, with each model's rewards after every layer behind its columns."""
        with jax.named_scope("plain"):
            rows = jnp.arange(ids.shape[0])
            streams, by_layer = self.decoder.forward_looking(
                ids, self.depths, lambda x: x[rows, last]
            )
            gates = self._gates(streams, gate_at)
            rewards = jax.vmap(lambda x: self._rewards(x, gates))(by_layer)
            return self._with_layers(self._read([x[rows, last] for x in streams], gates), rewards)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Names of each model's rows of a result: the reward, then its objectives if asked for."""
        return tuple(readout.config.columns(self.objectives) for readout in self.readouts)

    def _gates(
        self, streams: Sequence[Float[Array, "C T D"]], gate_at: Int[Array, "C M"]
    ) -> tuple[Float[Array, "C _"], ...]:
        """What each model's gate reads in each conversation."""
        by_depth = dict(zip(self.depths, streams, strict=True))
        rows = jnp.arange(len(gate_at))
        return tuple(
            jax.vmap(readout.gate)(by_depth[readout.config.depth][rows, gate_at[:, m]])
            for m, readout in enumerate(self.readouts)
        )

    def _rewards(
        self, residual: Float[Array, "C D"], gates: Sequence[Array]
    ) -> Float[Array, "M C"]:
        """The rewards that the heads give one residual stream, after whichever layer."""
        with jax.named_scope("lens"):
            pairs = zip(self.readouts, gates, strict=True)
            return jnp.stack([readout(residual, gate).reward for readout, gate in pairs])

    def _with_layers(
        self, own: Float[Array, "W C"], seen: Float[Array, "L M C"]
    ) -> Float[Array, "_ C"]:
        """Rows of a result with those of the layers; the last layer's row is the reward itself."""
        rows, start = [], 0
        for model, (readout, names) in enumerate(zip(self.readouts, self.columns, strict=True)):
            rows += [own[start : start + len(names)]]
            rows += [seen[: readout.config.depth - 1, model], own[start : start + 1]]
            start += len(names)
        return jnp.concatenate(rows)

    def _read(
        self, residuals: Sequence[Float[Array, "C D"]], gates: Sequence[Array]
    ) -> Float[Array, "W C"]:
        """Rows of a result; W counts the columns of all models, one model after the other."""
        by_depth = dict(zip(self.depths, residuals, strict=True))
        asked = OBJECTIVES.index(self.objectives)  # how many kinds of columns beside the reward
        rows = []
        with jax.named_scope("head"):
            for readout, gate in zip(self.readouts, gates, strict=True):
                reward, *objectives = readout(by_depth[readout.config.depth], gate)
                rows += [reward[None], *(kind.T for kind in objectives[:asked])]
        return jnp.concatenate(rows)
