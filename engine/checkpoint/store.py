"""Assay's checkpoint folder: orbax parameters, model.json, tokenizer files.

checkpoint/model.json    `Card`
checkpoint/params/<parameter>/    one orbax checkpoint a parameter, so that conversion holds
one at a time and models with one decoder read theirs once
checkpoint/tokenizer/
"""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx
from jax.sharding import Mesh
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine import mesh as meshes
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import LanguageModel, OutputConfig
from engine.models.reward_model import RewardModels
from engine.prompts import ChatTemplate, TemplatePolicy

CARD = "model.json"
VERSION = 1

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
    files: Mapping[str, str]  # source file -> sha256
    decoder: DecoderConfig
    head: HeadConfig | OutputConfig
    policy: TemplatePolicy
    dtypes: Mapping[str, str]  # parameter -> dtype on disk
    embedding_hash: str
    layer_hashes: tuple[str, ...]  # sha256 of each layer's parameters, by which models share passes
    readout_hash: str
    tokenizer_hash: str
    pad_token_id: int | None = None  # of config.json; null too in cards from before it was kept

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

    @functools.cached_property
    def checkpoint_hash(self) -> str:
        """One hash for everything that can change a reward."""
        fields = dataclasses.asdict(self)
        left_out = {"slug", "source", "revision", "files"}
        if self.pad_token_id is None:
            left_out.add("pad_token_id")
        kept = {k: v for k, v in fields.items() if k not in left_out}
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
        except (json.JSONDecodeError, TypeError, KeyError) as error:
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
        folder = self.path / "tokenizer"
        try:
            return AutoTokenizer.from_pretrained(
                os.fspath(folder), local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise AssayError(f"{folder}: damaged checkpoint, no tokenizer that loads") from error


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Shape and axis letters of one parameter."""

    shape: tuple[int, ...]
    axes: str


class Writer:
    """Writes a checkpoint beside its destination and renames it when it is whole."""

    def __init__(self, destination: Path, config: DecoderConfig, head: HeadConfig | OutputConfig):
        self.destination, self.config, self.head = Path(destination), config, head
        self.parameters = parameters(config, head)
        self.sizes = axis_sizes(config, head)
        self._dtypes: dict[str, str] = {}
        self._embedding, self._readout = hashlib.sha256(), hashlib.sha256()
        self._layers = [hashlib.sha256() for _ in range(config.num_layers)]

    def __enter__(self) -> "Writer":
        try:
            self.destination.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self.destination.name}-"
            self._folder = Path(tempfile.mkdtemp(dir=self.destination.parent, prefix=prefix))
        except OSError as error:
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error
        self._orbax = ocp.StandardCheckpointer()
        return self

    def __exit__(self, kind, error, trace):
        self._orbax.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # gone already where `finish` renamed it
        if isinstance(error, OSError):
            raise AssayError(f"checkpoint {self.destination}: {error.strerror}") from error

    def save(self, name: str, value: np.ndarray) -> None:
        """Writes one parameter; every parameter is saved once."""
        self._hash(name, value)
        self._dtypes[name] = str(value.dtype)
        self._orbax.save(self._folder.absolute() / "params" / name, {"value": value})
        self._orbax.wait_until_finished()

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
        """Adds tokenizer and card and gives the folder its name."""
        if unfilled := sorted(set(self.parameters) - set(self._dtypes)):
            raise AssayError(f"parameter {unfilled[0]!r} was not filled")
        tokenizer.save_pretrained(self._folder / "tokenizer")
        card = Card(
            version=VERSION,
            slug=slug,
            source=source,
            revision=revision,
            files=files,
            decoder=self.config,
            head=self.head,
            policy=policy,
            dtypes=self._dtypes,
            embedding_hash=self._embedding.hexdigest(),
            layer_hashes=tuple(layer.hexdigest() for layer in self._layers),
            readout_hash=self._readout.hexdigest(),
            tokenizer_hash=_hash_tokenizer(tokenizer),
            pad_token_id=pad_token_id,
        )
        (self._folder / CARD).write_text(card.to_json())
        self._folder.chmod(0o755)
        self._folder.rename(self.destination)
        return Checkpoint(epath.Path(self.destination), card)

    def _hash(self, name: str, value: np.ndarray) -> None:
        if "L" in self.parameters[name].axes:
            parts = zip(self._layers, value, strict=True)
        elif name == "decoder.embedding":
            parts = [(self._embedding, value)]
        else:
            parts = [(self._readout, value)]
        for digest, part in parts:
            digest.update(f"{name} {part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)


def refuse_existing(destination: Path) -> None:
    """Raises AssayError where something already has the checkpoint's name."""
    if Path(destination).exists():
        raise AssayError(f"checkpoint {destination}: exists; remove it or name another folder")


def parameters(config: DecoderConfig, head: HeadConfig | OutputConfig) -> dict[str, Parameter]:
    """Every parameter of a model by its name on disk."""
    params = _abstract(config, [head], jnp.dtype("float32"))[1]
    return {
        _name(path): Parameter(tuple(p.shape), p.get_metadata()["axes"])
        for path, p in nnx.to_flat_state(params)
    }


def axis_sizes(config: DecoderConfig, head: HeadConfig | OutputConfig) -> dict[str, int]:
    """Size of each axis letter that a parameter of this model has."""
    sizes = {"1": 1}
    for parameter in parameters(config, head).values():
        sizes.update(zip(parameter.axes, parameter.shape, strict=True))
    return sizes


def sharing_groups(checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
    """Checkpoints that can be scored in one pass, deepest first, in order of first appearance.

    Two share where one's decoder is the other's, or its first layers, bit for bit, under the same
    tokenizer, template and pad token.
    """
    groups: list[list[Checkpoint]] = []
    for checkpoint in sorted(checkpoints, key=lambda c: -c.card.decoder.num_layers):
        for group in groups:
            if _shares(group[0].card, checkpoint.card):
                group.append(checkpoint)
                break
        else:
            groups.append([checkpoint])
    order = {id(c): i for i, c in enumerate(checkpoints)}
    return sorted(groups, key=lambda group: min(order[id(c)] for c in group))


def restore(
    group: Sequence[Checkpoint], mesh: Mesh, dtype: jnp.dtype, *, objectives: str = "none"
) -> tuple[nnx.GraphDef, nnx.State]:
    """Loads a sharing group straight onto the mesh: one decoder, a readout a model.

    Args:
      group: one of `sharing_groups`.
      mesh: where the parameters go.
      dtype: of the decoder's parameters; readouts are float32.
      objectives: what a result holds beside the reward: one of `heads.OBJECTIVES`.
    """
    deepest = group[0]
    meshes.check_mesh(mesh, deepest.card.decoder)
    heads = [c.card.head for c in group]
    graph, params = _abstract(deepest.card.decoder, heads, dtype, objectives)
    shardings = meshes.parameter_shardings(mesh, params)
    flat_shardings = dict(nnx.to_flat_state(shardings))
    with ocp.StandardCheckpointer() as orbax:
        for path, parameter in nnx.to_flat_state(params):
            owner = group[int(str(path[1]))] if path[0] == "readouts" else deepest
            target = jax.ShapeDtypeStruct(
                parameter.shape, parameter.dtype, sharding=flat_shardings[path]
            )
            folder = epath.Path(owner.path).resolve() / "params" / _name(path)
            if not folder.exists():
                raise AssayError(f"{folder}: damaged checkpoint, this parameter is missing")
            parameter.set_value(orbax.restore(folder, {"value": target})["value"])
    return graph, params


def _shares(deep: Card, shallow: Card) -> bool:
    depth = shallow.decoder.num_layers
    return (
        dataclasses.replace(deep.decoder, num_layers=depth) == shallow.decoder
        and deep.embedding_hash == shallow.embedding_hash
        and deep.layer_hashes[:depth] == shallow.layer_hashes
        and deep.tokenizer_hash == shallow.tokenizer_hash
        and deep.policy == shallow.policy
        and deep.pad_token_id == shallow.pad_token_id
    )


def _abstract(
    config: DecoderConfig,
    heads: Sequence[HeadConfig | OutputConfig],
    dtype: jnp.dtype,
    objectives: str = "none",
) -> tuple[nnx.GraphDef, nnx.State]:
    def build() -> RewardModels | LanguageModel:
        rewarding = [head for head in heads if isinstance(head, HeadConfig)]
        if rewarding:
            return RewardModels(config, rewarding, dtype, objectives=objectives)
        (output,) = (head for head in heads if isinstance(head, OutputConfig))
        return LanguageModel(config, output, dtype)

    return nnx.split(nnx.eval_shape(build))


def _head_from_json(fields: Mapping[str, Any]) -> HeadConfig | OutputConfig:
    language = fields["kind"] == OutputConfig.kind
    return OutputConfig.from_json(fields) if language else HeadConfig.from_json(fields)


def _name(path: tuple[Any, ...]) -> str:
    # ('readouts', 0, 'norm') -> 'readout.norm': on disk a checkpoint has one readout.
    if path[0] == "readouts":
        path = ("readout", *path[2:])
    return ".".join(map(str, path))


def _hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    digest.update(json.dumps([tokenizer.chat_template, tokenizer.special_tokens_map]).encode())
    return digest.hexdigest()[:16]
