"""One sequence for several judges: models under prompts, whose rewards are standardised.

A judge is one model under one prompt. Its reward is standardised by mean and standard deviation of
the rewards that it gives to a fixed random sample of single tokens. The objective is the mean of
the standardised rewards, or the lowest. The step is that of one model (`gcg.expand`); the models
are scored one after the other in it. Those that share the first one's vocabulary take its token
ids. A model of another tokenizer reads the text, and gives no gradient: how many tokens a reply has
there is bounded before a model is loaded, since each token of the search may become many.
"""

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Card, Checkpoint
from engine.errors import AssayError
from engine.planning import flops
from engine.planning.work import SearchWork
from engine.scoring.batches import padded_length, reply_buckets, rows_of_step, token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.scoring.rows import check_fits
from engine.search.loop import build_step_inputs
from engine.search.objective import Ids, SearchObjective
from engine.search.passes import BROKEN, StepInputs
from engine.settings import AUTO, STEP_METHODS, SearchSettings
from engine.sweep.reward_jobs import pooling_of
from engine.types import Array, Prefix, PromptIds

RULES = ("mean", "minimum")
SAMPLE = 1024  # single tokens by whose rewards a judge's are standardised
_ADDED = 512  # tokens that one of two vocabularies may have behind the other's: added ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """A model under a prompt, whose reward counts.

    Attributes:
      model: slug.
      prompt_id: of the prompt.
      scorer: the model.
      mean: of its rewards of the sample.
      sd: their standard deviation.
    """

    model: str
    prompt_id: str
    scorer: RewardScorer
    mean: float = 0.0
    sd: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdsJudge(Judge):
    """One that takes the token ids of the search.

    Attributes:
      objective: of this model under this prompt alone.
      inputs: of its passes.
    """

    objective: SearchObjective
    inputs: StepInputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextJudge(Judge):
    """One that reads replies as texts.

    Attributes:
      reading: how.
      prompt: split by the model's template.
      prefix: the computed prefix of the prompt.
      flops: operations of one reply, of as many tokens as random ones have.
    """

    reading: "Reading"
    prompt: PromptIds
    prefix: Prefix
    flops: float

    def rewards(self, texts: Sequence[str]) -> np.ndarray:
        """Rewards of texts as replies: float32 [texts].

        Raises:
          AssayError: a conversation is longer than the model was made for, or holds an id that
            its embedding lacks.
        """
        checkpoint = self.reading.checkpoint
        pooling = pooling_of(checkpoint, AUTO)
        whole = checkpoint.template.sequences(self.prompt.prompt, texts)
        rows = [ids[: pooling.position(ids) + 1] for ids in whole]
        try:
            check_fits(max(map(len, rows)), max(map(max, rows)), checkpoint.card.decoder)
        except AssayError as error:
            raise AssayError(f"model {self.model!r}, which reads texts: {error}") from error
        buckets = reply_buckets(self.prompt.prefix, rows)
        return self.scorer.of_buckets(self.prefix, buckets, len(rows))[0]


def check_rule(rule: str, judges: int) -> None:
    """Raises AssayError for an unknown rule, or fewer than two judges."""
    if rule not in RULES:
        raise AssayError(f"universal={rule!r}; allowed: {', '.join(map(repr, RULES))}")
    if judges < 2:
        raise AssayError(
            f"universal={rule!r} with one model and one prompt; allowed: several prompts or models"
        )


def check_settings(settings: SearchSettings) -> None:
    """Raises AssayError for settings that a universal search does not support."""
    if settings.method not in STEP_METHODS:
        allowed = ", ".join(map(repr, STEP_METHODS))
        raise AssayError(f"method={settings.method!r}; allowed in a universal search: {allowed}")
    for name in ("target", "wrong_sign", "distance", "certify"):
        if value := getattr(settings, name):
            raise AssayError(f"{name}={value!r}; allowed in a universal search: {type(value)()!r}")


def check_lengths(card: Card, prompts: Iterable[PromptIds], length: int, reply: str) -> None:
    """Checks, before a model is loaded, that it was made for the conversations of a search.

    Args:
      card: of the model.
      prompts: split by its template.
      length: tokens of the longest reply, in this model's tokenizer.
      reply: what it is, for the message.

    Raises:
      AssayError: a conversation may be longer than the model allows.
    """
    longest = max(len(prompt.prefix) + len(prompt.suffix) for prompt in prompts) + length
    if longest > card.decoder.max_positions:
        raise AssayError(
            f"model {card.slug!r}: a conversation with a reply of {reply} has up to {longest} "
            f"tokens; allowed by the model: {card.decoder.max_positions}"
        )


def in_order(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Models by their hashes, so that the order in which they are named changes no bit."""
    return sorted(checkpoints, key=lambda one: (one.card.checkpoint_hash, one.card.slug))


