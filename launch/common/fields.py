"""What is done with each column of people's rows: read, handed to the template, label, or refused.

docs/pairs.md has the table, and which trainers and published sets write which column.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.errors import AssayError

REPLIES = ("reply", "response", "completion", "output")
# The user's turn, by the names that trainers and published sets give it; the first that is there.
PROMPTS = ("prompt", "instruction", "question", "query", "problem", "input", "context")
WHOLE = ("messages", "conversations", "conversation")  # all turns, the reply included
SYSTEM = ("system", "system_prompt", "system_message")
HISTORY = "history"  # earlier turns: pairs of what the user and the assistant said
TOOLS = ("tools", "documents")  # variables of the template
KWARGS = "chat_template_kwargs"  # further ones, by name
# Column of the rejected reply -> columns of the chosen one beside it.
_PAIRS = {
    "rejected": ("chosen",),
    "rejected_response": ("chosen", "chosen_response", *REPLIES, *WHOLE),
    "rejected_messages": ("chosen", "chosen_messages", *WHOLE),
}
# HelpSteer: below 0 the first reply is preferred, above 0 the second.
_PREFERENCES = {
    "overall_preference": ("response1", "response2"),
    "preference_strength": ("response_1", "response_2"),
}
_MEDIA = "(image|video|audio|object)s?"
# What would be left unscored, or unsaid to the model; most are names of ms-swift.
_REFUSED = re.compile(
    rf"((rejected|positive|negative)_)?{_MEDIA}|rejected_tools|audio_codes|"
    r"(chosen|rejected|positive|negative)_(response|message|repl(y|ie)|completion|answer|text)s?|"
    r"(response|reply|completion|answer|conversation)_?[0-9a-d]|"
    r"responses|replies|completions|answers|outputs|candidates"
)


class Sides(NamedTuple):
    """Where a row has its replies."""

    columns: Mapping[str, str]  # side -> column; `chosen` before `rejected`
    preference: str | None = None  # column of the number that says which reply is chosen

    # Any: cells of a file.
    def of(self, row: Mapping[str, Any]) -> Mapping[str, str]:
        """Side -> column in a row; empty where neither reply is preferred."""
        if self.preference is None:
            return self.columns
        try:
            value = float(row.get(self.preference))  # type: ignore[arg-type]  # any cell
        except (TypeError, ValueError):
            raise AssayError(f"{self.preference}: not a number") from None
        first, second = self.columns.values()
        both = (first, second) if value < 0 else (second, first)
        return dict(zip(self.columns, both, strict=True)) if value else {}


def of_conversations(columns: Sequence[str]) -> str | None:
    """The first column that is part of a conversation; None where all are replies or labels."""
    parts = {*PROMPTS, *WHOLE, *SYSTEM, HISTORY, *TOOLS, KWARGS, "chosen", *_PAIRS}
    return next((name for name in columns if name in parts or _REFUSED.fullmatch(name)), None)


# Any: a cell of a file.
def is_refused(name: str, cell: Any) -> bool:
    """Whether a cell holds something that a column of this name says to the model, or a reply."""
    return bool(_REFUSED.fullmatch(name)) and isinstance(cell, str | list | dict) and bool(cell)


def sides_of(columns: Sequence[str], column: str | None) -> Sides:
    """Where rows have their replies; `column` is the user's own name of it, or None.

    Raises:
      AssayError: no such column, several of them, or half of a pair.
    """
    if pair := _pair(columns):
        if column is not None:
            raise AssayError(f"--column={column!r} beside pairs; allowed: no --column")
        return pair
    found = [name for name in (*REPLIES, *WHOLE) if name in columns]
    replies = [name for name in found if name in REPLIES] or found
    if column is None and len(replies) == 1:
        return Sides({"reply": replies[0]})
    if column is None or column not in columns or column in PROMPTS:
        raise AssayError(
            f"no one column of replies; the file has {', '.join(columns) or 'none'}; allowed: "
            f"one of {', '.join(REPLIES)}, 'chosen' and 'rejected', 'messages', or --column"
        )
    return Sides({"reply": column})


def _pair(columns: Sequence[str]) -> Sides | None:
    """Where rows have their pairs; None where they have none."""
    rejected = [name for name in _PAIRS if name in columns]
    if not rejected and "chosen" not in columns:
        for preference, replies in _PREFERENCES.items():
            if {preference, *replies} <= set(columns):
                return Sides(dict(zip(("chosen", "rejected"), replies, strict=True)), preference)
        return None
    if not rejected:
        raise AssayError("no column 'rejected'; allowed: 'chosen' and 'rejected' together")
    chosen = [name for name in _PAIRS[rejected[0]] if name in columns]
    if not chosen:
        raise AssayError("no column 'chosen'; allowed: 'chosen' and 'rejected' together")
    if len(rejected) > 1 or len(chosen) > 1:
        raise AssayError(
            f"columns {', '.join([*chosen, *rejected])}: which are the pair? Call two of them "
            "'chosen' and 'rejected', and remove the others"
        )
    return Sides({"chosen": chosen[0], "rejected": rejected[0]})
