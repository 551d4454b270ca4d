"""Adapters of peft, merged into their base tensor by tensor: W + scale * (B A), in float32.

Checked against peft's `tuners/lora/layer.py` (scale, `get_delta_weight`), `utils/other.py`
(`get_pattern_key`) and `utils/save_and_load.py` (names of tensors, whole modules).
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np

from engine.checkpoint import layouts
from engine.convert.hf_families import ARCHITECTURES
from engine.convert.hf_values import Json, short
from engine.convert.safetensors import ADAPTER as CONFIG
from engine.convert.safetensors import (
    VALUE_HEAD,
    Tensor,
    TensorFiles,
    file_names,
    read_json,
    unread,
)
from engine.errors import AssayError, malformed, prefixed

WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"  # of older versions of peft, and under ZeRO-3

# Attributes of adapter_config.json with the values that merging implements. Initialisations that
# are not listed (pissa, olora, corda, loftq) change the weights of the base.
_FIXED: dict[str, tuple[object, ...]] = {
    "use_rslora": (True, False, None),
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    **dict.fromkeys(("use_dora", "lora_bias", "use_qalora", "use_bdlora"), (False, None)),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, [], {}),
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "megatron_config": (None,),
}
_READ = {
    "base_model_name_or_path", "revision", "r", "lora_alpha", "rank_pattern",
    "alpha_pattern", "modules_to_save", "task_type",
}  # fmt: skip
# Bookkeeping, training, and which modules were adapted, which the tensors say.
_HARMLESS = {
    "auto_mapping", "inference_mode", "peft_version", "target_modules", "exclude_modules",
    "lora_dropout", "layers_to_transform", "layers_pattern", "megatron_core", "loftq_config",
    "eva_config", "corda_config", "lora_ga_config", "qalora_group_size", "runtime_config",
    "ensure_weight_tying",
    "fan_in_fan_out",  # peft replaces it by what the module is: true for Conv1D alone
}  # fmt: skip
_CONV1D = ("gpt2",)  # families whose matrices are [in, out]

_PREFIX = re.compile(r"base_model\.model\.((_orig_mod|module|pretrained_model)\.)*")
_BASE = re.compile(rf"({'|'.join(layouts.BASES)})\.")
_PART = re.compile(
    r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<part>[AB])(\.default)?(\.weight)?"
)
_TEXT = re.compile(r"^(model\.language_model|language_model\.model)\.")  # beside a vision tower
_EMBEDDINGS = ("model.embed_tokens.weight", "model.tok_embeddings.weight")
_BLOCK = 2**22  # numbers of a matrix that are merged at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delta:
    """What is added to a matrix: scale * (B A), or the transpose of that."""

    a: str  # names of the adapter's tensors: [r, in]
    b: str  # [out, r]
    scale: float
    transposed: bool

    def merged(
        self, array: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """The matrix with its delta, summed in float32 and rounded once.

        Args:
          array: [out, in], or [in, out] where the delta is transposed; changed if it has `dtype`.
          a: float32 [r, in].
          b: float32 [out, r].
          dtype: of the result.
        """
        left, right = (a.T, b.T) if self.transposed else (b, a)
        result = array if array.dtype == dtype else np.empty(array.shape, dtype)
        step = max(1, _BLOCK // array.shape[1])
        for start in range(0, len(array), step):
            rows = slice(start, start + step)
            total = array[rows].astype(np.float32)
            total += np.float32(self.scale) * (left[rows] @ right)
            with np.errstate(over="ignore"):  # what overflows scores no finite reward: refused
                result[rows] = total.astype(dtype)
        return result


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergedFiles(TensorFiles):
    """The tensors of the merged model: read from base and adapter, merged one by one."""

    base: TensorFiles
    adapter: TensorFiles
    deltas: Mapping[str, Delta]  # tensor -> what is added to it

    def read(self, key: str) -> np.ndarray:
        """Reads one tensor and merges it in blocks of rows, without a second copy of it."""
        whole = key in self.adapter.tensors
        array = (self.adapter if whole else self.base).read(key)
        dtype, delta = self.tensors[key].dtype, self.deltas.get(key)
        if delta is None:
            return array.astype(dtype, copy=False)
        a, b = (self.adapter.read(name).astype(np.float32) for name in (delta.a, delta.b))
        return delta.merged(array, a, b, dtype)

    def hashes(self) -> dict[str, str]:
        """Those of the adapter's files, its settings among them."""
        settings = (self.folder / CONFIG).read_bytes()
        return {**self.adapter.hashes(), CONFIG: hashlib.sha256(settings).hexdigest()}


