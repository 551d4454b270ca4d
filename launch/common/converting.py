"""Converts a model, and refuses one that is named like a listed model which it is not."""

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath
from tqdm import tqdm

from configs import known_models, known_shapes
from configs.known_models import ModelSpec
from engine.checkpoint.card import REWARD, Checkpoint, refuse_existing
from engine.convert import adapter
from engine.convert.conversion import convert_model, understand
from engine.convert.hf_config import decoder_config, is_language_model, output_config
from engine.convert.hf_values import Json
from engine.convert.hub import Source, fetch
from engine.errors import AssayError
from engine.models.heads import HeadConfig, OutputConfig
from engine.planning import Model, check_conversion
from engine.runs import storage
from engine.settings import ConvertSettings
from engine.text.chat_template import TemplatePolicy
from engine.text.tokenizer import left_out

# Field of the decoder -> its name in config.json.
_NAMES = {
    "width": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "ffn_width": "intermediate_size",
    "vocab_size": "vocab_size",
}
_ALLOWED = "allowed: that model's own files, or a folder of another name"


def listed(name: str) -> ModelSpec | None:
    """The entry of a folder or hub id in configs/known_models.py."""
    return known_models.find(os.path.abspath(name) if Path(name).is_dir() else name)


def policy_of(settings: ConvertSettings, spec: ModelSpec | None) -> TemplatePolicy:
    """The template policy of a conversion: the user's, TRL's, or that of a listed model."""
    given_bos = spec.bos if spec else "template"
    if settings.template == "trl":
        given_bos = "double"  # TRL's tokenizer adds its own, as to any text
    return TemplatePolicy(
        bos=settings.bos or given_bos,
        date=settings.date or (spec.date if spec else "") or None,
        newlines=settings.newlines or "keep",
    )


def convert(
    name: str,
    destination: epath.Path,
    spec: ModelSpec | None,
    settings: ConvertSettings,
    *,
    slug: str,
    revision: str | None = None,
    base: str = "",
) -> Checkpoint:
    """Fetches a folder or hub id and converts it, with a progress bar.

    If the destination exists, nothing is fetched. Of a listed model, `spec` gives the revision,
    shapes, tensor bytes and head that the source must have. `revision` is one in place of the
    pinned one. An adapter is merged into `base`, or the base that it names.

    Raises:
      AssayError: the download fails, or the source is not what it should be; nothing is written.
    """
    refuse_existing(destination)
    pinned = spec.revision if spec and not Path(name).is_dir() else None

    def check(source: Source, cached: int | None = None) -> None:
        if (hf := _readable(source)) is None:
            return
        if spec:
            check_config(name, hf, spec)
        if settings.check_memory:
            local = None if storage.is_remote(destination) else str(destination)
            model = model_of_config(name, hf, spec)
            if settings.merge_dtype == "float32":
                model = dataclasses.replace(model, stored=settings.merge_dtype)
            check_conversion(model, local, cached)

    how: dict[str, Any] = {  # Any: the settings of a conversion, of several types
        "policy": policy_of(settings, spec),
        "head": settings.head or (spec.head if spec else ""),
        "reward": settings.reward or (spec.reward if spec else ""),
        "template": settings.template,
        "softcap": settings.softcap,
        "merge_dtype": settings.merge_dtype,
        "tensor_bytes": spec.tensor_bytes if spec else None,
        "needs_date": settings.date not in ("", spec.date if spec else ""),
    }
    notes: list[str] = []
    downloaded = False

    def before(outline: Source, cached: int) -> None:
        nonlocal downloaded
        downloaded = True
        check(outline, cached)
        understand(outline, **how)

    source = fetch(name, revision or pinned, before, base=base)
    if not downloaded:
        check(source)
    with tqdm(unit=" blocks", desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        checkpoint = convert_model(
            source, destination, slug=slug, progress=progress, note=notes.append, **how
        )
    merged = adapter.notes(source.folder, source.base.place) if source.base else []
    for said in (*notes, *merged, *_notes(checkpoint, how["policy"])):
        tqdm.write(f"note: {slug}: {said}", file=sys.stderr)
    return checkpoint


def check_config(place: str, hf: Json, spec: ModelSpec) -> None:
    """Raises AssayError where config.json is not of the kind and shapes of a listed model.

    `place` is the folder or hub id that bears the model's name.
    """
    published = known_shapes.config_json(spec)
    if is_language_model(hf) not in (is_language_model(published), not spec.head):
        kinds = ("a reward model", "a language model")
        mine, theirs = kinds if is_language_model(hf) else kinds[::-1]
        raise AssayError(
            f"{place}: config.json is that of {theirs}; {spec.hub_id} is {mine}; {_ALLOWED}"
        )
    has_decoder, listed = decoder_config(hf), decoder_config(published)
    expected = {name: getattr(listed, field) for field, name in _NAMES.items()}
    expected["vocab_size"] = spec.rows
    has = {name: getattr(has_decoder, field) for field, name in _NAMES.items()}
    if hf["model_type"] != published["model_type"]:
        has = {"model_type": hf["model_type"]}
        expected = {"model_type": published["model_type"]}
    other = [name for name in has if expected[name] not in (None, has[name])]
    if other:
        raise AssayError(
            f"{place}: config.json has {_listed(other, has)}; "
            f"{spec.hub_id} has {_listed(other, expected)}; {_ALLOWED}"
        )


def _notes(checkpoint: Checkpoint, given: TemplatePolicy) -> Iterator[str]:
    """What conversion has decided about a model that its user may want otherwise."""
    card = checkpoint.card
    if card.policy.date != given.date:
        yield (
            f"its chat template prints today's date, which is now fixed: {card.policy.date!r} "
            "(convert with --config.date=… for another)"
        )
    if card.pooling == "last_non_pad":
        yield (
            f"a conversation may end with its pad token ({card.pad_token_id}): the reward is read "
            "at the last other token, as transformers does (pooling=last_non_pad)"
        )
    if said := left_out(checkpoint.tokenizer, card.decoder.vocab_size):
        few = 2 * len(checkpoint.token_ids) < card.decoder.vocab_size
        asked = "; is it the tokenizer that the model was trained with?" if few else ""
        yield f"{said}: these are no candidates{asked}"
    if card.kind != REWARD:
        return
    if checkpoint.template.demands_system:
        yield "its chat template demands a system message: prompts without one are refused"
    if not checkpoint.template.cuttable(checkpoint.template.probe()):
        yield (
            "its chat template cannot be cut around a reply: sweeps score tokens as texts "
            "(mode=text), and there is no search"
        )


def _readable(source: Source) -> Json | None:
    """The config.json of a source; None where conversion will say what is wrong with it."""
    try:
        hf = source.config_json()
        decoder_config(hf)
    except AssayError:
        return None
    return hf


def _listed(names: list[str], values: Json) -> str:
    return ", ".join(f"{name}={values[name]}" for name in names)


def model_of_config(name: str, hf: Json, spec: ModelSpec | None) -> Model:
    """What a config.json says of memory; it does not say the head, so a linear one is taken."""
    decoder = decoder_config(hf)
    stored = hf.get("torch_dtype") or hf.get("dtype")
    if stored not in ("float32", "bfloat16", "float16"):
        stored = spec.dtype if spec else "bfloat16"
    head: HeadConfig | OutputConfig = HeadConfig(
        kind="linear",
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm=decoder.norm,
    )
    if is_language_model(hf) and not (spec and spec.head):
        head = output_config(hf, decoder)
    return Model(name=name, config=decoder, heads=(head,), stored=str(stored))
