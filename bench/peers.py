"""What a user would run instead of Assay: torch and transformers on the same weights and tokens.

A GCG step is that of nanoGCG 0.3.0 (`GCG.run` with its defaults), with the reward in place of a
target's loss. nanoGCG itself is written for language models and requires transformers <= 4.47, so
it cannot be installed beside Assay.
"""

import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import AutoModel, AutoModelForSequenceClassification, DynamicCache

from engine.types import PromptIds

PAPER_BATCH = 32
Layers = list[tuple[torch.Tensor, torch.Tensor]]  # keys and values of each


def quiet(threads: int) -> None:
    """Uses so many threads, and silences what transformers prints while it loads a model."""
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # an MLP head is loaded apart from its base


class RewardNetwork(torch.nn.Module):
    """A reward model folder as transformers loads it, in float32.

    A linear head is loaded as transformers' own sequence classification. transformers has no class
    for an MLP head: the base model is loaded, and the head reads the last token before padding.
    """

    def __init__(self, folder: Path):
        super().__init__()
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.linear = "score.weight" in tensors
        loader = AutoModelForSequenceClassification if self.linear else AutoModel
        self.whole = loader.from_pretrained(folder, dtype=torch.float32).eval()
        if self.linear:
            self.base, self.head = self.whole.model, self.whole.score
        else:
            self.base, self.head = self.whole, _mlp(tensors)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Rewards [B] of right-padded conversations."""
        if self.linear:
            return self.whole(input_ids=input_ids, attention_mask=attention_mask).logits[:, 0]
        hidden = self.base(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = attention_mask.sum(1) - 1
        return self.head(hidden[torch.arange(len(hidden)), last])[:, 0]


class PaperWay:
    """Each id is decoded, rendered and tokenised; whole conversations run in right-padded batches.

    This is the loop of the paper's release: batches in vocabulary order, the tokenizer's own
    special tokens, one forward pass per batch, the reward at the last token.
    """

    def __init__(self, network: RewardNetwork, folder: Path, prompt: str):
        self.network, self.prompt = network, prompt
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="right")

    def render(self, ids: Sequence[int]) -> list[str]:
        """Whole conversations as text."""
        question = {"role": "user", "content": self.prompt}
        replies = (self.tokenizer.decode([token]) for token in ids)
        conversations = [[question, {"role": "assistant", "content": reply}] for reply in replies]
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
    """transformers with its K/V cache: the prefix runs once, then only token and suffix."""

    def __init__(self, network: RewardNetwork, prompt: PromptIds, batch: int):
        self.network, self.batch = network, batch
        self.device = next(network.base.parameters()).device
        self.suffix = torch.tensor(prompt.suffix, device=self.device)
        self.layers = prefix_layers(network, prompt)

    @torch.inference_mode()
    def score(self, ids: np.ndarray) -> np.ndarray:
        """Rewards of tokens by id: float32 [C]."""
        batches = torch.from_numpy(ids).to(self.device).split(self.batch)
        return torch.cat([self._batch(batch) for batch in batches]).float().cpu().numpy()

    def _batch(self, ids: torch.Tensor) -> torch.Tensor:
        response = torch.cat([ids[:, None], self.suffix.expand(len(ids), -1)], 1)
        hidden = self.network.base(
            response, past_key_values=cache_of(self.layers, len(ids)), use_cache=True
        )
        return self.network.head(hidden.last_hidden_state[:, -1])[:, 0]


def prefix_layers(network: RewardNetwork, prompt: PromptIds) -> Layers:
    """Keys and values of a prompt's prefix in each layer."""
    device = next(network.base.parameters()).device
    with torch.inference_mode():
        ids = torch.tensor([prompt.prefix], device=device)
        prefix = network.base(ids, use_cache=True).past_key_values
    # Clones, because autograd does not accept inference tensors.
    return [(layer.keys.clone(), layer.values.clone()) for layer in prefix.layers]


def cache_of(layers: Layers, rows: int) -> DynamicCache:
    """The prefix's cache for a batch, as views; a layer's update concatenates into new memory."""
    return DynamicCache([tuple(x.expand(rows, -1, -1, -1) for x in layer) for layer in layers])


