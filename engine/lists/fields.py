"""What is done with each column of people's rows: read, handed to the template, label, or refused.

docs/pairs.md has the table, and which trainers and published sets write which column.
"""

import contextlib
import re
from collections.abc import Collection, Sequence

from engine.errors import AssayError

REPLIES = ("reply", "response", "completion", "output")
# The user's turn, by the names that trainers and published sets give it; the first that is there.
PROMPTS = ("prompt", "instruction", "question", "query", "problem", "input", "context")
WHOLE = ("messages", "conversations", "conversation")  # all turns, the reply included
SYSTEM = ("system", "system_prompt")
HISTORY = "history"  # earlier turns
VARIABLES = {"tools": list, "documents": list, "enable_thinking": bool}  # of the template
KWARGS = "chat_template_kwargs"  # further variables, by name
# Column of the rejected reply -> columns of the chosen one beside it.
_PAIRS = {
    "rejected": ("chosen",),
    "rejected_response": ("chosen", "chosen_response", *REPLIES, *WHOLE),
    "rejected_messages": ("chosen", *WHOLE),
}
ALWAYS_READ = {*SYSTEM, HISTORY, *VARIABLES, KWARGS}  # beside any prompt and reply
_TURNS = {*PROMPTS, *WHOLE, *ALWAYS_READ}
# Names of parts that are not read, in small letters and without what separates words.
_TURN = re.compile(
    r"(user)?prompts?|instructions?|system(message|instruction|prompt)?|(chat)?history|"
    r"previousmessages|reasoning(content)?|thinking|"
    + "|".join(name.replace("_", "") for name in sorted(_TURNS))
)
_REPLY = re.compile(
    r"(chosen|rejected|positive|negative)?"
    r"(repl(y|ie)|response|completion|output|answer|message|candidate|conversation)s?"
    r"(\d\d?|[a-d])?|(chosen|rejected)(text|\d\d?)"
)
_OTHER = re.compile(
    r"(rejected|positive|negative|ref|available)?"
    r"((image|video|audio|tool|function|document)s?(path|url)?s?|objects)|audiocodes"
)


def of_conversations(columns: Collection[str]) -> str | None:
    """The first column that makes rows conversations; None for a list of replies and labels."""
    replies = {"prompt", "chosen", *REPLIES, *WHOLE, *_PAIRS}
    if "name" in columns and not replies & {*columns}:
        return None
    return next((c for c in columns if c in _TURNS or c == "chosen" or c in _PAIRS), None)


def is_turn(column: str) -> bool:
    """Whether a column is called as turns before the reply are, or what templates read."""
    return bool(_TURN.fullmatch(_plain(column)))


def is_reply(column: str) -> bool:
    """Whether a column is called as one of replies is."""
    return bool(_REPLY.fullmatch(_plain(column)))


def is_part(column: str) -> bool:
    """Whether a column is called as a part of conversations is."""
    return is_turn(column) or is_reply(column) or bool(_OTHER.fullmatch(_plain(column)))


def is_empty(column: str, cell: object) -> bool:
    """Whether a cell says nothing: it is empty, or a number where the column is of no turns."""
    if isinstance(cell, str) and cell and not is_turn(column):
        with contextlib.suppress(ValueError):
            float(cell)
            return True
    is_number = isinstance(cell, bool | int | float) and not is_turn(column)
    return cell is None or is_number or cell in ("", "[]", "{}", [], {}, b"")


def _plain(column: str) -> str:
    return re.sub(r"[ _-]", "", column).lower()


def prompts_of(columns: Sequence[str]) -> Sequence[str]:
    """Columns of the user's turn: one, or an instruction and its input; none without a prompt."""
    halves = ("instruction", "input")
    first = next((name for name in PROMPTS if name in columns), None)
    return halves if first == halves[0] and halves[1] in columns else (first,) if first else ()


def sides_of(columns: Sequence[str], column: str | None) -> dict[str, str]:
    """Side -> column of rows' replies; `column` is the user's own name of it, or None.

    `chosen` stands before `rejected`.

    Raises:
      AssayError: no such column, several of them, or half of a pair.
    """
    if pair := _pair(columns):
        if column is not None:
            raise AssayError(f"--column={column!r} beside pairs; leave out --column")
        return pair
    present = [name for name in (*REPLIES, *WHOLE) if name in columns]
    replies = [name for name in present if name in REPLIES] or present
    if column is None and len(replies) == 1:
        return {"reply": replies[0]}
    if column is None or column not in columns or column in _TURNS - {*WHOLE}:
        raise AssayError(
            f"no single column of replies; the file has {', '.join(columns) or 'none'}; allowed: "
            f"one of {', '.join(REPLIES)}, 'chosen' and 'rejected', 'messages', or --column"
        )
    return {"reply": column}


def _pair(columns: Sequence[str]) -> dict[str, str]:
    """Side -> column of rows' pairs; empty where they have none."""
    rejected = [name for name in _PAIRS if name in columns]
    if not rejected and "chosen" not in columns:
        return {}
    chosen = [name for name in _PAIRS[rejected[0]] if name in columns] if rejected else ["chosen"]
    if not rejected or not chosen:
        missing = "chosen" if rejected else "rejected"
        raise AssayError(f"no column {missing!r}; allowed: 'chosen' and 'rejected' together")
    if len(rejected) > 1 or len(chosen) > 1:
        raise AssayError(
            f"columns {', '.join([*chosen, *rejected])}: which are the pair? Call two of them "
            "'chosen' and 'rejected', and remove the others"
        )
    return {"chosen": chosen[0], "rejected": rejected[0]}
