"""The conversion that launch.convert and bench.peers.goldens share."""

from pathlib import Path

from etils import epath
from tqdm import tqdm

from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint, refuse_existing
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy


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
) -> Checkpoint:
    """Fetches a source and converts it, with a progress bar.

    Args:
      name: a folder, or a hub id.
      destination: checkpoint folder to make. If it exists, nothing is fetched.
      spec: the model's entry in configs/known_models.py, for its revision, tensor bytes and head.
      slug: the model's name in runs.
      policy: BOS and date policy.
      revision: of a hub id, instead of the pinned one.
      head: another published reading of the head.
      softcap: whether Gemma 2's attention soft-cap applies.
    """
    refuse_existing(destination)
    pinned = spec.revision if spec and not Path(name).is_dir() else None
    source = fetch(name, revision or pinned)
    with tqdm(unit="B", unit_scale=True, desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return convert_model(
            source,
            destination,
            slug=slug,
            policy=policy,
            head=head or (spec.head if spec else ""),
            softcap=softcap,
            tensor_bytes=spec.tensor_bytes if spec else None,
            progress=progress,
        )
