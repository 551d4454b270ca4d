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
from engine.models.config import DecoderConfig
from engine.progress import progress
from engine.runs import schema
from engine.scoring.batches import Bucket, Distinct, reply_buckets, token_candidates
from engine.settings import MODES, check_choice
from engine.text.chat_template import ChatTemplate
from engine.text.cue import Cue
from engine.types import PromptIds

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
    prompt: PromptIds  # the conversation around the rows' replies

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""

    @abc.abstractmethod
    def longest(self) -> int:
        """Token positions of the longest conversation."""

    @abc.abstractmethod
    def highest(self) -> int:
        """The highest token id of all conversations."""

    def check(self, decoder: DecoderConfig) -> None:
        """Raises AssayError for a conversation that a model cannot read: too long, unknown ids."""
        if (positions := self.longest()) > decoder.max_positions:
            raise AssayError(
                f"a conversation has {positions} tokens; allowed by the model: "
                f"{decoder.max_positions}"
            )
        check_ids(self.highest(), decoder)

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

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`."""
        return self.distinct.duplicates(start, stop)

    def longest(self) -> int:
        """Token positions of the longest conversation."""
        return self.distinct.longest()

    def highest(self) -> int:
        """The highest token id up to where rewards are read."""
        return max([*self.prompt.prefix, int(self.distinct.ids.max())])

    def read_at(self, sequence: Sequence[int]) -> int:
        """Index of the token id at which a conversation's reward is read."""
        return self.pooling.position(sequence)

    def _all(self) -> Iterator[list[int]]:
        for start in range(0, len(self), 4096):
            yield from self.sequences(range(start, min(start + 4096, len(self))))


@dataclasses.dataclass(frozen=True)
class TokenRows(RewardRows):
    """Tokens of the vocabulary as the reply, by id.

    Attributes:
      token_ids: ids of the tokens, ascending; they may have gaps.
    """

    token_ids: Sequence[int]

    part_columns = schema.SCORE_COLUMNS

    def __len__(self) -> int:
        return len(self.token_ids)

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        return [[*self.prompt.prefix, self.token_ids[row], *self.prompt.suffix] for row in rows]

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": list(self.token_ids[start:stop])}

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
    """Tokens of the vocabulary as the reply, by the text that they decode to.

    Attributes:
      token_ids: ids of the tokens, ascending; `replies` are their texts, in the same order.
    """

    token_ids: Sequence[int]

    part_columns = schema.SCORE_COLUMNS

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": list(self.token_ids[start:stop])}


@dataclasses.dataclass(frozen=True)
class NextTokenRows(Rows):
    """Every token of the vocabulary as the one that a language model says next.

    Attributes:
      token_ids: ids of the tokens, ascending; they may have gaps.
    """

    prompt: PromptIds
    token_ids: Sequence[int]

    part_columns = schema.LOGPROB_COLUMNS

    def __len__(self) -> int:
        return len(self.token_ids)

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {"token_id": list(self.token_ids[start:stop])}

    def longest(self) -> int:
        """Token positions of the longest conversation."""
        return len(self.prompt.prefix) + 1

    def highest(self) -> int:
        """The highest token id of all conversations."""
        return max([*self.prompt.prefix, self.token_ids[-1]])

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [[self.token_ids[row]] for row in rows]


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

    def highest(self) -> int:
        """The highest token id of all conversations."""
        return max([*self.prompt.prefix, *map(max, self.ids)])

    def continuations(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of some rows after the prompt."""
        return [self.ids[row] for row in rows]

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of rows [start, stop) by padded length.

        Each begins with the prompt's last token, which predicts the reply's first.
        """
        prefix = self.prompt.prefix
        return reply_buckets(prefix[:-1], [[*prefix, *ids] for ids in self.ids[start:stop]])


def check_ids(highest: int, decoder: DecoderConfig) -> None:
    """Raises AssayError for a token id that the embedding of a model lacks."""
    if highest >= decoder.vocab_size:
        raise AssayError(
            f"a conversation holds token id {highest}; the model's embedding has "
            f"{decoder.vocab_size} rows: allowed: ids below that"
        )
