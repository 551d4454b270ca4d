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
      AssayError: the template leaves out calls of tools, tools, documents, or a whole turn.
    """
    rows: dict[str, list[int]] = {}  # key -> conversations in which it has a value
    roles: dict[tuple[str, ...], int] = {}  # roles of the turns -> the first such conversation
    for at, (conversation, own) in enumerate(zip(conversations, variables, strict=True)):
        roles.setdefault(tuple(turn["role"] for turn in conversation), at)
        keys = {k for turn in conversation for k in turn if turn[k] not in ("", [], {})}
        for key in sorted((keys - {"role", "content"}) | {*own}):
            rows.setdefault(key, []).append(at)

    def differ(at: Sequence[int], keys: Collection[str]) -> list[bool]:
        """Whether each conversation is written differently without some keys."""
        pairs = [(conversations[i], variables[i]) for i in at]
        less = [(_without(turns, keys), _without([own], keys)[0]) for turns, own in pairs]
        whole, rest = _texts(template, pairs), _texts(template, less)
        return [a is None or a != b for a, b in zip(whole, rest, strict=True)]

    for at in roles.values():
        turns, own = conversations[at], variables[at]
        others = [(_changed(turns, place), own) for place in range(len(turns))]
        whole, *rest = _texts(template, [(turns, own), *others])
        for turn, text in zip(turns, rest, strict=True):
            if text is not None and text == whole and turn["content"] is not None:
                raise AssayError(
                    f"{names[at]}: the model's chat template leaves out the {turn['role']}'s turn"
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


def _changed(turns: Conversation, place: int) -> Conversation:
    """Messages with more text in one of them."""
    changed = {**turns[place], "content": f"{turns[place]['content'] or ''}xyz"}
    return [*turns[:place], changed, *turns[place + 1 :]]


def _without(turns: Sequence[Mapping[str, Any]], keys: Collection[str]) -> Any:
    """Messages without some keys."""
    return [{key: value for key, value in turn.items() if key not in keys} for turn in turns]


def _texts(
    template: ChatTemplate, rows: Sequence[tuple[Conversation, Variables]]
) -> list[str | None]:
    """The text of each conversation; None where the template refuses it."""
    try:
        return list(template.texts([turns for turns, _ in rows], [own for _, own in rows]))
    except AssayError:
        return [None] if len(rows) < 2 else [_texts(template, [row])[0] for row in rows]
