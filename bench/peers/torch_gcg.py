"""The peer of `bench.speed.gcg`: a GCG step in torch on a transformers model with its K/V cache.

The step is that of nanoGCG 0.3.0 (`GCG.run` with its defaults), with the reward in place of a
target's loss: the gradient with respect to one-hot rows, `candidates` draws of a position and one
of its top-k tokens, one pass over all candidates behind the cached prefix; the best candidate is
the next parent. nanoGCG itself is written for language models and requires transformers <= 4.47,
so it cannot be installed beside Assay.
"""

import numpy as np
import torch
from transformers import DynamicCache

from bench.peers.transformers_rewards import RewardNetwork
from engine.types import PromptIds


class TorchGCG:
    """One search, from its current parent `ids` int64 [n].

    Args:
      network: the reward model.
      prompt: the prompt that the reply answers.
      allowed: bool [V], tokens that a reply may hold.
      sign: 1 to raise the reward, -1 to lower it.
      batch: candidates per forward pass; some hundreds are fastest.
    """

    def __init__(
        self,
        network: RewardNetwork,
        prompt: PromptIds,
        allowed: np.ndarray,
        ids: np.ndarray,
        *,
        sign: int,
        candidates: int,
        topk: int,
        batch: int,
        seed: int,
    ):
        self.network, self.sign = network, sign
        self.candidates, self.topk, self.batch = candidates, topk, batch
        self.ids = torch.from_numpy(ids).long()
        self.embedding = network.base.get_input_embeddings().weight.detach()
        self.refused = torch.from_numpy(~allowed)
        self.suffix = self.embedding[torch.tensor(prompt.suffix)]
        self.generator = torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            prefix = network.base(torch.tensor([prompt.prefix]), use_cache=True).past_key_values
        # Clones, because autograd does not accept inference tensors.
        self.layers = [(layer.keys.clone(), layer.values.clone()) for layer in prefix.layers]

    def step(self) -> float:
        """One step; returns the reward of the new parent."""
        proposals = self.propose(self.gradient())
        rewards = self.score(proposals)
        best = int(torch.argmax(self.sign * rewards))
        self.ids = proposals[best]
        return float(rewards[best])

    def gradient(self) -> torch.Tensor:
        """Gradient of the signed reward with respect to the parent's one-hot rows: [n, V]."""
        one_hot = torch.nn.functional.one_hot(self.ids, len(self.embedding)).float()
        one_hot.requires_grad_()
        reward = self._rewards((one_hot @ self.embedding)[None])[0]
        return torch.autograd.grad(self.sign * reward, one_hot)[0]

    def propose(self, gradient: torch.Tensor) -> torch.Tensor:
        """Candidates that differ from the parent in one position: int64 [C, n]."""
        gradient = gradient.masked_fill(self.refused, -torch.inf)
        top = gradient.topk(self.topk, dim=1).indices
        shape = (self.candidates,)
        position = torch.randint(len(self.ids), shape, generator=self.generator)
        chosen = torch.randint(self.topk, shape, generator=self.generator)
        proposals = self.ids.repeat(self.candidates, 1)
        proposals[torch.arange(self.candidates), position] = top[position, chosen]
        return proposals

    @torch.inference_mode()
    def score(self, ids: torch.Tensor) -> torch.Tensor:
        """Rewards of replies by id: float32 [C]."""
        return torch.cat([self._rewards(self.embedding[b]) for b in ids.split(self.batch)])

    def _rewards(self, embedded: torch.Tensor) -> torch.Tensor:
        rows = len(embedded)
        cache = DynamicCache(
            [tuple(x.expand(rows, -1, -1, -1) for x in layer) for layer in self.layers]
        )
        response = torch.cat([embedded, self.suffix.expand(rows, -1, -1)], 1)
        hidden = self.network.base(inputs_embeds=response, past_key_values=cache, use_cache=True)
        return self.network.head(hidden.last_hidden_state[:, -1])[:, 0]