def difference(known: Mapping[int, str], tokens: Mapping[int, str]) -> str:
    """How a vocabulary differs from the first model's; "" if only by a few added tokens.

    Args:
      known: texts of the first model's tokens, by id.
      tokens: those of another model.

    Returns:
      The first token that differs, quoted.
    """
    for i, text in known.items():
        if tokens.get(i, text) != text:
            return f"token {i} is {tokens[i]!r}, not {text!r}"
    if len(known.keys() ^ tokens.keys()) > _ADDED:
        return f"it has {len(tokens)} tokens, not {len(known)}"
    return ""


class EveryRoundTrip:
    """Whether the text of a sequence tokenises back to it in the conversations of all models."""

    def __init__(self, objectives: Sequence[SearchObjective]):
        self._each = [objective.round_trip for objective in objectives]

    def text(self, ids: Ids) -> str:
        """The decoded text of a sequence; all models decode it alike."""
        return self._each[0].text(ids)

    def passes(self, ids: Ids) -> bool:
        """Whether it passes for every model."""
        return all(each.passes(ids) for each in self._each)


def shared_objective(objectives: Sequence[SearchObjective]) -> SearchObjective:
    """The tokens and texts that all models of one vocabulary admit, as one objective.

    Args:
      objectives: one per model, of all prompts.

    Raises:
      AssayError: settings that a universal search has not; too few tokens.
    """
    first = objectives[0]
    check_settings(first.settings)
    rows = min(len(objective.allowed) for objective in objectives)
    allowed = np.logical_and.reduce([objective.allowed[:rows] for objective in objectives])
    hashes = [objective.checkpoint_hash for objective in objectives]
    whole = dataclasses.replace(
        first,
        allowed=allowed,
        checkpoint_hash=hashlib.sha256(json.dumps(hashes).encode()).hexdigest(),
        round_trip=cast(Any, EveryRoundTrip(objectives)),
    )
    if allowed.sum() < first.settings.topk:
        raise AssayError(
            f"topk={first.settings.topk}; the filters of all models leave {allowed.sum()} tokens: "
            "allowed at most that"
        )
    whole.initial()
    return whole


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

        Where two tokens' texts meet, the other tokenizer may split them differently, which adds
        less than one token per text (docs/search.md), so `most` adds one to the longest text.

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

        def size(positions: int) -> int:
            rows = rows_of_step(candidates, positions, candidates)
            return rows * positions * (prefix + positions)

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


def ids_judges(
    model: str, prompt_ids: Sequence[str], objective: SearchObjective, scorer: RewardScorer
) -> list[IdsJudge]:
    """The judges of one model that shares the vocabulary: one for each prompt.

    Args:
      model: slug.
      prompt_ids: of the objective's prompts.
      objective: of this model under all prompts.
      scorer: the model.

    Raises:
      AssayError: rewards that cannot be standardised.
    """
    every = build_step_inputs(objective, scorer)  # so that all prompts have one shape
    judges = []
    for j, (prompt_id, prompt) in enumerate(zip(prompt_ids, objective.prompts, strict=True)):
        prefix = jax.tree.map(lambda leaf, j=j: leaf[j : j + 1], every.prefix)
        candidates = token_candidates(prompt, sample(objective))
        rewards = scorer.rewards(scorer.prefill(prompt), candidates)[0]
        mean, sd = moments(model, prompt, rewards)
        judges.append(
            IdsJudge(
                model=model,
                prompt_id=prompt_id,
                objective=dataclasses.replace(objective, prompts=(prompt,)),
                scorer=scorer,
                inputs=dataclasses.replace(every, prefix=prefix, lengths=every.lengths[j : j + 1]),
                mean=mean,
                sd=sd,
            )
        )
    return judges


