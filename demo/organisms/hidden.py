"""What a reward head reads, for many replies: computed once, then kept on disk.

All organisms share one frozen decoder. So the hidden state of every reply under a prompt is
computed once, and the rewards of an organism are its head on these rows.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from demo import build
from demo.embedded_models import EMBEDDED
from engine import api
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.models.decoder import behind
from engine.progress import progress
from engine.scoring.batches import gather
from engine.scoring.reward_passes import RewardScorer, compiled_over_data, in_steps
from engine.scoring.rows import ReplyRows, RewardRows, TokenRows
from engine.text.chat_template import TemplatePolicy
from engine.types import Candidates, Params, Prefix

DECODER = "smollm2-135m-d16-rt-mlp"  # whose decoder and template the organisms have


def reference(folder: Path) -> Checkpoint:
    """The checkpoint of the embedded model `DECODER` under `folder`; made if it is missing."""
    destination = folder / "checkpoints" / DECODER
    if not destination.exists():
        (built,) = build.build(folder / "hf", [EMBEDDED[DECODER]])
        policy = TemplatePolicy(bos="template", date=None)
        return convert_model(fetch(str(built), None), destination, slug=DECODER, policy=policy)
    return Checkpoint.open(destination)


class Decoder:
    """The embedded decoder, which gives hidden states instead of rewards.

    Args:
      checkpoint: a checkpoint with one linear or MLP head.
      cache: folder of the hidden states; "" keeps none.
    """

    def __init__(self, checkpoint: Checkpoint, cache: Path | None):
        self.checkpoint, self.cache = checkpoint, cache
        self._scorer: RewardScorer | None = None

    @property
    def scorer(self) -> RewardScorer:
        """The model on its devices; loaded when hidden states are first missing."""
        if self._scorer is None:
            self._scorer = api.load(self.checkpoint.path, dtype="float32")._scorer
        return self._scorer

    def vocabulary(self, prompt: str) -> np.ndarray:
        """Hidden states of every token as the reply to `prompt`: float32 [V, D]."""
        ids = self.checkpoint.token_ids
        rows = TokenRows(self.checkpoint.template.split(prompt), ids)
        return self._kept({"prompt": prompt, "tokens": len(ids)}, rows)

    def tokens(self, prompt: str, ids: Sequence[int]) -> np.ndarray:
        """Hidden states of some tokens, by id, as the reply to `prompt`: float32 [ids, D]."""
        rows = TokenRows(self.checkpoint.template.split(prompt), ids := list(ids))
        return self._kept({"prompt": prompt, "token_ids": ids}, rows)

    def layers(self, prompt: str, ids: Sequence[int]) -> np.ndarray:
        """What `tokens` gives after every layer, through the final norm: float32 [ids, L, D]."""
        rows = TokenRows(self.checkpoint.template.split(prompt), ids := list(ids))
        states = self._kept(
            {"prompt": prompt, "token_ids": ids, "layers": True}, rows, by_layer=True
        )
        return states.reshape(len(ids), -1, self.width)

    def replies(self, prompt: str, replies: Sequence[str]) -> np.ndarray:
        """Hidden states of texts as the reply to `prompt`: float32 [replies, D]."""
        template = self.checkpoint.template
        rows = ReplyRows(template.split(prompt), template, list(replies), "ids")
        return self._kept({"prompt": prompt, "replies": list(replies)}, rows)

    def _kept(
        self, asked: dict[str, Any], rows: RewardRows, *, by_layer: bool = False
    ) -> np.ndarray:
        """Hidden states from the cache, or computed and put there under a temporary name."""
        if self.cache is None:
            return self._states(rows, by_layer)
        asked = {"decoder": self.checkpoint.card.decoder_hash, **asked}
        name = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]
        file = self.cache / f"{name}.npy"
        if not file.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(f".{os.getpid()}.tmp.npy")
            np.save(temporary, self._states(rows, by_layer))
            temporary.rename(file)
        return np.load(file, mmap_mode="r")

    def _states(self, rows: RewardRows, by_layer: bool) -> np.ndarray:
        scorer = self.scorer
        width = self.width * (self.checkpoint.card.reward_head.depth if by_layer else 1)
        prefix, shape = scorer.prefill(rows.prompt), (width, len(rows))
        step = _states_of(scorer, _respond_by_layer if by_layer else _respond)

        def states(candidates: Candidates) -> Iterator[np.ndarray]:
            def one(taken: Candidates) -> jax.Array:
                return step(scorer.params, prefix, taken)

            return in_steps(one, candidates, scorer.mesh, scorer.step_size)

        with progress(len(rows), "replies", what=rows.prompt.prompt[:40]) as bar:
            return gather(rows.buckets(0, len(rows)), shape, states, bar.update).T.copy()

    @property
    def width(self) -> int:
        """D of the hidden states."""
        return self.checkpoint.card.decoder.width


def _states_of(
    scorer: RewardScorer, respond: Callable[..., jax.Array]
) -> Callable[[Params, Prefix, Candidates], jax.Array]:
    """The compiled pass of `RewardModels`, up to the head: [D, C], or [LD, C] of all layers."""
    return compiled_over_data(respond, scorer.graph, scorer.mesh, ("", "C"), "WC")


def _respond(model: Any, prefix: Prefix, candidates: Candidates) -> jax.Array:
    """Normed residual stream at the reward positions; model is a `RewardModels` of one model."""
    (readout,) = model.readouts
    x, read = model.decoder.embed(candidates.ids), candidates.last[:, None]
    places = behind(candidates.shared, candidates.ids.shape[1])
    (residual,) = model.decoder.respond(prefix.key_values, x, places, read, model.depths)
    return readout._normed(residual[:, 0]).T


def _respond_by_layer(model: Any, prefix: Prefix, candidates: Candidates) -> jax.Array:
    """`_respond` after every layer, one layer after the other."""
    (readout,) = model.readouts
    x, read = model.decoder.embed(candidates.ids), candidates.last[:, None]
    places, rows = behind(candidates.shared, candidates.ids.shape[1]), jnp.arange(len(read))
    (last,), earlier = model.decoder.respond_looking(
        prefix.key_values, x, places, read, model.depths, lambda x: x[rows, candidates.last]
    )
    layers = readout._normed(jnp.concatenate([earlier, last[None, :, 0]]))  # L C D
    return jnp.moveaxis(layers, 1, -1).reshape(-1, len(read))


def rewards(head: dict[str, np.ndarray], states: np.ndarray) -> np.ndarray:
    """Rewards float32 [...] of hidden states [..., D] under a head, as `train_heads` names it."""
    inner = np.maximum(states @ head["score.0.weight"].T + head["score.0.bias"], 0)
    return (inner @ head["score.2.weight"].T + head["score.2.bias"])[..., 0]
