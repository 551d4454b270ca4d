"""Writes a checkpoint block by block into a temporary folder, which is renamed when complete."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import type_handlers
from transformers import PreTrainedTokenizerBase

from engine.checkpoint.card import CARD, EMBEDDING, READOUT, VERSION, Card, Checkpoint, layer_block
from engine.checkpoint.restore import parameters
from engine.convert.safetensors import sha256
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.text.chat_template import TemplatePolicy


class Writer:
    """Context manager that writes the whole checkpoint or nothing.

    A block is one orbax checkpoint. Its arrays are written without a copy in memory and without
    compression, and hashed at the same time.
    """

    def __init__(self, destination: Path, config: DecoderConfig, head: HeadConfig | OutputConfig):
        self.destination, self.config, self.head = Path(destination), config, head
        self._dtypes: dict[str, set[str]] = {}
        self._hashes: dict[str, str] = {}  # of blocks

    def __enter__(self) -> "Writer":
        try:
            self.destination.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self.destination.name}-"
            self._folder = Path(tempfile.mkdtemp(dir=self.destination.parent, prefix=prefix))
        except OSError as error:
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error
        self._orbax = _uncompressed()
        self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._thread.shutdown()
            self._orbax.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)  # does nothing after the rename
        if isinstance(error, OSError):
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error

    def save(self, block: str, arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        """Writes one block; each block is saved once.

        Args:
          block: its name.
          arrays: parameter name -> array.

        Returns:
          Parameter name -> sha256 of the array.

        Raises:
          AssayError: the file system refuses it, because it is full for instance.
        """
        hashing = self._thread.submit(lambda: {n: sha256(array) for n, array in arrays.items()})
        try:
            self._orbax.save(self._folder.absolute() / "params" / block, dict(arrays))
        except ValueError as error:  # tensorstore's form of an error of the file system
            reason = str(error).strip().splitlines()[0]
            raise AssayError(f"checkpoint {self.destination}: {reason}") from error
        digests = hashing.result()
        self._hashes[block] = _block_hash(arrays, digests)
        for name, array in arrays.items():
            self._dtypes.setdefault(name, set()).add(str(array.dtype))
        return digests

    def finish(
        self,
        *,
        slug: str,
        source: str,
        revision: str | None,
        files: Mapping[str, str],
        policy: TemplatePolicy,
        tokenizer: PreTrainedTokenizerBase,
        pad_token_id: int | None,
    ) -> Checkpoint:
        """Adds tokenizer and card, and renames the folder to its destination.

        Args:
          slug: the model's name in runs.
          source: hub id or folder.
          revision: of a hub id.
          files: name of each source file -> hash.
          policy: BOS and date policy.
          tokenizer: the model's.
          pad_token_id: of config.json.

        Returns:
          The new checkpoint.

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
            slug=slug,
            source=source,
            revision=revision,
            files=files,
            decoder=self.config,
            head=self.head,
            policy=policy,
            dtypes={name: ", ".join(sorted(dtypes)) for name, dtypes in self._dtypes.items()},
            embedding_hash=self._hashes[EMBEDDING],
            layer_hashes=tuple(self._hashes[layer_block(layer)] for layer in layers),
            readout_hash=self._hashes[READOUT],
            tokenizer_hash=_hash_tokenizer(tokenizer),
            pad_token_id=pad_token_id,
        )
        (self._folder / CARD).write_text(card.to_json())
        self._folder.chmod(0o755)
        self._folder.rename(self.destination)
        return Checkpoint(epath.Path(self.destination), card)


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


def _block_hash(arrays: Mapping[str, np.ndarray], digests: Mapping[str, bytes]) -> str:
    """Hash of the names, element types, shapes and contents of a block's arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + digests[name])
    return digest.hexdigest()


def _hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    digest.update(json.dumps([tokenizer.chat_template, tokenizer.special_tokens_map]).encode())
    return digest.hexdigest()[:16]
