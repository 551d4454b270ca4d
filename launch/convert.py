"""Converts a Hugging Face reward or language model to an Assay checkpoint.

Other commands convert models by themselves (`assay cache`); use this one to choose the settings or
to keep the checkpoint. A source that `assay models` lists takes its revision, conventions and
expected size from there; settings that are given override them.
"""

import sys

from configs import known_models
from engine.display import counted
from engine.runs import storage
from engine.settings import ConvertSettings
from engine.sources import convert as converting
from engine.sources import resolve
from launch.common import command
from launch.common.config import CommandSettings, made

_FLAGS = {
    "source": (None, "A folder in Hugging Face format, a PEFT adapter, or a hub id of either."),
    "checkpoint": (None, "Checkpoint folder to write, on a disk."),
    "revision": (None, "Commit, tag or branch of a hub id."),
    "base": ("", "Folder or hub id of an adapter's base, instead of the one it names."),
}


def convert(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    settings = made(ConvertSettings, given.config)
    destination = storage.path_of(command.paths(given, "checkpoint")[0])
    name, revision = resolve.split(command.paths(given, "source")[0])
    spec = known_models.find(resolve.place_of(name))
    checkpoint = converting.convert(
        name,
        destination,
        spec,
        settings,
        slug=settings.slug or resolve.name_of(name, known_models.find),
        revision=given.revision or revision,
        base=given.base,
    )
    card = checkpoint.card
    layers = counted(card.decoder.num_layers, "layer")
    listed = f" (listed as {spec.dtype})" if spec and spec.dtype != card.dtype else ""
    line = (
        f"{destination}: {card.slug}, {layers}, {card.head.kind} head, "
        f"{card.decoder.vocab_size:,} tokens, {card.dtype}{listed}"
    )
    facts = {
        "model": card.slug,
        "kind": card.kind,
        "source": card.source,
        "hash": card.checkpoint_hash,
    }
    return command.CommandResult(line, lambda: facts)


COMMAND = command.Command(
    "convert", convert, __doc__, [_FLAGS], settings=CommandSettings(ConvertSettings)
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
