"""Hugging Face folder -> Assay checkpoint, streamed a block at a time."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from engine.checkpoint import layouts
from engine.checkpoint.card import EMBEDDING, READOUT, Checkpoint, layer_block, refuse_existing
from engine.checkpoint.restore import axis_sizes, parameters
from engine.convert import gates
from engine.convert.hf_config import decoder_config, is_language_model, output_config
from engine.convert.hub import Source
from engine.convert.safetensors import TensorFiles, read_json
from engine.convert.writer import Writer
from engine.errors import AssayError, prefixed
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import load_tokenizer
from engine.text.vocabulary import vocabulary_size

# A head, the rules of its tensors, and what is computed from tensors instead.
HeadPlan = tuple[HeadConfig | OutputConfig, tuple[layouts.Rule, ...], Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What conversion reads and what it makes of it."""

    decoder: DecoderConfig
    head: HeadConfig | OutputConfig
    rules: tuple[layouts.Rule, ...]
    computed: Mapping[str, np.ndarray]  # readout parameters that are not one tensor: a folded gate

    def blocks(self) -> list["Block"]:
        """What is written, in order."""
        layered = [rule for rule in self.rules if "{l}" in rule.key]
        embedding = [rule for rule in self.rules if rule.parameter == "decoder.embedding"]
        readout = [rule for rule in self.rules if rule.parameter.startswith("readout.")]
        layers = [
            Block(layer_block(layer), [(r, r.key.format(l=layer)) for r in layered])
            for layer in range(self.decoder.num_layers)
        ]
        return [
            Block(EMBEDDING, [(rule, rule.key) for rule in embedding]),
            *layers,
            Block(READOUT, [(rule, rule.key) for rule in readout]),
        ]


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of the checkpoint and the tensors that fill it."""

    name: str
    tensors: Sequence[tuple[layouts.Rule, str]]  # rule, key

    @property
    def as_in_file(self) -> list[tuple[layouts.Rule, str]]:
        """Those whose bytes are the file's: no parts, nothing of a readout."""
        if self.name == READOUT:
            return []
        return [(rule, key) for rule, key in self.tensors if not rule.part]


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
) -> Checkpoint:
    """Converts a reward model or a causal language model; writes the whole checkpoint or nothing.

    Weights keep their dtype in the decoder; the final norm and the head become float32, exactly.
    At most two blocks (the embedding, a layer) are in memory: one is read while one is written.

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
    refuse_existing(destination)
    with prefixed(source.folder):
        hf = read_json(source.folder / "config.json")
    files = TensorFiles.open(source.folder)
    with prefixed(source.folder):
        plan, pad = _plan(hf, files, head, softcap), _pad_token_id(hf)
    total = files.nbytes
    if tensor_bytes not in (None, total):
        raise AssayError(
            f"{source.folder}: {total:,} bytes of tensors; published: {tensor_bytes:,}"
        )
    tokenizer = load_tokenizer(source.folder)
    with prefixed(source.folder):
        vocabulary_size(tokenizer, plan.decoder.vocab_size)
    if isinstance(plan.head, HeadConfig):
        _check_template(source.folder, hf, ChatTemplate(tokenizer, policy))

    with Writer(destination, plan.decoder, plan.head) as writer:
        digests: dict[str, bytes] = {}
        done = total - sum(_nbytes(block, files) for block in plan.blocks())
        for block, arrays in _ahead(plan, files):
            saved = writer.save(block.name, arrays)
            del arrays  # two blocks are held, not three
            digests |= {key: saved[rule.parameter] for rule, key in block.as_in_file}
            done += _nbytes(block, files)
            progress(done, total)
        return writer.finish(
            slug=slug,
            source=source.name,
            revision=source.revision,
            files=files.hashes(digests),
            policy=policy,
            tokenizer=tokenizer,
            pad_token_id=pad,
        )


def _check_template(folder: Path, hf: Mapping[str, Any], template: ChatTemplate) -> None:
    """Refuses a template under which replies do not stand, or whose end is not the reward's."""
    suffix = template.split("What?").suffix
    reads_at = hf.get("reward_token_id")
    if reads_at is not None and suffix[-1:] != (reads_at,):
        raise AssayError(
            f"{folder}: the chat template ends with token {suffix[-1:]}; this model's "
            f"reward is read at reward_token_id={reads_at}, which must come last"
        )


def _plan(hf: Mapping[str, Any], files: TensorFiles, head: str, softcap: bool) -> Plan:
    decoder = decoder_config(hf)
    if not softcap:
        decoder = dataclasses.replace(decoder, attention_softcap=None)
    keys = set(files.tensors)
    gate_keys = gates.gate_keys(keys)
    language = is_language_model(hf)
    read = _language if language else _gated if gate_keys else _ungated
    head_config, head_rules, computed = read(hf, decoder, files, keys)
    if head:
        head_config = _variant(head_config, head)
    matched = (*layouts.decoder_rules(decoder, keys), *head_rules)
    extra = _copies(head_config, files) if language else gate_keys
    layouts.check_keys(matched, extra, keys, decoder.num_layers)
    _check_shapes(files, matched, decoder, head_config)
    return Plan(decoder=decoder, head=head_config, rules=matched, computed=computed)


