"""The two folders of an embedded reward model: Hugging Face's and Assay's."""

from pathlib import Path

from absl import flags

from demo.build import build
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.convert.safetensors import TensorFiles
from engine.text.chat_template import TemplatePolicy

_OUT = flags.DEFINE_string(
    "out", "out/demo", "Folder in which the demo keeps its models; missing ones are built."
)


def files(slug: str) -> tuple[Path, Checkpoint]:
    """The model as a Hugging Face folder and as an Assay checkpoint; both made if missing."""
    (folder,) = build(Path(_OUT.value) / "hf", [EMBEDDED[slug]])
    destination = Path(_OUT.value) / "checkpoints" / slug
    if not destination.exists():
        policy = TemplatePolicy(bos="template", date=None)  # as the demo converts them
        return folder, convert_model(
            fetch(str(folder), None), destination, slug=slug, policy=policy
        )
    checkpoint = Checkpoint.open(destination)
    if dict(checkpoint.card.files) != TensorFiles.open(folder).hashes():
        raise SystemExit(f"bench: {destination} was made of other weights; remove it")
    return folder, checkpoint
