"""Reward heads of the published models in torch, written from their formulas.

The published classes are custom code, which is never executed: here each head is plain torch on a
random trunk, saved under the class, key names and module indices of its checkpoints.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from torch import nn

from engine.checkpoint.card import Checkpoint
from engine.convert import gates
from engine.types import PromptIds
from tests.support import folders, parity, torch_models

PATTERN = (7, 11, 13)  # stands for the published patterns, whose ids a tiny vocabulary lacks
HIDDEN = 20
QUANTILES = 19


class HeadResult(NamedTuple):
    """What a head says of one response."""

    reward: torch.Tensor
    values: torch.Tensor = torch.zeros(0)  # of the objectives


class Rows(nn.Module):
    """A layer, or an MLP, that a checkpoint calls `name`; `reward` makes one number of its rows."""

    gated = False

    def __init__(self, name: str, layer: nn.Module, reward=lambda rows: rows[0]):
        super().__init__()
        *parents, last = name.split(".")
        owner = self
        for parent in parents:
            setattr(owner, parent, nn.Module())
            owner = getattr(owner, parent)
        setattr(owner, last, layer)
        self.name, self.reward = name, reward

    def forward(self, h, at_gate) -> HeadResult:
        layer = self.get_submodule(self.name)
        rows = layer(h)
        many = isinstance(layer, nn.Linear) and len(rows) > 1  # of an MLP none is an objective
        return HeadResult(self.reward(rows), rows if many else rows[:0])


def rows(width: int, name: str, count: int = 1, *, bias: bool = False, **reward) -> Rows:
    return Rows(name, nn.Linear(width, count, bias=bias), **reward)


def mlp(width: int, name: str, hidden: int, count: int = 1, **reward) -> Rows:
    layers = nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, count)
    return Rows(name, nn.Sequential(*layers), **reward)


class URM(nn.Module):
    """weights.fc: Linear, SELU, Linear, SELU, Linear."""

    gated = False

    def __init__(self, width: int, helpfulness: bool = False):
        super().__init__()
        self.helpfulness = helpfulness
        self.score = nn.Linear(width, 10, bias=False)
        self.weights = nn.Module()
        self.weights.fc = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.SELU(), nn.Linear(HIDDEN, 16), nn.SELU(), nn.Linear(16, 5)
        )

    def forward(self, h, at_gate) -> HeadResult:
        means = self.score(h).reshape(5, 2)[:, 0]
        reward = means[0] if self.helpfulness else (means * self.weights.fc(h)).sum()
        return HeadResult(reward, means)


class Gated(nn.Module):
    """ArmoRM and QRM; `modules` is the gate with the published indices."""

    gated = True

    def __init__(self, width, modules, *, objectives, quantiles, transform, temperature):
        super().__init__()
        self.gating = nn.Module()
        self.gating.layers = nn.ModuleList(modules)
        self.gating.logit_scale = nn.Parameter(torch.tensor(1.296875))
        self.regression_layer = nn.Linear(width, objectives * quantiles, bias=False)
        self.reward_transform_matrix = (
            nn.Parameter(torch.eye(objectives) + 0.3 * torch.randn(objectives, objectives))
            if transform
            else None
        )
        self.shape, self.temperature = (objectives, quantiles), temperature

    def gate(self, at_gate):
        x = at_gate[None]
        for index, module in enumerate(self.gating.layers):
            x = module(x)
            if len(self.gating.layers) == 4 and index < 3:  # ArmoRM: ReLU outside of the list
                x = torch.relu(x)
        return torch.softmax(x[0] / self.temperature, dim=-1) * self.gating.logit_scale

    def forward(self, h, at_gate) -> HeadResult:
        objectives = self.regression_layer(h).reshape(self.shape).mean(-1)
        mixed = objectives
        if self.reward_transform_matrix is not None:
            mixed = objectives @ self.reward_transform_matrix
        reward = (self.gate(at_gate) * mixed).sum()
        return HeadResult(reward, objectives)


def inform(width: int) -> Rows:
    return mlp(width, "score", hidden=width)


def grm_sftreg(width: int) -> Rows:
    return mlp(width, "v_head.summary", hidden=HIDDEN)


def armorm(width: int) -> Gated:
    sizes = [width, HIDDEN, HIDDEN, HIDDEN, 19]
    modules = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return Gated(width, modules, objectives=19, quantiles=1, transform=True, temperature=10.0)


def _blocks(width: int, dropout: bool) -> list[nn.Module]:
    """Three of Linear (no bias), ReLU, BatchNorm, and in QRM-Gemma Dropout between them.

    With the layer behind them: Linear at 0, 3, 6, 9 and BatchNorm at 2, 5, 8 of what is published;
    with Dropout 0, 4, 8, 11 and 2, 6, 10.
    """
    modules: list[nn.Module] = []
    for block in range(3):
        modules += [nn.Linear(width, HIDDEN, bias=False), nn.ReLU(), nn.BatchNorm1d(HIDDEN)]
        modules += [nn.Dropout(0.2)] * (dropout and block < 2)
        width = HIDDEN
    return modules


def qrm_llama(width: int, objectives: int = 19) -> Gated:
    modules = [*_blocks(width, dropout=False), nn.Linear(HIDDEN, objectives)]
    return Gated(
        width, modules, objectives=objectives, quantiles=QUANTILES, transform=True, temperature=5.0
    )


def qrm_gemma(width: int, temperature: float = 1.0) -> Gated:
    modules = [*_blocks(width, dropout=True), nn.Linear(HIDDEN, 5)]
    return Gated(
        width, modules, objectives=5, quantiles=QUANTILES, transform=False, temperature=temperature
    )


@dataclasses.dataclass(frozen=True)
class Case:
    """A head, the trunk it is published on, and what its config.json and the user say."""

    head: Callable[[int], nn.Module]
    trunk: str = "gqa-llama3"
    architecture: str = "LlamaForRewardModelWithGating"
    config: tuple[tuple[str, object], ...] = ()
    variant: str = ""
    reward: str = ""
    file: str = "model.safetensors"  # that holds the head
    prefix: str = ""  # of the decoder's tensors
    lm_head: bool = False  # whether an output head over the vocabulary is beside it
    token: str = ""  # that its tokenizer has beside the tiny one's


_URM = "LlamaForSequenceClassificationWithNormal_Weights"
_VHEAD = (("vhead_layer_type", "mlp"), ("vhead_num_layers", 1), ("vhead_num_neurons", HIDDEN))
CASES = {
    "INF-ORM": Case(inform, architecture="INFORMForSequenceClassification"),
    "Qwen 2's MLP": Case(inform, "qwen2", "Qwen2ForRewardModel"),
    "GRM sftreg, Llama": Case(grm_sftreg, architecture="GRewardModel", config=_VHEAD),
    "GRM sftreg, Gemma 2": Case(grm_sftreg, "gemma2", "GRewardModel", _VHEAD),
    "URM": Case(URM, architecture=_URM),
    "URM's helpfulness": Case(
        lambda width: URM(width, helpfulness=True), architecture=_URM, variant="urm-helpfulness"
    ),
    "ArmoRM": Case(armorm),
    "QRM-Llama": Case(qrm_llama),
    "QRM-Llama v2": Case(lambda width: qrm_llama(width, objectives=5)),
    "QRM-Gemma": Case(qrm_gemma, "gemma2", "Gemma2ForRewardModelWithGating"),
    "QRM-Gemma, temperature in the config": Case(
        lambda width: qrm_gemma(width, temperature=2.5),
        "gemma2",
        "Gemma2ForRewardModelWithGating",
        (("gating_temperature", 2.5),),
    ),
}
_LABELS = (("id2label", {str(k): f"LABEL_{k}" for k in range(10)}),)
_NORMALISED = (("normalize_reward", True), ("mean", 0.7), ("std", 2.5))


def _difference(rows):
    return rows[1] - rows[0]


def _normalised(rows):
    return (rows[0] - 0.7) / 2.5


# Heads under the names and in the files in which tools write them.
FORMS = {
    "a value head of OpenRLHF": Case(
        lambda width: rows(width, "value_head"),
        architecture="RewardModel",
        config=(("value_head_prefix", "value_head"), ("normalize_reward", False), ("mean", 1.0)),
    ),
    "a head that OpenRLHF's user named, normalised": Case(
        lambda width: rows(width, "my.head", reward=_normalised),
        "mistral",
        "RewardModel",
        (("value_head_prefix", "my.head"), *_NORMALISED),
    ),
    "an MLP, normalised": Case(
        lambda width: mlp(width, "score", HIDDEN, reward=_normalised),
        "qwen2",
        "Qwen2ForRewardModel",
        _NORMALISED,
    ),
    "UltraRM": Case(lambda width: rows(width, "regression_head"), architecture="LlamaRewardModel"),
    "a score_head with a bias": Case(lambda width: rows(width, "score_head", bias=True)),
    "TRL's value head": Case(
        lambda width: rows(width, "v_head.summary", bias=True),
        architecture="LlamaForCausalLM",
        prefix="pretrained_model.",
        lm_head=True,
    ),
    "LLaMA-Factory": Case(
        lambda width: rows(width, "v_head.summary", bias=True),
        "qwen2",
        "Qwen2ForCausalLM",
        file="value_head.safetensors",
        lm_head=True,
    ),
    "GRM sftreg as published": Case(
        grm_sftreg, architecture="LlamaForCausalLM", config=_VHEAD, lm_head=True
    ),
    "OpenAssistant's Pythia": Case(
        lambda width: rows(width, "out_proj", bias=True),
        "gpt_neox",
        "GPTNeoXRewardModel",
        (("model_type", "gpt_neox_reward_model"), ("pooling", "last")),
    ),
    "a row of ten": Case(
        lambda width: rows(width, "score", 10, reward=lambda rows: rows[9]),
        "mistral, no window",
        "MistralForSequenceClassification",
        _LABELS,
        reward="LABEL_9",
    ),
    "a difference of two rows with biases": Case(
        lambda width: rows(width, "score", 2, bias=True, reward=_difference),
        "qwen3",
        "Qwen3ForTokenClassification",
        reward="1 - 0",
    ),
    "Qwen's process reward model": Case(
        lambda width: mlp(width, "score", width, 2, reward=_difference),
        "qwen2",
        "Qwen2ForProcessRewardModel",
        lm_head=True,
        token="<extra_0>",
    ),
    "Athene": Case(
        lambda width: rows(width, "v_head"),
        architecture="AtheneForSequenceClassification",
        token="<|reserved_special_token_1|>",
    ),
}


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Torch trunk and head, and what conversion made of them."""

    trunk: torch.nn.Module
    head: nn.Module
    checkpoint: Checkpoint
    restored: parity.Restored  # results have all columns that the head knows

    @torch.no_grad()
    def expected(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Rewards [C] and values [C, R] of whole sequences, one at a time."""
        rows = []
        for sequence in sequences:
            h = self.trunk(torch.tensor([list(map(int, sequence))])).last_hidden_state[0]
            gate_at = last_occurrence(sequence) if self.head.gated else 0
            rows.append(self.head(h[-1], h[gate_at]))
        return [torch.stack(column).numpy() for column in zip(*rows, strict=True)]


def load(name: str, folder: Path) -> Loaded:
    """Makes, saves and converts a case of `CASES`."""
    case = (CASES | FORMS)[name]
    model = torch_models.build(case.trunk)
    head = random_head(case, model.config.hidden_size)
    save(case, head, folder / "hf")
    checkpoint = convert(folder / "hf", folder / "checkpoint", case.variant, case.reward)
    restored = parity.restore(checkpoint, objectives="values")
    return Loaded(model.base_model, head, checkpoint, restored)


def last_occurrence(sequence: Sequence[int]) -> int:
    starts = range(len(sequence) - len(PATTERN) + 1)
    return max(i for i in starts if tuple(sequence[i : i + len(PATTERN)]) == PATTERN)


def random_head(case: Case, width: int) -> nn.Module:
    """Weights so large that every part of the head moves the reward; in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        head = case.head(width).eval()
        for module in head.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.normal_(0.0, 2.0 * module.in_features**-0.5)
            if isinstance(module, nn.BatchNorm1d):
                module.weight.data.normal_(1.0, 0.3)
                module.bias.data.normal_(0.0, 0.5)
                module.running_mean.normal_(0.5, 0.5)
                module.running_var.uniform_(0.3, 3.0)
        if head.gated:  # the softmax neither flat nor saturated
            for module in head.gating.modules():
                if isinstance(module, nn.Linear):
                    module.weight.data.div_(2.0)
            head.gating.layers[-1].weight.data.mul_(head.temperature)
    return head


def save(case: Case, head: nn.Module, folder: Path) -> Path:
    """As the model is published: trunk, the head's tensors beside it, config."""
    torch_models.save(torch_models.build(case.trunk), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["score.weight"]
    if case.token:
        tokenizer = torch_models.tokenizer()
        tokenizer.add_tokens([AddedToken(case.token, special=True)], special_tokens=True)
        tokenizer.save_pretrained(folder)
    if case.lm_head:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    tensors = {case.prefix + name: tensor for name, tensor in tensors.items()}
    files = {"model.safetensors": tensors}
    files[case.file] = files.get(case.file, {}) | head.state_dict()
    for name, members in files.items():
        save_file(members, folder / name, {"format": "pt"})
    auto_map = {"AutoModelForSequenceClassification": "modeling_custom.Custom"}
    folders.edit_json(
        folder / "config.json",
        architectures=[case.architecture],
        auto_map=auto_map,
        **dict(case.config),
    )
    return folder


def convert(folder: Path, destination: Path, variant: str = "", reward: str = "") -> Checkpoint:
    """The conversion, for a tokenizer in which the gates' pattern is `PATTERN`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gates, "PATTERNS", {"llama": PATTERN, "gemma2": PATTERN})
        return folders.convert(folder, destination, head=variant, reward=reward)


def prompt() -> PromptIds:
    """The pattern twice, the last time short of the end; 60 positions."""
    ids = list(map(int, parity.random_ids(60, seed=1)))
    ids[20:23], ids[50:53] = PATTERN, PATTERN
    return PromptIds(prompt="?", prefix=tuple(ids), suffix=())


def candidates():
    """1 to 5 positions behind the whole prefix, in which the gate reads."""
    whole = parity.whole_candidates(5)
    rows = np.arange(len(whole), dtype=np.int32)
    return dataclasses.replace(whole, shared=np.full(len(whole), 60, np.int32), last=rows % 5)


def check(loaded: Loaded, restored: parity.Restored, *, plain_alone: bool = False) -> None:
    """Rewards and objectives of the plain pass, then of the response pass."""
    sequences = parity.sequences_of(prompt(), candidates())
    rewards, values = loaded.expected(sequences)
    for behind_prefix in (False, True)[: 1 if plain_alone else 2]:
        if behind_prefix:
            actual = parity.respond(restored.scorer, prompt(), candidates())
        else:
            actual = restored.scorer.plain_rewards(sequences)
        assert len(actual) == 1 + values.shape[1]
        parity.assert_close(actual[0], rewards, scale=rewards.std())
        if values.size:
            parity.assert_close(actual[1:], values.T, scale=values.std())
