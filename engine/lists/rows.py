"""People's rows -> conversations; `fields` says what is done with each column."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from engine.errors import AssayError, prefixed
from engine.lists import fields
from engine.runs import schema
from engine.text.chat_template import (
    RESERVED,
    check_prompt,
    checked_json,
    checked_message,
    checked_text,
    turns,
    without_nulls,
)

Turns = list[dict[str, Any]]  # messages as `checked_message` returns them
Row = Mapping[str, Any]  # Any: cells of a file by column


@dataclasses.dataclass
class RowReader:
    """Reads rows of one file."""

    columns: Sequence[str]  # of the file
    column: str | None = None  # of the replies, as the user names it; None: one that is known
    # Gives the prompt of the command line for replies that are texts; None: there is none.
    shared: Callable[[], str] | None = None
    flag: str = ""  # of the command line, beside which prompts and messages are refused
    has_nulls: bool = False  # whether every row has each key of any: the format is .parquet
    notes: list[str] = dataclasses.field(default_factory=list)  # what is left out of the file
    has_messages: bool = False  # whether a cell is a list of messages, and not a text

    def __post_init__(self) -> None:
        self._sides = fields.sides_of(self.columns, self.column)
        self._prompts = fields.prompts_of(self.columns)
        if self._prompts and self.flag:
            raise AssayError(
                f"its rows have prompts (column {self._prompts[0]!r}); leave out {self.flag}"
            )

    def table(self, rows: Sequence[Row]) -> pl.DataFrame:
        """The list: `schema.LIST_COLUMNS`, and `schema.GIVEN` where a row has any.

        Raises:
          AssayError: a row that is no conversation, or has a part of one that would not be scored.
        """
        if not rows:
            raise AssayError("no rows; allowed: at least one")
        labels, copies = self._others(rows)
        listed: list[dict[str, Any]] = []
        for number, row in enumerate(rows, 1):
            with prefixed(f"row {number}"):
                own = [{"name": name, "value": _label(row.get(name))} for name in labels]
                variables = self._variables(row)
                conversations = self._conversations(row)
                for name in copies:
                    self._check_said(row, name, [messages for _, messages in conversations])
                for side, messages in conversations:
                    entry = {"conversation_id": len(listed), "row": number, "side": side}
                    entry |= {"id": _label(row.get("id")), "messages": messages, "labels": own}
                    listed.append({**entry, schema.GIVEN: _given(messages, variables)})
        types: schema.Columns = dict(schema.LIST_COLUMNS)
        if any(entry[schema.GIVEN] for entry in listed):
            types[schema.GIVEN] = pl.String
        return pl.DataFrame(listed, schema=types)

    def _others(self, rows: Sequence[Row]) -> tuple[Sequence[str], Sequence[str]]:
        """Columns that are labels, and columns whose texts the conversations must hold as well."""
        read = {*self._sides.values(), *self._prompts, "id", *fields.ALWAYS_READ}
        labels, copies, others = [], [], list[str]()
        for name in (name for name in self.columns if name not in read):
            checked_text(name)
            cells = [self._value(row.get(name)) for row in rows]
            is_label = self.column is not None and fields.is_reply(name)
            says = (
                fields.is_part(name)
                and not is_label
                and not all(fields.is_empty(name, cell) for cell in cells)
            )
            if says or any(map(_are_messages, cells)):
                copies.append(name)
            elif all(isinstance(row.get(name), str | float | int | None) for row in rows):
                labels.append(name)
            else:
                others.append(name)
        if labels:
            self.notes.append(f"labels, which the model does not read: {', '.join(labels)}")
        if others:
            self.notes.append(f"no labels: {', '.join(others)} (neither text nor numbers)")
        return labels, copies

    def _conversations(self, row: Row) -> list[tuple[str, Turns]]:
        """Each reply's side, and the conversation that it ends."""
        replies = list[tuple[str, Turns | str]]()
        for side, column in self._sides.items():
            replies += [(side, reply) for reply in self._replies(row, column, side)]
        before = self._before(row, [reply for _, reply in replies])
        own = list[tuple[str, Turns]]()
        for side, reply in replies:
            with prefixed(self._sides[side]):
                turns_before = before
                if before is None and own and (isinstance(reply, str) or _by_assistant(reply[0])):
                    # Behind the chosen one's last turn of another, as ms-swift does.
                    turns_before = [*own[0][1]]
                    while _by_assistant(turns_before[-1]):
                        del turns_before[-1]
                own.append((side, _whole(turns_before, reply)))
        system = self._system(row)
        for at, (side, whole) in enumerate(own):
            if system and whole[0]["role"] not in ("system", "developer"):
                own[at] = (side, [system, *whole])
            elif system and whole[0] != system:
                raise AssayError("two system turns, in the messages and in a column; remove one")
        opening = [json.dumps(whole[: _first_user(whole) + 1]) for _, whole in own]
        if len({*opening}) > 1:
            raise AssayError("chosen and rejected begin with other messages; give both one prompt")
        return own

    def _before(self, row: Row, replies: Sequence[Turns | str]) -> Turns | None:
        """The turns before the reply; None where the row has them in its replies alone."""
        if self.flag and not all(isinstance(reply, str) for reply in replies):
            raise AssayError(f"messages have a prompt of their own; leave out {self.flag}")
        names = self._prompts
        cells = [self._cell(row, name) for name in names if row.get(name) not in (None, "")]
        if names and not cells:
            raise AssayError(f"{names[0]}: missing; allowed: text, or a list of messages")
        texts = [cell for cell in cells if isinstance(cell, str)]
        messages = [cell for cell in cells if not isinstance(cell, str)]
        if len(cells) > 1 and messages:
            raise AssayError(f"{' and '.join(names)}: messages; allowed: texts, or one of them")
        if messages:
            before: Turns | None = messages[0]
        else:  # several texts as LLaMA-Factory joins them
            before = _asked("\n".join(texts)) if texts else self._whole_as_prompt(row)
        if before is None and self.shared and all(isinstance(reply, str) for reply in replies):
            before = [dict(turn) for turn in turns(self.shared())]
        history = self._history(row)
        if before is None:
            if history:
                raise AssayError(f"{fields.HISTORY}: it needs a prompt behind it; the row has none")
            return None
        first = 0 if before[0]["role"] == "user" else _first_user(before)  # behind a system turn
        return [*before[:first], *history, *before[first:]]

    def _whole_as_prompt(self, row: Row) -> Turns | None:
        """Messages that end before the reply; None where they are replies, or end with one."""
        for name in fields.WHOLE:
            if row.get(name) not in (None, "", []) and name not in self._sides.values():
                messages = self._cell(row, name)
                if not isinstance(messages, str) and not _by_assistant(messages[-1]):
                    if self.flag:
                        raise AssayError(f"{name}: a prompt; leave out {self.flag}")
                    return messages
        return None

    def _history(self, row: Row) -> Turns:
        """Earlier turns: messages, or pairs of the user's text and the reply."""
        cell = self._value(row.get(fields.HISTORY))
        if _are_messages(cell):
            with prefixed(fields.HISTORY):
                return self._messages(cell)
        pairs = cell if isinstance(cell, list) else [cell] if cell else []
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise AssayError(f"{fields.HISTORY}: allowed: messages, or pairs of texts")
        texts = itertools.chain.from_iterable(pairs)
        roles = itertools.cycle(("user", "assistant"))
        turns = zip(roles, texts, strict=False)
        return [checked_message(n, {"role": r, "content": t}) for n, (r, t) in enumerate(turns, 1)]

    def _system(self, row: Row) -> dict[str, Any] | None:
        """The system turn of the row's column; None without one."""
        texts = set[str]()
        for name in fields.SYSTEM:
            if (cell := row.get(name)) not in (None, ""):
                if not isinstance(cell, str):
                    raise AssayError(f"{name}: no text; allowed: the system turn as text")
                texts.add(checked_text(cell))
        if len(texts) > 1:
            raise AssayError(f"{' and '.join(fields.SYSTEM)}: different texts; remove one of them")
        return {"role": "system", "content": texts.pop()} if texts else None

    def _variables(self, row: Row) -> Mapping[str, Any]:
        """What the template reads beside the messages."""
        variables: dict[str, Any] = {}
        for name, kind in {**fields.VARIABLES, fields.KWARGS: dict}.items():
            with prefixed(name):
                cell = row.get(name)
                lower = cell.lower() if kind is bool and isinstance(cell, str) else cell
                value = self._value(lower, anything=True)
                if value is None or value in ("", [], {}):
                    continue
                if not isinstance(value, kind):
                    raise AssayError(f"{value!r:.60}; allowed: JSON of a {kind.__name__}")
                own = checked_json(value if kind is dict else {name: value})
                if taken := RESERVED & {*own}:
                    raise AssayError(f"{', '.join(sorted(taken))}; allowed: other variables")
                if twice := [k for k in own if variables.get(k, own[k]) != own[k]]:
                    raise AssayError(f"{twice[0]} is given twice; remove one of both")
                variables |= own
        return variables

    def _check_said(self, row: Row, name: str, conversations: Sequence[Turns]) -> None:
        """Raises AssayError for a text or messages that no conversation of the row has."""
        cell = self._value(row.get(name))
        if fields.is_empty(name, cell):
            return
        if _are_messages(cell):
            whole = self._cell(row, name)
            judged = any(c[at : at + len(whole)] == whole for c in conversations for at in (0, 1))
        else:
            held = {str(m["content"]).strip() for c in conversations for m in c}
            texts = cell if isinstance(cell, list) else [cell]
            judged = all(isinstance(text, str) and text.strip() in held for text in texts)
        if not judged:
            raise AssayError(
                f"column {name!r} is not read, and the model would judge the row without it; "
                "remove it, or give it one of the names in docs/pairs.md"
            )

    # Any: a cell of a file.
    def _value(self, cell: Any, *, anything: bool = False) -> Any:
        """A cell; JSON of messages, pairs or, if `anything`, any value is read."""
        if isinstance(cell, str) and (anything or cell.lstrip().startswith("[")):
            try:
                cell = json.loads(cell) if cell else None
            except (ValueError, RecursionError) as error:
                if anything:
                    raise AssayError(f"{cell!r:.60} is no JSON ({error})") from error
        return without_nulls(cell) if self.has_nulls else cell

    def _replies(self, row: Row, column: str, side: str) -> Sequence[Turns | str]:
        """The replies of a side; several where a pair's cell is a list of texts (RewardBench 2)."""
        texts = row.get(column) if side != "reply" else None
        if texts and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            with prefixed(column):
                return [checked_text(text) for text in texts]
        return [self._cell(row, column)]

    def _cell(self, row: Row, column: str) -> Turns | str:
        """The text or the messages of a cell."""
        cell, value = row.get(column), self._value(row.get(column))
        with prefixed(column):
            if isinstance(cell, str) and not _are_messages(value):
                if cell.lstrip().startswith("[{") and "role" in cell and "content" in cell:
                    raise AssayError("messages as a text; allowed: a list, or JSON")
                return checked_text(cell)
            value = [value] if isinstance(value, dict) else value  # LLaMA-Factory's chosen
            if isinstance(value, list) and value and all(isinstance(m, dict) for m in value):
                return self._messages(value)
            if isinstance(value, list) and value:
                raise AssayError("a list of replies; write a row for each, or each pair")
            what = "missing" if cell is None else "neither text nor messages"
            raise AssayError(f"{what}; allowed: text, or a list of messages")

    # Any: JSON values.
    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> Turns:
        """Messages as `checked_message` returns them."""
        self.has_messages = True
        return [checked_message(number, message) for number, message in enumerate(messages, 1)]


