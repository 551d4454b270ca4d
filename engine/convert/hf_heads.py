"""Reads the head of a folder: a reward head by its tensors, else a language model's output head."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from engine.checkpoint import layouts
from engine.checkpoint.encoder_layouts import UNREAD
from engine.convert import gates
from engine.convert.hf_config import architecture, is_language_model, output_config
from engine.convert.hf_families import REWARDS
from engine.convert.hf_values import Json, number, positive
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from engine.models.encoder_config import NetworkConfig
from engine.models.heads import HeadConfig, OutputConfig
from engine.runs import schema
from engine.text.chat_template import encode

_EMBEDDING = "model.embed_tokens.weight"
_LISTED = 10  # rows of a head that an error lists
_DIFFERENCE = re.compile(r"('[^']*'|.*?)(?: - ('[^']*'|.*))?", re.DOTALL)  # of rows, or of tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadPlan:
    """A head, and where the parameters of the readout come from."""

    config: HeadConfig | OutputConfig
    rules: tuple[layouts.Rule, ...]  # of parameters that are copied from tensors
    computed: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # by parameter
    extra: Collection[str] = ()  # tensors of no rule: those of `computed`, and what is left out
    reward: str = ""  # which row, or whose logit, is the reward, in words: `Card.reward`
    notes: tuple[str, ...] = ()  # what the user should know of it


def read_head(
    hf: Json,
    decoder: NetworkConfig,
    files: TensorFiles,
    tokenizer: PreTrainedTokenizerBase,
    *,
    reward: str,
) -> HeadPlan:
    """Reads a folder's head: a folder with any tensor of a reward head is a reward model.

    Args:
      hf: parsed config.json.
      decoder: read from it.
      files: the folder's tensors.
      tokenizer: the folder's.
      reward: of a head with several rows the one that is the reward, by number or name, or the
        difference of two, as `1 - 0`; "": it has one row. Of a language model the token whose
        logit is the reward, or two, as `yes - no`; "": it is none.

    Raises:
      AssayError: the head is not understood, or `reward` names none of its rows or tokens.
    """
    head = layouts.head_keys(files.tensors)
    if is_language_model(hf) and not head:
        return _without_the_rest(_language(hf, decoder, files, tokenizer, reward), files, head)
    kind = "gated" if gates.gate_keys(head) else layouts.plain_head(files.tensors)
    if kind in ("gated", "urm"):
        for name, given in (("normalize_reward", hf.get("normalize_reward")), ("reward", reward)):
            if given:
                raise AssayError(f"{name}={given!r}; allowed for a {kind} head: none")
        plan = _gated(hf, decoder, files) if kind == "gated" else _urm(decoder, files)
    else:
        plan = _layers(hf, decoder, files, kind, reward)
    return _without_the_rest(plan, files, head)


def _without_the_rest(plan: HeadPlan, files: TensorFiles, head: Collection[str]) -> HeadPlan:
    """The plan without an output head beside a reward head, and without what is for images."""
    extra, notes = {*plan.extra}, [*plan.notes]
    if head and (unused := files.tensors.get(layouts.LM_HEAD.key)):
        extra.add(layouts.LM_HEAD.key)
        names = [files.tensors[key].key.rpartition(".")[0] for key in head]
        notes.append(f"{unused.key} is left out: the reward head is {min(names)}")
    if of_images := layouts.image_keys(files.tensors):
        extra |= of_images
        notes.append(
            f"images are not read: {len(of_images)} tensors of a vision tower are left out"
        )
    if of_mtp := layouts.mtp_keys(files.tensors):
        extra |= of_mtp
        notes.append(f"multi-token prediction is not read: {len(of_mtp)} tensors are left out")
    if poolers := {key for key in files.tensors if key.startswith(UNREAD)}:
        extra |= poolers
        notes.append(f"{min(poolers).removeprefix(UNREAD)} is left out: the class does not read it")
    return dataclasses.replace(plan, extra=extra, notes=tuple(notes))


def _layers(
    hf: Json, decoder: NetworkConfig, files: TensorFiles, kind: str, reward: str
) -> HeadPlan:
    """One linear layer, or two with ReLU between them; the last one may have several rows."""
    rules = (*layouts.norm_rules(decoder), *layouts.PLAIN_HEADS[kind])
    hidden = _rows(files, layouts.MLP[0].key) if kind == "mlp" else 0
    last = "score.2" if kind == "mlp" else "score"
    shape = files.tensors[f"{last}.weight"].shape if f"{last}.weight" in files.tensors else ()
    names = _row_names(hf, shape[0] if len(shape) == 2 else 1)
    reward = reward or REWARDS.get(architecture(hf), "")
    mixture = _mixture(reward, names, _labels(hf, len(names)))
    plain = kind == "mlp" or f"{last}.bias" not in files.tensors
    if (len(names) == 1 and plain and not hf.get("normalize_reward")) or len(shape) != 2:
        return HeadPlan(config=_head_config(decoder, kind=kind, hidden=hidden), rules=rules)
    weight, bias = _last_layer(hf, files, last, hidden or decoder.width)
    if kind == "mlp":
        computed = {"weight_out": mixture @ weight, "bias_out": mixture @ bias}
    elif len(names) == 1:
        kind, computed = "affine", {"weight": weight[0], "bias": bias[0]}
    else:
        kind, computed = "objectives", {"weight": weight, "bias": bias, "mixture": mixture}
    objectives = names if kind == "objectives" else ()
    formula = _in_words(mixture, _labels(hf, len(names))) if len(names) > 1 else ""
    return HeadPlan(
        config=_head_config(decoder, kind=kind, hidden=hidden, objectives=objectives),
        rules=tuple(rule for rule in rules if not rule.key.startswith(f"{last}.")),
        computed={f"readout.head.{name}": np.asarray(v) for name, v in computed.items()},
        extra={f"{last}.weight", f"{last}.bias"} & set(files.tensors),
        reward=formula,
        notes=(
            *(f"the reward is {formula}",) * bool(formula),
            *("rewards are normalised: normalize_reward",) * bool(hf.get("normalize_reward")),
        ),
    )


def _last_layer(
    hf: Json, files: TensorFiles, name: str, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weight [R, width] and bias [R], float32: of rewards that OpenRLHF's settings normalise."""
    weight = files.read(f"{name}.weight").astype(np.float64)
    bias = np.zeros(len(weight))
    if f"{name}.bias" in files.tensors:
        bias = files.read(f"{name}.bias").astype(np.float64).reshape(-1)
    if weight.shape != (bias.size, width):
        raise AssayError(
            f"tensor {files.tensors[f'{name}.weight'].key!r} has shape {list(weight.shape)}; "
            f"its bias and config.json imply {[bias.size, width]}"
        )
    if hf.get("normalize_reward"):
        std = positive({"std": 1.0, **hf}, "std")
        weight, bias = weight / std, (bias - number({"mean": 0.0, **hf}, "mean")) / std
    return weight.astype(np.float32), bias.astype(np.float32)


