"""Models of other tokenizers in a universal search: they read replies as texts.

They give no gradient. How many tokens a reply has there is bounded before a model is loaded: each
token of the search may become many.
"""

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import flops
from engine.planning.work import SearchWork
from engine.scoring.batches import padded_length, reply_buckets
from engine.scoring.reward_passes import RewardScorer, rows_of_step, score_buckets
from engine.scoring.rows import check_ids
from engine.search.buffer import BROKEN
from engine.search.objective import SearchObjective
from engine.search.universal import Asked, check_lengths, moments, sample
from engine.settings import AUTO
from engine.sweep.rewards import pooling_of
from engine.types import Prefix, PromptIds

_ADDED = 512  # tokens that one of two vocabularies may have behind the other's: added ones


def difference(known: Mapping[int, str], own: Mapping[int, str]) -> str:
    """How a vocabulary differs from the first model's; "" if only by a few added tokens.

    Args:
      known: texts of the first model's tokens, by id.
      own: those of another model.

    Returns:
      The first token that differs, quoted.
    """
    for i, text in known.items():
        if own.get(i, text) != text:
            return f"token {i} is {own[i]!r}, not {text!r}"
    if len(known.keys() ^ own.keys()) > _ADDED:
        return f"it has {len(own)} tokens, not {len(known)}"
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How one model of another tokenizer reads the replies of a search.

    Attributes:
      checkpoint: the model.
      differs: in which token its vocabulary differs from the first model's.
      prompts: prompt id -> split by its template.
      most: tokens that a reply has there at most.
      usual: tokens of a reply of random tokens.
    """

    checkpoint: Checkpoint
    differs: str
    prompts: Mapping[str, PromptIds]
    most: int
    usual: int

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        differs: str,
        prompts: Mapping[str, str],
        whole: SearchObjective,
    ) -> "Reading":
        """Counts the tokens of replies.

        A token's text may be cut elsewhere where it meets another's, which costs less than a token
        more each (docs/search.md), so `most` adds one to the longest text of a token.

        Args:
          checkpoint: the model.
          differs: from `difference`.
          prompts: prompt id -> text.
          whole: what is searched.

        Raises:
          AssayError: a reply may be longer than the model was made for.
        """
        template = checkpoint.template
        given = whole.initial()[0] if whole.settings.initial else ()  # fixed ones pass no filter
        used = np.union1d(np.flatnonzero(whole.allowed), given).astype(int)
        texts = [whole.round_trip.text([i]) for i in used]
        encoded = template.tokenizer(texts, add_special_tokens=False)
        counts = [len(ids) for ids in encoded["input_ids"]]
        most, length = 1 + max(counts), whole.settings.length
        splits = {prompt_id: template.around(text) for prompt_id, text in prompts.items()}
        longest = f"{length} tokens as texts, up to {most} tokens each"
        check_lengths(checkpoint.card, splits.values(), length * most, longest)
        return cls(
            checkpoint=checkpoint,
            differs=differs,
            prompts=splits,
            most=length * most,
            usual=math.ceil(length * float(np.mean(counts))),
        )

    def work(self, candidates: int, attempts: int) -> SearchWork:
        """The step that takes most memory: a longer reply takes fewer rows at a time.

        Args:
          candidates: of a step and attempt.
          attempts: that run side by side.
        """
        prefix = max(len(split.prefix) for split in self.prompts.values())
        suffix = max(len(split.suffix) for split in self.prompts.values())
        lengths = {padded_length(n + suffix) for n in range(1, self.most + 1)}

        def size(own: int) -> int:
            return rows_of_step(candidates, own, candidates) * own * (prefix + own)

        return SearchWork(
            prefix=prefix,
            suffix=suffix,
            length=max(lengths, key=size) - suffix,
            candidates=candidates,
            attempts=attempts,
            gradient=False,
            packed=False,
            enumerates=True,
        )


def announce(readings: Iterable[Reading]) -> None:
    """Says on standard error which models read texts, and why; on process 0."""
    for reading in readings if processes.writes() else ():
        slug = reading.checkpoint.card.slug
        line = f"model {slug}: {reading.differs}: it reads texts: no gradient, no file"
        tqdm.write(line, file=sys.stderr)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(Asked):
    """A judge that reads replies as texts.

    Attributes:
      reading: how.
      prompt: split by the model's template.
      prefix: the computed prefix of the prompt.
      flops: operations of one reply, of as many tokens as random ones have.
    """

    reading: Reading
    prompt: PromptIds
    prefix: Prefix
    flops: float

    def rewards(self, texts: Sequence[str]) -> np.ndarray:
        """Rewards of texts as replies: float32 [texts].

        Raises:
          AssayError: a conversation is longer than the model was made for, or holds an id that
            its embedding lacks.
        """
        template = self.reading.checkpoint.template
        pooling = pooling_of(self.reading.checkpoint, AUTO)
        whole = template.sequences(self.prompt.prompt, texts)
        rows = [ids[: pooling.position(ids) + 1] for ids in whole]
        try:
            self.scorer.check_length(max(map(len, rows)))
            check_ids(max(map(max, rows)), self.reading.checkpoint.card.decoder)
        except AssayError as error:
            raise AssayError(f"model {self.model!r}, which reads texts: {error}") from error
        buckets = reply_buckets(self.prompt.prefix, rows)
        return score_buckets(self.scorer, self.prefix, buckets, len(rows))[0]


def readers_of(reading: Reading, whole: SearchObjective, scorer: RewardScorer) -> list[Reader]:
    """The judges of one model of another tokenizer: one for each prompt.

    Args:
      reading: of the model.
      whole: what is searched; the texts of its sample of tokens standardise the rewards.
      scorer: the model.

    Raises:
      AssayError: rewards that cannot be standardised.
    """
    texts = [whole.round_trip.text(np.array([token])) for token in sample(whole)]
    card, readers = reading.checkpoint.card, []
    for prompt_id, split in reading.prompts.items():
        reader = Reader(
            model=card.slug,
            prompt_id=prompt_id,
            reading=reading,
            prompt=split,
            prefix=scorer.prefill(split),
            scorer=scorer,
            flops=flops.response(
                card.decoder, reading.usual + len(split.suffix), len(split.prefix)
            ),
        )
        mean, sd = moments(card.slug, split, reader.rewards(texts))
        readers.append(dataclasses.replace(reader, mean=mean, sd=sd))
    return readers


def read_as_text(
    whole: SearchObjective, readers: Sequence[Reader], ids: np.ndarray
) -> list[np.ndarray]:
    """Signed rewards of sequences by every reader.

    Args:
      whole: what is searched.
      readers: of the texts.
      ids: int [attempts, …, T].

    Returns:
      float32 [attempts, …] of each reader; `BROKEN` for a reward that is not finite.
    """
    if not readers:
        return []
    distinct, place = np.unique(ids.reshape(-1, ids.shape[-1]), axis=0, return_inverse=True)
    texts = [whole.round_trip.text(row) for row in distinct]
    signs = whole.signs.reshape(-1, *[1] * (ids.ndim - 2))
    every = (reader.rewards(texts)[place.ravel()].reshape(ids.shape[:-1]) for reader in readers)
    return [np.where(np.isfinite(own), signs * own, BROKEN).astype(np.float32) for own in every]
