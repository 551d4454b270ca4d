"""Reply starts from a file that people bring: a sample of its replies, with their prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.lists import files
from engine.runs import schema
from engine.settings import AfterSettings
from engine.text.chat_template import with_system


class Sampled(NamedTuple):
    """Some replies of a file."""

    replies: Sequence[tuple[str | None, str]]  # prompt, None where the file has none, and reply
    rows: Sequence[int]  # of the file, counted from 1, ascending
    left_out: int  # replies that cannot be reply starts


def read_reply_starts(path: Path, settings: AfterSettings, seed: int) -> Sampled:
    """Replies of `settings.rows` random rows of a file, whose prompts have one user's turn.

    Raises:
      AssayError: as `files.read_conversations` and `files.read_replies`; no reply to take.
    """
    listed = files.read_conversations(path)
    if listed is None:
        replies = [(row, None, text) for row, text in enumerate(files.read_replies(path), 1)]
        usable, left_out = [each for each in replies if each[2].strip()], 0
    else:
        sides = ("chosen", "rejected") if settings.of == "both" else (settings.of,)
        wanted = listed.table.filter(pl.col("side").is_in(["reply", *sides]))
        usable = [each for entry in wanted.to_dicts() if (each := _usable(entry)) is not None]
        left_out = len(wanted) - len(usable)
    if not usable:
        raise AssayError(
            f"after_items={path}: no reply that tokens can follow; allowed: replies that are not "
            "empty, to prompts of one user's turn, with or without a system turn"
        )
    rows = sorted({row for row, _, _ in usable})
    count = min(settings.rows, len(rows))
    chosen = sorted(np.random.default_rng(seed).choice(rows, count, replace=False).tolist())
    return Sampled([(p, r) for row, p, r in usable if row in chosen], chosen, left_out)


# Any: a row of a list.
def _usable(entry: dict[str, object]) -> tuple[int, str, str] | None:
    """Row, prompt and reply of a conversation; None for one that no text of a prompt can hold."""
    messages: list[dict[str, str]] = entry["messages"]  # type: ignore[assignment]
    *before, reply = messages
    roles = [message["role"] for message in before]
    texts = [message["content"] for message in messages]
    plain = roles in (["user"], ["system", "user"]) and not entry.get(schema.GIVEN)
    if not plain or None in texts or not reply["content"].strip():
        return None
    system = before[0]["content"] if len(before) > 1 else ""
    return int(str(entry["row"])), with_system(system, before[-1]["content"]), reply["content"]
