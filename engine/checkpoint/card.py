"""The checkpoint folder and its card, model.json: everything about a model except its weights.

checkpoint/model.json            `Card`
checkpoint/params/<block>/       one orbax checkpoint per block: `embedding`, `layers/<layer>` and
                                 `readout`, so that no process needs more than one in memory
checkpoint/tokenizer/            tokenizer files of Hugging Face, with the chat template
"""

import copy
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

from engine.errors import AssayError, prefixed
from engine.models.config import with_tuples
from engine.models.encoder_config import NetworkConfig, network_from_json
from engine.models.heads import HeadConfig, OutputConfig
from engine.runs import schema, storage
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import candidate_ids, load_tokenizer

CARD = "model.json"
VERSION = schema.CONVERSION

# Blocks of parameters on disk.
EMBEDDING, READOUT = "embedding", "readout"


def layer_block(layer: int) -> str:
    """Name of the block that holds one layer's parameters."""
    return f"layers/{layer:03d}"


# The tokenizer loaded last, by the hashes of its files: models of a run share it, none changes it.
_LOADED: dict[tuple[tuple[str, str], ...], PreTrainedTokenizerBase] = {}

# Kinds of model, and the commands that take each.
REWARD, LANGUAGE = "reward model", "language model"
_TAKEN_BY = {
    REWARD: "`assay sweep` and `assay score` take",
    LANGUAGE: "`assay logprobs` takes, and --reward-of=<policy>,<reference> two",
}


