"""One sequence for several judges: models under prompts, whose rewards are standardised.

A judge is one model under one prompt. Its reward is standardised by mean and standard deviation of
the rewards that it gives to a fixed random sample of single tokens. The objective is the mean of
the standardised rewards, or the lowest. Models are scored one after the other in each step. Those
that share the first one's vocabulary take its token ids; a model of another tokenizer reads the
text, and gives no gradient.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engine.errors import AssayError
from engine.planning import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer, score_buckets
from engine.scoring.rows import ReplyRows
from engine.search.buffer import BROKEN
from engine.search.drivers import build_step_inputs
from engine.search.filters import Ids
from engine.search.objective import SearchObjective
from engine.search.passes import StepInputs
from engine.search.settings import STEP_METHODS, SearchSettings
from engine.text.chat_template import ChatTemplate
from engine.types import Prefix, PromptIds

RULES = ("mean", "minimum")
_ADDED = 512  # tokens that one of two vocabularies may have behind the other's: added ones
SAMPLE = 1024  # single tokens by whose rewards a judge's are standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
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
class Judge(Asked):
    """One that takes the token ids of the search.

    Attributes:
      objective: of this model under this prompt alone.
      inputs: of its passes.
    """

    objective: SearchObjective
    inputs: StepInputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(Asked):
    """One of another tokenizer, which reads replies as texts.

    Attributes:
      template: of the model.
      prompt: split by it.
      prefix: the computed prefix of the prompt.
      flops: operations of one reply, counted as if it had as many tokens here.
    """

    template: ChatTemplate
    prompt: PromptIds
    prefix: Prefix
    flops: float

    def rewards(self, texts: Sequence[str]) -> np.ndarray:
        """Rewards of texts as replies: float32 [texts]."""
        rows = ReplyRows(self.prompt, self.template, texts, "text")
        try:
            self.scorer.check_length(rows.longest())
        except AssayError as error:
            raise AssayError(f"model {self.model!r}, which reads texts: {error}") from error
        return score_buckets(self.scorer, self.prefix, rows.buckets(0, len(rows)), len(rows))[0]


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


def shares_tokens(known: Sequence[str], own: Sequence[str]) -> bool:
    """Whether two vocabularies are one, but for tokens that were added behind it."""
    alike = all(a == b for a, b in zip(known, own, strict=False))
    return alike and abs(len(known) - len(own)) <= _ADDED


def together(objectives: Sequence[SearchObjective]) -> SearchObjective:
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


def check_judges(rule: str, judges: int) -> None:
    """Raises AssayError for an unknown rule, or fewer than two judges."""
    if rule not in RULES:
        raise AssayError(f"universal={rule!r}; allowed: {', '.join(map(repr, RULES))}")
    if judges < 2:
        raise AssayError(
            f"universal={rule!r} with one model and one prompt; allowed: several prompts or models"
        )


def check_settings(settings: SearchSettings) -> None:
    """Raises AssayError for settings that a universal search has not."""
    if settings.method not in STEP_METHODS:
        allowed = ", ".join(map(repr, STEP_METHODS))
        raise AssayError(f"method={settings.method!r}; allowed in a universal search: {allowed}")
    for name in ("target", "wrong_sign", "distance", "momentum", "screen", "merge", "certify"):
        if getattr(settings, name):
            raise AssayError(
                f"{name}={getattr(settings, name)!r}; allowed in a universal search: "
                f"{type(getattr(settings, name))()!r}"
            )


def standard(objective: SearchObjective, scorer: RewardScorer) -> tuple[float, float]:
    """Mean and standard deviation of a judge's rewards of a sample of allowed single tokens.

    Raises:
      AssayError: they are all equal, or not finite.
    """
    (prompt,) = objective.prompts
    candidates = token_candidates(prompt, sample(objective))
    steps = [step[0] for step in scorer.rewards(scorer.prefill(prompt), candidates)]
    return _moments(prompt, np.concatenate(steps))


def sample(objective: SearchObjective) -> np.ndarray:
    """Allowed tokens by whose rewards a judge's are standardised: int [SAMPLE], or all of fewer."""
    tokens = np.flatnonzero(objective.allowed)
    rng = np.random.default_rng([SAMPLE, len(tokens)])
    return np.sort(rng.choice(tokens, min(SAMPLE, len(tokens)), replace=False))


def _moments(prompt: PromptIds, rewards: np.ndarray) -> tuple[float, float]:
    rewards = rewards.astype(np.float64)
    if not (np.isfinite(rewards).all() and rewards.std() > 0):
        raise AssayError(
            f"prompt {prompt.prompt!r}: the rewards of {len(rewards)} single tokens cannot be "
            "standardised: they are all equal, or not finite"
        )
    return float(rewards.mean()), float(rewards.std())


def combined(rule: str, standardised: Any) -> Any:
    """The objective, from signed standardised rewards.

    Args:
      rule: one of `RULES`.
      standardised: [judges, …], of numpy or JAX.
    """
    joined = standardised.mean(0) if rule == "mean" else standardised.min(0)
    return jnp.where(jnp.isposinf(standardised).any(0), BROKEN, joined)  # a reward is not finite


def judges_of(
    model: str, prompt_ids: Sequence[str], objective: SearchObjective, scorer: RewardScorer
) -> list[Judge]:
    """The judges of one model: one for each prompt.

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
    for j, prompt_id in enumerate(prompt_ids):
        own = dataclasses.replace(objective, prompts=(objective.prompts[j],))
        prefix = jax.tree.map(lambda leaf, j=j: leaf[j : j + 1], every.prefix)
        inputs = dataclasses.replace(every, prefix=prefix, lengths=every.lengths[j : j + 1])
        mean, sd = standard(own, scorer)
        judges.append(
            Judge(
                model=model,
                prompt_id=prompt_id,
                objective=own,
                scorer=scorer,
                inputs=inputs,
                mean=mean,
                sd=sd,
            )
        )
    return judges


def readers_of(
    model: str,
    template: ChatTemplate,
    prompts: Mapping[str, str],
    whole: SearchObjective,
    scorer: RewardScorer,
) -> list[Reader]:
    """The judges of one model of another tokenizer: one for each prompt.

    Args:
      model: slug.
      template: of the model.
      prompts: prompt id -> text.
      whole: what is searched; the texts of its sample of tokens standardise the rewards.
      scorer: the model.

    Raises:
      AssayError: rewards that cannot be standardised.
    """
    texts = [whole.round_trip.text(np.array([token])) for token in sample(whole)]
    config = nnx.merge(scorer.graph, scorer.params).decoder.config
    readers = []
    for prompt_id, text in prompts.items():
        split = template.split(text)
        positions = whole.settings.length + len(split.suffix)
        scorer.check_length(len(split.prefix) + positions)
        reader = Reader(
            model=model,
            prompt_id=prompt_id,
            template=template,
            prompt=split,
            prefix=scorer.prefill(split),
            scorer=scorer,
            flops=flops.response(config, positions, len(split.prefix)),
        )
        mean, sd = _moments(split, reader.rewards(texts))
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
