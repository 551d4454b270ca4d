"""Writes a checkpoint block by block into a temporary folder, which is renamed when complete."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import type_handlers
from transformers import PreTrainedTokenizerBase

from engine.checkpoint.arrays import block_hash
from engine.checkpoint.card import (
    CARD,
    EMBEDDING,
    READOUT,
    VERSION,
    Card,
    Checkpoint,
    file_hashes,
    layer_block,
)
from engine.checkpoint.restore import parameters
from engine.errors import AssayError
from engine.models.encoder_config import NetworkConfig
from engine.models.heads import HeadConfig, OutputConfig
from engine.runs import storage


class Writer:
    """Context manager that writes the whole checkpoint or nothing.

    A block is one orbax checkpoint. Its arrays are written without a copy in memory and without
    compression.
    """

    def __init__(
        self,
        destination: str | os.PathLike[str],
        config: NetworkConfig,
        head: HeadConfig | OutputConfig,
    ):
        self.destination, self.config, self.head = Path(destination), config, head
        self._dtypes: dict[str, set[str]] = {}
        self._hashes: dict[str, str] = {}  # of blocks

    def __enter__(self) -> "Writer":
        try:
            parent = self.destination.parent
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=parent, prefix=f".{self.destination.name}-"))
        except OSError as error:
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error
        self._orbax = _uncompressed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._orbax.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)  # does nothing after the rename
        if isinstance(error, OSError):
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error

    def save(
        self, block: str, arrays: Mapping[str, np.ndarray], digests: Mapping[str, bytes]
    ) -> None:
        """Writes one block, once; `digests` are the sha256 of its arrays.

        Raises:
          AssayError: the file system refuses it, because it is full for instance.
        """
        try:
            self._orbax.save(self._folder.absolute() / "params" / block, dict(arrays))
        except ValueError as error:  # tensorstore's form of an error of the file system
            reason = str(error).strip().splitlines()[0]
            raise AssayError(f"checkpoint {self.destination}: {reason}") from error
        self._hashes[block] = block_hash(arrays, digests)
        for name, array in arrays.items():
            self._dtypes.setdefault(name, set()).add(str(array.dtype))

    # Any: fields of `Card`, which are of several types.
    def finish(self, tokenizer: PreTrainedTokenizerBase, **fields: Any) -> Checkpoint:
        """Adds tokenizer and card, and renames the folder to its destination.

        `fields` are those of `Card` that follow neither from the blocks nor from the tokenizer.

        Raises:
          AssayError: a parameter was not saved, or the disk is full.
        """
        if unfilled := sorted(set(parameters(self.config, self.head)) - set(self._dtypes)):
            raise AssayError(f"parameter {unfilled[0]!r} was not filled")
        try:
            tokenizer.save_pretrained(self._folder / "tokenizer")
        except Exception as error:  # on a full disk `tokenizers` raises Exception itself
            raise AssayError(f"checkpoint {self.destination}: {error}") from error
        layers = range(self.config.num_layers)
        card = Card(
            version=VERSION,
            decoder=self.config,
            head=self.head,
            dtypes={name: ", ".join(sorted(dtypes)) for name, dtypes in self._dtypes.items()},
            embedding_hash=self._hashes[EMBEDDING],
            layer_hashes=tuple(self._hashes[layer_block(layer)] for layer in layers),
            readout_hash=self._hashes[READOUT],
            tokenizer_hash=_hash_tokenizer(tokenizer, self.config.vocab_size),
            tokenizer_files=file_hashes(self._folder / "tokenizer"),
            **fields,
        )
        (self._folder / CARD).write_text(card.to_json())
        # Whoever may not enter the folder around it may not read its weights.
        self._folder.chmod(0o700 | self.destination.parent.stat().st_mode & 0o055)
        self._folder.rename(self.destination)
        return Checkpoint(storage.path_of(self.destination), card)


def _uncompressed() -> ocp.Checkpointer:
    """An orbax checkpointer that neither copies numpy arrays in memory nor compresses them."""
    numpy_handler = type_handlers.NumpyHandler(deepcopy_host_arrays=False)
    registry = type_handlers.create_type_handler_registry(
        (np.ndarray, numpy_handler), (jax.Array, type_handlers.ArrayHandler())
    )
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=False, use_compression=False, type_handler_registry=registry
    )
    return ocp.Checkpointer(handler)


def _hash_tokenizer(tokenizer: PreTrainedTokenizerBase, rows: int) -> str:
    """Names the vocabulary: models of one tokenizer share it, if their embeddings hold its ids."""
    digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    digest.update(json.dumps([tokenizer.chat_template, tokenizer.special_tokens_map]).encode())
    if max(tokenizer.get_vocab().values()) >= rows:
        digest.update(f"rows: {rows}".encode())
    return digest.hexdigest()[:16]