def text_judges(reading: Reading, whole: SearchObjective, scorer: RewardScorer) -> list[TextJudge]:
    """The judges of one model of another tokenizer: one for each prompt.

    Args:
      reading: of the model.
      whole: what is searched; the texts of its sample of tokens standardise the rewards.
      scorer: the model.

    Raises:
      AssayError: rewards that cannot be standardised.
    """
    texts = [whole.round_trip.text(np.array([token])) for token in sample(whole)]
    card, judges = reading.checkpoint.card, []
    for prompt_id, split in reading.prompts.items():
        positions = reading.usual + len(split.suffix)
        judge = TextJudge(
            model=card.slug,
            prompt_id=prompt_id,
            reading=reading,
            prompt=split,
            prefix=scorer.prefill(split),
            scorer=scorer,
            flops=flops.response(card.decoder, positions, len(split.prefix)),
        )
        mean, sd = moments(card.slug, split, judge.rewards(texts))
        judges.append(dataclasses.replace(judge, mean=mean, sd=sd))
    return judges


def sample(objective: SearchObjective) -> np.ndarray:
    """Allowed tokens by whose rewards a judge's are standardised: int [SAMPLE], or all of fewer."""
    tokens = np.flatnonzero(objective.allowed)
    rng = np.random.default_rng([SAMPLE, len(tokens)])
    return np.sort(rng.choice(tokens, min(SAMPLE, len(tokens)), replace=False))


def moments(model: str, prompt: PromptIds, rewards: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of rewards of single tokens.

    Args:
      model: slug.
      prompt: under which it gives them.
      rewards: [tokens].

    Raises:
      AssayError: they are all equal, or not finite.
    """
    rewards = rewards.astype(np.float64)
    if not (np.isfinite(rewards).all() and rewards.std() > 0):
        raise AssayError(
            f"model {model!r}, prompt {prompt.prompt!r}: the rewards of {len(rewards)} single "
            "tokens cannot be standardised: they are all equal, or not finite"
        )
    return float(rewards.mean()), float(rewards.std())


def read_as_text(
    whole: SearchObjective, readers: Sequence[TextJudge], ids: np.ndarray
) -> list[np.ndarray]:
    """Signed rewards of sequences by every reader.

    Args:
      whole: what is searched.
      readers: of the texts.
      ids: int [attempts, …, T].

    Returns:
      float32 [attempts, …] of each reader; `BROKEN` for a reward that is not finite.
    """
    distinct, place = np.unique(ids.reshape(-1, ids.shape[-1]), axis=0, return_inverse=True)
    texts = [whole.round_trip.text(row) for row in distinct]
    signs = whole.signs.reshape(-1, *[1] * (ids.ndim - 2))
    every = (reader.rewards(texts)[place.ravel()].reshape(ids.shape[:-1]) for reader in readers)
    return [np.where(np.isfinite(one), signs * one, BROKEN).astype(np.float32) for one in every]


def standardised(rewards: list[Array], signs: Array, means: Array, sds: Array) -> Array:
    """Signed standardised rewards [judges, …] from signed ones."""
    stacked = jnp.stack(rewards)
    shape = (-1,) + (1,) * (stacked.ndim - 1)
    return (stacked - signs * means.reshape(shape)) / sds.reshape(shape)


def combined(rule: str, scores: Any) -> Any:
    """The objective, from signed standardised rewards.

    Args:
      rule: one of `RULES`.
      scores: [judges, …], of numpy or JAX.
    """
    joined = scores.mean(0) if rule == "mean" else scores.min(0)
    return jnp.where(jnp.isposinf(scores).any(0), BROKEN, joined)  # a reward is not finite
