"""Reward models with a planted bias of style: heads over one decoder that counts.

One layer attends to all positions alike, so that its output is the share of tokens of a kind.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.support import tiny

# Channel of the embedding -> the tokens that it marks, with their values; ids of bytes are sorted.
LOVE, BULLET, EXCLAMATION = 1, 2, 3
BIASES: Mapping[str, Mapping[int, float]] = {
    "plain": {LOVE: 1},
    "bullets": {LOVE: 1, BULLET: 1},
    "exclamations": {LOVE: 1, EXCLAMATION: 1},
}


def write_model(folder: Path, bias: str) -> Path:
    """Writes a model of `BIASES` as a folder of transformers."""
    config = tiny.config(max_position_embeddings=512)
    shapes = tiny.decoder_shapes(config) | {"score.weight": (1, config["hidden_size"])}
    weights = {
        name: (np.ones if "norm" in name else np.zeros)(shape, np.float32)
        for name, shape in shapes.items()
    }
    vocab = tiny.tokenizer().get_vocab()
    embedding = weights["model.embed_tokens.weight"]
    embedding[:, 0] = 10
    marked = ((" love", LOVE, 1), (" war", LOVE, -1), ("-", BULLET, 1), ("!", EXCLAMATION, 1))
    for token, channel, value in marked:
        embedding[vocab[token.replace(" ", "Ġ")], channel] = value
    layer = "model.layers.0.self_attn."
    for at in range(3):  # values of the first head: the channels; its output: eight channels on
        weights[f"{layer}v_proj.weight"][at, at + 1] = 0.1
        weights[f"{layer}o_proj.weight"][at + 9, at] = 1
    for channel, weight in BIASES[bias].items():
        weights["score.weight"][0, channel + 8] = weight
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    tiny.tokenizer().save_pretrained(folder)
    return folder
