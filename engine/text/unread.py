"""What a chat template leaves out of conversations, found by rendering them without it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate
from engine.text.template_sandbox import Conversation, Variables

_TRIED = 256  # conversations with a key, before it is said to be read by none
# What a model is to judge: never left out with a note alone.
_CALLS = {"tool_calls", "function_call"}
_ESSENTIAL = (_CALLS, {"tools"}, {"documents"})
_TURNS = ("system", "developer", "tool")


def unread_keys(
    template: ChatTemplate,
    conversations: Sequence[Conversation],
    variables: Sequence[Variables],
    names: Sequence[str],
) -> list[str]:
    """Keys of messages and variables without which a template writes the same texts.

    Args:
      template: of the model.
      conversations: messages with all their keys.
      variables: of each conversation beside its messages.
      names: of each conversation in messages.

    Raises:
      AssayError: the template leaves out calls of tools, tools, documents, or a whole turn that is
        not the user's or the assistant's.
    """
    rows: dict[str, list[int]] = {}  # key -> conversations in which it has a value
    roles: dict[tuple[str, ...], int] = {}  # roles of the turns -> the first such conversation
    for at, (conversation, own) in enumerate(zip(conversations, variables, strict=True)):
        roles.setdefault(tuple(turn["role"] for turn in conversation if turn["content"]), at)
        keys = {k for turn in conversation for k in turn if turn[k] not in ("", [], {})}
        for key in sorted((keys - {"role", "content"}) | {*own}):
            rows.setdefault(key, []).append(at)
    if not rows and not any({*turns} & {*_TURNS} for turns in roles):
        return []

    def differ(at: Sequence[int], keys: Collection[str], role: str = "") -> list[bool]:
        """Whether each conversation is written differently without some keys, or one role."""
        pairs = [(conversations[i], variables[i]) for i in at]
        less = [(_without(turns, keys, role), _without([own], keys)[0]) for turns, own in pairs]
        whole, rest = _texts(template, pairs), _texts(template, less)
        return [a is None or a != b for a, b in zip(whole, rest, strict=True)]

    for turns, at in roles.items():
        for role in dict.fromkeys(role for role in turns if role in _TURNS):
            if not differ([at], (), role)[0]:
                raise AssayError(
                    f"{names[at]}: the model's chat template leaves out the {role}'s turn"
                )
    for keys in _ESSENTIAL:
        at = sorted({i for key in keys for i in rows.get(key, ())})
        for i, differs in zip(at, differ(at, keys), strict=True):
            if not differs:
                left_out = ", ".join(sorted(key for key in keys if i in rows.get(key, ())))
                raise AssayError(
                    f"{names[i]}: the model's chat template does not write {left_out}; without it, "
                    "the model may judge the reply"
                )
    unread = [key for key, at in rows.items() if not any(differ(at[:_TRIED], [key]))]
    some = sorted({i for key in unread for i in rows[key][:_TRIED]})
    return [] if any(differ(some, unread)) else sorted(unread)


def _without(turns: Sequence[Mapping[str, Any]], keys: Collection[str], role: str = "") -> Any:
    """Messages without some keys, and without the turns of a role."""
    kept = [turn for turn in turns if not role or turn["role"] != role]
    return [{key: value for key, value in turn.items() if key not in keys} for turn in kept]


def _texts(
    template: ChatTemplate, rows: Sequence[tuple[Conversation, Variables]]
) -> list[str | None]:
    """The text of each conversation; None where the template refuses it."""
    try:
        return list(template.texts([turns for turns, _ in rows], [own for _, own in rows]))
    except AssayError:
        return [None] if len(rows) < 2 else [_texts(template, [row])[0] for row in rows]
