"""Hugging Face folder -> Assay checkpoint: safetensors only, streamed a parameter at a time."""

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.checkpoint import gating, rules, store
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.hf_config import decoder_config, is_language_model, output_config
from engine.models.language_model import OutputConfig
from engine.prompts import ChatTemplate, TemplatePolicy

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_FILES = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")  # never code, never pickle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A folder in Hugging Face format and where it came from."""

    folder: Path
    name: str  # hub id, or the folder as the user gave it
    revision: str | None


@dataclasses.dataclass(frozen=True)
class TensorFiles:
    """The tensors of a folder by name, read one at a time so that little is mapped at once."""

    folder: Path
    files: Mapping[str, str]  # tensor -> file name
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]

    @classmethod
    def open(cls, folder: Path) -> "TensorFiles":
        """Reads every header; buffers that hold nothing learned are left out.

        Raises:
          AssayError: no safetensors, a shard that is missing or truncated, a tensor that two
            shards hold, an element type that is no float.
        """
        where, shapes, dtypes = {}, {}, {}
        for name in _shards(folder):
            for key, shape, dtype in _header(folder / name):
                if not rules.learned([key]):  # batch norms count in integers
                    continue
                if dtype not in _DTYPES:
                    raise AssayError(
                        f"{folder / name}: tensor {key!r} has element type {dtype}; "
                        f"allowed: {', '.join(_DTYPES)}"
                    )
                if key in where:
                    raise AssayError(f"{folder}: tensor {key!r} is in {where[key]} and in {name}")
                where[key], shapes[key], dtypes[key] = name, shape, dtype
        return cls(folder, where, shapes, dtypes)

    def read(self, key: str) -> np.ndarray:
        """One tensor, as it is in the file."""
        with safe_open(self.folder / self.files[key], framework="numpy") as tensors:
            return tensors.get_tensor(key)


def fetch(source: str, revision: str | None) -> Source:
    """A local folder as it is, or a hub id's files (weights, configs, tokenizer; never code).

    Raises:
      AssayError: neither a folder nor a repository that the hub serves.
    """
    if Path(source).is_dir():
        if revision:
            raise AssayError(f"revision={revision!r}; allowed: none for the local folder {source}")
        return Source(folder=Path(source), name=source, revision=None)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise AssayError(f"source={source!r}; allowed: an existing folder or a hub id owner/name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(source, revision=revision, allow_patterns=list(_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise AssayError(
            f"source={source!r}: no such folder, and the hub says: {reason}"
        ) from error
    # Snapshots lie in a folder named after their commit.
    return Source(folder=Path(folder), name=source, revision=Path(folder).name)