def read_config(folder: Path, names: Collection[str]) -> Json:
    """Reads and checks adapter_config.json; `names` are the files of the folder or repository.

    Raises:
      AssayError: another method than LoRA, an attribute or a file that merging cannot honour, or
        weights that are missing. The caller adds the place.
    """
    hf = read_json(folder / CONFIG)
    known = _READ | _HARMLESS | set(_FIXED)
    problems = [
        f"{name}={short(hf[name])} is not implemented; allowed: {', '.join(map(repr, allowed))}"
        for name, allowed in _FIXED.items()
        if name in hf and hf[name] not in allowed
    ]
    # peft switches a method on by its attribute: one that is new and empty does nothing.
    if unknown := [f"{n!r} (= {short(hf[n])})" for n in hf if n not in known and hf[n]]:
        problems.append(f"not understood, and may change the rewards: {', '.join(unknown)}")
    if problems:
        raise AssayError(f"{CONFIG}: " + "; also ".join(problems))
    if WEIGHTS not in names:
        allowed = "the folder of a peft adapter"
        if PICKLED in names:
            allowed = (
                f"{PICKLED} is never read, since loading a pickle runs code: where you trust it, "
                "load the adapter with peft and save it with save_pretrained"
            )
        raise AssayError(f"no {WEIGHTS}; allowed: {allowed}")
    if others := unread(names, (WEIGHTS, VALUE_HEAD)):
        raise AssayError(f"weights that nothing reads: {', '.join(others)}")
    return hf


def rank_of(config: Json, module: str) -> float:
    """The rank of a module's two matrices."""
    return _number(config, "r", "rank_pattern", module)


def scale_of(config: Json, module: str) -> float:
    """What a module's product B A is multiplied with."""
    rank = rank_of(config, module)
    alpha = _number(config, "lora_alpha", "alpha_pattern", module)
    if not 0 < alpha < math.inf:
        raise AssayError(f"{CONFIG}: lora_alpha={short(alpha)}; allowed: numbers above 0")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def weight_names(names: Collection[str]) -> list[str]:
    """Names of the files with an adapter's tensors, of all its files `names`."""
    return [name for name in (WEIGHTS, VALUE_HEAD) if name in names]


def check_base(base: Json) -> None:
    """Raises AssayError for the config.json of a base that is quantised, without its place."""
    if quantised := base.get("quantization_config"):
        raise AssayError(
            f"config.json: quantization_config={short(quantised)}; allowed: an adapter is merged "
            "into whole weights: name those that this base was made from as --base"
        )


def config_json(base: Json, folder: Path, pad: int | None) -> Json:
    """config.json of the merged model: that of its base, as a reward model.

    A vocabulary that was resized has the rows of the embedding in the adapter. `pad` is the pad
    token of the adapter's tokenizer; None keeps that of the base.
    """
    hf = {**base, **({} if pad is None else {"pad_token_id": pad})}
    if (folder / VALUE_HEAD).is_file():  # whose makers read the last position that is attended to
        hf["architectures"] = ["GRewardModel"]
    elif hf.get("architectures") not in [[name] for name in ARCHITECTURES]:
        family = [name for name, kind in ARCHITECTURES.items() if kind == hf.get("model_type")]
        if read_json(folder / CONFIG).get("task_type") == "TOKEN_CLS":
            family = [name for name in family if name.endswith("ForTokenClassification")]
        hf["architectures"] = family[:1] or hf.get("architectures")
    tensors = _open(folder).tensors
    for shape in (tensors[name].shape for name in _EMBEDDINGS if name in tensors):
        hf["vocab_size"] = (*shape, 0)[0]
    return hf


