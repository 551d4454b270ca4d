"""What a page may ask for: every field of a request is checked before anything is computed."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError
from engine.text.chat_template import with_reply_start, with_system

BODY = 256 * 1024  # bytes of a request
TEXT = 8000  # characters of a question, a system turn or a reply
REPLIES = 32
_SEARCH = {"length": (8, 1, 16), "steps": (50, 1, 500), "topk": (256, 1, 1024)}

Fields = Mapping[str, Any]  # Any: JSON


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A question to one of the models."""

    model: int  # its number
    # The question, behind its system turn and before its reply start if there are any:
    # `chat_template.with_system`, `with_reply_start`.
    prompt: str


def parse(body: bytes) -> Fields:
    """The fields of a request; raises AssayError for what is no JSON object."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AssayError("request: no JSON; allowed: a JSON object") from error
    if not isinstance(fields, dict):
        raise AssayError("request: allowed: a JSON object")
    return fields


def only(fields: Fields, *names: str) -> None:
    """Raises AssayError for a field of another name."""
    for name in fields.keys() - set(names):
        raise AssayError(f"{name[:40]!r}: no such field")


def question(fields: Fields, models: int, *others: str) -> Question:
    """The question of a request that may have `others` among its fields."""
    only(fields, "model", "system", "question", "after", *others)
    system, after = (text(fields, name, "") for name in ("system", "after"))
    prompt = with_reply_start(with_system(system.strip(), text(fields, "question")), after)
    number = whole(fields, "model", 0, 0, models - 1)
    return Question(model=number, prompt=prompt)


def replies(fields: Fields) -> list[str]:
    """The replies of a request, in their order."""
    given = fields.get("replies")
    if not isinstance(given, list) or not 1 <= len(given) <= REPLIES:
        raise AssayError(f"replies: allowed: a list of 1 to {REPLIES} texts")
    return [text({"reply": reply}, "reply", "") for reply in given]


def search(fields: Fields) -> dict[str, int | str]:
    """The settings of a search (`engine.settings.SearchSettings`)."""
    direction = fields.get("direction", "max")
    if direction not in ("max", "min"):
        raise AssayError("direction: allowed: 'max', 'min'")
    numbers = {name: whole(fields, name, *limits) for name, limits in _SEARCH.items()}
    return {**numbers, "direction": direction}


def whole(fields: Fields, name: str, default: int, least: int, most: int) -> int:
    """An integer of a request."""
    value = fields.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise AssayError(f"{name}: allowed: integers from {least} to {most}")
    return value


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A text of a request; without a default it must be there."""
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise AssayError(f"{name}: allowed: a text")
    if len(value) > TEXT:
        raise AssayError(f"{name}: {len(value):,} characters; allowed: {TEXT:,}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON may name half of a character
        raise AssayError(f"{name}: holds half of a character; allowed: text") from error
    return value