# A head, the rules of its tensors, and what is computed from tensors instead.
HeadPlan = tuple[HeadConfig | OutputConfig, tuple[rules.Rule, ...], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What conversion reads and what it makes of it."""

    decoder: DecoderConfig
    head: HeadConfig | OutputConfig
    rules: tuple[rules.Rule, ...]
    computed: Mapping[str, np.ndarray]  # parameters that are not one tensor: a folded gate


def convert(
    source: Source,
    destination: Path,
    *,
    slug: str,
    policy: TemplatePolicy,
    head: str = "",
    softcap: bool = True,
    tensor_bytes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> store.Checkpoint:
    """Converts a reward model or a causal language model; writes the whole checkpoint or nothing.

    Weights keep their dtype in the decoder; the final norm and the head become float32, exactly.
    At most one parameter, stacked over the layers, is in memory, with orbax's copy of it.

    Args:
      source: from `fetch`.
      destination: the checkpoint folder to make.
      slug: the model's name in runs.
      policy: BOS and date policy, kept in model.json.
      head: how to read the head where its tensors allow more than one reading
        (`urm-helpfulness`); by default the published one.
      softcap: whether Gemma 2's attention soft-cap applies; the paper's library version left it
        out.
      tensor_bytes: bytes of all tensors that the repository is known to hold.
      progress: told bytes done and bytes in all.

    Raises:
      AssayError: anything about the folder that is not understood, by name.
    """
    store.refuse_existing(destination)
    files = TensorFiles.open(source.folder)
    with _named(source.folder):
        hf = _read_json(source.folder / "config.json")
        plan, pad = _plan(hf, files, head, softcap), _pad_token_id(hf)
    total = sum(_nbytes(files, key) for key in files.files)
    if tensor_bytes not in (None, total):
        raise AssayError(
            f"{source.folder}: {total:,} bytes of tensors; published: {tensor_bytes:,}"
        )
    tokenizer = _tokenizer(source.folder)
    if isinstance(plan.head, HeadConfig):
        _check_template(source.folder, ChatTemplate(tokenizer, policy))

    with store.Writer(destination, plan.decoder, plan.head) as writer:
        done = 0
        for rule in plan.rules:
            keys = rules.layer_keys(rule, plan.decoder.num_layers)
            writer.save(rule.parameter, _assemble(rule, keys, files, writer))
            if rule.part in ("", "q"):  # the other parts are of the same tensors
                done += sum(_nbytes(files, key) for key in keys)
            progress(done, total)
        for name, value in plan.computed.items():
            writer.save(name, value)
        if plan.computed:
            progress(total, total)
        return writer.finish(
            slug=slug,
            source=source.name,
            revision=source.revision,
            files={
                name: _sha256(source.folder / name) for name in sorted(set(files.files.values()))
            },
            policy=policy,
            tokenizer=tokenizer,
            pad_token_id=pad,
        )


def _check_template(folder: Path, template: ChatTemplate) -> None:
    """Refuses a template under which replies do not stand, or whose end is not the reward's."""
    suffix = template.split("What?").suffix
    reads_at = _read_json(folder / "config.json").get("reward_token_id")
    if reads_at is not None and suffix[-1:] != (reads_at,):
        raise AssayError(
            f"{folder}: the chat template ends with token {suffix[-1:]}; this model's "
            f"reward is read at reward_token_id={reads_at}, which must come last"
        )


def _plan(hf: Mapping[str, Any], files: TensorFiles, head: str, softcap: bool) -> Plan:
    decoder = decoder_config(hf)
    if not softcap:
        decoder = dataclasses.replace(decoder, attention_softcap=None)
    keys = set(files.files)
    gate_keys = gating.gate_keys(keys)
    language = is_language_model(hf)
    read = _language if language else _gated if gate_keys else _ungated
    head_config, head_rules, computed = read(hf, decoder, files, keys)
    if head:
        head_config = _variant(head_config, head)
    matched = (*rules.decoder_rules(decoder, keys), *head_rules)
    extra = _copies(head_config, files) if language else gate_keys
    rules.check_keys(matched, extra, keys, decoder.num_layers)
    _check_shapes(files, matched, decoder, head_config)
    return Plan(decoder=decoder, head=head_config, rules=matched, computed=computed)


def _ungated(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    kind, head_rules = rules.plain_head(keys)

    def rows(letter: str) -> int:
        named = [r for r in head_rules if r.layout[0] == letter and r.key in keys]
        return files.shapes[named[0].key][0] if named else 0

    objectives = gating.objective_names(rows("R")) if kind == "urm" else ()
    config = _head_config(decoder, kind=kind, hidden=rows("E"), hidden_in=rows("I"),
                          objectives=objectives)  # fmt: skip
    return config, head_rules, {}


def _language(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    config = output_config(hf, decoder)
    return config, (rules.NORM, *([] if config.tied else [rules.LM_HEAD])), {}


def _copies(head: HeadConfig | OutputConfig, files: TensorFiles) -> set[str]:
    """A tied output head that the file holds too, if it is what it is tied to.

    Raises:
      AssayError: it differs from the embedding: the file and config.json contradict each other.
    """
    key, embedding = rules.LM_HEAD.key, "model.embed_tokens.weight"
    if not isinstance(head, OutputConfig) or not head.tied or key not in files.files:
        return set()
    if embedding in files.files and not np.array_equal(files.read(key), files.read(embedding)):
        raise AssayError(f"tensor {key!r} differs from the embedding, to which config.json ties it")
    return {key}


def _gated(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    gate = gating.read_gate(keys, files.read)
    transform = rules.TRANSFORM.key in keys
    rows = files.shapes.get(rules.REGRESSION.key, (gate.objectives,))[0]
    pattern = gating.PATTERNS.get(hf["model_type"])
    if pattern is None:
        raise AssayError(f"config.json: model_type={hf['model_type']!r} with a gate; "
                         f"allowed: {', '.join(gating.PATTERNS)}")  # fmt: skip
    config = _head_config(
        decoder,
        kind="gated",
        hidden=gate.hidden,
        hidden_in=gate.hidden,
        objectives=gating.objective_names(gate.objectives),
        quantiles=rows // gate.objectives,
        gate_layers=len(gate.layers),
        gate_temperature=gating.temperature(hf, gate, transform),
        gate_pattern=pattern,
        transform=transform,
    )
    computed = {"readout.head.logit_scale": _logit_scale(files)}
    for index, (weight, bias) in enumerate(gate.layers):
        computed[f"readout.head.layers.{index}.weight"] = weight
        computed[f"readout.head.layers.{index}.bias"] = bias
    head_rules = (rules.NORM, rules.REGRESSION, *([rules.TRANSFORM] if transform else []))
    return config, head_rules, computed


def _logit_scale(files: TensorFiles) -> np.ndarray:
    if files.shapes.get(gating.LOGIT_SCALE) not in ((), (1,)):
        raise AssayError(f"missing tensor {gating.LOGIT_SCALE!r}, a single number")
    return files.read(gating.LOGIT_SCALE).astype(np.float32).reshape(())


def _head_config(decoder: DecoderConfig, **fields: Any) -> HeadConfig:
    return HeadConfig(
        depth=decoder.num_layers, width=decoder.width, rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset, **fields,
    )  # fmt: skip


def _variant(config: HeadConfig | OutputConfig, head: str) -> HeadConfig:
    """Another published reading of the same tensors."""
    if isinstance(config, OutputConfig):
        raise AssayError(f"head={head!r}; allowed for a language model: none")
    if (config.kind, head) not in {(config.kind, config.kind), ("urm", "urm-helpfulness")}:
        raise AssayError(f"head={head!r}; allowed for this checkpoint: {config.kind!r}"
                         + (", 'urm-helpfulness'" if config.kind == "urm" else ""))  # fmt: skip
    return dataclasses.replace(config, kind=head)


def _assemble(
    rule: rules.Rule, keys: list[str], files: TensorFiles, writer: store.Writer
) -> np.ndarray:
    """One parameter, transposed, its layers stacked in place."""
    parameter = writer.parameters[rule.parameter]
    axes, sizes = parameter.axes.removeprefix("L"), writer.sizes
    readout = rule.parameter.startswith("readout.")
    dtype = np.float32 if readout else _common_dtype(files, keys)
    stacked = np.empty(parameter.shape, dtype)
    for layer, key in enumerate(keys):
        tensor = rules.part_of(rule, files.read(key), sizes)
        tensor = tensor.reshape(rules.split_shape(rule.layout, sizes))
        tensor = tensor.transpose(rules.permutation(rule.layout, axes))
        stacked[layer if "L" in parameter.axes else ...] = tensor
    return stacked


def _common_dtype(files: TensorFiles, keys: list[str]) -> np.dtype:
    dtypes = {np.dtype(_DTYPES[files.dtypes[key]]) for key in keys}
    return dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)  # which holds them all


def _check_shapes(
    files: TensorFiles,
    matched: Sequence[rules.Rule],
    config: DecoderConfig,
    head: HeadConfig | OutputConfig,
) -> None:
    sizes = store.axis_sizes(config, head)
    for rule in matched:
        expected = rules.fused_shape(rule, sizes)
        for key in rules.layer_keys(rule, config.num_layers):
            if files.shapes[key] != expected:
                raise AssayError(
                    f"tensor {key!r} has shape {list(files.shapes[key])}; "
                    f"config.json implies {list(expected)}"
                )


def _shards(folder: Path) -> list[str]:
    if (folder / _INDEX).is_file() and (folder / _SINGLE).is_file():
        raise AssayError(f"{folder}: both {_SINGLE} and {_INDEX}; allowed: one of them")
    if (folder / _INDEX).is_file():
        names = sorted(set(_read_json(folder / _INDEX).get("weight_map", {}).values()))
        for name in names:
            if not (folder / name).is_file():
                raise AssayError(f"{folder}: shard {name} is missing; {_INDEX} names it")
        return names
    if (folder / _SINGLE).is_file():
        return [_SINGLE]
    if list(folder.glob("*.bin")) or list(folder.glob("*.pt")):
        raise AssayError(
            f"{folder}: pickled weights are refused, since loading them runs code; "
            "save the model with save_pretrained(..., safe_serialization=True)"
        )
    raise AssayError(f"{folder}: no {_SINGLE} and no {_INDEX}")


def _header(path: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    try:
        with safe_open(path, framework="numpy") as tensors:
            for key in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
                view = tensors.get_slice(key)
                yield key, tuple(view.get_shape()), view.get_dtype()
    except (SafetensorError, OSError) as error:
        raise AssayError(f"{path}: truncated or no safetensors file ({error})") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise AssayError(f"{path.parent}: no {path.name}; allowed: a Hugging Face model folder")
    try:
        fields = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise AssayError(f"{path}: not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise AssayError(f"{path}: a JSON {type(fields).__name__}; allowed: an object")
    return fields


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        with warnings.catch_warnings():  # about config.json, which is read here, not there
            warnings.simplefilter("ignore", FutureWarning)
            return AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # damaged files raise whatever the parser of the day raises
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise AssayError(f"{folder}: no tokenizer that loads ({reason})") from error


def _pad_token_id(hf: Mapping[str, Any]) -> int | None:
    pad = hf.get("pad_token_id")
    if pad is not None and (isinstance(pad, bool) or not isinstance(pad, int)):
        raise AssayError(f"config.json: pad_token_id={pad!r}; allowed: an integer or null")
    return pad


def _nbytes(files: TensorFiles, key: str) -> int:
    return math.prod(files.shapes[key]) * np.dtype(_DTYPES[files.dtypes[key]]).itemsize


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _named:
    """Puts the folder in front of a message that does not know it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, AssayError):
            raise AssayError(f"{self.folder}: {error}") from error