def open_merged(base: Path, folder: Path, model_type: object) -> MergedFiles:
    """The merged model of an adapter and its base.

    Everything of the base but its decoder is left out: the head is the adapter's. `model_type` is
    the family, of config.json.

    Raises AssayError where the tensors do not fit the config or the base, or no head is among them.
    """
    of_base, adapter = TensorFiles.open(base), _open(folder)
    with prefixed(folder):
        config = read_config(folder, file_names(folder))
        of_images = layouts.image_keys(adapter.tensors)
        given = {key: t for key, t in adapter.tensors.items() if key not in of_images}
        matches = {key: match for key in given if (match := _PART.fullmatch(key))}
        whole = {
            key: tensor
            for key, tensor in given.items()
            if key not in matches and not key.startswith("lm_head.")
        }
        if all(key.startswith("model.") for key in whole):
            raise AssayError(
                f"{WEIGHTS}: no head, without which there is no reward (peft saves it for task_type"
                "='SEQ_CLS', or as one of modules_to_save); allowed: an adapter of a reward model"
            )
        decoder = {key: t for key, t in of_base.tensors.items() if key.startswith("model.")}
        with malformed(CONFIG):
            deltas = _deltas(config, adapter, matches.values(), decoder | whole, model_type)
    tensors = decoder | whole
    return MergedFiles(folder=folder, tensors=tensors, base=of_base, adapter=adapter, deltas=deltas)


def _open(folder: Path) -> TensorFiles:
    return TensorFiles.open(folder, files=weight_names(file_names(folder)), rename=_names)


def _names(keys: Iterable[str], head: str) -> dict[str, str]:
    """Each name in an adapter's file -> the name in its base, or of the part of a product."""
    inner = {key: _PREFIX.sub("", key, count=1).replace(".base_layer.", ".") for key in keys}
    inner = {key: _TEXT.sub("model.", name) for key, name in inner.items()}
    return {
        key: layouts.canonical_name(name, match[0] if (match := _BASE.match(name)) else "", head)
        for key, name in inner.items()
    }


def _deltas(
    config: Json,
    adapter: TensorFiles,
    parts: Iterable[re.Match[str]],
    tensors: Mapping[str, Tensor],
    model_type: object,
) -> dict[str, Delta]:
    """Tensor -> what is added to it; raises AssayError where names or shapes do not fit."""
    pairs: dict[str, dict[str, re.Match[str]]] = {}
    for part in parts:
        if not part["module"].startswith("lm_head"):  # which no reward is read from
            pairs.setdefault(part["module"], {})[part["part"]] = part
    deltas = {}
    for module, pair in pairs.items():
        key = f"{module}.weight"
        if key not in tensors or not key.startswith("model."):
            raise AssayError(f"{WEIGHTS}: LoRA of {module!r}, which is no module of the base")
        if set(pair) != {"A", "B"}:
            raise AssayError(f"{WEIGHTS}: one of lora_A and lora_B of {module!r} is missing")
        a, b = ((*adapter.tensors[pair[part].string].shape, 0, 0)[:2] for part in "AB")
        transposed = bool(pair["A"]["embedding"]) or model_type in _CONV1D
        shape = (a[1], b[0]) if transposed else (b[0], a[1])
        rank = rank_of(config, module)
        if (a[0], b[1]) != (rank, rank) or tensors[key].shape != shape:
            raise AssayError(
                f"{WEIGHTS}: LoRA of {module!r} has shapes {list(a)} and {list(b)}; the base has "
                f"{list(tensors[key].shape)}, and {CONFIG} says rank {rank}"
            )
        deltas[key] = Delta(
            a=pair["A"].string,
            b=pair["B"].string,
            scale=scale_of(config, module),
            transposed=transposed,
        )
    return deltas


def _number(config: Json, name: str, patterns: str, module: str) -> float:
    """The number of the first pattern that a module's name, or its end after a dot, matches.

    Without one it is that of `name`, which is 8 in peft if the file does not say it.
    """
    given = (config.get(patterns) or {}).items()
    matching = (value for key, value in given if re.match(rf"(.*\.)?({key})$", module))
    number: float = next(matching, config.get(name, 8))
    return number
