"""Random Llama reward models in torch, as published folders hold them: what parity is held to."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy

VOCAB_SIZE = 264  # 256 bytes, 4 special tokens, and rows that no token has, as published models do
SPECIAL = ("<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so that all three of its ranges occur within 160
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """A decoder's shape, and how far its weights are from the default initialisation."""

    heads: int = 4
    kv_heads: int = 4
    head_size: int = 8
    width: int = 32
    ffn_width: int = 48
    layers: int = 3
    theta: float = 10_000.0
    scaling: tuple[tuple[str, Any], ...] = ()
    tied: bool = False
    enlarged: bool = True
    seed: int = 0

    def config(self) -> LlamaConfig:
        rope = {"rope_type": "default", **dict(self.scaling), "rope_theta": self.theta}
        return LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=self.width,
            intermediate_size=self.ffn_width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_size,
            max_position_embeddings=256,
            rms_norm_eps=1e-5,
            rope_parameters=rope,
            tie_word_embeddings=self.tied,
            num_labels=1,
            attn_implementation="eager",
        )


# Every kind of attention with every kind of RoPE that it is published with; head sizes that are
# not width / heads; a theta that is not the default one.
SPECS = {
    "mha": Spec(tied=True),
    "gqa": Spec(heads=8, kv_heads=2, head_size=10, theta=50_000.0),
    "gqa-llama3": Spec(
        heads=8, kv_heads=4, head_size=12, scaling=tuple(LLAMA3_SCALING.items()), tied=True
    ),
    "mqa-linear": Spec(
        kv_heads=1, head_size=16, scaling=(("rope_type", "linear"), ("factor", 4.0))
    ),
}
SPECS |= {f"{n}-default": dataclasses.replace(s, enlarged=False) for n, s in SPECS.items()}


@functools.cache
def build(spec: Spec) -> LlamaForSequenceClassification:
    """The model of a spec: the same one for the same spec.

    The default initialisation hardly lets attention act. Where it is enlarged, projections are
    large enough for rewards to vary with every token, and norms differ from one.
    """
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        model = LlamaForSequenceClassification(spec.config()).eval()
        if spec.enlarged:
            for name, weight in model.named_parameters():
                if "norm" in name:
                    weight.data.normal_(1.0, 0.3)
                elif "embed" not in name:  # small embeddings keep the eps of norms visible
                    weight.data.normal_(0.0, 1.25 * weight.shape[1] ** -0.5)
    return model


def save(model: LlamaForSequenceClassification, folder: Path, head: str = "linear") -> Path:
    """Saves model and tokenizer as published folders are; `head` may be the prefix of an MLP."""
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    if head != "linear":
        tensors = load_file(folder / "model.safetensors")
        del tensors["score.weight"]
        mlp = mlp_head(model.config.hidden_size).state_dict()
        tensors |= {f"{head}.{name}": value for name, value in mlp.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@functools.cache
def mlp_head(width: int) -> torch.nn.Sequential:
    """Linear, ReLU, Linear with biases; as INF-ORM's `score` and GRM's `v_head.summary`."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return torch.nn.Sequential(
            torch.nn.Linear(width, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1)
        )


def truncated(model: LlamaForSequenceClassification, layers: int) -> LlamaForSequenceClassification:
    """The first layers of a model, with a final norm and a head of its own."""
    config = LlamaConfig(**{**model.config.to_dict(), "num_hidden_layers": layers})
    config._attn_implementation = "eager"
    shallow = LlamaForSequenceClassification(config).eval()
    shallow.load_state_dict(model.state_dict(), strict=False)
    with torch.random.fork_rng():
        torch.manual_seed(layers)
        shallow.model.norm.weight.data.normal_(1.0, 0.3)
        shallow.score.weight.data.normal_(0.0, 0.3)
    return shallow


def convert(folder: Path, destination: Path, slug: str = "model", **options) -> Checkpoint:
    """The conversion as the command line does it."""
    policy = TemplatePolicy(bos="template", date=None)
    source = fetch(str(folder), None)
    return convert_model(source, destination, slug=slug, policy=policy, **options)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[])
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[1],
        chat_template=CHATML,
    )


@torch.no_grad()
def hidden_states(model: LlamaForSequenceClassification, ids: np.ndarray) -> list[np.ndarray]:
    """Residual stream after each layer but the last, then after the last layer and final norm."""
    out = model.model(torch.tensor(ids, dtype=torch.long), output_hidden_states=True)
    return [state.numpy() for state in out.hidden_states[1:]]


def rewards(
    model: LlamaForSequenceClassification, sequences: Sequence[Sequence[int]], head=None
) -> np.ndarray:
    """Rewards of whole sequences: nothing is padded, nothing is shared.

    Computed once for the same model, which must not change, and the same sequences.
    """
    return _rewards(model, tuple(tuple(map(int, s)) for s in sequences), head)


@functools.cache
@torch.no_grad()
def _rewards(model, sequences: tuple[tuple[int, ...], ...], head) -> np.ndarray:
    rewards = np.empty(len(sequences))
    lengths = np.array(list(map(len, sequences)))
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        ids = torch.tensor([sequences[row] for row in rows])
        last = model.model(ids).last_hidden_state[:, -1]
        rewards[rows] = [(head or model.score)(hidden).item() for hidden in last]
    rewards.flags.writeable = False
    return rewards


def edit_json(path: Path, remove: Sequence[str] = (), **changes) -> None:
    """Changes fields of a JSON file."""
    fields = json.loads(path.read_text())
    kept = {name: value for name, value in fields.items() if name not in remove}
    path.write_text(json.dumps({**kept, **changes}))
