"""Converts a Hugging Face folder to an Assay checkpoint, one block of parameters at a time."""

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from engine.checkpoint import encoder_layouts, layouts
from engine.checkpoint.arrays import sha256
from engine.checkpoint.card import EMBEDDING, READOUT, Checkpoint, layer_block, refuse_existing
from engine.checkpoint.restore import axis_sizes, parameters
from engine.convert import adapter, templates
from engine.convert.hf_config import architecture, is_encoder, network_config
from engine.convert.hf_families import DATES, READ_BY_POSITION
from engine.convert.hf_heads import HeadPlan, read_head, variant
from engine.convert.hf_values import Json, integer
from engine.convert.hub import Source
from engine.convert.safetensors import TensorFiles
from engine.convert.writer import Writer
from engine.errors import AssayError, prefixed
from engine.models.encoder_config import EncoderConfig, NetworkConfig
from engine.models.heads import HeadConfig
from engine.text.chat_template import PAIR, ChatTemplate, TemplatePolicy
from engine.text.template_sandbox import spelled
from engine.text.tokenizer import load_tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """What conversion knows of a folder before it reads any tensor."""

    files: TensorFiles
    tokenizer: PreTrainedTokenizerBase
    decoder: NetworkConfig
    rules: tuple[layouts.Rule, ...]
    head_plan: HeadPlan
    policy: TemplatePolicy
    pad: int | None  # the pad token of config.json
    pooling: str

    def blocks(self) -> dict[str, list[layouts.Rule]]:
        """The rules of each block of the checkpoint, in the order in which they are written."""
        layered = [rule for rule in self.rules if "{l}" in rule.key]
        whole = [rule for rule in self.rules if rule not in layered]
        blocks = {EMBEDDING: [rule for rule in whole if rule.parameter.startswith("decoder.")]}
        for layer in range(self.decoder.num_layers):
            blocks[layer_block(layer)] = [
                dataclasses.replace(rule, key=rule.key.replace("{l}", str(layer)))
                for rule in layered
                if layer in layouts.layers_of(rule, self.decoder)
            ]
        return {**blocks, READOUT: [r for r in whole if r.parameter.startswith("readout.")]}


def convert_model(
    source: Source,
    destination: str | os.PathLike[str],
    *,
    slug: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
    note: Callable[[str], object] = lambda line: None,
    **how: Any,  # of several types
) -> Checkpoint:
    """Converts a reward model or a causal language model; writes the whole checkpoint or nothing.

    The decoder's weights keep their dtype. The final norm and the head become float32, which holds
    their values exactly. At most two blocks (the embedding or a layer) are in memory: one is read
    while another is written.

    Args:
      source: from `fetch`.
      destination: the checkpoint folder to make, on a disk.
      slug: the model's name in runs.
      progress: called with the number of blocks done and that of all.
      note: called with what the user should know of the head, in words.
      how: settings of `understand`.

    Returns:
      The new checkpoint.

    Raises:
      AssayError: something about the folder is not understood; the message names it.
    """
    refuse_existing(destination)
    conversion = understand(source, **how)
    for text in conversion.head_plan.notes:
        note(text)
    blocks = [*conversion.blocks().items()]
    with (
        Writer(destination, conversion.decoder, conversion.head_plan.config) as writer,
        ThreadPoolExecutor(1) as pool,
    ):
        reading = pool.submit(_read_block, *blocks[0], conversion)
        for done, (block, _) in enumerate(blocks, 1):
            arrays, digests = reading.result()
            if done < len(blocks):
                reading = pool.submit(_read_block, *blocks[done], conversion)
            writer.save(block, arrays, digests)
            del arrays  # two blocks are in memory, not three
            progress(done, len(blocks))
        base, files = None, conversion.files
        if source.base and isinstance(files, adapter.MergedFiles):
            base = {
                "source": source.base.name,
                "revision": source.base.revision,
                "files": files.base.hashes(),
            }
        return writer.finish(
            conversion.tokenizer,
            slug=slug,
            source=source.name,
            revision=source.revision,
            files=files.hashes(),
            base=base,
            reward=conversion.head_plan.reward,
            policy=conversion.policy,
            pad_token_id=conversion.pad,
            pooling=conversion.pooling,
        )