def _whole(prompt: Turns | None, reply: Turns | str) -> Turns:
    """The conversation of a prompt and a reply, which may be messages that hold the prompt."""
    if isinstance(reply, str):
        if reply.lstrip().startswith("Human:"):
            raise AssayError("a transcript ('Human: …'); allowed: a reply, or messages")
        if prompt is None:
            raise AssayError("a reply without a prompt; allowed: a column 'prompt', or --prompt")
        whole = [*prompt, {"role": "assistant", "content": reply}]
    elif prompt is None or any(
        reply[at : at + len(prompt)] == prompt for at in (0, int(reply[0]["role"] == "system"))
    ):
        whole = reply
    elif _by_assistant(reply[0]):
        whole = [*prompt, *reply]
    else:
        raise AssayError("the messages must start with the row's prompt; remove one of the two")
    if len(whole) < 2 or _by_assistant(whole[0]):
        raise AssayError("messages that begin with the reply; allowed: a prompt before it")
    if not _by_assistant(whole[-1]):
        raise AssayError(
            f"the last message is by {whole[-1]['role']!r}; allowed: 'assistant', whose reply "
            "is judged"
        )
    return whole


def _asked(prompt: str) -> Turns:
    """The user's turn."""
    if not prompt.strip():
        check_prompt(prompt)
    if prompt.lstrip().startswith("Human:"):
        raise AssayError("a transcript ('Human: …'); allowed: a question, or messages")
    return [{"role": "user", "content": prompt}]


def _first_user(messages: Turns) -> int:
    """Place of the first turn of the user; behind all where there is none."""
    roles = [message["role"] for message in messages]
    return roles.index("user") if "user" in roles else len(roles)


def _given(messages: Turns, variables: Mapping[str, Any]) -> str | None:
    """The cell of `schema.GIVEN`."""
    others = [{k: m[k] for k in m if k not in ("role", "content")} for m in messages]
    if not any(others) and not variables:
        return None
    return json.dumps({"messages": others, "variables": variables}, ensure_ascii=False)


def _by_assistant(message: Mapping[str, Any]) -> bool:
    return bool(message["role"] == "assistant")


def _are_messages(cell: object) -> bool:
    """Whether a cell is a list of messages, by OpenAI's names or ShareGPT's."""
    names = ({"role", "content"}, {"role", "tool_calls"}, {"from", "value"})
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(m, dict) and any(own <= {*m} for own in names) for m in cell)
    )


def _label(cell: object) -> str | None:
    return None if cell is None else checked_text(str(cell))
