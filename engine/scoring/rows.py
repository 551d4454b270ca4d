"""What is scored under one prompt: a list of rows, each of which stands for a conversation.

`Rows` is what the host loop sees. Reward models score `RewardRows` (of `token_rows` or
`reply_rows`), language models `NextTokenRows` or `ContinuationRows`. Rows with prompts of their own
are in `conversations`.
"""

import abc
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from engine.checkpoint.card import Checkpoint
from engine.display import progress, shortened
from engine.errors import AssayError, prefixed
from engine.models.encoder_config import NetworkConfig
from engine.runs import schema
from engine.scoring.batches import Bucket, Distinct, token_candidates
from engine.settings import AUTO, MODES, POOLINGS, check_choice
from engine.types import Prompt, PromptIds

if TYPE_CHECKING:
    from engine.text.cue import Cue  # of language models, which a sweep does not load

_AT_ONCE = 4096  # replies that are tokenised in one call
_SHOWN = 600  # characters of a rendered row

KeyColumns = Mapping[str, Sequence[int] | Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Where in a conversation the reward is read."""

    # `last`, the last token id. `last_non_pad`, the last one that is no pad token, as transformers'
    # sequence classification reads it from 4.50 on. `first_pad`, one before the first pad token, as
    # versions 4.40 to 4.50 did. Of encoders, which read whole conversations: `first`, the first
    # one, or the `mean` of all.
    kind: str = "last"
    pad: int | None = None  # id of the pad token, which the last two need

    def position(self, sequence: Sequence[int]) -> int:
        """Index of the last token id that the reward of a conversation depends on."""
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
    """Rows that are scored in one pass, each with a number: a reward or a log-probability."""

    part_columns: schema.Columns  # of a part: the key columns, then the number's
    any_length: bool = False  # whether replies have any number of tokens; else one
    unit: ClassVar[str] = "candidates"  # what the progress bar calls them
    checked_at_once: ClassVar[int] = 2**31  # rows that the plain pass takes in one batch, at most
    prompt: PromptIds  # the conversation around the rows' replies
    columns: KeyColumns  # the key columns of all rows
    unread: Sequence[str] = ()  # keys of messages that the template writes in no conversation
    # The row behind the last, under a prompt with a reply start: the reply start alone.
    baseline: Sequence[int] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def keys(self, start: int, stop: int) -> KeyColumns:
        """Key columns of rows [start, stop)."""
        return {name: column[start:stop] for name, column in self.columns.items()}

    @property
    def context(self) -> int:
        """Positions before those of a candidate of a step, for the account of memory."""
        return len(self.prompt.prefix)

    @property
    def shortest_candidate(self) -> int:
        """Positions of the shortest candidate of a step."""
        return 1 + len(self.prompt.suffix)

    @abc.abstractmethod
    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""

    @abc.abstractmethod
    def extent(self) -> tuple[int, int]:
        """Token positions of the longest conversation, and the highest token id of all."""

    def check(self, decoder: NetworkConfig) -> None:
        """Raises AssayError for a conversation that a model cannot read: too long, unknown ids."""
        check_fits(*self.extent(), decoder)

    def read_at(self, ids: Sequence[int]) -> tuple[int, int]:
        """First position of a conversation that its number belongs to, and the one behind all."""
        return len(self.prompt.prefix), len(ids)

    def first_row(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """The first row as its model reads it, in visible characters; ⟦ and ⟧ enclose `read_at`."""
        [ids] = self.sequences([0])
        whole: str = tokenizer.decode(ids)
        start, stop = _characters(tokenizer, ids, self.read_at(ids))
        pieces = whole[:start], whole[start:stop], whole[stop:]
        return "{}⟦{}⟧{}".format(*(shortened(piece, _SHOWN) for piece in pieces))

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`.

        Returns:
          Their places, counted from `start`, and the earlier row whose number each of them takes.
        """
        return np.empty(0, int), np.empty(0, int)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RewardRows(Rows):
    """Rows that a reward model scores."""

    prompt: PromptIds
    columns: KeyColumns
    part_columns: schema.Columns
    ids_of: Callable[[Sequence[int]], list[list[int]]]  # rows -> ids of their conversations
    pooling: Pooling = LAST
    any_length: bool = True
    unread: Sequence[str] = ()
    baseline: Sequence[int] = ()

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the whole conversations of some rows."""
        return self.ids_of(rows)

    def read_at(self, ids: Sequence[int]) -> tuple[int, int]:
        """The position at which a conversation's reward is read, and the next one."""
        if self.pooling.kind == "mean":
            return 0, len(ids)
        at = 0 if self.pooling.kind == "first" else self.pooling.position(ids)
        return at, at + 1

    @functools.cached_property
    def distinct(self) -> Distinct:
        """Every distinct conversation once, cut behind the position of its reward."""
        if self.any_length or self.pooling.pad is not None:
            whole = (s[: self.pooling.position(s) + 1] for s in self._all())
            return Distinct.of(self.prompt.prefix, whole)
        ids = np.array(self.columns["token_id"], np.int32)  # all are distinct and equally long
        candidates, indices = token_candidates(self.prompt, ids), np.arange(len(ids))
        return Distinct(
            ids=candidates.ids.reshape(-1),
            starts=np.arange(len(ids) + 1) * candidates.ids.shape[1],
            shared=candidates.shared,
            first=indices,
            of_row=indices,
        )

    def passes(
        self, start: int, stop: int, *, alone: bool
    ) -> Iterator[tuple[tuple[int, ...] | None, list[Bucket]]]:
        """What is computed together of rows [start, stop), without `duplicates`.

        Args:
          start: first row.
          stop: first row behind the last.
          alone: whether every prompt has a prefix of its own, which a gate reads.

        Yields:
          Ids of a prefix, None for the prompt's, and buckets of candidates behind it by padded
          length; their rows are counted from `start`.
        """
        yield None, self.distinct.buckets(start, stop)

    def duplicates(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of [start, stop) whose conversation is that of a row before `start`."""
        return self.distinct.duplicates(start, stop)

    def check(self, decoder: NetworkConfig) -> None:
        """As of all rows; of a list the message says which is the longest."""
        longest = int(np.argmax(self.distinct.shared + np.diff(self.distinct.starts)))
        row, items = int(self.distinct.first[longest]), self.columns.get("item", ())
        too_long = self.distinct.longest() > decoder.max_positions
        with prefixed(f"item {row}") if too_long and row < len(items) else nullcontext():
            super().check(decoder)

    def extent(self) -> tuple[int, int]:
        """Longest conversation, up to where rewards are read, and highest token id."""
        return self.distinct.longest(), max([*self.prompt.prefix, int(self.distinct.ids.max())])

    def _all(self) -> Iterator[list[int]]:
        with progress(len(self), "conversations", what="tokenising", delay_s=1.0) as bar:
            for start in range(0, len(self), _AT_ONCE):
                yield from self.sequences(range(start, min(start + _AT_ONCE, len(self))))
                bar.update(min(_AT_ONCE, len(self) - start))


def token_rows(
    checkpoint: Checkpoint,
    prompt: Prompt,
    mode: str = AUTO,
    pooling: str = AUTO,
    chosen: Sequence[int] | None = None,
) -> RewardRows:
    """Every candidate of the vocabulary as the reply to a prompt, or the `chosen` ones.

    In the mode `text` a token is what its text becomes in a conversation.
    """
    ids = checkpoint.token_ids if chosen is None else chosen
    return _rows_of(
        checkpoint,
        prompt,
        mode,
        pooling,
        {"token_id": ids},
        lambda row: checkpoint.tokens[ids[row]],
        lambda row: [ids[row]],
    )


def reply_rows(
    checkpoint: Checkpoint, prompt: Prompt, replies: Sequence[str], mode: str, pooling: str = AUTO
) -> RewardRows:
    """A list of replies of any length to a prompt.

    The mode `text` renders the whole conversation and tokenises it as one text, as a chat would;
    `ids` puts the reply's token ids between the template's, even where the texts would merge.
    """
    return _rows_of(
        checkpoint,
        prompt,
        mode,
        pooling,
        {"item_id": range(len(replies)), "item": replies},
        lambda row: replies[row],
        lambda row: checkpoint.template.reply_ids(replies[row]),
    )


def ending_rows(
    checkpoint: Checkpoint, prompt: Prompt, reply: str, pooling: str = AUTO
) -> RewardRows:
    """A reply that ends behind each of its tokens: one row per token, in their order.

    The prefix of all rows is the prompt with the whole reply, of which each shares its own part; so
    a row costs the ids that close the turn. The key columns are `token_id` and `token`, the text
    that the token adds to those before it. Raises AssayError for a reply without tokens.
    """
    around, ids = checkpoint.template.split(prompt), checkpoint.template.reply_ids(reply)
    if not ids:
        raise AssayError("reply='': no tokens; allowed: a text of at least one")
    whole = checkpoint.tokenizer.decode(ids)
    ends = _characters(checkpoint.tokenizer, ids, range(1, len(ids) + 1))
    return RewardRows(
        prompt=dataclasses.replace(around, prefix=(*around.prefix, *ids)),
        columns={
            "token_id": ids,
            "token": [whole[start:end] for start, end in itertools.pairwise([0, *ends])],
        },
        part_columns=schema.SCORE_COLUMNS,
        ids_of=lambda rows: [[*around.prefix, *ids[: row + 1], *around.suffix] for row in rows],
        pooling=pooling_of(checkpoint, pooling),
    )


def _rows_of(
    checkpoint: Checkpoint,
    prompt: Prompt,
    mode: str,
    pooling: str,
    columns: KeyColumns,
    text_of: Callable[[int], str],
    reply_of: Callable[[int], list[int]],
) -> RewardRows:
    """Rows of key columns, the texts of their replies, and the token ids of these alone."""
    count = len(next(iter(columns.values())))
    template, mode = checkpoint.template, mode_of(checkpoint, [prompt], mode)
    around = template.split(prompt) if mode == "ids" else template.around(prompt)

    def ids_of(rows: Sequence[int]) -> list[list[int]]:
        if mode == "text":
            texts = [text_of(row) if row < count else "" for row in rows]
            return template.sequences(around.prompt, texts)
        replies = (reply_of(row) if row < count else [] for row in rows)
        return [[*around.prefix, *ids, *around.suffix] for ids in replies]

    return RewardRows(
        prompt=around,
        columns=columns,
        part_columns=schema.ITEM_COLUMNS if "item" in columns else schema.SCORE_COLUMNS,
        ids_of=ids_of,
        pooling=pooling_of(checkpoint, pooling),
        any_length=mode == "text" or "item" in columns,
        baseline=[count] if isinstance(prompt, str) and schema.parted(prompt)[1] else (),
    )


def mode_of(checkpoint: Checkpoint, prompts: Iterable[Prompt], mode: str) -> str:
    """How replies become token ids: `auto` is `ids`, or `text` where a prompt cannot be cut."""
    check_choice("mode", mode, (AUTO, *MODES))
    if mode != AUTO:
        return mode
    return "ids" if all(map(checkpoint.template.cuttable, prompts)) else "text"


def pooling_of(checkpoint: Checkpoint, pooling: str) -> Pooling:
    """Where rewards are read; `auto` is what the conversion chose for the model."""
    card = checkpoint.card
    if not card.decoder.shares_prefix:
        check_choice("pooling", pooling, (AUTO, card.pooling))
        return Pooling(card.pooling)
    check_choice("pooling", pooling, (AUTO, *POOLINGS))
    kind, pad = card.pooling if pooling == AUTO else pooling, card.pad_token_id
    if kind != "last" and pad is None:
        raise AssayError(
            f"pooling={kind!r}: model {card.slug!r} has no pad_token_id "
            "(model.json); allowed: 'last'"
        )
    return LAST if kind == "last" else Pooling(kind, pad)


class NextTokenRows(Rows):
    """Every token of the vocabulary as the one that a language model says next."""

    part_columns = schema.LOGPROB_COLUMNS

    def __init__(self, prompt: PromptIds, token_ids: Sequence[int]):
        self.prompt, self.columns, self.token_ids = prompt, {"token_id": token_ids}, token_ids

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the prompt and its next token."""
        return [[*self.prompt.prefix, self.token_ids[row]] for row in rows]

    def extent(self) -> tuple[int, int]:
        """Longest conversation, and highest token id."""
        return len(self.prompt.prefix) + 1, max([*self.prompt.prefix, self.token_ids[-1]])


class ContinuationRows(Rows):
    """A list of replies of any length, as continuations of a language model's prompt."""

    part_columns = schema.ITEM_LOGPROB_COLUMNS
    any_length = True

    def __init__(self, cue: "Cue", texts: Sequence[str]):
        self.cue, self.prompt, self.texts = cue, cue.prompt, texts
        self.columns = {"item_id": range(len(texts)), "item": texts}

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

    def sequences(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of the prompt and some replies."""
        return [[*self.prompt.prefix, *self.ids[row]] for row in rows]

    def buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates of rows [start, stop) by padded length.

        Each begins with the prompt's last token, which predicts the reply's first.
        """
        replies = Distinct.of(self.prompt.prefix[:-1], self.sequences(range(start, stop)))
        return replies.buckets(0, stop - start)


def check_fits(positions: int, highest: int, decoder: NetworkConfig) -> None:
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


def _characters(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], ends: Iterable[int]
) -> list[int]:
    """Characters of the text of `ids` that its first ids make, up to each of `ends`.

    A character of which only the first bytes are there does not count.
    """
    whole, texts = tokenizer.decode(ids), (tokenizer.decode(ids[:end]) for end in ends)
    # Of characters, not of paths: the rule warns of the latter.
    return [len(os.path.commonprefix([whole, text])) for text in texts]  # noqa: RUF071