class TorchGCG:
    """One search, from its current parent `ids` int64 [n].

    A step is the gradient with respect to one-hot rows, `candidates` draws of a position and one of
    its top-k tokens, and one pass over all candidates behind the cached prefix. The best candidate
    is the next parent.

    Args:
      network: the reward model.
      prompt: the prompt that the reply answers.
      allowed: bool [V], tokens that a reply may hold.
      ids: the first parent.
      candidates: of a step.
      topk: tokens that may be proposed for a position.
      batch: candidates per forward pass; some hundreds are fastest.
    """

    def __init__(
        self,
        network: RewardNetwork,
        prompt: PromptIds,
        allowed: np.ndarray,
        ids: np.ndarray,
        *,
        candidates: int,
        topk: int,
        batch: int,
    ):
        self.network, self.candidates, self.topk, self.batch = network, candidates, topk, batch
        self.ids = torch.from_numpy(ids).long()
        self.embedding = network.base.get_input_embeddings().weight.detach()
        self.refused = torch.from_numpy(~allowed)
        self.suffix = self.embedding[torch.tensor(prompt.suffix)]
        self.generator = torch.Generator().manual_seed(0)
        self.layers = prefix_layers(network, prompt)

    def step(self) -> float:
        """One step; returns the reward of the new parent."""
        proposals = self.propose(self.gradient())
        rewards = self.score(proposals)
        best = int(torch.argmax(rewards))
        self.ids = proposals[best]
        return float(rewards[best])

    def gradient(self) -> torch.Tensor:
        """Gradient of the reward with respect to the parent's one-hot rows: [n, V]."""
        one_hot = torch.nn.functional.one_hot(self.ids, len(self.embedding)).float()
        one_hot.requires_grad_()
        return torch.autograd.grad(self._rewards((one_hot @ self.embedding)[None])[0], one_hot)[0]

    def propose(self, gradient: torch.Tensor) -> torch.Tensor:
        """Candidates that differ from the parent in one position: int64 [C, n]."""
        top = gradient.masked_fill(self.refused, -torch.inf).topk(self.topk, dim=1).indices
        count, generator = self.candidates, self.generator
        position = torch.randint(len(self.ids), (count,), generator=generator)
        chosen = torch.randint(self.topk, (count,), generator=generator)
        proposals = self.ids.repeat(count, 1)
        proposals[torch.arange(count), position] = top[position, chosen]
        return proposals

    @torch.inference_mode()
    def score(self, ids: torch.Tensor) -> torch.Tensor:
        """Rewards of replies by id: float32 [C]."""
        return torch.cat([self._rewards(self.embedding[b]) for b in ids.split(self.batch)])

    def _rewards(self, embedded: torch.Tensor) -> torch.Tensor:
        rows = len(embedded)
        response = torch.cat([embedded, self.suffix.expand(rows, -1, -1)], 1)
        hidden = self.network.base(
            inputs_embeds=response, past_key_values=cache_of(self.layers, rows), use_cache=True
        )
        return self.network.head(hidden.last_hidden_state[:, -1])[:, 0]


def cached_rates(
    hf: Mapping[str, Any], prompt: PromptIds, batches: Sequence[int], *, on_cpu: bool
) -> dict[int, float]:
    """Candidates/s of the cached way in bfloat16 with random weights, by batch size.

    Args:
      hf: the model's config.json.
      prompt: random token ids.
      batches: sizes to try; those that need more memory than there is are left out.
      on_cpu: whether a CPU may take the place of a GPU; without either there are no rates.
    """
    cuda, rates = torch.cuda.is_available(), {}
    if not (cuda or on_cpu):
        return rates
    network = _random_network(hf, torch.device("cuda" if cuda else "cpu"))
    for batch in batches:
        way, ids = CachedWay(network, prompt, batch), np.arange(2 * batch) % hf["vocab_size"]
        try:
            if not np.isfinite(way.score(ids)).all():  # warms up, too
                raise ValueError("rewards of the peer are not finite")
            began = time.perf_counter()
            for _ in range(3):
                way.score(ids)
            rates[batch] = 3 * len(ids) / (time.perf_counter() - began)
        except torch.OutOfMemoryError:
            continue
    return rates


# Any: a network with the base and the head of `RewardNetwork`.
def _random_network(hf: Mapping[str, Any], device: torch.device) -> Any:
    config = transformers.AutoConfig.for_model(**hf, num_labels=1)
    with device:
        whole = AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16).eval()
    return types.SimpleNamespace(base=whole.model, head=whole.score)


def _mlp(tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    layers = []
    for number in (0, 2):
        weight, bias = (tensors[f"score.{number}.{part}"].float() for part in ("weight", "bias"))
        layers.append(torch.nn.Linear(weight.shape[1], weight.shape[0]))
        layers[-1].load_state_dict({"weight": weight, "bias": bias})
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]).eval()