def understand(
    source: Source,
    *,
    policy: TemplatePolicy,
    head: str = "",
    reward: str = "",
    template: str = "",
    softcap: bool = True,
    tensor_bytes: int | None = None,
) -> Conversion:
    """All that `convert_model` checks before it reads weights; raises as it does.

    No check reads values, but for an output head that is stored beside the embedding it is tied to.

    Args:
      source: from `fetch`.
      policy: BOS and date policy, stored in model.json; with a date, where the template asks for
        today's and it has none.
      head: kind of the head, for tensors with more than one published convention
        (`urm-helpfulness`); "" takes the usual one.
      reward: which of a head's rows is the reward, or whose logit (`hf_heads.read_head`).
      template: the chat template in place of the folder's (`templates.choose`).
      softcap: whether Gemma 2's attention soft-cap applies; the library version of Christian et
        al. 2025 left it out.
      tensor_bytes: bytes of all tensors in the repository, if known; other sizes are refused.
    """
    hf = source.config_json()
    with prefixed((source.base or source).folder):
        decoder = network_config(hf)
        pad = None if hf.get("pad_token_id") is None else integer(hf, "pad_token_id")
    if not softcap and not isinstance(decoder, EncoderConfig):
        decoder = dataclasses.replace(decoder, attention_softcap=None)
    files = _open(source, hf)
    if tensor_bytes not in (None, files.nbytes):
        raise AssayError(
            f"{source.folder}: {files.nbytes:,} bytes of tensors; published: {tensor_bytes:,}"
        )
    tokenizer = load_tokenizer(source.tokenizer_folder)
    with prefixed(source.folder):
        head_plan = read_head(hf, decoder, files, tokenizer, reward=reward)
        if head:
            head_plan = dataclasses.replace(head_plan, config=variant(head_plan.config, head))
        templates.choose(tokenizer, template, default=PAIR if is_encoder(hf) else "")
        marked = templates.mark(tokenizer, architecture(hf))
        if policy.template_vars:
            ChatTemplate(tokenizer, policy).check_variables()
        if isinstance(decoder, EncoderConfig):  # whose tokenizer adds its special tokens
            if policy.bos in ("none", "single"):
                raise AssayError(f"bos={policy.bos!r} of an encoder; allowed: 'double', 'template'")
            policy = dataclasses.replace(policy, bos="double")
            decoder = templates.with_separator(decoder, ChatTemplate(tokenizer, policy))
        rules = _rules(files, decoder, head_plan)
    has_template = bool(tokenizer.chat_template)
    pooling = "last"
    if isinstance(head_plan.config, HeadConfig):
        policy = _dated(hf, ChatTemplate(tokenizer, policy))
        chat = ChatTemplate(tokenizer, policy)
        around = chat.around(chat.probe())
        closing = around.suffix[-1:]
        _check_ids(source.folder, (*around.prefix, *around.suffix), tokenizer, decoder.vocab_size)
        reads_at = hf.get("reward_token_id", marked)
        if reads_at is not None and closing != (reads_at,):
            raise AssayError(
                f"{source.folder}: the chat template ends with token {closing}; this model's "
                f"reward is read at reward_token_id={reads_at}, which must come last"
            )
        pooling = _pooling(hf, closing, pad)
        if isinstance(decoder, EncoderConfig):
            pooling = decoder.pooling
    elif has_template:  # that of a base language model need not render a question
        with contextlib.nullcontext() if template else contextlib.suppress(AssayError):
            policy = _dated(hf, ChatTemplate(tokenizer, policy))
    return Conversion(
        files=files,
        tokenizer=tokenizer,
        decoder=decoder,
        rules=rules,
        head_plan=head_plan,
        policy=policy,
        pad=pad,
        pooling=pooling,
    )


def _open(source: Source, hf: Json) -> TensorFiles:
    """The tensors of a folder, or of an adapter merged into its base."""
    if source.base is None:
        prefix = hf.get("value_head_prefix")
        names = encoder_layouts.encoder_names if is_encoder(hf) else layouts.canonical_names
        return TensorFiles.open(
            source.folder, prefix if isinstance(prefix, str) else "", rename=names
        )
    if is_encoder(hf):
        raise AssayError(
            f"{source.folder}: an adapter of an encoder; allowed: the merged model, by "
            "merge_and_unload and save_pretrained"
        )
    return adapter.open_merged(source.base.folder, source.folder, hf.get("model_type"))


def _dated(hf: Json, template: ChatTemplate) -> TemplatePolicy:
    """The policy with a date, if the template asks for today's: other rewards tomorrow.

    The date is the one that is usual for the family, else the day of conversion in UTC.
    """
    policy = template.policy
    if policy.date is not None or not template.asks_date():
        return policy
    today = spelled(datetime.datetime.now(datetime.UTC).date())
    return dataclasses.replace(policy, date=DATES.get(hf["model_type"], today))


