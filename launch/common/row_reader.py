"""People's rows -> conversations; what a column is, `fields` says."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import polars as pl

from engine.errors import AssayError, prefixed
from engine.runs import schema
from engine.text.chat_template import (
    check_prompt,
    checked_message,
    checked_text,
    strings,
    turns,
    without_nulls,
)
from launch.common import fields
from launch.common.text import counted

Turns = list[dict[str, Any]]  # messages as `checked_message` returns them
# Any: cells of a file by column.
Row = Mapping[str, Any]


@dataclasses.dataclass
class RowReader:
    """Reads rows of one file."""

    columns: Sequence[str]  # of the file
    column: str | None  # of the replies, as the user names it; None: one that is known
    # Gives the prompt of the command line for replies that are texts; None: there is none.
    shared: Callable[[], str] | None
    flag: str  # of the command line, beside which prompts and messages are refused; "": none
    json_cells: bool  # whether texts may hold messages as JSON: in .csv and .parquet files
    notes: list[str] = dataclasses.field(default_factory=list)  # what is left out of the file

    def table(self, rows: Sequence[Row]) -> pl.DataFrame:
        """The list: `schema.LIST_COLUMNS`, and `schema.GIVEN` where a row has any.

        Raises:
          AssayError: a row that is no conversation, or has a part of one that would not be scored.
        """
        sides, prompts = fields.sides_of(self.columns, self.column), self._prompts()
        labels = self._labels(rows, {*sides.columns.values(), *prompts})
        listed: dict[str, list[object]] = {
            name: [] for name in (*schema.LIST_COLUMNS, schema.GIVEN)
        }
        undecided = 0
        for number, row in enumerate(rows, 1):
            own_labels = [{"name": name, "value": _label(row.get(name))} for name in labels]
            with prefixed(f"row {number}"):
                variables = self._variables(row)
                conversations = self._conversations(row, sides.of(row), prompts)
                undecided += not conversations
                for side, messages in conversations.items():
                    cells = (len(listed["row"]), number, side, _label(row.get("id")))
                    heard = [{k: m[k] for k in ("role", "content")} for m in messages]
                    given = _given(messages, variables)
                    for cell, column in zip(
                        (*cells, heard, own_labels, given), listed.values(), strict=True
                    ):
                        column.append(cell)
        if undecided:
            said = f"{counted(undecided, 'row')} of {len(rows):,} prefer neither reply"
            self.notes.append(f"{said} ({sides.preference} is 0): left out")
        if not any(listed[schema.GIVEN]):
            del listed[schema.GIVEN]
        return pl.DataFrame(
            listed, schema={k: (schema.LIST_COLUMNS | {schema.GIVEN: pl.String})[k] for k in listed}
        )

    def _prompts(self) -> Sequence[str]:
        """Columns of the prompt: one, or an instruction and its input; none without a prompt."""
        first = next((name for name in fields.PROMPTS if name in self.columns), None)
        if first and self.flag:
            raise AssayError(f"its rows have prompts (column {first!r}); allowed: no {self.flag}")
        both = ("instruction", "input")
        if first == both[0] and both[1] in self.columns:
            return both
        return (first,) if first else ()

    def _labels(self, rows: Sequence[Row], replies: set[str]) -> Sequence[str]:
        """Columns that are labels; raises AssayError for those that would be left unscored."""
        parts = {"id", *fields.PROMPTS, *fields.WHOLE, *fields.SYSTEM, fields.HISTORY}
        parts |= {*fields.TOOLS, fields.KWARGS, *fields.REPLIES}
        labels, others = [], list[str]()
        for name in self.columns:
            if name in parts | replies:
                continue
            cells = [row.get(name) for row in rows]
            if self.column is None:
                self._check_no_part(name, cells)
            (labels if all(map(_is_plain, cells)) else others).append(name)
        if others:
            self.notes.append(f"no labels: {', '.join(others)} (neither text nor numbers)")
        return labels

    def _check_no_part(self, name: str, cells: Sequence[Any]) -> None:
        """Raises AssayError for the first cell that says something to the model, or is a reply."""
        for number, cell in enumerate(cells, 1):
            if fields.is_refused(name, cell) or _are_messages(self._parsed(cell)):
                raise AssayError(
                    f"row {number}: column {name!r} is not read, and the model would judge the "
                    "row without it; rename the columns to be scored (docs/pairs.md lists the "
                    "names), or remove it"
                )

    def _conversations(
        self, row: Row, sides: Mapping[str, str], prompts: Sequence[str]
    ) -> Mapping[str, Turns]:
        """Side -> the conversation that ends with its reply."""
        prompt = self._prompt(row, prompts, sides.values())
        both: dict[str, Turns] = {}
        for side, column in sides.items():
            reply = self._cell(row, column)
            with prefixed(column):
                if self.flag and not isinstance(reply, str):
                    raise AssayError(
                        f"messages have a prompt of their own; allowed: no {self.flag}"
                    )
                before = prompt
                if before is None and both and _is_reply(reply):  # behind the chosen one's turns
                    before = both["chosen"][:-1]
                elif before is None and isinstance(reply, str) and self.shared:
                    before = _prompt_turns(self.shared())
                both[side] = self._with_system(row, _whole(self._history(row, before), reply))
        first = [json.dumps(messages[0]) for messages in both.values()]
        if len({*first}) > 1:
            raise AssayError("chosen and rejected begin with other messages; allowed: one prompt")
        self._check_said(row, {*sides.values(), *prompts}, list(both.values()))
        return both

    def _prompt(self, row: Row, columns: Sequence[str], sides: Collection[str]) -> Turns | None:
        """The turns before the reply; None where the row has them in its replies alone."""
        if not columns:
            whole = [name for name in fields.WHOLE if name in self.columns and name not in sides]
            turns_of = [self._cell(row, name) for name in whole]
            return next(
                (t for t in turns_of if not isinstance(t, str) and not _is_reply(t[-1:])), None
            )
        cells = [self._cell(row, name) for name in columns if row.get(name) or name == columns[0]]
        if all(isinstance(cell, str) for cell in cells):
            return _prompt_turns("\n".join(map(str, cells)))  # as LLaMA-Factory and ms-swift do
        if len(cells) > 1:
            raise AssayError(f"{' and '.join(columns)}: messages; allowed: texts, or one of them")
        return _prompt_turns(cells[0])

    def _history(self, row: Row, prompt: Turns | None) -> Turns | None:
        """A prompt behind the earlier turns of the row."""
        pairs = self._parsed(row.get(fields.HISTORY)) or []
        if not pairs:
            return prompt
        with prefixed(fields.HISTORY):
            if prompt is None or not isinstance(pairs, list):
                raise AssayError("it stands beside messages; allowed: beside a prompt that is text")
            texts = [text for pair in pairs for text in pair]
            if len(texts) != 2 * len(pairs) or not all(isinstance(text, str) for text in texts):
                raise AssayError("no pairs of texts; allowed: [[user's text, reply], …]")
            roles = itertools.cycle(("user", "assistant"))
            said = [
                {"role": r, "content": checked_text(t)} for r, t in zip(roles, texts, strict=False)
            ]
            return [*said, *prompt]

    def _with_system(self, row: Row, whole: Turns) -> Turns:
        """A conversation behind the system turn of its row's column, if it has one."""
        named = [name for name in fields.SYSTEM if row.get(name)]
        if not named:
            return whole
        texts = {self._cell(row, name) for name in named if isinstance(row[name], str)}
        with prefixed(named[0]):
            if len(texts) != 1 or len(named) > 1:
                raise AssayError(f"{', '.join(named)}: more than one text; allowed: one")
            system = {"role": "system", "content": texts.pop()}
            if whole[0]["role"] == "system" and whole[0] != system:
                raise AssayError("another system turn than that of the messages; allowed: one")
        return whole if whole[0] == system else [system, *whole]

    def _variables(self, row: Row) -> Mapping[str, Any]:
        """What the template reads beside the messages."""
        variables: dict[str, Any] = {}
        for name in (*fields.TOOLS, fields.KWARGS):
            value = row.get(name)
            with prefixed(name):
                try:
                    value = json.loads(value or "null") if isinstance(value, str) else value
                except ValueError as error:
                    raise AssayError(f"no JSON ({error})") from error
                kind = dict if name == fields.KWARGS else list
                if value and not isinstance(value, kind):
                    raise AssayError(f"{type(value).__name__}; allowed: a JSON {kind.__name__}")
                own = without_nulls(value if name == fields.KWARGS else {name: value or None}) or {}
                for reserved in {"messages", "add_generation_prompt"} & {*own}:
                    raise AssayError(f"{reserved}; allowed: other variables of the template")
                for text in strings(own):
                    checked_text(text)
                variables |= own
        return variables

    def _check_said(self, row: Row, read: set[str], conversations: Sequence[Turns]) -> None:
        """Raises AssayError for a column of a conversation's texts that no conversation has."""
        held = [str(message["content"]) for turns in conversations for message in turns]
        for name in (*fields.PROMPTS, *fields.WHOLE, *fields.REPLIES):
            if name in read or name not in self.columns or not conversations or self.column:
                continue
            cell = self._parsed(row.get(name))
            entries = cell if isinstance(cell, list) else [cell]
            texts = [each.get("content") if isinstance(each, dict) else each for each in entries]
            for text in texts:
                if isinstance(text, str) and not any(text.strip() in whole for whole in held):
                    raise AssayError(
                        f"column {name!r} holds a text that the conversation has not; call the "
                        "columns to be scored 'prompt', 'chosen' and 'rejected', and remove it"
                    )

    # Any: a cell of a file.
    def _parsed(self, cell: Any) -> Any:
        """What a text holds as JSON, where that is a list; any other cell as it is."""
        if self.json_cells and isinstance(cell, str) and cell.lstrip().startswith("["):
            try:
                return json.loads(cell)
            except ValueError:
                return cell
        return cell

    def _cell(self, row: Row, column: str) -> Turns | str:
        cell = row.get(column)
        parsed = self._parsed(cell)
        cell = parsed if _are_messages(parsed) else cell
        with prefixed(column):
            if isinstance(cell, str):
                if cell.lstrip().startswith("[{") and "role" in cell and "content" in cell:
                    raise AssayError(
                        "messages as a text; allowed: a list, or JSON in a .csv or .parquet"
                    )
                return checked_text(cell)
            if isinstance(cell, dict):  # LLaMA-Factory's chosen and rejected
                cell = [cell]
            if isinstance(cell, list) and cell and all(isinstance(each, dict) for each in cell):
                return [checked_message(number, each) for number, each in enumerate(cell, 1)]
            if isinstance(cell, list) and cell:
                raise AssayError("a list of replies; write a row for each, or each pair")
            what = "missing" if cell is None else "neither text nor messages"
            raise AssayError(f"{what}; allowed: text, or a list of messages")


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
    elif reply[0]["role"] == "assistant":
        whole = [*prompt, *reply]
    else:
        raise AssayError(
            "the messages begin with another prompt than the row's; remove one of them"
        )
    if len(whole) < 2 or whole[0]["role"] == "assistant":
        raise AssayError("messages that begin with the reply; allowed: a prompt before it")
    if whole[-1]["role"] != "assistant":
        raise AssayError(
            f"the last message is by {whole[-1]['role']!r}; allowed: 'assistant', whose reply "
            "is judged"
        )
    return whole


