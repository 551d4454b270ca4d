"""A universal search: its judges, and its step, which scores every judge in turn.

A judge is one of the models under one prompt. Its reward is standardised by mean and standard
deviation of its rewards of a fixed random sample of single tokens; the objective is the mean of the
standardised rewards, or the lowest. The step is that of one model (`step.expand`), in several
programs: the passes of each judge in turn, and the compiled functions between them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from engine import mesh as meshes
from engine.errors import AssayError
from engine.planning import flops
from engine.scoring import reward_passes
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer, fetch
from engine.scoring.rows import reply_rows
from engine.search import passes, step
from engine.search.objective import Reader, SearchObjective, SearchProblem
from engine.search.passes import BROKEN, StepInputs
from engine.search.step import CompiledStep, Ranked, State, compiled
from engine.types import Array, Params, Prefix, PromptIds

SAMPLE = 1024  # single tokens by whose rewards a judge's are standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """A model under a prompt; mean and standard deviation are of its rewards of the sample."""

    model: str  # slug
    prompt_id: str
    prompt: PromptIds
    scorer: RewardScorer
    mean: float = 0.0
    sd: float = 1.0

    def standardised_by(self, rewards: np.ndarray) -> "Judge":
        """The judge with the moments of its rewards of the sample's tokens."""
        rewards = rewards.astype(np.float64)
        if not (np.isfinite(rewards).all() and rewards.std() > 0):
            raise AssayError(
                f"model {self.model!r}, prompt {self.prompt.prompt!r}: the rewards of "
                f"{len(rewards)} single tokens cannot be standardised: they are all equal, or not "
                "finite"
            )
        return dataclasses.replace(self, mean=float(rewards.mean()), sd=float(rewards.std()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdsJudge(Judge):
    """One that takes token ids; its objective has one prompt."""

    objective: SearchObjective


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextJudge(Judge):
    """One that reads replies as texts behind the computed prefix of a prompt."""

    reader: Reader
    prefix: Prefix

    @property
    def flops(self) -> float:
        """Operations of one reply of as many tokens as random ones have."""
        positions = self.reader.usual_tokens + len(self.prompt.suffix)
        return flops.response(
            self.reader.checkpoint.card.decoder, positions, len(self.prompt.prefix)
        )

    def rewards(self, texts: Sequence[str]) -> np.ndarray:
        """Rewards of texts as replies: float32 [texts]."""
        checkpoint = self.reader.checkpoint
        rows = reply_rows(checkpoint, self.prompt.prompt, texts, "text")
        rows.check(checkpoint.card.decoder)
        return self.scorer.score(self.prefix, rows, 0, len(rows))[0][0]


def judges_of(problem: SearchProblem, scorers: Iterable[RewardScorer]) -> list[Judge]:
    """The judges of a universal search: those that take token ids, then those that read texts."""
    judges: list[Judge] = []
    for model, one, scorer in zip(problem.models, problem.members, scorers, strict=True):
        tokens = _sample(problem.objective if isinstance(one, Reader) else one)
        for prompt_id, prompt in zip(problem.prompts, one.prompts, strict=True):
            prefix = scorer.prefill(prompt)
            named: dict[str, Any] = {"model": model.card.slug, "prompt_id": prompt_id}
            named |= {"prompt": prompt, "scorer": scorer}
            if isinstance(one, Reader):
                judge = TextJudge(reader=one, prefix=prefix, **named)
                texts = [problem.objective.round_trip.text([token]) for token in tokens]
                judges.append(judge.standardised_by(judge.rewards(texts)))
            else:
                alone = dataclasses.replace(one, prompts=(prompt,))
                rewards = scorer.rewards(prefix, token_candidates(prompt, tokens))[0]
                judges.append(IdsJudge(objective=alone, **named).standardised_by(rewards))
    return judges


def _sample(objective: SearchObjective) -> np.ndarray:
    """Allowed tokens by whose rewards a judge's are standardised: int [SAMPLE], or all of fewer."""
    tokens = np.flatnonzero(objective.allowed)
    rng = np.random.default_rng([SAMPLE, len(tokens)])
    return np.sort(rng.choice(tokens, min(SAMPLE, len(tokens)), replace=False))


def build_step(
    objective: SearchObjective, judges: Sequence[Judge], rule: str
) -> tuple[CompiledStep, float]:
    """The step of a universal search, with every judge scored in turn, and its operations."""
    settings, mesh = objective.settings.of_compiled_step(), judges[0].scorer.mesh
    tokens, bind = len(objective.allowed), functools.partial(compiled, mesh)
    readers = [judge for judge in judges if isinstance(judge, TextJudge)]
    by_ids = [judge for judge in judges if isinstance(judge, IdsJudge)]
    known = [(judge.scorer, _inputs_of(judge, by_ids)) for judge in by_ids]
    cost = sum(step.step_flops(judge.objective) for judge in by_ids)
    scored = len(step.first_changes(settings)) + len(step.whole_replies(settings))
    cost += (scored + settings.takes_gradient) * sum(reader.flops for reader in readers)
    values = (
        objective.allowed,
        np.array(step.planned_steps(objective.settings, cost), np.int32),
        np.zeros((1, 1), np.float32),  # the embedding is read for a distance alone
        objective.signs,
        np.array([one.mean for one in judges], np.float32),
        np.array([one.sd for one in judges], np.float32),
    )
    allowed, steps, embedding, *scale = meshes.put(mesh, values, "")

    # Any: of several functions.
    def of_each(run: Callable[..., Any], *arguments: Array, **given: Any) -> list[Any]:
        place = meshes.sharding(mesh, "")
        return [
            reward_passes.compiled(run, one.graph, place, mesh=mesh, **given)(
                one.params, inputs, *arguments
            )
            for one, inputs in known
        ]

    def read(ids: Array) -> list[Array]:
        results = _read_as_text(objective, readers, fetch(ids)) if readers else []
        return list(meshes.put(mesh, tuple(results), ""))

    def slopes(parents: Array) -> tuple[Array, Array, None]:
        results = of_each(slopes_alone, parents, settings=settings)
        rewards = [each[0] for each in results] + read(parents)
        steepness = [each[1][..., :tokens] for each in results]
        return (*bind(weigh, rule=rule)(rewards, steepness, *scale), None)

    def score(parents: Array, ids: Array, first: tuple[int, ...], written: None) -> Array:
        results = of_each(passes.score_candidates, parents, ids, first=first)
        combined: Array = bind(combine, rule=rule)(results + read(ids), *scale)
        return combined

    def expand(params: Params, inputs: StepInputs, state: State) -> Ranked:
        vocabulary = allowed, steps, embedding
        return step.expand(state, settings, slopes, score, vocabulary, bind)

    return CompiledStep(expand, bind(step.admit, settings=settings)), cost


def _inputs_of(judge: IdsJudge, judges: Sequence[IdsJudge]) -> StepInputs:
    """Inputs of the passes of a judge; those of one model have one shape."""
    longest = max(len(j.prompt.prefix) for j in judges if j.scorer is judge.scorer)
    return step.build_step_inputs(judge.objective, judge.scorer, longest)


# Any: arguments and results of `passes.slopes_of`.
def slopes_alone(*arguments: Any, **given: Any) -> tuple[Array, Array]:
    """`passes.slopes_of` without the keys and values, which the scores compute again."""
    rewards, steepness, _ = passes.slopes_of(*arguments, **given)
    return rewards, steepness


def weigh(
    rewards: list[Array], slopes: list[Array], signs: Array, means: Array, sds: Array, *, rule: str
) -> tuple[Array, Array]:
    """Rewards and slopes of the judges -> the objective of the parents and its slopes."""
    z = _standardised(rewards, signs, means, sds)  # [judges, A]
    known = z[: len(slopes)]  # readers have no slopes
    if rule == "mean":
        weights = jnp.full(known.shape, 1 / len(rewards))
    else:
        weights = (known == known.min(0)).astype(jnp.float32)
        weights /= weights.sum(0)
    steepness = weights / sds[: len(slopes), None]
    total = sum(w[:, None, None] * s for w, s in zip(steepness, slopes, strict=True))
    return _combined(rule, z), total


def combine(rewards: list[Array], signs: Array, means: Array, sds: Array, *, rule: str) -> Array:
    """Rewards of the judges -> the objective of the candidates."""
    return _combined(rule, _standardised(rewards, signs[:, None], means, sds))


def _read_as_text(
    whole: SearchObjective, readers: Sequence[TextJudge], ids: np.ndarray
) -> list[np.ndarray]:
    """Signed rewards of sequences [A, …, T] by every reader: float32 [A, …].

    A reward that is not finite is `BROKEN`.
    """
    distinct, place = np.unique(ids.reshape(-1, ids.shape[-1]), axis=0, return_inverse=True)
    texts = [whole.round_trip.text(row) for row in distinct]
    signs = whole.signs.reshape(-1, *[1] * (ids.ndim - 2))
    every = (reader.rewards(texts)[place.ravel()].reshape(ids.shape[:-1]) for reader in readers)
    return [np.where(np.isfinite(one), signs * one, BROKEN).astype(np.float32) for one in every]


def _standardised(rewards: list[Array], signs: Array, means: Array, sds: Array) -> Array:
    """Signed standardised rewards [judges, …] from signed ones."""
    stacked = jnp.stack(rewards)
    shape = (-1,) + (1,) * (stacked.ndim - 1)
    return (stacked - signs * means.reshape(shape)) / sds.reshape(shape)


def _combined(rule: str, scores: Array) -> Array:
    """The objective, from signed standardised rewards [judges, …]."""
    joined = scores.mean(0) if rule == "mean" else scores.min(0)
    return jnp.where(jnp.isposinf(scores).any(0), BROKEN, joined)  # a reward is not finite
