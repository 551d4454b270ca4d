"""The call that launch.convert and bench.goldens share."""

from pathlib import Path

from tqdm import tqdm

from configs.models import ModelSpec
from engine.checkpoint.card import Checkpoint, refuse_existing
from engine.convert import convert as conversion
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy


def convert(
    name: str,
    destination: Path,
    spec: ModelSpec | None,
    *,
    slug: str,
    policy: TemplatePolicy,
    revision: str | None = None,
    head: str = "",
    softcap: bool = True,
) -> Checkpoint:
    """Fetches a source and converts it, with progress; see `convert`.

    Args:
      name: a folder, or a hub id.
      destination: the checkpoint folder to make; refused before anything is fetched if it exists.
      spec: what is known of the model: the revision of a hub id, the size of its tensors, its head.
      slug: the model's name in runs.
      policy: BOS and date policy.
      revision: of a hub id, instead of the pinned one.
      head: another reading of the head.
      softcap: whether Gemma 2's attention soft-cap applies.
    """
    refuse_existing(destination)
    pinned = spec.revision if spec and not Path(name).is_dir() else None
    source = fetch(name, revision or pinned)
    with tqdm(unit="B", unit_scale=True, desc=f"converting {slug}", delay=5) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return conversion.convert(
            source,
            destination,
            slug=slug,
            policy=policy,
            head=head or (spec.head if spec else ""),
            softcap=softcap,
            tensor_bytes=spec.tensor_bytes if spec else None,
            progress=progress,
        )