def _ungated(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    kind, head_rules = layouts.plain_head(keys)

    def rows(letter: str) -> int:
        named = [r for r in head_rules if r.layout[0] == letter and r.key in keys]
        return _rows(files, named[0].key) if named else 0

    objectives = gates.objective_names(rows("R")) if kind == "urm" else ()
    config = _head_config(decoder, kind=kind, hidden=rows("E"), hidden_in=rows("I"),
                          objectives=objectives)  # fmt: skip
    return config, head_rules, {}


def _language(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    config = output_config(hf, decoder)
    return config, (layouts.NORM, *([] if config.tied else [layouts.LM_HEAD])), {}


def _copies(head: HeadConfig | OutputConfig, files: TensorFiles) -> set[str]:
    """A tied output head that the file holds too, if it is what it is tied to.

    Raises:
      AssayError: it differs from the embedding: the file and config.json contradict each other.
    """
    key, embedding = layouts.LM_HEAD.key, "model.embed_tokens.weight"
    if not isinstance(head, OutputConfig) or not head.tied or key not in files.tensors:
        return set()
    if embedding in files.tensors and not np.array_equal(files.read(key), files.read(embedding)):
        raise AssayError(f"tensor {key!r} differs from the embedding, to which config.json ties it")
    return {key}


def _gated(
    hf: Mapping[str, Any], decoder: DecoderConfig, files: TensorFiles, keys: set[str]
) -> HeadPlan:
    gate = gates.read_gate(keys, files.read)
    transform = layouts.TRANSFORM.key in keys
    rows = _rows(files, layouts.REGRESSION.key) if layouts.REGRESSION.key in keys else 0
    quantiles = max(rows // gate.objectives, 1)
    gates.check_sizes(hf, gate, quantiles)
    pattern = gates.PATTERNS.get(hf["model_type"])
    if pattern is None:
        raise AssayError(f"config.json: model_type={hf['model_type']!r} with a gate; "
                         f"allowed: {', '.join(gates.PATTERNS)}")  # fmt: skip
    config = _head_config(
        decoder,
        kind="gated",
        hidden=gate.hidden,
        hidden_in=gate.hidden,
        objectives=gates.objective_names(gate.objectives),
        quantiles=quantiles,
        gate_layers=len(gate.layers),
        gate_temperature=gates.temperature(hf, gate, transform),
        gate_pattern=pattern,
        transform=transform,
    )
    computed = {"readout.head.logit_scale": _logit_scale(files)}
    for index, (weight, bias) in enumerate(gate.layers):
        computed[f"readout.head.layers.{index}.weight"] = weight
        computed[f"readout.head.layers.{index}.bias"] = bias
    head_rules = (layouts.NORM, layouts.REGRESSION, *([layouts.TRANSFORM] if transform else []))
    return config, head_rules, computed


def _rows(files: TensorFiles, key: str) -> int:
    """First dimension of a tensor; 1 of a single number, whose shape `_check_shapes` refuses."""
    return (*files.tensors[key].shape, 1)[0]


def _logit_scale(files: TensorFiles) -> np.ndarray:
    found = files.tensors.get(gates.LOGIT_SCALE)
    if found is None or found.shape not in ((), (1,)):
        raise AssayError(f"missing tensor {gates.LOGIT_SCALE!r}, a single number")
    return files.read(gates.LOGIT_SCALE).astype(np.float32).reshape(())


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


def _ahead(plan: Plan, files: TensorFiles) -> Iterator[tuple[Block, dict[str, np.ndarray]]]:
    """Each block with its arrays; the next one is read while the caller has this one."""
    blocks = plan.blocks()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(_read_block, blocks[0], files, plan)
        for block, following in itertools.zip_longest(blocks, blocks[1:]):
            arrays = pending.result()
            if following:
                pending = pool.submit(_read_block, following, files, plan)
            yield block, arrays
            del arrays


def _read_block(block: Block, files: TensorFiles, plan: Plan) -> dict[str, np.ndarray]:
    """A block's arrays: a decoder's as they are in the file, a readout's as the model has them."""
    sizes = axis_sizes(plan.decoder, plan.head)
    arrays = {}
    for rule, key in block.tensors:
        array = layouts.part_of(rule, files.read(key), sizes)
        array = array.reshape(layouts.split_shape(rule.layout, sizes))
        if block.name == READOUT:
            axes = parameters(plan.decoder, plan.head)[rule.parameter].axes
            order = layouts.permutation(rule.layout, axes)
            array = np.array(array.transpose(order), np.float32, order="C")
        arrays[rule.parameter] = array
    return {**arrays, **(plan.computed if block.name == READOUT else {})}


def _check_shapes(
    files: TensorFiles,
    matched: Sequence[layouts.Rule],
    config: DecoderConfig,
    head: HeadConfig | OutputConfig,
) -> None:
    sizes = axis_sizes(config, head)
    for rule in matched:
        expected = layouts.fused_shape(rule, sizes)
        for key in layouts.layer_keys(rule, config.num_layers):
            if files.tensors[key].shape != expected:
                raise AssayError(
                    f"tensor {key!r} has shape {list(files.tensors[key].shape)}; "
                    f"config.json implies {list(expected)}"
                )


def _pad_token_id(hf: Mapping[str, Any]) -> int | None:
    pad = hf.get("pad_token_id")
    if pad is not None and (isinstance(pad, bool) or not isinstance(pad, int)):
        raise AssayError(f"config.json: pad_token_id={pad!r}; allowed: an integer or null")
    return pad


def _nbytes(block: Block, files: TensorFiles) -> int:
    return sum(files.tensors[key].nbytes for key in {key for _, key in block.tensors})
