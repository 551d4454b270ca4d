"""What is scored: the vocabulary table, and lists of replies as batches of token sequences."""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.progress import progress
from engine.prompts import ChatTemplate
from engine.runs import schema
from engine.types import Candidates, PromptIds

MODES = ("ids", "text")
POOLINGS = ("last", "first_pad")

_SHORT = 8  # positions up to which padding a few sequences further costs next to nothing
_RARE = 256  # a length that fewer than one in so many sequences have


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Candidates of one padded length, and which rows of the list each of them stands for."""

    candidates: Candidates
    rows: np.ndarray  # int [rows], ascending
    row_candidate: np.ndarray  # int [rows], the candidate that row stands for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distinct:
    """The sequences of a list of rows behind one prefix, each distinct one once.

    They are numbered as they first appear. Sequence d is `prefix[:shared[d]]` and then
    `ids[starts[d]:starts[d + 1]]`; the reward is read at its last id.
    """

    ids: np.ndarray  # int32 [all ids]
    starts: np.ndarray  # int [D + 1]
    shared: np.ndarray  # int32 [D]
    first: np.ndarray  # int [D], the row that has it first: ascending
    of_row: np.ndarray  # int [rows], the sequence of each row

    @classmethod
    def of(cls, prefix: Sequence[int], sequences: Iterable[Sequence[int]]) -> "Distinct":
        """Finds what the sequences are from the prefix on.

        A sequence that leaves the prefix early (its text merged with the template's) shares what
        it can and brings the rest itself.
        """
        prefix, of_row = list(prefix), []
        numbers: dict[tuple[int, ...], int] = {}  # positions shared, then the ids that follow
        for sequence in sequences:
            shared = _shared_length(prefix, sequence)
            of_row.append(numbers.setdefault((shared, *sequence[shared:]), len(numbers)))
        own = itertools.chain.from_iterable(key[1:] for key in numbers)
        return cls(
            ids=np.fromiter(own, np.int32),
            starts=np.cumsum([0, *(len(key) - 1 for key in numbers)]),
            shared=np.array([key[0] for key in numbers], np.int32),
            first=np.unique(of_row, return_index=True)[1],
            of_row=np.array(of_row),
        )

    def longest(self) -> int:
        """Positions of the longest sequence."""
        return int((self.shared + np.diff(self.starts)).max())

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """The sequences that a range of rows has first, one bucket a padded length."""
        low, high = np.searchsorted(self.first, [start, stop])
        numbers, buckets = self.of_row[start:stop], []
        for length in np.unique(self.lengths[low:high]):
            members = low + np.flatnonzero(self.lengths[low:high] == length)
            rows = np.flatnonzero(np.isin(numbers, members))
            buckets.append(
                Bucket(
                    candidates=self._candidates(members, int(length)),
                    rows=rows,
                    row_candidate=np.searchsorted(members, numbers[rows]),
                )
            )
        return buckets

    def repeats(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of a range, from 0, repeat a sequence of an earlier row, and which row's."""
        sources = self.first[self.of_row[start:stop]]
        rows = np.flatnonzero(sources < start)
        return rows, sources[rows]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Positions of its own that each sequence is padded to: few shapes, each of many rows."""
        sizes, index = np.unique(np.diff(self.starts), return_inverse=True)
        padded = np.array([padded_length(int(size)) for size in sizes])[index]
        short = [length for length in np.unique(padded) if length <= _SHORT]
        for length, longer in itertools.pairwise(short):
            members = padded == length
            if members.sum() * _RARE < len(padded):
                padded[members] = longer
        return padded

    def _candidates(self, members: np.ndarray, length: int) -> Candidates:
        starts = self.starts[members, None]
        last = self.starts[members + 1, None] - starts - 1
        positions = np.arange(length)
        ids = self.ids[starts + np.minimum(positions, last)]
        return Candidates(
            ids=np.where(positions <= last, ids, 0).astype(np.int32),
            shared=self.shared[members],
            last=last[:, 0].astype(np.int32),
        )


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


def vocabulary(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, template: ChatTemplate | None
) -> pl.DataFrame:
    """Every id of the tokenizer, in order, with columns `schema.VOCAB_COLUMNS`.

    Args:
      tokenizer: whose ids they are.
      vocab_size: rows of the embedding.
      template: in which round trips are tried; None leaves them unknown.

    Raises:
      AssayError: the tokenizer has ids that the embedding lacks.
    """
    tokens = [tokenizer.decode([i]) for i in range(vocabulary_size(tokenizer, vocab_size))]
    special = set(tokenizer.all_special_ids)
    special |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return pl.DataFrame(
        {
            "token_id": range(len(tokens)),
            "token": tokens,
            "is_special": [i in special for i in range(len(tokens))],
            "round_trip": _round_trips(template, tokens) if template else None,
        },
        schema=schema.VOCAB_COLUMNS,
    )


def vocabulary_size(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> int:
    """How many ids the tokenizer has.

    Raises:
      AssayError: more than `vocab_size`, the rows of the embedding.
    """
    size = len(tokenizer)
    if size > vocab_size:
        raise AssayError(f"tokenizer has {size} ids but the embedding has {vocab_size} rows")
    return size


def token_candidates(prompt: PromptIds, token_ids: np.ndarray) -> Candidates:
    """Each token as the whole reply, by id: [C] ids -> sequences `token + suffix`."""
    suffix = np.broadcast_to(
        np.array(prompt.suffix, np.int32), (len(token_ids), len(prompt.suffix))
    )
    ids = np.concatenate([token_ids.astype(np.int32)[:, None], suffix], axis=1)
    return Candidates(
        ids=ids,
        shared=np.full(len(ids), len(prompt.prefix), np.int32),
        last=np.full(len(ids), ids.shape[1] - 1, np.int32),
    )


def reply_buckets(prefix: Sequence[int], sequences: Sequence[Sequence[int]]) -> list[Bucket]:
    """Whole conversations as candidates behind `prefix`, de-duplicated, by padded length."""
    return Distinct.of(prefix, sequences).buckets(0, len(sequences))


def padded_length(length: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that holds `length`: few shapes."""
    if length <= 4:
        return max(length, 1)
    power = 1 << (length - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


def pad_rows(candidates: Candidates, rows: int) -> Candidates:
    """Repeats the first candidate until there are `rows`, so that every step has one shape."""
    index = np.zeros(rows, int)
    index[: len(candidates)] = np.arange(len(candidates))
    return take_rows(candidates, index)


def take_rows(candidates: Candidates, index: np.ndarray | slice) -> Candidates:
    """Some of the candidates."""
    return Candidates(
        ids=candidates.ids[index], shared=candidates.shared[index], last=candidates.last[index]
    )


def _shared_length(prefix: list[int], sequence: Sequence[int]) -> int:
    if len(sequence) > len(prefix) and list(sequence[: len(prefix)]) == prefix:
        return len(prefix)
    limit = min(len(prefix), len(sequence) - 1)  # the reward position is always recomputed
    return next((i for i in range(limit) if prefix[i] != sequence[i]), limit)


def _round_trips(template: ChatTemplate, tokens: Sequence[str]) -> list[str]:
    # The class does not depend on the prompt; any will do.
    prompt = template.split("What?")
    texts = list(dict.fromkeys(tokens))
    sequences = template.sequences(prompt.prompt, texts)
    whole = dict(zip(texts, map(tuple, sequences), strict=True))
    return [_round_trip(prompt, i, token, whole[token]) for i, token in enumerate(tokens)]


def _round_trip(prompt: PromptIds, token_id: int, token: str, whole: tuple[int, ...]) -> str:
    """`whole` is the rendered conversation, in which a reply may merge with the template's text."""
    if whole == (*prompt.prefix, token_id, *prompt.suffix):
        return "same"
    if whole == (*prompt.prefix, *prompt.suffix):
        return "empty"
    if "�" in token:
        return "replacement"
    single = len(whole) == len(prompt.prefix) + 1 + len(prompt.suffix)
    apart = whole[: len(prompt.prefix)] == prompt.prefix
    return "other_id" if single and apart else "split"
