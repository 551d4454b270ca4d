"""Reward models on one decoder: the prefix pass, the response pass, and the plain pass.

The last two may also read the reward after every layer: the reward lens.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder, Keep, behind
from engine.models.heads import HeadConfig, Readout
from engine.models.layer import FLOAT32
from engine.types import Candidates, Places, Prefix


class RewardModels(nnx.Module):
    """M reward models that share one decoder, each with its depth and head; usually M = 1.

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
        platform: str,
    ):
        self.decoder = Decoder(config, dtype, sums, platform=platform)
        self.objectives = objectives
        self.readouts = nnx.List(Readout(head) for head in heads)
        self.depths = tuple(sorted({head.depth for head in heads}))

    def prefill(self, ids: Int[Array, "P"], gate_at: Int[Array, "M"]) -> Prefix:
        """The prefix pass, once per prompt; model m's gate reads the prompt at `gate_at[m]`."""
        key_values, residuals = self.decoder.prefill(ids, gate_at)
        gates = tuple(
            readout.gate(residuals[readout.config.depth - 1, m])
            for m, readout in enumerate(self.readouts)
        )
        return Prefix(key_values=key_values, gates=gates)

    def score_candidates(
        self, prefix: Prefix, candidates: Candidates, lens: bool = False
    ) -> Float[Array, "W C"]:
        """Rewards of candidates behind a prefix: one row per column of `columns`, in float32.

        With `lens` each model's rewards after every layer follow its columns: the final norm and
        the head read the residual stream at the reward position after each layer. A gate keeps what
        it read in the prompt after the last one.
        """
        places = behind(candidates.shared, candidates.ids.shape[1])
        x, read = self.decoder.embed(candidates.ids), candidates.last[:, None]
        residuals, by_layer = self.decoder.respond(
            prefix.key_values,
            x,
            places,
            read,
            self.depths,
            (lambda x, _: self._rewards(x[:, 0], prefix.gates)) if lens else None,
        )
        rows = self._read([r[:, 0] for r in residuals], prefix.gates)
        return self._with_layers(rows, by_layer) if lens else rows

    def score_embedded(
        self,
        prefix: Prefix,
        x: Float[Array, "C T D"],
        places: Places,
        read: Int[Array, "C Y"],
        keep: Keep | None = None,
    ) -> tuple[Float[Array, "W C Y"], Any]:
        """Rewards of embedded rows x, at the positions `read`; differentiable with respect to them.

        The prefix is from `prefill` or `extend`. A row may hold Y replies, each of which continues
        the prefix by itself. The second result is what `keep` keeps, as in `Decoder.respond`.
        """
        residuals, kept = self.decoder.respond(
            prefix.key_values, x, places, read, self.depths, keep
        )
        flat = [r.reshape(-1, r.shape[-1]) for r in residuals]
        return self._read(flat, prefix.gates).reshape(-1, *read.shape), kept

    def extend(self, prefix: Prefix, ids: Int[Array, "T"], length: Int[Array, ""]) -> Prefix:
        """The prefix with `ids` behind its first `length` positions; the gates do not change."""
        key_values = self.decoder.extend(prefix.key_values, self.decoder.embed(ids[None]), length)
        return Prefix(key_values=key_values, gates=prefix.gates)

    def plain(
        self,
        ids: Int[Array, "C T"],
        last: Int[Array, "C"],
        gate_at: Int[Array, "C M"],
        lens: bool = False,
    ) -> Float[Array, "W C"]:
        """The plain pass, without a shared prefix: rewards at the positions `last` of sequences.

        Each model's gate reads the prompt at `gate_at`; `lens` is as for `score_candidates`.
        """
        with jax.named_scope("plain"):
            rows = jnp.arange(ids.shape[0])
            keep = (lambda x, _: x[rows, last]) if lens else None
            streams, by_layer = self.decoder.plain(ids, self.depths, keep)
            gates = self._gates(streams, gate_at)
            read = self._read([x[rows, last] for x in streams], gates)
            if not lens:
                return read
            return self._with_layers(read, jax.vmap(lambda x: self._rewards(x, gates))(by_layer))

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Names of each model's rows of a result: the reward, then the kinds of `objectives`."""
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
        self, rows: Float[Array, "W C"], by_layer: Float[Array, "L M C"]
    ) -> Float[Array, "_ C"]:
        """Rows of a result with those of the layers; the last layer's row is the reward itself."""
        result, start = [], 0
        for model, (readout, names) in enumerate(zip(self.readouts, self.columns, strict=True)):
            result += [rows[start : start + len(names)]]
            result += [by_layer[: readout.config.depth - 1, model], rows[start : start + 1]]
            start += len(names)
        return jnp.concatenate(result)

    def _read(
        self, residuals: Sequence[Float[Array, "C D"]], gates: Sequence[Array]
    ) -> Float[Array, "W C"]:
        """Rows of a result; W counts the columns of all models, one model after the other."""
        by_depth = dict(zip(self.depths, residuals, strict=True))
        rows = []
        with jax.named_scope("head"):
            for readout, gate in zip(self.readouts, gates, strict=True):
                reward, values = readout(by_depth[readout.config.depth], gate)
                rows += [reward[None]] if self.objectives == "none" else [reward[None], values.T]
        return jnp.concatenate(rows)
