"""What is scored: the vocabulary table, and lists of replies as batches of token sequences."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.prompts import ChatTemplate
from engine.runs import schema
from engine.types import Candidates, PromptIds

MODES = ("ids", "text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Candidates of one padded length, and which rows of the list each of them stands for."""

    candidates: Candidates
    rows: np.ndarray  # int [rows], ascending
    row_candidate: np.ndarray  # int [rows], the candidate that row stands for


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """Every token of the vocabulary as the reply, by id."""

    prompt: PromptIds
    size: int

    def __len__(self) -> int:
        return self.size

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of a range of rows."""
        rows = np.arange(stop - start)
        candidates = token_candidates(self.prompt, np.arange(start, stop))
        return [Bucket(candidates=candidates, rows=rows, row_candidate=rows)]

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Whole conversations of some rows, for the plain pass."""
        return [[*self.prompt.prefix, row, *self.prompt.suffix] for row in rows]

    def longest(self) -> int:
        """Positions of the longest conversation."""
        return len(self.prompt.prefix) + 1 + len(self.prompt.suffix)

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""
        return {"token_id": range(start, stop)}

    schema = schema.SCORE_COLUMNS


@dataclasses.dataclass(frozen=True)
class ReplyRows:
    """A list of replies of any length.

    mode `text`: the whole conversation is rendered and tokenised as one text, as a chat would be.
    mode `ids`: the reply's own ids stand between the template's, even where the text would merge.
    """

    prompt: PromptIds
    template: ChatTemplate
    replies: Sequence[str]
    mode: str

    def __post_init__(self):
        if self.mode not in MODES:
            raise AssayError(f"mode={self.mode!r}; allowed: {', '.join(map(repr, MODES))}")

    def __len__(self) -> int:
        return len(self.replies)

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of a range of rows, one bucket a padded length, duplicates once."""
        return reply_buckets(self.prompt.prefix, self.sequences(range(start, stop)))

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Whole conversations of some rows."""
        replies = [self.replies[row] for row in rows]
        if self.mode == "text":
            return self.template.sequences(self.prompt.prompt, replies)
        return [
            [*self.prompt.prefix, *self.template.reply_ids(reply), *self.prompt.suffix]
            for reply in replies
        ]

    def longest(self) -> int:
        """Positions of the longest conversation."""
        return max(map(len, self.sequences(range(len(self)))))

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the reward."""
        return {"item_id": range(start, stop), "item": list(self.replies[start:stop])}

    schema = schema.ITEM_COLUMNS


Rows = TokenRows | ReplyRows


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
    """Whole conversations as candidates behind `prefix`, de-duplicated, by padded length.

    A sequence that leaves the prefix early (its text merged with the template's) shares what it
    can and brings the rest itself.
    """
    distinct: dict[tuple[int, ...], int] = {}
    row_distinct = np.array([distinct.setdefault(tuple(s), len(distinct)) for s in sequences])
    shared = [_shared_length(prefix, s) for s in distinct]
    responses = [s[n:] for s, n in zip(distinct, shared, strict=True)]
    lengths = np.array([padded_length(len(r)) for r in responses])
    buckets = []
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        rows = np.flatnonzero(np.isin(row_distinct, members))
        buckets.append(
            Bucket(
                candidates=_pad(responses, shared, members, int(length)),
                rows=rows,
                row_candidate=np.searchsorted(members, row_distinct[rows]),
            )
        )
    return buckets


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


def _pad(
    responses: Sequence[Sequence[int]], shared: Sequence[int], members: np.ndarray, length: int
) -> Candidates:
    ids = np.zeros((len(members), length), np.int32)
    for row, member in enumerate(members):
        ids[row, : len(responses[member])] = responses[member]
    return Candidates(
        ids=ids,
        shared=np.array([shared[m] for m in members], np.int32),
        last=np.array([len(responses[m]) - 1 for m in members], np.int32),
    )


def _shared_length(prefix: Sequence[int], sequence: Sequence[int]) -> int:
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
