"""Converts a Hugging Face reward or language model to an Assay checkpoint.

See configs/convert.py.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from absl.flags import FlagValues

from configs import known_models
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.schema import check_names
from engine.text.chat_template import TemplatePolicy
from launch.common import command, converting


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags]
    return command.run("convert", argv, convert, doc=__doc__, define=define, config="convert")


def define_flags(given: FlagValues) -> None:
    """Defines --source, --checkpoint, --revision and --base."""
    source = "A folder in Hugging Face format, an adapter of peft, or a hub id of either."
    flags.DEFINE_string("source", None, source, flag_values=given)
    flags.DEFINE_string(
        "checkpoint",
        None,
        "The checkpoint folder to make, local or in an object store.",
        flag_values=given,
    )
    revision = "Commit, tag or branch of a hub id."
    flags.DEFINE_string("revision", None, revision, flag_values=given)
    base = "Folder or hub id of an adapter's base, in place of the one that the adapter names."
    flags.DEFINE_string("base", "", base, flag_values=given)


def convert(given: command.Given) -> str:
    """Flags -> settings -> one call."""
    config = given.config
    destination = storage.path_of(command.paths(given, "checkpoint")[0])
    name = command.paths(given, "source")[0]
    named = os.path.abspath(name) if Path(name).is_dir() else name  # `.` is a folder with a name
    spec = known_models.find(named)
    policy = TemplatePolicy(
        bos=config.bos or (spec.bos if spec else "template"),
        date=config.date or (spec.date if spec else "") or None,
        newlines=config.newlines or "keep",
    )
    checkpoint = converting.convert(
        name,
        destination,
        spec,
        slug=_slug(config.slug, spec, named),
        policy=policy,
        revision=given.revision,
        head=config.head,
        reward=config.reward,
        template=config.template,
        softcap=config.softcap,
        base=given.base,
        merge_dtype=config.merge_dtype,
        check_memory=config.check_memory,
    )
    card = checkpoint.card
    listed = f" (listed as {spec.dtype})" if spec and spec.dtype != card.dtype else ""
    return (
        f"{destination}: {card.slug}, {card.decoder.num_layers} layers, {card.head.kind} head, "
        f"{card.decoder.vocab_size:,} tokens, {card.dtype}{listed}"
    )


def _slug(named: str, spec: known_models.ModelSpec | None, source: str) -> str:
    """The model's name in runs: the user's, the listed one, or the last part of the source."""
    slug = named or (spec.slug if spec else Path(source).name.lower())
    try:
        check_names([slug])
    except AssayError as error:
        raise AssayError(f"source={source!r}: {error}; give one as --config.slug") from error
    return slug


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
