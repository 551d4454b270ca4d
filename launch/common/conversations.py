"""Files whose rows have prompts of their own: replies, pairs of replies, whole conversations."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from jax.sharding import Mesh
from ml_collections import config_flags

from configs import score as defaults
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError, prefixed
from engine.runs import schema
from engine.settings import SweepSettings
from engine.sweep.outcomes import OnOutcomes
from engine.sweep.reward_jobs import sweep_rewards
from engine.text.chat_template import check_prompt, checked_message, checked_text, turns
from launch.common import inputs, scoring
from launch.common.command import Given, paths
from launch.common.inputs import REPLIES
from launch.common.text import counted, say

_PAIR = ("chosen", "rejected")
_OWN = ("prompt", "messages", *_PAIR)  # a file with one of these columns has rows of its own
_ASKED = ("messages", "question", "instruction", "query", "input")  # prompts, by other names

Turns = list[dict[str, str]]


class ConversationList(NamedTuple):
    """A list of conversations."""

    name: str  # of the list in the run
    table: pl.DataFrame  # `schema.LIST_COLUMNS`
    sha256: str  # of the file
    # Columns of the file that are no labels, as their cells are neither text nor numbers.
    left_out: Sequence[str]

    @property
    def size_in_words(self) -> str:
        """How many rows it has, in words."""
        pairs = int((self.table["side"] == "chosen").sum())
        return counted(pairs, "pair") if pairs else counted(len(self.table), "reply")


def given_list(given: Given, *, sweeps: bool = False) -> ConversationList | None:
    """The list of --items, or None for replies without prompts of their own.

    Args:
      given: the parsed flags.
      sweeps: whether the command sweeps vocabularies under its prompts, which may then stand beside
        those of the file.

    Raises:
      AssayError: a row that is no conversation, whose number (from 1) the message names; or a
        prompt of the command line beside those of the file.
    """
    path = Path(paths(given, "items")[0])
    flag = _prompt_flag(given, sweeps=sweeps)
    shared = functools.cache(functools.partial(_shared, given)) if flag else None
    listed = read_list(path, given.column, "" if sweeps else flag, shared)
    if listed is None:
        return None
    name = listed.name if given.name is None else given.name
    return listed._replace(name=inputs.checked_name("name", name))


def score(
    models: Sequence[Checkpoint],
    listed: ConversationList,
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    on_outcomes: OnOutcomes,
) -> int:
    """Scores a list under its rows' prompts; writes `replies.csv`, and prints accuracies.

    Returns:
      The number of new rewards.
    """
    if listed.left_out:
        say(f"note: no labels: {', '.join(listed.left_out)} (neither text nor numbers)")
    rewards = sweep_rewards(
        models, None, run, settings, mesh, on_outcomes=on_outcomes, items=listed[:3]
    )
    if processes.writes():
        from launch.common import facts  # the analysis, which no other list needs

        facts.write_replies(run, listed.name, [model.card.slug for model in models])
    return rewards


def list_of_pairs(path: Path) -> ConversationList:
    """The list of a file of pairs; raises AssayError as `given_list`, or where it holds none."""
    listed = read_list(path)
    if listed is None or "chosen" not in listed.table["side"]:
        raise AssayError(f"items={path}: no pairs; allowed: columns prompt, chosen and rejected")
    return listed


def read_list(
    path: Path, column: str | None = None, flag: str = "", shared: Callable[[], str] | None = None
) -> ConversationList | None:
    """The list of a file, or None for replies without prompts of their own.

    Args:
      path: the file.
      column: of the replies beside a prompt; None: one of `REPLIES`.
      flag: of the command line that names a prompt, which the file must not have then; "": none.
      shared: gives the prompt of replies that are texts; None: there is none.

    Raises:
      AssayError: as `given_list`.
    """
    if path.suffix == ".txt":
        return None
    columns, rows, data = inputs.read_rows(path)
    if not set(_OWN) & set(columns):
        return None
    with prefixed(f"items={path}"):
        if flag and "prompt" in columns:
            raise AssayError(f"its rows have prompts (column 'prompt'); allowed: no {flag}")
        sides = _sides(columns, column)
        reader = _Reader(columns, sides, shared, flag, is_csv=path.suffix == ".csv")
        table = reader.table(rows)
    sha256 = hashlib.sha256(data).hexdigest()
    return ConversationList(inputs.list_name(path), table, sha256, reader.left_out)


def _prompt_flag(given: Given, *, sweeps: bool) -> str:
    """The flag that names prompts on the command line; "" where none does."""
    named = "prompts" in config_flags.get_override_values(given["config"])
    if not sweeps:
        named = named or given.config.prompts != defaults.get_config().prompts
    return "--prompt" if given.prompt else "--config.prompts" if named else ""


def _shared(given: Given) -> str:
    """The one prompt of the command line."""
    texts = list(scoring.prompts(given).values())
    if len(texts) != 1:
        raise AssayError(f"{len(texts)} prompts for one list of pairs; allowed: one --prompt")
    return texts[0]


@dataclasses.dataclass
class _Reader:
    """Rows of a file -> conversations."""

    columns: Sequence[str]  # of the file
    sides: Mapping[str, str]  # side -> the column of its reply
    # Gives the prompt of the command line for replies that are texts; None: there is none.
    shared: Callable[[], str] | None
    flag: str  # of the command line, beside which messages are refused; "": none
    is_csv: bool  # whether cells may hold messages as JSON
    left_out: Sequence[str] = ()  # columns that are no labels, once the rows are read

    # Any: cells of a file.
    def table(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """The list: `schema.LIST_COLUMNS`."""
        known = {"id", "prompt", "messages", *self.sides.values()}
        others = [name for name in self.columns if name not in known]
        scalar = str | bool | int | float | None
        kept = [n for n in others if all(isinstance(row.get(n), scalar) for row in rows)]
        self.left_out = [name for name in others if name not in kept]
        found: dict[str, list[object]] = {name: [] for name in schema.LIST_COLUMNS}
        for number, row in enumerate(rows, 1):
            labels = [{"name": name, "value": _label(row.get(name))} for name in kept]
            with prefixed(f"row {number}"):
                for side, messages in self._conversations(row):
                    entry = (len(found["row"]), number, side, _label(row.get("id")))
                    for cell, own in zip((*entry, messages, labels), found.values(), strict=True):
                        own.append(cell)
        return pl.DataFrame(found, schema=schema.LIST_COLUMNS)

    def _conversations(self, row: Mapping[str, Any]) -> Iterator[tuple[str, Turns]]:
        prompt = _prompt_turns(self._cell(row, "prompt")) if "prompt" in self.columns else None
        unread = [name for name in self.columns if name not in self.sides.values()]
        asked = next((name for name in _ASKED if name in unread), None)  # meant as the prompt?
        both = []
        for side, column in self.sides.items():
            reply = self._cell(row, column)
            with prefixed(column):
                if self.flag and not isinstance(reply, str):
                    raise AssayError(
                        f"messages have a prompt of their own; allowed: no {self.flag}"
                    )
                if asked and prompt is None and isinstance(reply, str):
                    raise AssayError(
                        f"a reply beside a column {asked!r}; allowed: call that column 'prompt'"
                    )
                shared = self.shared if prompt is None and isinstance(reply, str) else None
                both.append(self._whole(_prompt_turns(shared()) if shared else prompt, reply))
            yield side, both[-1]
        if len({json.dumps(messages[0]) for messages in both}) > 1:
            raise AssayError("chosen and rejected begin with other messages; allowed: one prompt")

    def _cell(self, row: Mapping[str, Any], column: str) -> Turns | str:
        cell = row.get(column)
        if self.is_csv and isinstance(cell, str) and cell.lstrip().startswith("["):
            cell = _parsed(cell)
        with prefixed(column):
            if isinstance(cell, str):
                if cell.lstrip().startswith("[{") and "role" in cell and "content" in cell:
                    raise AssayError("messages as a text; allowed: a list, or JSON in a .csv")
                return checked_text(cell)
            if isinstance(cell, list) and cell and all(isinstance(each, dict) for each in cell):
                return [checked_message(number, each) for number, each in enumerate(cell, 1)]
            what = "missing" if cell is None else "neither text nor messages"
            raise AssayError(f"{what}; allowed: text, or a list of messages")

    def _whole(self, prompt: Turns | None, reply: Turns | str) -> Turns:
        """The conversation of a prompt and a reply, which may be messages that hold the prompt."""
        if isinstance(reply, str):
            if reply.lstrip().startswith("Human:"):
                raise AssayError("a transcript ('Human: …'); allowed: a reply, or messages")
            if prompt is None:
                raise AssayError(
                    "a reply without a prompt; allowed: a column 'prompt', or --prompt"
                )
            whole = [*prompt, {"role": "assistant", "content": reply}]
        elif prompt is None or any(
            reply[at : at + len(prompt)] == prompt for at in (0, int(reply[0]["role"] == "system"))
        ):
            whole = reply
        elif reply[0]["role"] == "assistant":
            whole = [*prompt, *reply]
        else:
            raise AssayError("messages that begin with another prompt than the row's; allowed: its")
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


def _sides(columns: Sequence[str], column: str | None) -> dict[str, str]:
    """What a row holds: side -> the column of its reply."""
    if set(_PAIR) & set(columns):
        missing = next((name for name in _PAIR if name not in columns), None)
        if missing:
            raise AssayError(f"no column {missing!r}; allowed: 'chosen' and 'rejected' together")
        if column is not None:
            raise AssayError(f"--column={column!r} beside pairs; allowed: no --column")
        return {name: name for name in _PAIR}
    replies = [name for name in REPLIES if name in columns]
    if column is None and "messages" in columns and not replies:
        return {"reply": "messages"}
    if column is None and len(replies) == 1:
        return {"reply": replies[0]}
    if column not in columns or column == "prompt":
        raise AssayError(
            f"no one column of replies; it has {', '.join(columns)}; allowed: one of "
            f"{', '.join(REPLIES)}, 'chosen' and 'rejected', 'messages', or --column"
        )
    return {"reply": str(column)}


# Any: what JSON holds.
def _parsed(cell: str) -> Any:
    """The messages that a cell of a .csv holds as JSON; any other text as it is."""
    try:
        found = json.loads(cell)
    except ValueError:
        return cell
    messages = all(isinstance(m, dict) and {"role", "content"} <= {*m} for m in found)
    return found if found and messages else cell


def _label(cell: object) -> str | None:
    return None if cell is None else checked_text(str(cell))
