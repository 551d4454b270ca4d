"""What is scored under one prompt: a list of rows, each of which stands for a conversation.

`Rows` is what the host loop sees. Reward models score `TokenRows`, `TokenTextRows` or `ReplyRows`;
language models score `NextTokenRows` or `ContinuationRows`.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from engine.errors import AssayError
from engine.progress import progress
from engine.runs import schema
from engine.scoring.batches import Bucket, Distinct, reply_buckets, token_candidates
from engine.text.chat_template import ChatTemplate
from engine.text.cue import Cue
from engine.types import PromptIds

MODES = ("ids", "text")
POOLINGS = ("last", "first_pad")

KeyColumns = Mapping[str, Sequence[int] | Sequence[str]]


class Rows(abc.ABC):
    """A list of rows under one prompt; a number (a reward, a log-probability) belongs to each."""

    part_columns: ClassVar[schema.Columns]  # of a part: the key columns, then the number's
    prompt: PromptIds  # the conversation around the rows' replies

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""

    @abc.abstractmethod
    def longest(self) -> int:
        """Token positions of the longest conversation."""

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
      pad: the reward is read before the first of this token id (`reward_position`); None reads it
        at the last id.
    """

    prompt: PromptIds
    pad: int | None = dataclasses.field(default=None, kw_only=True)

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

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`."""
        return self.distinct.duplicates(start, stop)

    def longest(self) -> int:
        """Token positions of the longest conversation."""
        return self.distinct.longest()

    def read_at(self, sequence: Sequence[int]) -> int:
        """Index of the token id at which a conversation's reward is read."""
        return len(sequence) - 1 if self.pad is None else reward_position(sequence, self.pad)

    def _all(self) -> Iterator[list[int]]:
        for start in range(0, len(self), 4096):
            yield from self.sequences(range(start, min(start + 4096, len(self))))


@dataclasses.dataclass(frozen=True)
class TokenRows(RewardRows):
    """Every token of the vocabulary as the reply, by id."""

    size: int

    part_columns = schema.SCORE_COLUMNS

    def __len__(self) -> int:
        return self.size

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        return [[*self.prompt.prefix, row, *self.prompt.suffix] for row in rows]

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": range(start, stop)}

    @functools.cached_property
    def distinct(self) -> Distinct:
        """Every conversation. Without a pad token all are distinct and equally long."""
        if self.pad is not None:
            return super().distinct
        candidates, each = token_candidates(self.prompt, np.arange(self.size)), np.arange(self.size)
        return Distinct(
            ids=candidates.ids.reshape(-1),
            starts=np.arange(self.size + 1) * candidates.ids.shape[1],
            shared=candidates.shared,
            first=each,
            of_row=each,
        )


@dataclasses.dataclass(frozen=True)
class ReplyRows(RewardRows):
    """A list of replies of any length.

    Attributes:
      template: the model's chat template.
      replies: the texts.
      mode: `text` renders the whole conversation and tokenises it as one text, as a chat would;
        `ids` puts the reply's own ids between the template's, even where the texts would merge.
    """

    template: ChatTemplate
    replies: Sequence[str]
    mode: str

    part_columns = schema.ITEM_COLUMNS

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)

    def __len__(self) -> int:
        return len(self.replies)

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        replies = [self.replies[row] for row in rows]
        if self.mode == "text":
            return self.template.sequences(self.prompt.prompt, replies)
        return [
            [*self.prompt.prefix, *self.template.reply_ids(reply), *self.prompt.suffix]
            for reply in replies
        ]

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"item_id": range(start, stop), "item": list(self.replies[start:stop])}

    def _all(self) -> Iterator[list[int]]:
        with progress(len(self), "conversations", what="tokenising", delay_s=1.0) as bar:
            for sequence in super()._all():
                yield sequence
                bar.update()


@dataclasses.dataclass(frozen=True)
class TokenTextRows(ReplyRows):
    """Every token of the vocabulary as the reply, by the text that it decodes to."""

    part_columns = schema.SCORE_COLUMNS

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": range(start, stop)}


@dataclasses.dataclass(frozen=True)
class ChosenTokenRows(ReplyRows):
    """Some tokens of the vocabulary as the reply, by id or by the text that they decode to.

    Attributes:
      token_ids: ids of the tokens, ascending; `replies` are their texts, in the same order.
    """

    token_ids: Sequence[int]

    part_columns = schema.SCORE_COLUMNS

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        if self.mode == "text":
            return super().sequences(rows)
        return [[*self.prompt.prefix, self.token_ids[row], *self.prompt.suffix] for row in rows]

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": list(self.token_ids[start:stop])}


@dataclasses.dataclass(frozen=True)
class NextTokenRows(Rows):
    """Every token of the vocabulary as the one that a language model says next."""

    prompt: PromptIds
    size: int

    part_columns = schema.LOGPROB_COLUMNS

    def __len__(self) -> int:
        return self.size

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": range(start, stop)}

    def longest(self) -> int:
        """Token positions of the longest conversation."""
        return len(self.prompt.prefix) + 1

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [[row] for row in rows]


@dataclasses.dataclass(frozen=True)
class ContinuationRows(Rows):
    """A list of replies of any length, as continuations of a language model's prompt."""

    cue: Cue
    texts: Sequence[str]
    prompt: PromptIds = dataclasses.field(init=False)  # the cue's

    part_columns = schema.ITEM_LOGPROB_COLUMNS

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", self.cue.prompt)

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of each reply."""
        return self.cue.replies(self.texts)

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {
            "item_id": range(start, stop),
            "item": list(self.texts[start:stop]),
            "tokens": [len(ids) for ids in self.ids[start:stop]],
        }

    def longest(self) -> int:
        """Token positions of the longest conversation."""
        return len(self.prompt.prefix) + max(map(len, self.ids))

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [self.ids[row] for row in rows]

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of rows [start, stop) by padded length.

        Each begins with the prompt's last token, which predicts the reply's first.
        """
        prefix = self.prompt.prefix
        return reply_buckets(prefix[:-1], [[*prefix, *ids] for ids in self.ids[start:stop]])


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises AssayError for a value that is not one of those allowed."""
    if value not in allowed:
        raise AssayError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")


def reward_position(sequence: Sequence[int], pad: int) -> int:
    """Where a sequence-classification model of transformers 4.40-4.50 read the reward.

    It is one position before the first pad id, wherever that stands: in the prompt, or as the
    reply itself. Without a pad id, or with one at the very front, the index wraps round to the
    last position (`LlamaForSequenceClassification.forward`: `eq(ids, pad).argmax() - 1`, modulo
    the length).
    """
    first = list(sequence).index(pad) if pad in sequence else 0
    return (first - 1) % len(sequence)
