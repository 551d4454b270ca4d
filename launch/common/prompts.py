"""Prompts of a command: by their ids in configs/prompts.py, or in the user's own words."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from configs import prompts
from engine.errors import AssayError
from launch.common.spelling import nearest


def chosen_prompts(ids: str, own: Sequence[str]) -> Mapping[str, str]:
    """Prompt id -> text: the user's own texts, or those of configs/prompts.py where there are none.

    Args:
      ids: ids of configs/prompts.py, comma-separated.
      own: texts of `--prompt`.
    """
    if own:
        return {prompt_id(text): text for text in own}
    chosen = [name.strip() for name in ids.split(",") if name.strip()]
    for name in chosen:
        if name not in prompts.PROMPTS:
            raise AssayError(
                f"prompts={name!r}{nearest(name, prompts.PROMPTS)}; "
                f"allowed: {', '.join(prompts.PROMPTS)}"
            )
    return {name: prompts.PROMPTS[name] for name in chosen}


def prompt_id(text: str) -> str:
    """Id of a prompt: its name in configs/prompts.py, or its first words and a hash."""
    for name, known in prompts.PROMPTS.items():
        if text == known:
            return name
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:32].strip("-")
    return f"{words or 'prompt'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
