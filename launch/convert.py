"""Converts a Hugging Face reward or language model to an Assay checkpoint.

See configs/convert.py.
"""

import os
from pathlib import Path

from absl import flags

from configs import models
from engine.errors import AssayError
from engine.runs.schema import check_names
from engine.text.chat_template import TemplatePolicy
from launch import cli, converting

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
    named = os.path.abspath(name) if Path(name).is_dir() else name  # `.` is a folder with a name
    spec = models.find(named)
    policy = TemplatePolicy(
        bos=config.bos or (spec.bos if spec else "template"),
        date=config.date or (spec.date if spec else "") or None,
    )
    checkpoint = converting.convert(
        name,
        destination,
        spec,
        slug=_slug(config.slug, spec, named),
        policy=policy,
        revision=_REVISION.value,
        head=config.head,
        softcap=config.softcap,
    )
    card = checkpoint.card
    listed = f" (listed as {spec.dtype})" if spec and spec.dtype != card.dtype else ""
    return (
        f"{destination}: {card.slug}, {card.decoder.num_layers} layers, {card.head.kind} head, "
        f"{card.decoder.vocab_size:,} tokens, {card.dtype}{listed}"
    )


def _slug(own: str, spec: models.ModelSpec | None, source: str) -> str:
    """The model's name in runs: the user's, the listed one, or the last part of the source."""
    slug = own or (spec.slug if spec else Path(source).name.lower())
    try:
        check_names([slug])
    except AssayError as error:
        raise AssayError(f"source={source!r}: {error}; give one as --config.slug") from error
    return slug


if __name__ == "__main__":
    cli.run(main)
