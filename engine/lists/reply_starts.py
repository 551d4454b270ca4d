"""Reply starts from a file that people bring: a sample of its replies, with their prompts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.lists import files
from engine.runs import schema
from engine.settings import AfterSettings
from engine.text.chat_template import SYSTEM_END, with_system

_SETTING = "--after_items"
_MARKS = (SYSTEM_END, schema.REPLY_START)  # which end the parts of a prompt


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
    listed = files.read_conversations(path, setting=_SETTING)
    if listed is None:
        replies = files.read_replies(path, setting=_SETTING)
        usable = [(row, None, text) for row, text in enumerate(replies, 1) if _readable([text])]
        left_out = len(replies) - len(usable)
    else:
        sides = ("chosen", "rejected") if settings.of == "both" else (settings.of,)
        wanted = listed.table.filter(pl.col("side").is_in(["reply", *sides]))
        usable = [triple for entry in wanted.to_dicts() if (triple := _usable(entry)) is not None]
        left_out = len(wanted) - len(usable)
    if not usable:
        raise AssayError(
            f"{_SETTING}={path}: no reply that tokens can follow; allowed: replies that are not "
            "empty, to prompts of one user's turn, with or without a system turn"
        )
    rows = sorted({row for row, _, _ in usable})
    # More rows keep those that fewer would have drawn.
    chosen = sorted(np.random.default_rng(seed).permutation(rows)[: settings.rows].tolist())
    return Sampled([(p, r) for row, p, r in usable if row in chosen], chosen, left_out)


def _readable(texts: Sequence[str]) -> bool:
    """Whether a text of a prompt can hold these, of which the last is a reply."""
    return bool(texts[-1].strip()) and not any(mark in text for text in texts for mark in _MARKS)


# Any: a row of a list.
def _usable(entry: Mapping[str, Any]) -> tuple[int, str, str] | None:
    """Row, prompt and reply of a conversation; None for one that no text of a prompt can hold."""
    messages = entry["messages"]
    *before, reply = messages
    roles = [message["role"] for message in before]
    texts = [message["content"] for message in messages]
    plain = roles in (["user"], ["system", "user"]) and not entry.get(schema.GIVEN)
    if not plain or None in texts or not _readable(texts):
        return None
    system = before[0]["content"] if len(before) > 1 else ""
    return entry["row"], with_system(system, before[-1]["content"]), reply["content"]
