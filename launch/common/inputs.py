"""The list of --items: its flags, and what is written and printed of its scores."""

import functools
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.display import counted
from engine.errors import AssayError
from engine.lists import files
from engine.lists.fields import REPLIES
from engine.lists.files import ConversationList
from engine.runs import schema
from launch.common import scoring
from launch.common.command import Flags, Given, paths
from launch.common.config import keys_set, keys_typed
from launch.common.text import say

FLAGS: Flags = {
    "items": (
        None,
        "File of replies: .txt (one per line), .csv, .jsonl or .parquet. For `assay score` and "
        "`assay report` rows may also hold their prompts: columns prompt and reply; prompt, "
        "chosen and rejected; or messages.",
    ),
    "column": (None, f"Column of the replies in --items; by default name, {' or '.join(REPLIES)}."),
    "name": (None, "Name of --items in the run; by default the file's name."),
}


PROBES: Flags = {
    "probes": (
        False,
        "Also score edits of the replies of the pairs in --items, to see what style buys: up to "
        "15 times as many replies (docs/probes.md).",
    ),
}


def has_list(given: Given) -> bool:
    """Whether --items names a list; raises AssayError for a flag of lists without it."""
    for flag in ("column", "name") if given.items is None else ():
        if given[flag].value is not None:
            raise AssayError(f"--{flag} without --items; give both or neither")
    return given.items is not None


def list_given(given: Given) -> tuple[str, list[str]]:
    """Name of the list on the command line, and its replies, which have no prompts of their own."""
    path = Path(paths(given, "items")[0])
    if path.suffix == ".txt" and given.column is not None:
        raise AssayError(f"--column={given.column!r} of a .txt, which has none; leave it out")
    name = files.list_name(path) if given.name is None else given.name
    return name, files.read_replies(path, given.column)


def given_list(given: Given, *, sweeps: bool = False) -> ConversationList | None:
    """The list of --items, or None for replies without prompts of their own.

    Args:
      given: the parsed flags.
      sweeps: whether the command sweeps vocabularies under its prompts, which may then stand beside
        those of the file.

    Raises:
      AssayError: as `files.read_conversations`.
    """
    config_flag = "--config.prompts" if "prompts" in keys_typed(given) else ""
    flag = "--prompt" if given.prompt else config_flag
    shared = functools.cache(functools.partial(_shared, given)) if flag else None
    path = Path(paths(given, "items")[0])
    listed = files.read_conversations(path, given.column, "" if sweeps else flag, shared)
    if listed is not None and given.name is not None:
        listed = listed._replace(name=given.name)
    if listed is not None and listed.name.endswith((schema.PROBES, schema.RUNNING)):
        raise AssayError(
            f"list {listed.name!r}: such names are of edited and of cut replies; give it another "
            "--name"
        )
    return listed


def probes_of(given: Given, listed: ConversationList | None) -> ConversationList | None:
    """With --probes the list of the edited replies of a list of pairs, else None.

    Of each conversation the last message is edited, by every edit that has something to edit. Rows
    with several chosen or several rejected replies are left out.

    Raises AssayError for --probes without pairs.
    """
    if not given.probes:
        return None
    if listed is None or "chosen" not in listed.table["side"]:
        raise AssayError(
            "--probes: no pairs; allowed: --items=<a file of prompt, chosen, rejected>"
        )
    from analysis.words.edits import EDITS, SHAMS  # the analysis, which no other list needs

    rows = []
    several = listed.table.filter(pl.len().over("row", "side") > 1)
    for row in listed.table.join(several, on="row", how="anti", maintain_order="left").iter_rows(
        named=True
    ):
        *turns, reply = row["messages"]
        for name, edit in {**SHAMS, **EDITS}.items():
            edited = None if reply["content"] is None else edit(reply["content"])
            if edited is not None:
                messages = [*turns, {**reply, "content": edited}]
                own = {"messages": messages, "labels": [{"name": "probe", "value": name}]}
                rows.append({**row, **own, "conversation_id": len(rows)})
    table = pl.DataFrame(rows, schema=listed.table.schema)
    say(f"--probes: {counted(len(table), 'edited reply')} beside {listed.size_in_words}")
    return listed._replace(name=f"{listed.name}{schema.PROBES}", table=table, notes=[])


def limited_pairs(given: Given) -> list[ConversationList]:
    """The pairs of --items, if any, and their edited replies with --probes.

    Raises AssayError for a limit of what is not scored.
    """
    for limit, flag in (("accuracy", "items"), ("probe", "probes")):
        if f"limits.{limit}" in keys_set(given) and not given[flag].value:
            raise AssayError(f"--config.limits.{limit} needs --{flag}")
    listed = files.read_pairs(Path(given.items)) if given.items else None
    for note in listed.notes if listed else ():
        say(f"note: {note}")
    return [rows for rows in (listed, probes_of(given, listed)) if rows is not None]


def record(listed: ConversationList, run: str, slugs: Sequence[str]) -> None:
    """Writes `replies.csv` of a list that some models have scored, and prints their accuracies.

    Of edited replies it prints what the edits change.
    """
    for note in listed.notes:
        say(f"note: {note}")
    if processes.writes():
        from analysis.report import facts  # the analysis, which no other list needs

        edited = listed.name.endswith(schema.PROBES)
        name = listed.name.removesuffix(schema.PROBES)
        for line in (facts.probe_lines if edited else facts.write_replies)(run, name, slugs):
            say(line)


def check_rendering(models: Sequence[Checkpoint], listed: ConversationList) -> None:
    """Raises AssayError for messages under the template `trl`, which TRL has only for texts."""
    for model in models if listed.has_messages else ():
        if model.template.is_trl:
            raise AssayError(
                f"{listed.name}: its rows hold messages, which TRL renders in the chat template, "
                f"and {model.card.slug} was converted with template=trl, for rows of texts; "
                "convert it without --config.template, or write the rows as texts"
            )


def _shared(given: Given) -> str:
    """The one prompt of the command line."""
    texts = list(scoring.prompts(given).values())
    if len(texts) != 1:
        raise AssayError(f"{len(texts)} prompts for one list of pairs; allowed: one --prompt")
    return texts[0]
