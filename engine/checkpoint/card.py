"""Assay's checkpoint folder: orbax parameters, model.json, tokenizer files.

checkpoint/model.json            `Card`
checkpoint/params/<block>/       one orbax checkpoint a block: `embedding`, `layers/<layer>`,
                                 `readout`, so that conversion and restoring hold one at a time
checkpoint/tokenizer/

A decoder's tensors are stored as their source has them (`checkpoint/layouts.py` knows the layout)
and are transposed on the device, where that is quick; a readout is stored as the model has it.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etils import epath
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import load_tokenizer

CARD = "model.json"
VERSION = 2

# Blocks of parameters on disk.
EMBEDDING, READOUT = "embedding", "readout"


def layer_block(layer: int) -> str:
    """Block of one layer's parameters."""
    return f"layers/{layer:03d}"


# Kinds of model, and the commands that take them.
REWARD, LANGUAGE = "reward model", "language model"
_TAKEN_BY = {REWARD: "launch.sweep and launch.score take", LANGUAGE: "launch.logprobs takes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """model.json: everything about a model but its weights."""

    version: int
    slug: str
    source: str
    revision: str | None
    files: Mapping[str, str]  # source file -> hash of its contents (tensors.TensorFiles.hashes)
    decoder: DecoderConfig
    head: HeadConfig | OutputConfig
    policy: TemplatePolicy
    dtypes: Mapping[str, str]  # parameter -> dtype on disk; several where layers differ
    embedding_hash: str  # sha256 of the block, as the following
    layer_hashes: tuple[str, ...]  # by which models share passes
    readout_hash: str
    tokenizer_hash: str
    pad_token_id: int | None  # of config.json

    @property
    def kind(self) -> str:
        """`REWARD` or `LANGUAGE`."""
        return LANGUAGE if isinstance(self.head, OutputConfig) else REWARD

    @property
    def reward_head(self) -> HeadConfig:
        """The head of a reward model.

        Raises:
          AssayError: a language model.
        """
        if isinstance(self.head, OutputConfig):
            raise AssayError(f"model {self.slug!r}: a {LANGUAGE}; allowed: a {REWARD}")
        return self.head

    @property
    def dtype(self) -> str:
        """Element type of the decoder's tensors; several, comma-separated, where they differ."""
        decoder = [types for name, types in self.dtypes.items() if name.startswith("decoder.")]
        return ", ".join(sorted(set(", ".join(decoder).split(", "))))

    @functools.cached_property
    def checkpoint_hash(self) -> str:
        """One hash for everything that can change a reward."""
        fields = dataclasses.asdict(self)
        kept = {k: v for k, v in fields.items() if k not in ("slug", "source", "revision", "files")}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def decoder_hash(self) -> str:
        """Hash of the embedding and every layer."""
        return hashlib.sha256(
            "".join([self.embedding_hash, *self.layer_hashes]).encode()
        ).hexdigest()

    def to_json(self) -> str:
        """Text of model.json."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(
            **{
                **fields,
                "decoder": DecoderConfig.from_json(fields["decoder"]),
                "head": _head_from_json(fields["head"]),
                "policy": TemplatePolicy.from_json(fields["policy"]),
                "layer_hashes": tuple(fields["layer_hashes"]),
            }
        )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder whose card has been read; weights stay on disk until `restore`."""

    path: epath.Path
    card: Card

    @classmethod
    def open(cls, path: str | os.PathLike) -> "Checkpoint":
        """Raises AssayError where the folder holds no checkpoint of this version."""
        folder = epath.Path(path)
        if not (folder / CARD).exists():
            raise AssayError(
                f"{folder}: no checkpoint ({CARD} is missing); launch.convert makes one"
            )
        try:
            card = Card.from_json((folder / CARD).read_text())
        except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
            raise AssayError(
                f"{folder / CARD}: not a card of version {VERSION} ({error})"
            ) from error
        if card.version != VERSION:
            raise AssayError(f"{folder / CARD}: version={card.version!r}; allowed: {VERSION}")
        return cls(folder, card)

    def expect(self, kind: str) -> None:
        """Raises AssayError for a model of the other kind, naming the command that takes it."""
        found = self.card.kind
        if found != kind:
            raise AssayError(
                f"checkpoint {self.path}: a {found}; allowed: a {kind} "
                f"({_TAKEN_BY[found]} {found}s)"
            )

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template under its policy."""
        return ChatTemplate(self.tokenizer, self.card.policy)

    @functools.cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, which a base language model has without a chat template."""
        return load_tokenizer(self.path / "tokenizer")


def refuse_existing(destination: Path) -> None:
    """Raises AssayError where something already has the checkpoint's name."""
    if Path(destination).exists():
        raise AssayError(f"checkpoint {destination}: exists; remove it or name another folder")


def _head_from_json(fields: Mapping[str, Any]) -> HeadConfig | OutputConfig:
    language = fields["kind"] == OutputConfig.kind
    return OutputConfig.from_json(fields) if language else HeadConfig.from_json(fields)
