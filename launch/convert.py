"""Converts a Hugging Face reward or language model to an Assay checkpoint.

See configs/convert.py.
"""

from pathlib import Path

from absl import flags
from tqdm import tqdm

from configs import models
from engine.checkpoint import hf, store
from engine.errors import AssayError
from engine.prompts import TemplatePolicy
from engine.runs.schema import check_names
from launch import cli

_SOURCE = flags.DEFINE_string("source", None, "A folder in Hugging Face format, or a hub id.")
_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "The checkpoint folder to make.")
_REVISION = flags.DEFINE_string("revision", None, "Commit, tag or branch of a hub id.")
_CONFIG = cli.config_file("convert")


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    destination = Path(cli.paths([_CHECKPOINT.value], "checkpoint")[0])
    if "://" in str(_CHECKPOINT.value):
        raise AssayError(f"checkpoint {_CHECKPOINT.value}; allowed: a local folder, to copy later")
    name = cli.paths([_SOURCE.value], "source")[0]
    spec = models.find(name)
    slug = config.slug or (spec.slug if spec else Path(name.rstrip("/")).name.lower())
    check_names([slug])
    policy = TemplatePolicy(
        bos=config.bos or (spec.bos if spec else "template"),
        date=config.date or (spec.date if spec else "") or None,
    )
    store.refuse_existing(destination)  # before anything is fetched
    source = hf.fetch(name, _revision(name, spec))
    with tqdm(unit="B", unit_scale=True, desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        checkpoint = hf.convert(
            source,
            destination,
            slug=slug,
            policy=policy,
            head=config.head or (spec.head if spec else ""),
            softcap=config.softcap,
            tensor_bytes=spec.tensor_bytes if spec else None,
            progress=progress,
        )
    card = checkpoint.card
    return (
        f"{destination}: {card.slug}, {card.decoder.num_layers} layers, {card.head.kind} head, "
        f"{card.decoder.vocab_size:,} tokens"
    )


def _revision(name: str, spec: models.ModelSpec | None) -> str | None:
    """The revision asked for, or the pinned one of a hub id."""
    pinned = spec.revision if spec and not Path(name).is_dir() else None
    return _REVISION.value or pinned


if __name__ == "__main__":
    cli.run(main)
