"""A language model: the decoder, its final norm and the output head over the vocabulary.

Checked against the `...ForCausalLM` classes of `transformers` 5.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from engine.models.config import DecoderConfig
from engine.models.decoder import Decoder, behind
from engine.models.heads import OutputConfig, final_norm
from engine.models.layer import FLOAT32
from engine.types import Candidates, Kept


class Output(nnx.Module):
    """Parameters of the output head, float32; a tied head uses the embedding as its matrix."""

    def __init__(self, config: OutputConfig):
        self.config = config
        self.norm = nnx.Param(jnp.zeros(config.width, jnp.float32), axes="D")
        if config.norm == "layer":
            self.norm_bias = nnx.Param(jnp.zeros(config.width, jnp.float32), axes="D")
        if not config.tied:
            shape = (config.vocab_size, config.width)
            self.weight = nnx.Param(jnp.zeros(shape, jnp.float32), axes="VD")


class LanguageModel(nnx.Module):
    """Natural log-probabilities of next tokens, and of replies behind a shared prefix."""

    def __init__(
        self,
        config: DecoderConfig,
        output: OutputConfig,
        dtype: jnp.dtype,
        sums: jnp.dtype = FLOAT32,
        *,
        platform: str,
    ):
        self.decoder = Decoder(config, dtype, sums, platform=platform)
        # A list of one, since `RewardModels` has a list and restoring treats both alike.
        self.readouts = nnx.List([Output(output)])

    def prefill(
        self, ids: Int[Array, "P"], last: Int[Array, "1"]
    ) -> tuple[Kept, Float[Array, "V"]]:
        """Keys and values of a prompt, and the log-probabilities of the token after `last`."""
        key_values, residuals = self.decoder.prefill(ids, last)
        return key_values, self.logprobs(residuals[-1, 0])

    def score_candidates(self, prefix: Kept, candidates: Candidates) -> Float[Array, "C"]:
        """Log-probability of each reply `ids[c, 1 : last + 1]`, the sum over its tokens.

        `ids[c, 0]` must be the prompt's last token, so that this pass also computes the
        log-probability of the reply's first token.
        """
        x = self.decoder.embed(candidates.ids[:, :-1])
        places = behind(candidates.shared, x.shape[1])
        depths = (self.decoder.config.num_layers,)
        (residuals,), _ = self.decoder.respond(prefix, x, places, None, depths)
        counted = jnp.arange(x.shape[1]) < candidates.last[:, None]
        return self._sum(residuals, candidates.ids[:, 1:], counted)

    def plain(
        self, ids: Int[Array, "C T"], first: Int[Array, "C"], last: Int[Array, "C"]
    ) -> Float[Array, "C"]:
        """Log-probability of `ids[c, first : last + 1]` given the tokens before it.

        It shares no prefix: the reference for `prefill` and `score_candidates`.
        """
        with jax.named_scope("plain"):
            (residuals,), _ = self.decoder.plain(ids, (self.decoder.config.num_layers,))
            at = jnp.arange(1, ids.shape[1])
            counted = (at >= first[:, None]) & (at <= last[:, None])
            return self._sum(residuals[:, :-1], ids[:, 1:], counted)

    def logprobs(self, residual: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Log-softmax over the vocabulary, from the residual stream after the last layer."""
        output = self.readouts[0]
        config = output.config
        weight = self.decoder.embedding[...] if config.tied else output.weight[...]
        with jax.named_scope("output"):
            normed = final_norm(output, residual).astype(weight.dtype)
            logits = jnp.einsum("...D,VD->...V", normed, weight, preferred_element_type=jnp.float32)
            if config.softcap is not None:
                logits = config.softcap * jnp.tanh(logits / config.softcap)
            return jax.nn.log_softmax(logits)

    def _sum(
        self, residuals: Float[Array, "C T D"], targets: Int[Array, "C T"], counted: Array
    ) -> Float[Array, "C"]:
        """Sums the log-probabilities of targets, one position at a time: [C, T, V] is large."""

        def add(position: Array, total: Array) -> Array:
            logprobs = self.logprobs(residuals[:, position])  # [C, V]
            chosen = jnp.take_along_axis(logprobs, targets[:, position, None], axis=1)[:, 0]
            return total + jnp.where(counted[:, position], chosen, 0.0)

        return jax.lax.fori_loop(0, targets.shape[1], add, jnp.zeros(len(targets)))
