"""Rows of whole conversations, each with turns of its own before the reply."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError, prefixed
from engine.models.encoder_config import NetworkConfig
from engine.runs import schema
from engine.scoring.batches import SHORT, Bucket, Distinct
from engine.scoring.rows import ContinuationRows, RewardRows, Rows, check_fits, pooling_of
from engine.settings import MODES, check_choice
from engine.text.template_sandbox import Conversation, Variables
from engine.text.unread import unread_keys
from engine.types import PromptIds

_MANY = 16  # conversations of one prompt that fill a step (`rows_of_step`)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ConversationRows(RewardRows):
    """Whole conversations, which a reward model scores."""

    conversations: Sequence[Conversation]  # their messages; the last is the reply
    variables: Sequence[Variables]  # of each, what its template reads beside the messages
    names: Sequence[str]  # of each in messages, such as `row 7, chosen`

    unit = "conversations"
    checked_at_once = 4
    shortest_candidate = SHORT  # a step of longer ones has fewer (`rows_of_step`)

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, table: pl.DataFrame, mode: str, pooling: str
    ) -> "ConversationRows":
        """The conversations of a list (`schema.LIST_COLUMNS`)."""
        check_choice("mode", mode, MODES)
        names = conversation_names(table)
        template, (conversations, variables) = checkpoint.template, schema.conversations(table)
        unread = unread_keys(template, conversations, variables, names)

        def ids_of(rows: Sequence[int]) -> list[list[int]]:
            chosen = [conversations[row] for row in rows]
            if mode == "text":
                return template.conversations(chosen, [variables[row] for row in rows])
            split = functools.cache(
                lambda row: template.split(conversations[row][:-1], variables[row])
            )
            sequences, first = [], dict[str, int]()
            for row in rows:
                *turns, reply = conversations[row]
                if more := sorted({*reply} - {"role", "content", *unread}):
                    raise AssayError(
                        f"mode='ids': the reply has {', '.join(more)}, which the template writes "
                        "beside its content; allowed: --config.mode=text"
                    )
                around = split(first.setdefault(str((turns, variables[row])), row))
                ids = template.reply_ids(reply["content"])
                sequences.append([*around.prefix, *ids, *around.suffix])
            return sequences

        return cls(
            prompt=PromptIds(prompt="", prefix=(), suffix=()),
            columns={"conversation_id": range(len(table))},
            part_columns=schema.CONVERSATION_COLUMNS,
            ids_of=ids_of,
            pooling=pooling_of(checkpoint, pooling),
            conversations=conversations,
            variables=variables,
            unread=unread,
            names=names,
        )

    @property
    def context(self) -> int:
        """The longest conversation: what a position of it may attend to."""
        return self.distinct.longest()

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some conversations; an error of the template names the first."""
        with contextlib.suppress(AssayError):
            return self.ids_of(rows)
        for row in rows:
            with prefixed(self.names[row]):
                self.ids_of([row])
        return self.ids_of(rows)

    def check(self, decoder: NetworkConfig) -> None:
        """Raises AssayError for the first conversation that a model cannot read, with its name."""
        for number, row in enumerate(self.distinct.first):
            ids = self.distinct.ids_behind_prefix(number)
            with prefixed(self.names[row]):
                check_fits(len(ids), int(ids.max()), decoder)

    def passes(
        self, start: int, stop: int, *, alone: bool
    ) -> Iterator[tuple[tuple[int, ...], list[Bucket]]]:
        """What is computed together of rows [start, stop), without `duplicates`.

        Conversations of which many have the same turns before the reply share their prefix. Others
        are batched whole, by length: a pass of so few would cost as much as one of a full step.
        """
        distinct, whole, by_prompt = self.distinct, list[int](), dict[str, list[int]]()
        for row in range(start, stop):
            if distinct.first[distinct.of_row[row]] >= start:
                turns = (self.conversations[row][:-1], self.variables[row])
                by_prompt.setdefault(str(turns), []).append(row)
        for rows in by_prompt.values():
            if alone or len(rows) >= _MANY:
                yield self._behind(rows, start, len(distinct.ids))
            else:
                whole += rows
        if whole:
            yield self._behind(whole, start, 0)

    def _behind(
        self, rows: Sequence[int], start: int, most: int
    ) -> tuple[tuple[int, ...], list[Bucket]]:
        """The ids that conversations begin with, at most `most`, and the rest in buckets."""
        distinct = self.distinct
        sequences = [distinct.ids_behind_prefix(distinct.of_row[row]).tolist() for row in rows]
        first, last = min(sequences), max(sequences)  # what these share, all share
        most = min(most, min(map(len, sequences)) - 1)  # the reward's position is a candidate's
        shared = next((i for i in range(most) if first[i] != last[i]), max(most, 0))
        buckets = Distinct.of(first[:shared], sequences).buckets(0, len(rows), _MANY)
        places = np.array(rows) - start
        return tuple(first[:shared]), [
            dataclasses.replace(bucket, rows=places[bucket.rows]) for bucket in buckets
        ]


def conversation_names(table: pl.DataFrame) -> list[str]:
    """What messages call each conversation of a list: `row 7`, or `row 7, chosen`."""
    return [
        f"row {row}" if side == "reply" else f"row {row}, {side}"
        for row, side in table.select("row", "side").iter_rows()
    ]


class ConversationReplies(Rows):
    """The last replies of conversations, each as the continuation of its own prompt."""

    part_columns = schema.CONVERSATION_LOGPROB_COLUMNS
    any_length = True
    unit = "conversations"
    shortest_candidate = SHORT
    prompt = PromptIds(prompt="", prefix=(), suffix=())

    def __init__(
        self, replies: Sequence[ContinuationRows], names: Sequence[str], unread: Sequence[str]
    ):
        self.replies, self.names, self.unread = replies, names, unread  # one reply in each
        self.given = np.array([len(reply.prompt.prefix) for reply in replies])  # tokens before it
        tokens = [len(reply.ids[0]) for reply in replies]
        self.columns = {"conversation_id": range(len(replies)), "tokens": tokens}

    @property
    def context(self) -> int:
        """The longest conversation: what a position of it may attend to."""
        return self.extent()[0]

    def extent(self) -> tuple[int, int]:
        """Longest conversation, and highest token id."""
        lengths, highest = zip(*(reply.extent() for reply in self.replies), strict=True)
        return max(lengths), max(highest)

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some conversations, up to the end of the reply."""
        return [self.replies[row].sequences([0])[0] for row in rows]

    def check(self, decoder: NetworkConfig) -> None:
        """Raises AssayError for the first conversation that a model cannot read, with its name."""
        for name, reply in zip(self.names, self.replies, strict=True):
            with prefixed(name):
                reply.check(decoder)
