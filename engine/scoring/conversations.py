"""Whole conversations, each with a prompt of its own: rows, and what scores them.

Conversations of one prompt share its prefix where they fill a step; others are batched by length.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from engine.errors import AssayError, prefixed
from engine.models.config import DecoderConfig
from engine.runs import schema
from engine.scoring.batches import SHORT, Bucket, padded_length, reply_buckets, with_enough
from engine.scoring.reward_passes import RewardScorer, cut, run_steps
from engine.scoring.rows import KeyColumns, RewardRows, check_fits
from engine.text.chat_template import ChatTemplate
from engine.text.template_sandbox import Conversation
from engine.types import Prefix, PromptIds

_MANY = 16  # conversations of one prompt that fill a step (`rows_of_step`)


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
    own = SHORT  # a step of longer ones has fewer (`rows_of_step`)

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
            ids = self.distinct.own(number)
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
        sequences = [distinct.own(distinct.of_row[row]).tolist() for row in rows]
        first, last = min(sequences), max(sequences)  # what these share, all share
        most = min(most, min(map(len, sequences)) - 1)  # the reward's position is a candidate's
        shared = next((i for i in range(most) if first[i] != last[i]), max(most, 0))
        buckets = with_enough(reply_buckets(first[:shared], sequences), _MANY)
        places = np.array(rows) - start
        return tuple(first[:shared]), [
            dataclasses.replace(bucket, rows=places[bucket.rows]) for bucket in buckets
        ]


@dataclasses.dataclass(frozen=True)
class ConversationScorer:
    """A `RewardScorer` as the host loop takes it for `ConversationRows`."""

    scorer: RewardScorer

    def prefill(self, prompt: PromptIds) -> None:
        """Nothing: no prefix is that of all rows."""

    def coefficients(self, prefix: None) -> list[None]:
        """Nothing of each model: a gate weighs objectives under each prompt anew."""
        return [None] * len(self.scorer.columns)

    def score(
        self,
        prefix: None,
        rows: ConversationRows,
        start: int,
        stop: int,
        advance: Callable[[int], object] = lambda candidates: None,
    ) -> list[np.ndarray]:
        """What `RewardScorer.score` returns."""
        numbers = np.empty((sum(map(len, self.scorer.columns)), stop - start), np.float32)
        for ids, buckets in rows.passes(start, stop, alone=any(self.scorer.gate_patterns)):
            shared = PromptIds(prompt="", prefix=ids, suffix=())
            room = padded_length(len(ids)) - len(ids)  # few lengths: each is compiled anew
            self._fill(numbers, self.scorer.prefill(shared, room), buckets, advance)
        return self.scorer.by_model(numbers)

    def score_plainly(self, rows: ConversationRows, sample: Sequence[int]) -> list[np.ndarray]:
        """What `RewardScorer.score_plainly` returns, of few conversations at once, by length."""
        sequences = rows.sequences(sample)
        order = sorted(range(len(sample)), key=lambda place: len(sequences[place]))
        numbers = np.empty((sum(map(len, self.scorer.columns)), len(sample)), np.float32)
        for first in range(0, len(order), rows.checked_at_once):
            places = order[first : first + rows.checked_at_once]
            own = [sequences[place] for place in places]
            numbers[:, places] = self.scorer.plain_rewards(own, [rows.read_at(s) for s in own])
        return self.scorer.by_model(numbers)

    def _fill(
        self,
        numbers: np.ndarray,
        prefix: Prefix,
        buckets: Sequence[Bucket],
        advance: Callable[[int], object],
    ) -> None:
        """Computes the rows of buckets in a random order of steps.

        Long ones take longer: so the rate so far is that of the rest, and the progress bar's time
        left is true.
        """
        mesh, limit = self.scorer.mesh, self.scorer.step_size
        steps = []  # with the bucket of each, and the place of its first candidate there
        for bucket in buckets:
            cuts = cut(bucket.candidates, mesh, limit)
            steps += [(step, bucket, number * step[1]) for number, step in enumerate(cuts)]
        steps = [steps[i] for i in np.random.default_rng(0).permutation(len(steps))]
        score = functools.partial(self.scorer.score_step, self.scorer.params, prefix)
        computed = run_steps(score, [step for step, *_ in steps], mesh, advance)
        for (_, bucket, first), values in zip(steps, computed, strict=True):
            places = bucket.row_candidate - first
            own = (places >= 0) & (places < values.shape[1])
            numbers[:, bucket.rows[own]] = values[:, places[own]]
