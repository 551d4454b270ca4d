"""Files whose rows have prompts of their own: replies, pairs of replies, whole conversations."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from jax.sharding import Mesh

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError, prefixed
from engine.settings import SweepSettings
from engine.sweep.outcomes import OnOutcomes
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import fields, inputs, scoring
from launch.common.command import Given, paths
from launch.common.config import keys_set
from launch.common.row_reader import RowReader
from launch.common.text import counted, say


class ConversationList(NamedTuple):
    """A list of conversations."""

    name: str  # of the list in the run
    table: pl.DataFrame  # `schema.LIST_COLUMNS`
    sha256: str  # of the file
    notes: Sequence[str]  # what was left out of the file, a sentence each
    has_messages: bool = False  # whether a cell is a list of messages, and not a text

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
    flag = _prompt_flag(given)
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
    check_rendering(models, listed)
    rewards = sweep_rewards(
        models, None, run, settings, mesh, on_outcomes=on_outcomes, items=listed[:3]
    )
    record(listed, run, [model.card.slug for model in models])
    return rewards


def record(listed: ConversationList, run: str, slugs: Sequence[str]) -> None:
    """Writes `replies.csv` of a list that some models have scored, and prints their accuracies."""
    for note in listed.notes:
        say(f"note: {note}")
    if processes.writes():
        from launch.common import facts  # the analysis, which no other list needs

        facts.write_replies(run, listed.name, slugs)


def check_rendering(models: Sequence[Checkpoint], listed: ConversationList) -> None:
    """Raises AssayError for messages under the template `trl`, which TRL has for texts alone."""
    for model in models if listed.has_messages else ():
        if model.template.is_trl:
            raise AssayError(
                f"{listed.name}: its rows hold messages, which TRL renders in the chat template, "
                f"and {model.card.slug} was converted with template=trl, for rows of texts; "
                "convert it without --config.template, or write the rows as texts"
            )


def list_of_pairs(path: Path) -> ConversationList:
    """The list of a file of pairs; raises AssayError as `given_list`, or where it holds none."""
    listed = read_list(path)
    for note in () if listed is None else listed.notes:
        say(f"note: {note}")
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
    if not fields.of_conversations(columns):
        return None
    with prefixed(f"items={path}"):
        reader = RowReader(columns, column, shared, flag, has_nulls=path.suffix == ".parquet")
        table = reader.table(rows)
    sha256 = hashlib.sha256(data).hexdigest()
    return ConversationList(
        inputs.list_name(path), table, sha256, reader.notes, reader.has_messages
    )


def _prompt_flag(given: Given) -> str:
    """The flag that names prompts on the command line; "" where none does."""
    return "--prompt" if given.prompt else "--config.prompts" * ("prompts" in keys_set(given))


def _shared(given: Given) -> str:
    """The one prompt of the command line."""
    texts = list(scoring.prompts(given).values())
    if len(texts) != 1:
        raise AssayError(f"{len(texts)} prompts for one list of pairs; allowed: one --prompt")
    return texts[0]