def _prompt_turns(prompt: Turns | str) -> Turns:
    """A prompt as turns; a text may begin with a system turn (`chat_template.with_system`)."""
    if not isinstance(prompt, str):
        return prompt
    check_prompt(prompt)
    if prompt.lstrip().startswith("Human:"):
        raise AssayError("a transcript ('Human: …'); allowed: a question, or messages")
    return [dict(turn) for turn in turns(prompt)]


def _given(messages: Turns, variables: Mapping[str, Any]) -> str | None:
    """The cell of `schema.GIVEN`."""
    others = [{k: m[k] for k in m if k not in ("role", "content")} for m in messages]
    if not any(others) and not variables:
        return None
    return json.dumps({"messages": others, "variables": variables}, ensure_ascii=False)


def _is_reply(reply: Turns | str) -> bool:
    return isinstance(reply, str) or reply[0]["role"] == "assistant"


def _are_messages(cell: object) -> bool:
    """Whether a cell is a list of messages, by OpenAI's names or ShareGPT's."""
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(m, dict) and ({"role", "from"} & {*m}) for m in cell)
    )


def _is_plain(cell: object) -> bool:
    return isinstance(cell, str | bool | int | float | None)


def _label(cell: object) -> str | None:
    return None if cell is None else checked_text(str(cell))