# Fields that cannot change a reward, or repeat what other fields say.
_DESCRIBING = ("slug", "source", "revision", "files", "base", "reward", "tokenizer_files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """The contents of model.json: everything about a model except its weights."""

    version: int  # of this format
    slug: str  # the model's name in runs
    source: str  # hub id, or folder, that was converted
    revision: str | None  # commit of a hub id
    files: Mapping[str, str]  # source file -> hash (`convert.safetensors.TensorFiles.hashes`)
    decoder: NetworkConfig  # or an encoder, which shares the field and its hashes
    head: HeadConfig | OutputConfig
    policy: TemplatePolicy
    dtypes: Mapping[str, str]  # parameter -> dtype on disk; comma-separated if layers differ
    embedding_hash: str  # sha256 of the block
    layer_hashes: tuple[str, ...]  # sha256 of each layer's block: models with equal ones share them
    readout_hash: str  # sha256 of the block
    tokenizer_hash: str  # of vocabulary, merges, chat template and special tokens
    pad_token_id: int | None  # of config.json
    pooling: str  # where the reward is read by default: a kind of `Pooling`
    tokenizer_files: Mapping[str, str]  # name of each file of tokenizer/ -> sha256
    # Of an adapter: `source`, `revision` and `files` of the base that it was merged into.
    base: Mapping[str, Any] | None = None  # Any: what JSON holds
    # Which row of a head with several, or whose logit, is the reward, in words; "": there is no
    # choice. The block of the readout holds it, so hashes do not.
    reward: str = ""

    @property
    def kind(self) -> str:
        """`REWARD` or `LANGUAGE`."""
        return LANGUAGE if isinstance(self.head, OutputConfig) else REWARD

    @property
    def reward_head(self) -> HeadConfig:
        """The head of a reward model; raises AssayError for a language model."""
        if isinstance(self.head, OutputConfig):
            raise AssayError(f"model {self.slug!r}: a {LANGUAGE}; allowed: a {REWARD}")
        return self.head

    def block_hash(self, block: str) -> str:
        """sha256 of a block, by its name."""
        if block in (EMBEDDING, READOUT):
            return self.embedding_hash if block == EMBEDDING else self.readout_hash
        return self.layer_hashes[int(block.rpartition("/")[2])]

    @property
    def dtype(self) -> str:
        """Element types of the decoder's tensors, comma-separated: usually one."""
        decoder = [types for name, types in self.dtypes.items() if name.startswith("decoder.")]
        return ", ".join(sorted(set(", ".join(decoder).split(", "))))

    @functools.cached_property
    def checkpoint_hash(self) -> str:
        """One hash of everything that can change a reward."""
        kept = {k: v for k, v in self._fields().items() if k not in _DESCRIBING}
        return _sha256(kept)

    # Any: what JSON holds.
    @property
    def identity(self) -> dict[str, Any]:
        """What identities say of the model: its hash, and in words what its template is given.

        Of an adapter also the hashes of its files and of those of its base.
        """
        entries: dict[str, Any] = {"checkpoint_hash": self.checkpoint_hash}
        if self.policy.date:
            entries["date"] = self.policy.date
        if self.policy.template_vars:
            entries["template_vars"] = dict(self.policy.template_vars)
        if self.base:
            entries |= {"adapter": _sha256(self.files), "base": _sha256(self.base["files"])}
        return entries

    @functools.cached_property
    def decoder_hash(self) -> str:
        """Hash of the embedding and every layer."""
        return hashlib.sha256(
            "".join([self.embedding_hash, *self.layer_hashes]).encode()
        ).hexdigest()

    def to_json(self) -> str:
        """The text of model.json: the fields, and the sha256 of them."""
        fields = self._fields()
        return json.dumps({**fields, "sha256": _sha256(fields)}, indent=1) + "\n"

    # Any: what JSON holds.
    def _fields(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_json() for name in ("decoder", "head", "policy")}
        fields = dataclasses.asdict(self) | parts
        return {
            k: v for k, v in fields.items() if (k, v) != ("reward", "")
        }  # so old cards stay equal

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """The inverse of `to_json`; raises AssayError for other fields than were written."""
        try:
            fields = dict(json.loads(text))
        except (TypeError, ValueError) as error:
            raise AssayError(
                f"damaged, no JSON object ({error}); convert the model again"
            ) from error
        if (version := fields.get("version")) != VERSION:
            raise AssayError(
                f"version={version!r}; allowed: {VERSION}; another release of Assay converted it, "
                "whose conventions (tokenizer, date, position of the reward) may differ: convert "
                "the model again"
            )
        if fields.pop("sha256", None) != _sha256(fields):
            raise AssayError("damaged, its contents are not those that were written (sha256)")
        known = {field.name for field in dataclasses.fields(TemplatePolicy)}
        if gone := sorted(set(fields["policy"]) - known):
            raise AssayError(
                f"template.{gone[0]}={fields['policy'][gone[0]]!r}; allowed: {', '.join(known)}; "
                "another release of Assay converted it: convert the model again"
            )
        language = fields["head"]["kind"] == OutputConfig.kind
        head: type[HeadConfig | OutputConfig] = OutputConfig if language else HeadConfig
        return cls(
            **{
                **fields,
                "decoder": network_from_json(fields["decoder"]),
                "head": head(**with_tuples(fields["head"])),
                "policy": TemplatePolicy(**fields["policy"]),
                "layer_hashes": tuple(fields["layer_hashes"]),
            }
        )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder whose card has been read; its weights are read by `restore`."""

    path: epath.Path
    card: Card
    verify: bool = True  # whether reading compares hashes

    @classmethod
    def open(
        cls, path: "str | os.PathLike[str] | Checkpoint", *, verify: bool = True
    ) -> "Checkpoint":
        """Reads the card of a checkpoint folder.

        Args:
          path: a folder, local or in an object store (`s3://`, `gs://`); an open one is returned.
          verify: whether parameters and tokenizer files are compared with their hashes when they
            are read.

        Raises:
          AssayError: the folder holds no checkpoint of this version.
        """
        if isinstance(path, cls):
            return path
        if not isinstance(path, str | os.PathLike):
            raise AssayError(f"checkpoint={path!r}; allowed: the path of a checkpoint")
        folder = storage.path_of(path)
        if not storage.exists(folder / CARD):
            raise AssayError(
                f"{folder}: no checkpoint ({CARD} is missing); `assay convert` makes one"
            )
        with prefixed(folder / CARD):
            card = Card.from_json(storage.read(folder / CARD).decode(errors="replace"))
        return cls(folder, card, verify)

    def expect(self, kind: str) -> None:
        """Raises AssayError for a model of another kind; it names the commands that take it."""
        if (mine := self.card.kind) != kind:
            raise AssayError(
                f"checkpoint {self.path}: a {mine}; allowed: a {kind} ({_TAKEN_BY[mine]} {mine}s)"
            )

    def expect_decoder(self, what: str) -> None:
        """Raises AssayError for an encoder, of which `what` is not computed."""
        if not self.card.decoder.shares_prefix:
            raise AssayError(f"{what}: model {self.card.slug!r} is an encoder; allowed: decoders")

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template under its policy."""
        return ChatTemplate(self.tokenizer, self.card.policy)

    @functools.cached_property
    def token_ids(self) -> list[int]:
        """The candidates of a sweep: ids of the tokenizer that the embedding holds, ascending."""
        return candidate_ids(self.tokenizer, self.card.decoder.vocab_size)

    @functools.cached_property
    def tokens(self) -> dict[int, str]:
        """Decoded text of each of `token_ids`, by id."""
        rows = [[i] for i in self.token_ids]  # in one call: transformers' own, one by one, is slow
        texts = self.tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=False)
        return dict(zip(self.token_ids, texts, strict=True))

    @functools.cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer; that of a base language model may have no chat template.

        Raises AssayError for files that are not those that were converted.
        """
        folder = self.path / "tokenizer"
        with storage.local(folder) as files:
            if not self.verify:
                return load_tokenizer(files)
            present = file_hashes(files) if files.is_dir() else {}
            wanted = self.card.tokenizer_files
            names = sorted({*wanted, *present})
            if differ := [n for n in names if present.get(n) != wanted.get(n)]:
                raise AssayError(
                    f"{folder / differ[0]}: damaged checkpoint, not the file that was "
                    "converted (sha256); convert the model again"
                )
            key = tuple(sorted(present.items()))
            if key not in _LOADED:
                _LOADED.clear()
                _LOADED[key] = load_tokenizer(files)
            same = copy.copy(_LOADED[key])  # of one object of Rust
            same.name_or_path = os.fspath(files)
            return same


def file_hashes(folder: Path) -> dict[str, str]:
    """Name -> sha256 of the files in a local folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refuse_existing(destination: str | os.PathLike[str]) -> None:
    """Raises AssayError for a checkpoint that cannot be made: its name is taken, or of a store."""
    path = storage.path_of(destination)
    if storage.is_remote(path):
        allowed = "a folder on a disk, which may be copied into the store"
        raise AssayError(f"checkpoint {destination}: in an object store; allowed: {allowed}")
    if storage.exists(path):
        raise AssayError(f"checkpoint {destination}: exists; remove it or name another folder")


# Any: parsed JSON.
def _sha256(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
