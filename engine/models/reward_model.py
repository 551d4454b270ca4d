"""Reward models on one decoder: the prefix pass, the response pass, and the plain pass."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.heads import HeadConfig, Readout
from engine.types import Candidates, KeyValues


class RewardModels(nnx.Module):
    """M reward models that read one decoder, each at its own depth. Usually M = 1.

    Models trained on one frozen decoder, or on its first layers, cost one pass together.
    """

    def __init__(self, config: DecoderConfig, heads: Sequence[HeadConfig], dtype: jnp.dtype):
        self.decoder = Decoder(config, dtype)
        self.readouts = nnx.List(Readout(head) for head in heads)
        self.depths = tuple(sorted({head.depth for head in heads}))

    def prefill(self, ids: Int[Array, "P"]) -> KeyValues:
        """The prefix pass: once a prompt."""
        return self.decoder.prefill(ids)

    def respond(self, prefix: KeyValues, candidates: Candidates) -> Float[Array, "M C"]:
        """Rewards of candidates behind a shared prefix."""
        x = self.decoder.embed(candidates.ids)
        return self.respond_embedded(prefix, x, candidates.shared, candidates.last)

    def respond_embedded(
        self,
        prefix: KeyValues,
        x: Float[Array, "C T D"],
        shared: Int[Array, "C"],
        last: Int[Array, "C"],
    ) -> Float[Array, "M C"]:
        """`respond` as a differentiable function of the embedded candidates."""
        return self._read(self.decoder.respond(prefix, x, shared, last, self.depths))

    def plain(self, ids: Int[Array, "C T"], last: Int[Array, "C"]) -> Float[Array, "M C"]:
        """Rewards of whole sequences, nothing shared and nothing left out."""
        with jax.named_scope("plain"):
            rows = jnp.arange(ids.shape[0])
            return self._read([x[rows, last] for x in self.decoder.forward(ids, self.depths)])

    def _read(self, residuals: Sequence[Float[Array, "C D"]]) -> Float[Array, "M C"]:
        by_depth = dict(zip(self.depths, residuals, strict=True))
        with jax.named_scope("head"):
            return jnp.stack([readout(by_depth[readout.config.depth]) for readout in self.readouts])
