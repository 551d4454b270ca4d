"""What is scored under one prompt: a list of rows, each of which stands for a conversation.

`Rows` is what the host loop sees. Reward models score `TokenRows`, `TokenTextRows`, `ReplyRows`, or
`ConversationRows`, which have prompts of their own; language models score `NextTokenRows` or
`ContinuationRows`.
"""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engine.display import progress
from engine.errors import AssayError, prefixed
from engine.models.config import DecoderConfig
from engine.runs import schema
from engine.scoring.batches import (
    SHORT,
    Bucket,
    Distinct,
    reply_buckets,
    token_candidates,
    with_enough,
)
from engine.settings import MODES, check_choice
from engine.text.chat_template import ChatTemplate
from engine.text.template_sandbox import Conversation
from engine.types import PromptIds

if TYPE_CHECKING:
    from engine.text.cue import Cue  # of language models, which a sweep does not load

_AT_ONCE = 4096  # replies that are tokenised in one call
_MANY = 16  # conversations of one prompt that fill a step (`rows_of_step`)

KeyColumns = Mapping[str, Sequence[int] | Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Where in a conversation the reward is read.

    Attributes:
      kind: `last`, the last token id. `last_non_pad`, the last one that is no pad token, as
        sequence-classification models of transformers read it from 4.50 on. `first_pad`, one
        before the first pad token, as versions 4.40 to 4.50 did.
      pad: id of the pad token, which the last two need.
    """

    kind: str = "last"
    pad: int | None = None

    @property
    def choice(self) -> dict[str, str]:
        """The entry of a fingerprint; runs may be older than this setting, and have none."""
        return {} if self.kind == "last" else {"pooling": self.kind}

    def position(self, sequence: Sequence[int]) -> int:
        """Index of the token id at which the reward of a conversation is read."""
        if self.kind == "last" or self.pad is None:
            return len(sequence) - 1
        if self.kind == "last_non_pad":
            # `(arange * (ids != pad)).argmax()` of a conversation of pad tokens alone is 0.
            behind = (i for i in reversed(range(len(sequence))) if sequence[i] != self.pad)
            return next(behind, 0)
        # Wherever the pad id stands: in the prompt, or as the reply itself. Without one, or with
        # one at the very front, the index wraps round to the last position
        # (`LlamaForSequenceClassification.forward`: `eq(ids, pad).argmax() - 1`, modulo length).
        first = list(sequence).index(self.pad) if self.pad in sequence else 0
        return (first - 1) % len(sequence)

    def suffix(self, suffix: Sequence[int]) -> tuple[int, ...]:
        """The ids behind a reply up to the one that is read, for a reply that ends in no pad id."""
        if self.kind != "last_non_pad":
            return tuple(suffix)
        kept = [i for i, token_id in enumerate(suffix) if token_id != self.pad]
        return tuple(suffix[: kept[-1] + 1 if kept else 0])


LAST = Pooling()


class Rows(abc.ABC):
    """A list of rows under one prompt; a number (a reward, a log-probability) belongs to each."""

    part_columns: ClassVar[schema.Columns]  # of a part: the key columns, then the number's
    any_length: ClassVar[bool] = False  # whether replies have any number of tokens; else one
    unit: ClassVar[str] = "candidates"  # what the progress bar calls them
    checked_at_once: ClassVar[int] = 2**31  # rows that the plain pass takes in one batch, at most
    prompt: PromptIds  # the conversation around the rows' replies
    token_ids: Sequence[int]  # where rows are tokens: their ids, ascending; they may have gaps
    texts: Sequence[str]  # where rows are replies: what they say

    def __len__(self) -> int:
        return len(self.token_ids if self._are_tokens else self.texts)

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        if self._are_tokens:
            return {"token_id": list(self.token_ids[start:stop])}
        return {"item_id": range(start, stop), "item": list(self.texts[start:stop])}

    @property
    def context(self) -> int:
        """Positions before those of a candidate of a step, for the account of memory."""
        return len(self.prompt.prefix)

    @property
    def shortest_candidate(self) -> int:
        """Positions of the shortest candidate of a step."""
        return 1 + len(self.prompt.suffix)

    @property
    def _are_tokens(self) -> bool:
        return "token_id" in self.part_columns

    @abc.abstractmethod
    def extent(self) -> tuple[int, int]:
        """Token positions of the longest conversation, and the highest token id of all."""

    def check(self, decoder: DecoderConfig) -> None:
        """Raises AssayError for a conversation that a model cannot read: too long, unknown ids."""
        check_fits(*self.extent(), decoder)

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`.

        Returns:
          Their places, counted from `start`, and the earlier row whose number each of them takes.
        """
        return np.empty(0, int), np.empty(0, int)


@dataclasses.dataclass(frozen=True)
class RewardRows(Rows):
    """Rows that a reward model scores.

    Attributes:
      prompt: the conversation around the replies.
      pooling: where the reward is read.
    """

    prompt: PromptIds
    pooling: Pooling = dataclasses.field(default=LAST, kw_only=True)

    @abc.abstractmethod
    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""

    @functools.cached_property
    def distinct(self) -> Distinct:
        """Every distinct conversation once, cut behind the position of its reward."""
        return Distinct.of(self.prompt.prefix, (s[: self.read_at(s) + 1] for s in self._all()))

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of rows [start, stop) by padded length, without `duplicates`."""
        return self.distinct.buckets(start, stop)

    def passes(
        self, start: int, stop: int, *, alone: bool
    ) -> Iterator[tuple[tuple[int, ...] | None, list[Bucket]]]:
        """`buckets` behind the prompt's prefix (None), or behind the ids of others."""
        yield None, self.buckets(start, stop)

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`."""
        return self.distinct.duplicates(start, stop)

    def extent(self) -> tuple[int, int]:
        """Longest conversation, up to where rewards are read, and highest token id."""
        return self.distinct.longest(), max([*self.prompt.prefix, int(self.distinct.ids.max())])

    def read_at(self, sequence: Sequence[int]) -> int:
        """Index of the token id at which a conversation's reward is read."""
        return self.pooling.position(sequence)

    def _all(self) -> Iterator[list[int]]:
        with progress(len(self), "conversations", what="tokenising", delay_s=1.0) as bar:
            for start in range(0, len(self), _AT_ONCE):
                yield from self.sequences(range(start, min(start + _AT_ONCE, len(self))))
                bar.update(min(_AT_ONCE, len(self) - start))


@dataclasses.dataclass(frozen=True)
class TokenRows(RewardRows):
    """Tokens of the vocabulary as the reply, by id."""

    token_ids: Sequence[int]

    part_columns = schema.SCORE_COLUMNS

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        return [[*self.prompt.prefix, self.token_ids[row], *self.prompt.suffix] for row in rows]

    @functools.cached_property
    def distinct(self) -> Distinct:
        """Every conversation. Where the last id is read all are distinct and equally long."""
        if self.pooling.kind != "last":
            return super().distinct
        candidates = token_candidates(self.prompt, np.array(self.token_ids, np.int32))
        each = np.arange(len(self))
        return Distinct(
            ids=candidates.ids.reshape(-1),
            starts=np.arange(len(self) + 1) * candidates.ids.shape[1],
            shared=candidates.shared,
            first=each,
            of_row=each,
        )


@dataclasses.dataclass(frozen=True)
class ReplyRows(RewardRows):
    """A list of replies of any length.

    Attributes:
      template: the model's chat template.
      texts: of the replies.
      mode: `text` renders the whole conversation and tokenises it as one text, as a chat would;
        `ids` puts the reply's token ids between the template's, even where the texts would merge.
    """

    template: ChatTemplate
    texts: Sequence[str]
    mode: str

    part_columns = schema.ITEM_COLUMNS
    any_length = True

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        replies = [self.texts[row] for row in rows]
        if self.mode == "text":
            return self.template.sequences(self.prompt.prompt, replies)
        return [
            [*self.prompt.prefix, *self.template.reply_ids(reply), *self.prompt.suffix]
            for reply in replies
        ]


@dataclasses.dataclass(frozen=True)
class TokenTextRows(ReplyRows):
    """Tokens of the vocabulary as the reply, by the text that they decode to."""

    token_ids: Sequence[int]

    part_columns = schema.SCORE_COLUMNS


@dataclasses.dataclass(frozen=True)
class ConversationRows(RewardRows):
    """Whole conversations, each with turns of its own before the reply.

    Attributes:
      template: the model's chat template.
      conversations: their messages; the last is the reply.
      names: of each in messages, such as `row 7, chosen`.
      mode: as of `ReplyRows`.
    """

    prompt: PromptIds = dataclasses.field(
        default=PromptIds(prompt="", prefix=(), suffix=()), init=False
    )
    template: ChatTemplate
    conversations: Sequence[Conversation]
    names: Sequence[str]
    mode: str

    part_columns = schema.CONVERSATION_COLUMNS
    any_length = True
    unit = "conversations"
    checked_at_once = 4
    shortest_candidate = SHORT  # a step of longer ones has fewer (`rows_of_step`)

    def __len__(self) -> int:
        return len(self.conversations)

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"conversation_id": range(start, stop)}

    @property
    def context(self) -> int:
        """The longest conversation: what a position of it may attend to."""
        return self.distinct.longest()

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some conversations; an error of the template names the first."""
        with contextlib.suppress(AssayError):
            return self._ids(rows)
        for row in rows:
            with prefixed(self.names[row]):
                self._ids([row])
        return self._ids(rows)

    def _ids(self, rows: Sequence[int]) -> list[list[int]]:
        chosen = [self.conversations[row] for row in rows]
        if self.mode == "text":
            return self.template.conversations(chosen)
        arounds = {str(turns): self.template.split(turns) for *turns, _ in chosen}
        sequences = []
        for *turns, reply in chosen:
            around = arounds[str(turns)]
            ids = self.template.reply_ids(reply["content"])
            sequences.append([*around.prefix, *ids, *around.suffix])
        return sequences

    def check(self, decoder: DecoderConfig) -> None:
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

        Args:
          start: first row.
          stop: first row behind the last.
          alone: whether every prompt has a prefix of its own, which a gate reads.

        Yields:
          Ids of a prefix, and buckets of candidates behind it; their rows are counted from `start`.
        """
        distinct, whole, by_prompt = self.distinct, list[int](), dict[str, list[int]]()
        for row in range(start, stop):
            if distinct.first[distinct.of_row[row]] >= start:
                by_prompt.setdefault(str(self.conversations[row][:-1]), []).append(row)
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
        buckets = with_enough(reply_buckets(first[:shared], sequences), _MANY)
        places = np.array(rows) - start
        return tuple(first[:shared]), [
            dataclasses.replace(bucket, rows=places[bucket.rows]) for bucket in buckets
        ]


@dataclasses.dataclass(frozen=True)
class NextTokenRows(Rows):
    """Every token of the vocabulary as the one that a language model says next."""

    prompt: PromptIds
    token_ids: Sequence[int]

    part_columns = schema.LOGPROB_COLUMNS

    def extent(self) -> tuple[int, int]:
        """Longest conversation, and highest token id."""
        return len(self.prompt.prefix) + 1, max([*self.prompt.prefix, self.token_ids[-1]])

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [[self.token_ids[row]] for row in rows]


@dataclasses.dataclass(frozen=True)
class ContinuationRows(Rows):
    """A list of replies of any length, as continuations of a language model's prompt."""

    cue: "Cue"
    texts: Sequence[str]
    prompt: PromptIds = dataclasses.field(init=False)  # the cue's

    part_columns = schema.ITEM_LOGPROB_COLUMNS
    any_length = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", self.cue.prompt)

    @functools.cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of each reply."""
        return self.cue.replies(self.texts)

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop), with each reply's number of tokens."""
        return {**super().keys(start, stop), "tokens": [len(i) for i in self.ids[start:stop]]}

    def extent(self) -> tuple[int, int]:
        """Longest conversation, and highest token id."""
        prefix = self.prompt.prefix
        return len(prefix) + max(map(len, self.ids)), max([*prefix, *map(max, self.ids)])

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [self.ids[row] for row in rows]

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of rows [start, stop) by padded length.

        Each begins with the prompt's last token, which predicts the reply's first.
        """
        prefix = self.prompt.prefix
        return reply_buckets(prefix[:-1], [[*prefix, *ids] for ids in self.ids[start:stop]])


def check_fits(positions: int, highest: int, decoder: DecoderConfig) -> None:
    """Raises AssayError for a conversation with too many positions, or too high a token id."""
    if positions > decoder.max_positions:
        raise AssayError(
            f"a conversation has {positions} tokens; allowed by the model: {decoder.max_positions}"
        )
    if highest >= decoder.vocab_size:
        raise AssayError(
            f"a conversation holds token id {highest}; the model's embedding has "
            f"{decoder.vocab_size} rows: allowed: ids below that"
        )
