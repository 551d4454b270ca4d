"""The peers of `bench.speed.sweep`: the same rewards from transformers on the same weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DynamicCache,
)

from engine.types import PromptIds

PAPER_BATCH = 32


class RewardNetwork(torch.nn.Module):
    """A reward model folder as transformers loads it, in float32.

    A linear head is loaded as transformers' own sequence classification. transformers has no class
    for an MLP head: the base model is loaded, and the head reads the last token before padding.
    """

    def __init__(self, folder: Path):
        super().__init__()
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.linear = "score.weight" in tensors
        if self.linear:
            loader = AutoModelForSequenceClassification
            self.whole = loader.from_pretrained(folder, dtype=torch.float32).eval()
            self.base, self.head = self.whole.model, self.whole.score
        else:
            self.base = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
            self.head = _mlp(tensors)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Rewards [B] of right-padded conversations."""
        if self.linear:
            return self.whole(input_ids=input_ids, attention_mask=attention_mask).logits[:, 0]
        hidden = self.base(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = attention_mask.sum(1) - 1
        return self.head(hidden[torch.arange(len(hidden)), last])[:, 0]


class RandomNetwork(torch.nn.Module):
    """A reward model of random weights with a linear head, made on a device.

    Args:
      hf: a config.json, as a mapping.
      dtype: of its weights.
      device: where it is made.
    """

    def __init__(self, hf: Mapping[str, Any], dtype: torch.dtype, device: torch.device):
        super().__init__()
        config = AutoConfig.for_model(**hf, num_labels=1)
        with device:
            loader = AutoModelForSequenceClassification
            self.whole = loader.from_config(config, dtype=dtype).eval()
        self.base, self.head = self.whole.model, self.whole.score


class PaperWay:
    """Each id is decoded, rendered and tokenised; whole conversations run in right-padded batches.

    This is the loop of the paper's release: batches in vocabulary order, the tokenizer's own
    special tokens, one forward pass per batch, the reward at the last token.
    """

    def __init__(self, network: RewardNetwork, folder: Path, prompt: str):
        self.network, self.prompt = network, prompt
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right")

    def render(self, ids: Sequence[int]) -> list[str]:
        """Whole conversations as text."""
        conversations = [
            [
                {"role": "user", "content": self.prompt},
                {"role": "assistant", "content": self.tokenizer.decode([token])},
            ]
            for token in ids
        ]
        return self.tokenizer.apply_chat_template(conversations, tokenize=False)

    @torch.inference_mode()
    def score(self, ids: np.ndarray) -> np.ndarray:
        """Rewards of tokens by their text: float32 [C]."""
        rewards = []
        for batch in np.split(ids, range(PAPER_BATCH, len(ids), PAPER_BATCH)):
            text = self.tokenizer(self.render(batch.tolist()), padding=True, return_tensors="pt")
            rewards.append(self.network(text["input_ids"], text["attention_mask"]).numpy())
        return np.concatenate(rewards)

    def round_trips(self, ids: np.ndarray, prompt: PromptIds) -> np.ndarray:
        """Whether each token's text tokenises back to it: bool [C]."""
        sequences = self.tokenizer(self.render(ids.tolist()))["input_ids"]
        expected = [[*prompt.prefix, token, *prompt.suffix] for token in ids.tolist()]
        return np.array([a == b for a, b in zip(sequences, expected, strict=True)])


class CachedWay:
    """transformers with its K/V cache: the prefix runs once, then only token and suffix.

    The prefix's cache is expanded to the batch as a view. A layer's update concatenates into new
    memory, so the cache is unchanged for the next batch.
    """

    def __init__(self, network: "RewardNetwork | RandomNetwork", prompt: PromptIds, batch: int):
        self.network, self.batch = network, batch
        self.device = next(network.base.parameters()).device
        self.suffix = torch.tensor(prompt.suffix, device=self.device)
        ids = torch.tensor([prompt.prefix], device=self.device)
        with torch.inference_mode():
            prefix = network.base(ids, use_cache=True).past_key_values
        self.layers = [(layer.keys, layer.values) for layer in prefix.layers]

    @torch.inference_mode()
    def score(self, ids: np.ndarray) -> np.ndarray:
        """Rewards of tokens by id: float32 [C]."""
        rewards = [
            self._batch(torch.from_numpy(ids[i : i + self.batch]).to(self.device))
            for i in range(0, len(ids), self.batch)
        ]
        return torch.cat(rewards).float().cpu().numpy()

    def _batch(self, ids: torch.Tensor) -> torch.Tensor:
        rows = len(ids)
        cache = DynamicCache(
            [tuple(x.expand(rows, -1, -1, -1) for x in layer) for layer in self.layers]
        )
        response = torch.cat([ids[:, None], self.suffix.expand(rows, -1)], 1)
        hidden = self.network.base(response, past_key_values=cache, use_cache=True)
        return self.network.head(hidden.last_hidden_state[:, -1])[:, 0]


def _mlp(tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
    layers = {i: _linear(tensors[f"score.{i}.weight"], tensors[f"score.{i}.bias"]) for i in (0, 2)}
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[2]).eval()


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return layer
