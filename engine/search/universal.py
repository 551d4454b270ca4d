"""One sequence for several judges: models under prompts, whose rewards are standardised.

A judge is one model under one prompt. Its reward is standardised by mean and standard deviation of
the rewards that it gives to a fixed random sample of single tokens. The objective is the mean of
the standardised rewards, or the lowest. Models are scored one after the other in each step. Those
that share the first one's vocabulary take its token ids; a model of another tokenizer reads the
text (`engine.search.universal_readers`).
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from engine.checkpoint.card import Card, Checkpoint
from engine.errors import AssayError
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search.buffer import BROKEN
from engine.search.drivers import build_step_inputs
from engine.search.filters import Ids
from engine.search.objective import SearchObjective
from engine.search.passes import StepInputs
from engine.settings import STEP_METHODS, SearchSettings
from engine.types import PromptIds

RULES = ("mean", "minimum")
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


def in_order(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Models in an order of their own, so that the order in which they are named changes no bit."""
    return sorted(checkpoints, key=lambda one: (one.card.checkpoint_hash, one.card.slug))


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
    methods = [name for name in STEP_METHODS if name != SearchSettings.method]
    if settings.method not in methods:
        allowed = ", ".join(map(repr, methods))
        raise AssayError(f"method={settings.method!r}; allowed in a universal search: {allowed}")
    for name in ("target", "wrong_sign", "distance", "momentum", "screen", "merge", "certify"):
        if getattr(settings, name):
            raise AssayError(
                f"{name}={getattr(settings, name)!r}; allowed in a universal search: "
                f"{type(getattr(settings, name))()!r}"
            )


def check_lengths(card: Card, prompts: Iterable[PromptIds], length: int, reply: str) -> None:
    """Checks, before a model is loaded, that it was made for the conversations of a search.

    Args:
      card: of the model.
      prompts: split by its template.
      length: tokens of the longest reply there.
      reply: what it is, for the message.

    Raises:
      AssayError: it was not.
    """
    longest = max(len(prompt.prefix) + len(prompt.suffix) for prompt in prompts) + length
    if longest > card.decoder.max_positions:
        raise AssayError(
            f"model {card.slug!r}: a conversation with a reply of {reply} has up to {longest} "
            f"tokens; allowed by the model: {card.decoder.max_positions}"
        )


def standard(model: str, objective: SearchObjective, scorer: RewardScorer) -> tuple[float, float]:
    """Mean and standard deviation of a judge's rewards of a sample of allowed single tokens.

    Raises:
      AssayError: they are all equal, or not finite.
    """
    (prompt,) = objective.prompts
    candidates = token_candidates(prompt, sample(objective))
    steps = [step[0] for step in scorer.rewards(scorer.prefill(prompt), candidates)]
    return moments(model, prompt, np.concatenate(steps))


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
        mean, sd = standard(model, own, scorer)
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
