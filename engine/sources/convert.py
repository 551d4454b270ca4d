"""Fetches and converts a model; refuses one that bears the name of a published model it is not."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath
from tqdm import tqdm

from engine.checkpoint.card import REWARD, Checkpoint, refuse_existing
from engine.convert.conversion import convert_model
from engine.convert.hf_config import is_language_model, network_config, output_config
from engine.convert.hf_values import Json
from engine.convert.hub import Source, fetch
from engine.errors import AssayError, prefixed
from engine.models.heads import HeadConfig, OutputConfig
from engine.planning import Model
from engine.settings import ConvertSettings, Published
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


def policy_of(settings: ConvertSettings, published: Published | None) -> TemplatePolicy:
    """The template policy of a conversion: the user's, TRL's, or that of a published model."""
    bos = published.bos if published else "template"
    if settings.template == "trl":
        bos = "double"  # TRL's tokenizer adds its own, as to any text
    return TemplatePolicy(
        bos=settings.bos or bos,
        date=settings.date or (published.date if published else "") or None,
        template_vars=_variables(settings.template_vars),
    )


def _variables(text: str) -> dict[str, str]:
    """Name -> text of `name=text,name=text`; a comma ends a text where `name=` is behind it."""
    pairs = [pair.partition("=") for pair in re.split(r", *(?=[^\W\d]\w*=)", text)] if text else []
    variables = {name: value for name, _, value in pairs}
    if len(variables) < len(pairs) or not all(n.isidentifier() and sign for n, sign, _ in pairs):
        raise AssayError(f"template_vars={text!r}; allowed: <name>=<text>, each name once")
    return variables


def convert(
    name: str,
    destination: epath.Path,
    published: Published | None,
    settings: ConvertSettings,
    *,
    slug: str,
    revision: str | None = None,
    base: str = "",
) -> Checkpoint:
    """Fetches a folder or hub id and converts it, with a progress bar.

    If the destination exists, nothing is fetched. `published` gives the revision, shapes, tensor
    bytes and head that the source must have. `revision` is one in place of the pinned one. An
    adapter is merged into `base`, or the base that it names.

    Raises:
      AssayError: the download fails, or the source is not what it should be; nothing is written.
    """
    refuse_existing(destination)
    pinned = published.revision if published and not Path(name).is_dir() else None

    def check(source: Source) -> None:
        hf = source.config_json()
        with prefixed((source.base or source).folder):
            network_config(hf)
        if published:
            check_config(name, hf, published)

    how: dict[str, Any] = {  # Any: the settings of a conversion, of several types
        "policy": policy_of(settings, published),
        "head": settings.head or (published.head if published else ""),
        "reward": settings.reward or (published.reward if published else ""),
        "template": settings.template,
        "softcap": settings.softcap,
        "tensor_bytes": published.tensor_bytes if published else None,
    }
    source = fetch(name, revision or pinned, check, base=base)
    notes: list[str] = []
    with tqdm(unit=" blocks", desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        checkpoint = convert_model(
            source, destination, slug=slug, progress=progress, note=notes.append, **how
        )
    merged = [f"merged into its base {source.base.place}"] if source.base else []
    for note in (*notes, *merged, *_notes(checkpoint, how["policy"])):
        tqdm.write(f"note: {slug}: {note}", file=sys.stderr)
    return checkpoint


def check_config(place: str, hf: Json, published: Published) -> None:
    """Raises AssayError where config.json is not of the kind and shapes of a published model.

    `place` is the folder or hub id that bears the model's name.
    """
    theirs, hub_id = published.config_json(), published.hub_id
    if is_language_model(hf) not in (is_language_model(theirs), not published.head):
        kinds = ("a language model", "a reward model")
        mine, other = kinds if is_language_model(hf) else kinds[::-1]
        raise AssayError(f"{place}: config.json is that of {mine}; {hub_id} is {other}; {_ALLOWED}")
    has_decoder, listed = network_config(hf), network_config(theirs)
    expected = {name: getattr(listed, field) for field, name in _NAMES.items()}
    expected["vocab_size"] = published.rows
    has = {name: getattr(has_decoder, field) for field, name in _NAMES.items()}
    if hf["model_type"] != theirs["model_type"]:
        has, expected = ({"model_type": config["model_type"]} for config in (hf, theirs))
    differ = [name for name in has if expected[name] not in (None, has[name])]
    if differ:
        mine, other = (
            ", ".join(f"{name}={values[name]}" for name in differ) for values in (has, expected)
        )
        raise AssayError(f"{place}: config.json has {mine}; {hub_id} has {other}; {_ALLOWED}")


def _notes(checkpoint: Checkpoint, given: TemplatePolicy) -> Iterator[str]:
    """Decisions of a conversion that its user may want to change."""
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
    if omitted := left_out(checkpoint.tokenizer, card.decoder.vocab_size):
        few = 2 * len(checkpoint.token_ids) < card.decoder.vocab_size
        asked = "; is it the tokenizer that the model was trained with?" if few else ""
        yield f"{omitted}: these are no candidates{asked}"
    if card.kind != REWARD:
        return
    if checkpoint.template.demands_system:
        yield "its chat template demands a system message: prompts without one are refused"
    if not checkpoint.template.cuttable(checkpoint.template.probe()):
        yield (
            "its chat template cannot be cut around a reply: sweeps score tokens as texts "
            "(mode=text), and there is no search"
        )


def model_of_config(name: str, hf: Json, published: Published | None) -> Model:
    """What a config.json says of memory; it does not say the head, so a linear one is taken."""
    decoder = network_config(hf)
    stored = hf.get("torch_dtype") or hf.get("dtype")
    if stored not in ("float32", "bfloat16", "float16"):
        stored = published.dtype if published else "bfloat16"
    head: HeadConfig | OutputConfig = HeadConfig(
        kind="linear",
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm=decoder.norm,
    )
    if is_language_model(hf) and not (published and published.head):
        head = output_config(hf, decoder)
    return Model(name=name, config=decoder, heads=(head,), stored=str(stored))
