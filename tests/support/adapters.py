"""Adapters of peft, written by hand in its layout, and computed in torch without merging."""

import copy
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tests.support import torch_models

PREFIX = "base_model.model."
# Fields of adapter_config.json that say nothing.
_NULL = (
    *("alora_invocation_tokens", "arrow_config", "auto_mapping", "corda_config", "eva_config"),
    *("exclude_modules", "layer_replication", "layers_pattern", "layers_to_transform"),
    *("lora_ga_config", "megatron_config", "revision", "target_parameters"),
    *("trainable_token_indices", "use_bdlora"),
)
_FALSE = ("ensure_weight_tying", "fan_in_fan_out", "lora_bias", "use_dora", "use_qalora")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adapter:
    """A random adapter: what its config says, and what it changes."""

    model: str = "gqa"  # of `torch_models.build`
    rank: int = 4
    alpha: float = 16
    rslora: bool = False
    ranks: Mapping[str, int] = dataclasses.field(default_factory=dict)  # ends of names -> rank
    alphas: Mapping[str, float] = dataclasses.field(default_factory=dict)
    targets: tuple[str, ...] = TARGETS
    rows: int = 0  # of an embedding that was resized, and is in the adapter as a whole
    causal: bool = True  # the base is a language model; else a reward model with another head

    def of(self, name: str, changed: Mapping[str, float], default: float) -> float:
        return next((value for end, value in changed.items() if name.endswith(end)), default)

    def rank_of(self, name: str) -> int:
        return int(self.of(name, self.ranks, self.rank))

    def scale(self, name: str) -> float:
        """What B (A x) is multiplied with: alpha / r, or alpha / sqrt(r)."""
        alpha, rank = self.of(name, self.alphas, self.alpha), self.rank_of(name)
        return alpha * rank**-0.5 if self.rslora else alpha / rank

    @property
    def config(self) -> dict:
        """adapter_config.json, as peft 0.19 writes it."""
        return {
            **dict.fromkeys(_NULL),
            **dict.fromkeys(_FALSE, False),
            **{"bias": "none", "init_lora_weights": True, "inference_mode": True},
            **{"loftq_config": {}, "lora_dropout": 0.05, "megatron_core": "megatron.core"},
            **{"peft_type": "LORA", "peft_version": "0.19.1", "qalora_group_size": 16},
            **{"task_type": "SEQ_CLS", "modules_to_save": ["classifier", "score"]},
            **{"r": self.rank, "lora_alpha": self.alpha, "use_rslora": self.rslora},
            **{"rank_pattern": dict(self.ranks), "alpha_pattern": dict(self.alphas)},
            "target_modules": sorted(self.targets),
        }


def write(adapter: Adapter, folder: Path) -> PreTrainedModel:
    """Writes the base (`folder/base`) and the adapter (`folder/adapter`).

    Returns:
      The model with its adapter beside its weights: W x + scale * (B (A x)).
    """
    trained = torch_models.build(adapter.model)
    base = copy.deepcopy(trained)
    if adapter.causal:
        base = AutoModelForCausalLM.from_config(trained.config, dtype=trained.dtype).eval()
        base.base_model.load_state_dict(trained.base_model.state_dict())
    torch_models.save(base, folder / "base")
    model = copy.deepcopy(trained).float()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        tensors = add(adapter, model)
    destination = folder / "adapter"
    destination.mkdir()
    tensors = {PREFIX + name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, destination / "adapter_model.safetensors")
    config = adapter.config | {"base_model_name_or_path": str(folder / "base")}
    (destination / "adapter_config.json").write_text(json.dumps(config))
    torch_models.tokenizer().save_pretrained(destination)
    return model


def add(adapter: Adapter, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Adds a random adapter and another head to a model; returns the tensors that peft saves."""
    tensors = {}
    if adapter.rows:
        model.resize_token_embeddings(adapter.rows, mean_resizing=False)
        weight = model.get_input_embeddings().weight
        weight.data.normal_(0.0, 0.05)
        tensors |= {name: w.data for name, w in model.named_parameters() if w is weight}
    for name, module in list(model.named_modules()):
        if name.endswith(adapter.targets):
            tensors |= _add_product(adapter, name, module)
    model.score.weight.data.normal_(0.0, model.score.in_features**-0.5)
    return tensors | {"score.weight": model.score.weight.data}


def _add_product(adapter: Adapter, name: str, module: nn.Module) -> dict[str, torch.Tensor]:
    rank, scale = adapter.rank_of(name), adapter.scale(name)
    rows, columns = module.weight.shape[:: -1 if isinstance(module, Conv1D) else 1]
    if isinstance(module, nn.Embedding):  # [r, V] and [D, r]; no parameter is called `weight`
        a, b = torch.randn(rank, rows), torch.randn(columns, rank) * 0.02
        module.register_forward_hook(lambda _, ids, out: out + scale * (a.T[ids[0]] @ b.T))
        return {f"{name}.lora_embedding_A": a, f"{name}.lora_embedding_B": b}
    a = torch.randn(rank, columns) * columns**-0.5
    b = torch.randn(rows, rank) * 0.2
    module.register_forward_hook(lambda _, x, out: out + scale * (x[0] @ a.T @ b.T))
    return {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