def _pooling(hf: Json, closing: tuple[int, ...], pad: int | None) -> str:
    """Where the model's class reads the reward: at the last id, or before closing pad tokens.

    Sequence-classification classes of transformers read the last id that is no pad token. That may
    differ from the last id where the closing token is the pad token, or the reply's own last one.
    """
    by_position = architecture(hf) in READ_BY_POSITION
    differs = pad is not None and closing in ((), (pad,))
    return "last_non_pad" if differs and not by_position else "last"


def _check_ids(
    folder: Path, ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, rows: int
) -> None:
    """Raises AssayError where the template writes a token that the embedding has no row of."""
    if (highest := max(ids, default=0)) >= rows:
        token = tokenizer.convert_ids_to_tokens(highest)
        raise AssayError(
            f"{folder}: the chat template writes {token!r} (token id {highest}), and the embedding "
            f"has {rows:,} rows; allowed: ids below that, so the embedding that was resized for "
            "this tokenizer (of an adapter: modules_to_save), or another template"
        )


def _rules(
    files: TensorFiles, decoder: NetworkConfig, head_plan: HeadPlan
) -> tuple[layouts.Rule, ...]:
    """The rules of all tensors; raises AssayError for names or shapes that config.json excludes."""
    keys = set(files.tensors)
    rules = (*layouts.decoder_rules(decoder, keys), *head_plan.rules)
    names = {key: tensor.key for key, tensor in files.tensors.items()}
    layouts.check_keys(rules, head_plan.extra, names, decoder)
    sizes = axis_sizes(decoder, head_plan.config)
    for rule in rules:
        expected = layouts.file_shape(rule, sizes)
        for key in layouts.rule_keys(rule, decoder):
            if (tensor := files.tensors[key]).shape != expected:
                raise AssayError(
                    f"tensor {tensor.key!r} has shape {list(tensor.shape)}; "
                    f"config.json implies {list(expected)}"
                )
    return rules


def _read_block(
    block: str, rules: Sequence[layouts.Rule], conversion: Conversion
) -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
    """Parameter name -> array, and -> sha256.

    Arrays of the decoder are in the file's layout, those of the readout in the model's.
    """
    files, head = conversion.files, conversion.head_plan
    sizes = axis_sizes(conversion.decoder, head.config)
    axes_of = parameters(conversion.decoder, head.config)
    arrays: dict[str, np.ndarray] = {}
    digests: dict[str, bytes] = {}
    for key in dict.fromkeys(rule.key for rule in rules):
        filled = [rule for rule in rules if rule.key == key]
        tensor = _experts(filled[0], conversion) if "{x}" in key else _read_tensor(files, key)
        for rule in filled:
            array = layouts.part_of(rule, tensor, sizes)
            array = array.reshape(layouts.split_shape(rule.layout, sizes))
            if block == READOUT:
                order = layouts.permutation(rule.layout, axes_of[rule.parameter].axes)
                array = np.array(array.transpose(order), np.float32, order="C")
            elif not rule.part and key in files.digests:  # its bytes are those of the tensor
                digests[rule.parameter] = files.digests[key]
            arrays[rule.parameter] = array
    arrays = {rule.parameter: arrays[rule.parameter] for rule in rules}
    arrays |= head.computed if block == READOUT else {}
    return arrays, {name: digests.get(name) or sha256(array) for name, array in arrays.items()}


def _read_tensor(files: TensorFiles, key: str) -> np.ndarray:
    """A tensor; of the norm that ModernBERT's first layer lacks, ones: it is not applied there."""
    if key in files.tensors or key != layouts.NOT_FIRST.format(l=0):
        return files.read(key)
    beside = files.tensors[key.replace("attention_norm", "ffn_norm")]
    return np.ones(beside.shape, beside.dtype)


def _experts(rule: layouts.Rule, conversion: Conversion) -> np.ndarray:
    """The tensors of all experts in a stack, which is filled one by one."""
    files, keys = conversion.files, layouts.expert_keys(rule.key, conversion.decoder)
    shape = layouts.file_shape(rule, conversion.decoder.sizes)
    stack = np.empty((len(keys), *shape), np.result_type(*(files.tensors[k].dtype for k in keys)))
    for place, key in zip(stack, keys, strict=True):
        place[...] = files.read(key)
    return stack
