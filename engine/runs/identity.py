"""What the numbers of a result mean, and what is wrong with what a file says.

Numbers of two identities are never mixed. How they were computed (devices, libraries, size of a
step) may differ within a result, and is recorded with each part (`engine.runs.result`).
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

Json = dict[str, Any]  # Any: what JSON holds
Record = TypeVar("Record")

# By platform of the devices: raised by one when the same inputs give other numbers than before, on
# the same devices and libraries, if only in their last bits.
NUMERICS = {"cpu": 4, "gpu": 6, "tpu": 5}
_LIBRARIES = ("jax", "jaxlib", "flax", "transformers", "tokenizers", "numpy", "polars")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """What must agree for parts to belong to one result; fields at their default are not written.

    Attributes:
      checkpoint_hash: of everything in the checkpoint that can change a number, the template and
        its date included; of imported numbers `imported:<name>`.
      rows: number of rows; None for a search.
      mode: `ids`, `text`, or `imported`; "" for log-probabilities.
      form: how a language model is given a prompt; "" for a reward model.
      pooling: where the reward is read.
      dtype: of the decoder.
      date, template_vars, adapter, base: in words what the hash covers too: a date that the
        template prints, what else it was given to read, and the hashes of a merged adapter's files
        and of those of its base.
      prefix_ids: ids before the reply, one row for each prompt; none where rows have their own.
      suffix_ids: ids behind the reply.
      objectives: columns behind the reward.
      lens: number of layers whose columns follow.
      search: settings of a search.
      imported: the layout and the sha256 of an imported file, and what its values are.
    """

    checkpoint_hash: str
    rows: int | None = None
    mode: str = ""
    form: str = ""
    pooling: str = "last"
    dtype: str = ""
    date: str = ""
    template_vars: dict[str, str] = dataclasses.field(default_factory=dict)
    adapter: str = ""
    base: str = ""
    prefix_ids: tuple[tuple[int, ...], ...] = ()
    suffix_ids: tuple[int, ...] = ()
    objectives: tuple[str, ...] = ()
    lens: int = 0
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    imported: dict[str, str] = dataclasses.field(default_factory=dict)

    def changes(self, wanted: "Identity") -> str:
        """What differs between this identity and another; "" where nothing does."""
        return changes(to_json(self), to_json(wanted)) if self != wanted else ""

    @property
    def short(self) -> str:
        """Twelve hex digits that differ when the identity does."""
        return content_hash(to_json(self))[:12]


# Any: an instance of a dataclass.
def to_json(record: Any, skip: Sequence[str] = ()) -> Json:
    """The fields of a dataclass that differ from their defaults, as they are read back."""
    fields = {}
    for field in dataclasses.fields(record):
        if field.name in skip:
            continue
        value, default = getattr(record, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            fields[field.name] = value
    plain: Json = json.loads(json.dumps(fields, default=to_json))
    return plain


# Any: what JSON holds, and fields.
def from_json(kind: type[Record], content: Any, **given: Any) -> Record:
    """The inverse of `to_json`; raises TypeError or ValueError for what is no such record.

    `given` are fields that were left out.
    """
    if not isinstance(content, dict):
        raise TypeError(f"{content!r:.60} is no {kind.__name__}")
    hints = typing.get_type_hints(kind)
    if unknown := [name for name in content if name not in hints or name in given]:
        raise ValueError(f"unknown key {unknown[0]!r:.60}")
    read = {name: typed(hints[name], value, name) for name, value in content.items()}
    return kind(**read, **given)


# Any: types, and what JSON holds.
def typed(kind: Any, value: Any, name: str) -> Any:
    """A JSON value as a type that an annotation names; raises TypeError where it is another."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        if value is None and types.NoneType in of:
            return None
        kind = next(option for option in of if option is not types.NoneType)
        return typed(kind, value, name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return from_json(kind, value)
    if origin is tuple and isinstance(value, list):
        return tuple(typed(of[0], element, name) for element in value)
    if origin is dict and isinstance(value, dict):
        return {key: typed(of[1], element, f"{name} {key!r:.60}") for key, element in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind is not Any and type(value) is not kind:
        raise TypeError(f"{name}: {value!r:.60} is no {getattr(origin or kind, '__name__', kind)}")
    return value


def sealed(fields: Mapping[str, Any], version: int) -> bytes:
    """The bytes of a JSON file that holds its version, and the sha256 of what else it holds."""
    content = {"version": version, **fields}
    return (json.dumps({**content, "sha256": content_hash(content)}, indent=1) + "\n").encode()


def unsealed(data: bytes, version: int) -> Json:
    """The content of a file from `sealed`, of this version; raises ValueError if it is damaged."""
    try:
        content: object = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    if content.get("version") != version:
        raise ValueError(f"version {content.get('version')!r:.60}; allowed: {version}")
    if content.pop("sha256", None) != content_hash(content):
        raise ValueError("it does not fit its own sha256")
    del content["version"]
    return content


def content_hash(content: Mapping[str, Any]) -> str:
    """sha256 of a JSON object."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def items_hash(items: Sequence[str]) -> str:
    """Identity of a list of replies: sha256 of its items in their order."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()


def conversations_hash(table: pl.DataFrame) -> str:
    """Identity of a list of conversations (`schema.LIST_COLUMNS`), as `items_hash` of its rows."""
    return items_hash([json.dumps(row) for row in table.iter_rows()])


def changes(present: object, wanted: object) -> str:
    """What differs between two JSON values: `dtype='float32', not 'bfloat16'`; words first.

    Token ids are left out where anything else differs: a date or a mode says why they do.
    """
    if isinstance(present, dict) and isinstance(wanted, dict):
        return ", ".join(_changed(present, wanted))
    return f"{present!r}, not {wanted!r}"


def _changed(present: Json, wanted: Json) -> list[str]:
    names = [k for k in {**present, **wanted} if present.get(k) != wanted.get(k)]
    names = [k for k in names if not k.endswith("_ids")] or names
    differences = []
    for key in sorted(names, key=lambda k: k.endswith("_hash")):
        if isinstance(present.get(key), dict) and isinstance(wanted.get(key), dict):
            differences += [f"{key}.{inner}" for inner in _changed(present[key], wanted[key])]
            continue
        is_now = f"{key}={present[key]!r}" if key in present else f"{key} left at its default"
        differences.append(f"{is_now}, not {repr(wanted[key]) if key in wanted else 'its default'}")
    return differences


def numerics(backend: str) -> int:
    """The number of `NUMERICS` for a platform as `jax.default_backend` names it."""
    return NUMERICS.get(backend, max(NUMERICS.values()))


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **versions}
