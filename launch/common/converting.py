"""The conversion of launch.convert."""

import sys
from collections.abc import Iterator
from pathlib import Path

from etils import epath
from tqdm import tqdm

from configs.known_models import ModelSpec
from engine.checkpoint.card import REWARD, Checkpoint, refuse_existing
from engine.convert.conversion import convert_model
from engine.convert.hf_config import decoder_config
from engine.convert.hf_values import Json
from engine.convert.hub import fetch
from engine.convert.safetensors import read_json
from engine.errors import AssayError
from engine.planning import admission
from engine.runs import storage
from engine.text.chat_template import TemplatePolicy
from engine.text.vocabulary import left_out
from launch.common import known_model_check
from launch.common.subjects import subject_of


def convert(
    name: str,
    destination: epath.Path,
    spec: ModelSpec | None,
    *,
    slug: str,
    policy: TemplatePolicy,
    revision: str | None = None,
    head: str = "",
    softcap: bool = True,
    check_memory: bool = True,
    check_listed: bool = True,
    cache: Path | None = None,
) -> Checkpoint:
    """Fetches a source and converts it, with a progress bar.

    Args:
      name: a folder, or a hub id.
      destination: checkpoint folder to make. If it exists, nothing is fetched.
      spec: the model's entry in configs/known_models.py, for its revision, tensor bytes and head.
      slug: the model's name in runs.
      policy: policy of BOS, date and newlines.
      revision: of a hub id, instead of the pinned one.
      head: another published reading of the head.
      softcap: whether Gemma 2's attention soft-cap applies.
      check_memory: whether host memory and disk must suffice.
      check_listed: whether shapes and bytes must be those that are published of `spec`.
      cache: folder to download into instead of the hub's cache.

    Raises:
      AssayError: the download fails, or the source is not what it should be; nothing is written.
    """
    refuse_existing(destination)
    pinned = spec.revision if spec and not Path(name).is_dir() else None
    is_folder = Path(name).is_dir()

    def check(hf: Json, cached: int = 0) -> None:
        if spec and check_listed:
            known_model_check.check_config(name, hf, spec)
        if check_memory:
            local = None if storage.is_remote(destination) else str(destination)
            subject = subject_of(name, hf, spec)
            admission.check_conversion(
                subject, local, download=not is_folder, cached=cached, cache=cache
            )

    tensor_bytes = spec.tensor_bytes if spec and check_listed else None
    source = fetch(name, revision or pinned, check, tensor_bytes=tensor_bytes, cache=cache)
    if is_folder and (hf := _readable(source.folder)) is not None:
        check(hf)
    with tqdm(unit="B", unit_scale=True, desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        checkpoint = convert_model(
            source,
            destination,
            slug=slug,
            policy=policy,
            head=head or (spec.head if spec else ""),
            softcap=softcap,
            tensor_bytes=tensor_bytes,
            progress=progress,
        )
    for note in _notes(checkpoint, policy):
        tqdm.write(f"note: {slug}: {note}", file=sys.stderr)
    return checkpoint


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
        yield f"{said}: these are no candidates"
    if card.kind == REWARD and not checkpoint.template.cuttable("What?"):
        yield (
            "its chat template cannot be cut around a reply: sweeps score tokens as texts "
            "(mode=text), and there is no search"
        )


def _readable(folder: Path) -> Json | None:
    """The config.json of a folder; None where conversion will say what is wrong with it."""
    try:
        hf = read_json(folder / "config.json")
        decoder_config(hf)
    except AssayError:
        return None
    return hf
