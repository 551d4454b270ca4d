"""Structures of the published reward models of configs/known_models.py, at full size.

Sizes are those of the models' own config.json. Models of one structure share one entry; they
differ in weights, templates and the vocabulary's few added tokens.
"""

import dataclasses

from engine.models.config import DecoderConfig, Rope
from engine.models.heads import HeadConfig


def _llama(
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn_width: int,
    *,
    head_size: int = 128,
    vocabulary: int = 128_256,
    factor: float = 8.0,
    theta: float = 500_000.0,
) -> DecoderConfig:
    """Llama 3.x; with factor 0, frequencies are not scaled."""
    scaled = {"kind": "llama3", "factor": factor, "high_freq_factor": 4.0}
    scaling = {**scaled, "original_positions": 8192} if factor else {}
    return DecoderConfig(
        vocab_size=vocabulary,
        width=width,
        ffn_width=ffn_width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        rms_eps=1e-5,
        rope=Rope(theta=theta, **scaling),
        max_positions=8192,
    )


def _gemma2(
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn_width: int,
    *,
    head_size: int,
    query_scale: float,
) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=256_000,
        width=width,
        ffn_width=ffn_width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        rms_eps=1e-6,
        rope=Rope(theta=10_000.0),
        max_positions=8192,
        activation="gelu_tanh",
        norm_offset=True,
        post_norms=True,
        embedding_scale=True,
        query_scale=query_scale**-0.5,
        attention_softcap=50.0,
        window=4096,
        window_layers=tuple(layer % 2 == 0 for layer in range(layers)),
    )


def _qwen3(width: int, layers: int, heads: int, ffn_width: int) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=151_936,
        width=width,
        ffn_width=ffn_width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=8,
        head_size=128,
        rms_eps=1e-6,
        rope=Rope(theta=1e6),
        max_positions=40_960,
        qk_norm=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """A decoder, and the positions that a one-token reply and the template's end take."""

    decoder: DecoderConfig
    own: int


_INTERNLM2 = {"vocabulary": 92_544, "factor": 0.0, "theta": 1e6}
STRUCTURES = {
    "llama-1b": Structure(decoder=_llama(2048, 16, 32, 8, 8192, head_size=64, factor=32.0), own=2),
    "llama-3b": Structure(decoder=_llama(3072, 28, 24, 8, 8192, factor=32.0), own=2),
    "llama-8b": Structure(decoder=_llama(4096, 32, 32, 8, 14_336), own=2),
    "llama-70b": Structure(decoder=_llama(8192, 80, 64, 8, 28_672), own=2),
    "gemma2-2b": Structure(
        decoder=_gemma2(2304, 26, 8, 4, 9216, head_size=256, query_scale=256), own=3
    ),
    "gemma2-27b": Structure(
        decoder=_gemma2(4608, 46, 32, 16, 36_864, head_size=128, query_scale=144), own=3
    ),
    "qwen3-0.6b": Structure(decoder=_qwen3(1024, 28, 16, 3072), own=3),
    "qwen3-1.7b": Structure(decoder=_qwen3(2048, 28, 16, 6144), own=3),
    "qwen3-4b": Structure(decoder=_qwen3(2560, 36, 32, 9728), own=3),
    "qwen3-8b": Structure(decoder=_qwen3(4096, 36, 32, 12_288), own=3),
    "internlm2-1.8b": Structure(decoder=_llama(2048, 24, 16, 8, 8192, **_INTERNLM2), own=4),
    "internlm2-7b": Structure(decoder=_llama(4096, 32, 32, 8, 14_336, **_INTERNLM2), own=4),
    "internlm2-20b": Structure(decoder=_llama(6144, 48, 48, 8, 16_384, **_INTERNLM2), own=4),
}

# Slug of a model -> its structure.
OF_MODEL = {
    "qrm-gemma-2-27b": "gemma2-27b",
    "skywork-reward-gemma-2-27b-v0.2": "gemma2-27b",
    "skywork-reward-gemma-2-27b": "gemma2-27b",
    "skywork-reward-llama-3.1-8b-v0.2": "llama-8b",
    "qrm-llama3.1-8b": "llama-8b",
    "urm-llama-3.1-8b": "llama-8b",
    "grm-llama3-8b-rewardmodel-ft": "llama-8b",
    "grm-llama3.2-3b-rewardmodel-ft": "llama-3b",
    "armorm-llama3-8b-v0.1": "llama-8b",
    "grm-gemma2-2b-rewardmodel-ft": "gemma2-2b",
    "skywork-reward-llama-3.1-8b": "llama-8b",
    "skywork-reward-v2-llama-3.1-8b": "llama-8b",
    "skywork-reward-v2-llama-3.2-1b": "llama-1b",
    "skywork-reward-v2-llama-3.2-3b": "llama-3b",
    "skywork-reward-v2-qwen3-0.6b": "qwen3-0.6b",
    "skywork-reward-v2-qwen3-1.7b": "qwen3-1.7b",
    "skywork-reward-v2-qwen3-4b": "qwen3-4b",
    "skywork-reward-v2-qwen3-8b": "qwen3-8b",
    "fsfairx-llama3-rm-v0.1": "llama-8b",
    "llama-3.1-tulu-3-8b-rm": "llama-8b",
    "grm-llama3-8b-sftreg": "llama-8b",
    "internlm2-1_8b-reward": "internlm2-1.8b",
    "internlm2-7b-reward": "internlm2-7b",
    "internlm2-20b-reward": "internlm2-20b",
    "inf-orm-llama3.1-70b": "llama-70b",
}


def linear_head(decoder: DecoderConfig) -> HeadConfig:
    """The linear head of a decoder; other heads cost a millionth of a step more."""
    return HeadConfig(
        kind="linear",
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
    )
