"""What is scored under one prompt: rows that each stand for a conversation."""

import abc
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from engine.errors import AssayError
from engine.progress import progress
from engine.runs import schema
from engine.scoring.batches import Bucket, Distinct, token_candidates
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

MODES = ("ids", "text")
POOLINGS = ("last", "first_pad")


@dataclasses.dataclass(frozen=True)
class Rows(abc.ABC):
    """What is scored under one prompt: rows that each stand for a conversation.

    pad: the reward is read before the first of this id (`reward_position`); None reads it at the
      last id.
    """

    schema: ClassVar[schema.Columns]
    prompt: PromptIds
    pad: int | None = dataclasses.field(default=None, kw_only=True)

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Whole conversations of some rows, for the plain pass."""

    @abc.abstractmethod
    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""

    @functools.cached_property
    def distinct(self) -> Distinct:
        """What there is to score: each conversation up to the position of its reward, once."""
        return Distinct.of(self.prompt.prefix, (s[: self.read_at(s) + 1] for s in self._all()))

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of a range of rows, one bucket a padded length, without `repeats`."""
        return self.distinct.buckets(start, stop)

    def repeats(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a range, from 0, that have the reward of an earlier row, and that row."""
        return self.distinct.repeats(start, stop)

    def longest(self) -> int:
        """Positions of the longest conversation."""
        return self.distinct.longest()

    def read_at(self, sequence: Sequence[int]) -> int:
        """Index of the id at which a conversation's reward is read."""
        return len(sequence) - 1 if self.pad is None else reward_position(sequence, self.pad)

    def _all(self) -> Iterator[list[int]]:
        for start in range(0, len(self), 4096):
            yield from self.sequences(range(start, min(start + 4096, len(self))))


@dataclasses.dataclass(frozen=True)
class TokenRows(Rows):
    """Every token of the vocabulary as the reply, by id."""

    size: int

    schema = schema.SCORE_COLUMNS

    def __len__(self) -> int:
        return self.size

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Whole conversations of some rows."""
        return [[*self.prompt.prefix, row, *self.prompt.suffix] for row in rows]

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""
        return {"token_id": range(start, stop)}

    @functools.cached_property
    def distinct(self) -> Distinct:
        """Every token and the suffix; only pads can make them shorter, or alike."""
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
class ReplyRows(Rows):
    """A list of replies of any length.

    mode `text`: the whole conversation is rendered and tokenised as one text, as a chat would be.
    mode `ids`: the reply's own ids stand between the template's, even where the text would merge.
    """

    template: ChatTemplate
    replies: Sequence[str]
    mode: str

    schema = schema.ITEM_COLUMNS

    def __post_init__(self):
        check_choice("mode", self.mode, MODES)

    def __len__(self) -> int:
        return len(self.replies)

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Whole conversations of some rows."""
        replies = [self.replies[row] for row in rows]
        if self.mode == "text":
            return self.template.sequences(self.prompt.prompt, replies)
        return [
            [*self.prompt.prefix, *self.template.reply_ids(reply), *self.prompt.suffix]
            for reply in replies
        ]

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""
        return {"item_id": range(start, stop), "item": list(self.replies[start:stop])}

    def _all(self) -> Iterator[list[int]]:
        with progress(len(self), "conversations", what="tokenising", delay_s=1.0) as bar:
            for sequence in super()._all():
                yield sequence
                bar.update()


@dataclasses.dataclass(frozen=True)
class TokenTextRows(ReplyRows):
    """Every token of the vocabulary as the reply, by the text that it decodes to."""

    schema = schema.SCORE_COLUMNS

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""
        return {"token_id": range(start, stop)}


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises AssayError for a setting that is none of what is allowed."""
    if value not in allowed:
        raise AssayError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")


def reward_position(sequence: Sequence[int], pad: int) -> int:
    """Where a sequence-classification model of transformers 4.40-4.50 read the reward.

    One before the first pad id, wherever it stands: in the prompt, or as the reply itself. Without
    one, or with one in front of everything, the index wraps to the last position
    (`LlamaForSequenceClassification.forward`: `eq(ids, pad).argmax() - 1`, modulo the length).
    """
    first = list(sequence).index(pad) if pad in sequence else 0
    return (first - 1) % len(sequence)