def _row_names(hf: Json, rows: int) -> tuple[str, ...]:
    """Names of a head's rows: those of config.json in lower case, if they can name columns."""
    names = [re.sub(r"\W+", "_", name) for name in _labels(hf, rows)]
    try:
        return tuple(schema.objective_columns(names))
    except AssayError:
        return tuple(f"row_{row}" for row in range(rows))


def _labels(hf: Json, rows: int) -> list[str]:
    """The label of each row in config.json, in lower case; "" where it has none."""
    labels = hf["id2label"] if isinstance(hf.get("id2label"), dict) else {}
    return [str(labels.get(str(row), "")).strip().lower() for row in range(rows)]


def _mixture(reward: str, names: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Coefficients [R] of a head's rows whose sum is the reward."""
    if len(names) == 1 and not reward:
        return np.ones(1, np.float32)
    places: dict[str, int] = {}  # what a row is called -> the row; -1 where two are
    for row, called in enumerate(zip(names, labels, strict=True)):
        for name in (str(row), *filter(None, called)):
            places[name] = row if places.get(name, row) == row else -1
    parts = [part.removeprefix("'").removesuffix("'") for part in _parts(reward)]
    rows = [places.get(part.strip().lower(), -1) for part in parts]
    if min(rows) < 0 or len(set(rows)) < len(rows):
        labelled = enumerate(zip(names, labels, strict=True))
        listed = [f"{row} ({label or name})" for row, (name, label) in labelled]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise AssayError(
            f"reward={reward!r} of a head with {len(names)} row{'s' * (len(names) > 1)}; allowed: "
            f"--config.reward=<row, or a name that one row alone has> of "
            f"{', '.join(listed[:_LISTED])}{more}, or a difference, as '1 - 0'"
        )
    mixture = np.zeros(len(names), np.float32)
    mixture[rows] = [1, -1][: len(rows)]
    return mixture


def _parts(reward: str) -> list[str]:
    """What `reward` names: one row or token, or the two of a difference; quotes hold one."""
    match = _DIFFERENCE.fullmatch(reward)
    return [part for part in match.groups() if part is not None] if match else [reward]


def _in_words(mixture: np.ndarray, labels: Sequence[str]) -> str:
    """The rows of a `_mixture`, in words: `row 1 (good) minus row 0 (bad), of 2 rows`."""
    rows = [f"row {row}" + (f" ({label})" if label else "") for row, label in enumerate(labels)]
    chosen = [rows[row] for sign in (1, -1) for row in np.flatnonzero(mixture == sign)]
    return f"{' minus '.join(chosen)}, of {len(rows)} rows"


def _urm(decoder: NetworkConfig, files: TensorFiles) -> HeadPlan:
    def rows(letter: str) -> int:
        keys = (rule.key for rule in layouts.URM if rule.layout[0] == letter)
        return next((_rows(files, key) for key in keys if key in files.tensors), 0)

    objectives = gates.objective_names(rows("R"))
    config = _head_config(
        decoder, kind="urm", hidden=rows("E"), hidden_in=rows("I"), objectives=objectives
    )
    return HeadPlan(config=config, rules=(*layouts.norm_rules(decoder), *layouts.URM))


def _language(
    hf: Json,
    decoder: NetworkConfig,
    files: TensorFiles,
    tokenizer: PreTrainedTokenizerBase,
    reward: str,
) -> HeadPlan:
    config = output_config(hf, decoder)
    norm = layouts.norm_rules(decoder)
    rules = norm if config.tied else (*norm, layouts.LM_HEAD)
    plan = HeadPlan(config=config, rules=rules, extra=_tied_copy(config, files))
    key = _EMBEDDING if config.tied else layouts.LM_HEAD.key
    if not reward or key not in files.tensors:
        return plan
    if hf.get("normalize_reward"):
        raise AssayError(f"reward={reward!r}, the logit of a token; allowed: no normalize_reward")
    if config.softcap is not None:
        raise AssayError(
            f"reward={reward!r}, the logit of a token; allowed with final_logit_softcapping="
            f"{config.softcap}: none"
        )
    ids = [_token_id(part, tokenizer, decoder.vocab_size) for part in _parts(reward)]
    if len(set(ids)) < len(ids):
        raise AssayError(f"reward={reward!r}; allowed: one token, or two, as 'yes - no'")
    rows = files.read(key)[ids].astype(np.float32)
    tokens = [f"{tokenizer.convert_ids_to_tokens(i)!r} (token id {i})" for i in ids]
    formula = f"the logit of {' minus that of '.join(tokens)}"
    return HeadPlan(
        config=_head_config(decoder, kind="linear"),
        rules=norm,
        computed={"readout.head.weight": rows[0] - rows[1] if len(ids) > 1 else rows[0]},
        extra={*plan.extra, *(() if config.tied else (key,))},
        reward=formula,
        notes=(f"the reward is {formula}",),
    )


def _token_id(text: str, tokenizer: PreTrainedTokenizerBase, rows: int) -> int:
    """The id of a token that is given as an id, as its text, or as its text in single quotes."""
    quoted = len(text) > 2 and text[0] == text[-1] == "'"
    ids = [int(text)] if text.isdecimal() else []
    if not ids:
        [ids] = encode(tokenizer, [text[1:-1] if quoted else text])
    if len(ids) != 1 or ids[0] >= rows or tokenizer.convert_ids_to_tokens(ids[0]) is None:
        raise AssayError(
            f"reward: {text!r}, token ids {ids}; allowed: an id below {rows:,}, or a text that is "
            "one token, in single quotes where it is digits"
        )
    return ids[0]


def _tied_copy(head: OutputConfig, files: TensorFiles) -> set[str]:
    """Name of a tensor that repeats the embedding as a tied output head; empty if there is none.

    Raises AssayError for one that differs from the embedding, to which config.json ties it.
    """
    key, embedding = layouts.LM_HEAD.key, files.tensors.get(_EMBEDDING)
    if not head.tied or key not in files.tensors:
        return set()
    if embedding and not np.array_equal(files.read(key), files.read(_EMBEDDING)):
        raise AssayError(f"tensor {key!r} differs from the embedding, to which config.json ties it")
    return {key}


def _gated(hf: Json, decoder: NetworkConfig, files: TensorFiles) -> HeadPlan:
    layers, normed = gates.read_gate(set(files.tensors), files.read)
    gate_width, objectives = layers[0][0].shape[1], layers[-1][0].shape[1]
    transform = layouts.TRANSFORM.key in files.tensors
    quantiles = max(_rows(files, layouts.REGRESSION.key) // objectives, 1)
    pattern = gates.PATTERNS.get(hf["model_type"])
    if pattern is None:
        raise AssayError(
            f"config.json: model_type={hf['model_type']!r} with a gate; "
            f"allowed: {', '.join(gates.PATTERNS)}"
        )
    config = _head_config(
        decoder,
        kind="gated",
        hidden=gate_width,
        hidden_in=gate_width,
        objectives=gates.objective_names(objectives),
        quantiles=quantiles,
        gate_layers=len(layers),
        gate_temperature=gates.temperature(hf, normed, transform),
        gate_pattern=pattern,
        transform=transform,
    )
    computed = {"readout.head.logit_scale": _logit_scale(files)}
    for index, (weight, bias) in enumerate(layers):
        computed[f"readout.head.layers.{index}.weight"] = weight
        computed[f"readout.head.layers.{index}.bias"] = bias
    norm = layouts.norm_rules(decoder)
    head_rules = (*norm, layouts.REGRESSION, *([layouts.TRANSFORM] if transform else []))
    extra = gates.gate_keys(set(files.tensors))
    return HeadPlan(config=config, rules=head_rules, computed=computed, extra=extra)


def _rows(files: TensorFiles, key: str) -> int:
    """First dimension of a tensor: 1 for a single number, which is refused later; 0 without one."""
    return (*files.tensors[key].shape, 1)[0] if key in files.tensors else 0


def _logit_scale(files: TensorFiles) -> np.ndarray:
    tensor = files.tensors.get(gates.LOGIT_SCALE)
    if tensor is None or tensor.shape not in ((), (1,)):
        raise AssayError(f"missing tensor {gates.LOGIT_SCALE!r}, a single number")
    return files.read(gates.LOGIT_SCALE).astype(np.float32).reshape(())


# Any: fields of HeadConfig are of several types.
def _head_config(decoder: NetworkConfig, **fields: Any) -> HeadConfig:
    return HeadConfig(
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        norm=decoder.norm,
        **fields,
    )


def variant(config: HeadConfig | OutputConfig, head: str) -> HeadConfig:
    """The head under another published convention for the same tensors."""
    if isinstance(config, OutputConfig):
        raise AssayError(f"head={head!r}; allowed for a language model: none")
    if (config.kind, head) not in {(config.kind, config.kind), ("urm", "urm-helpfulness")}:
        more = ", 'urm-helpfulness'" if config.kind == "urm" else ""
        raise AssayError(f"head={head!r}; allowed for this checkpoint: {config.kind!r}{more}")
    return dataclasses.replace(config, kind=head)
