"""Searches without a gradient that sweep the vocabulary: repeat, coordinate, beam.

Each is a generator: it asks for the rewards of rows of tokens behind what is already written, and
is told them. A generator cannot be saved; it is deterministic, so the rewards that it was told are,
and a resumed search tells them again.
"""

from collections.abc import Callable, Generator, Iterator, Mapping

import numpy as np

from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import Scorer
from engine.search import flops
from engine.search.climb import Steps
from engine.search.objective import Problem, not_finite
from engine.types import Candidates, Prefix, PromptIds

# What stands before [i], and rows of tokens that follow it [C, t].
Ask = tuple[tuple[int, ...], np.ndarray]
Asking = Generator[Ask, np.ndarray, None]

_MAX_STARTS = 5


def repeat(problem: Problem, rng: np.random.Generator) -> Asking:
    """One token in every free position: all of them, best single token first."""
    tokens = np.flatnonzero(problem.allowed)
    singles = []
    for chunk in _chunks(problem, tokens):
        singles.append((yield (), chunk[:, None]))
    order = tokens[np.argsort(-np.concatenate(singles), kind="stable")]
    settings = problem.settings
    given = problem.initial()[0] if settings.fixed else np.zeros(settings.length, np.int32)
    for chunk in _chunks(problem, order):
        rows = np.tile(given, (len(chunk), 1))
        rows[:, list(settings.free)] = chunk[:, None]
        yield (), rows


def coordinate(problem: Problem, rng: np.random.Generator) -> Asking:
    """Every token at one position after the other, the best one kept; a new start when none is."""
    settings, tokens = problem.settings, np.flatnonzero(problem.allowed)
    starts = _starts(settings.free)
    current = problem.initial()[0] if settings.initial else problem.draw(rng)
    best = -np.inf
    while True:
        before = best
        for position in rng.permutation(settings.free).tolist():
            start, rewards = starts[position], []
            for chunk in _chunks(problem, tokens):
                rows = np.tile(current[start:], (len(chunk), 1))
                rows[:, position - start] = chunk
                rewards.append((yield tuple(current[:start].tolist()), rows))
            every = np.concatenate(rewards)
            for index in np.argsort(-every, kind="stable"):
                if not every[index] > best:
                    break
                changed = current.copy()
                changed[position] = tokens[index]
                if problem.passes(changed):
                    current, best = changed, every[index]
                    break
        if best == before:
            current, best = problem.draw(rng), -np.inf


def beam(problem: Problem, rng: np.random.Generator) -> Asking:
    """The best beginnings of each length, each extended by every token."""
    settings, tokens = problem.settings, np.flatnonzero(problem.allowed)
    given = problem.initial()[0]
    beams: list[tuple[int, ...]] = [()]
    for position in range(settings.length):
        fixed = position in settings.fixed
        choices = given[position : position + 1] if fixed else tokens
        rewards = []
        for left in beams:
            for chunk in _chunks(problem, choices):
                rewards.append((yield left, chunk[:, None]))
        every, extended = np.concatenate(rewards), []
        for index in np.argsort(-every, kind="stable"):
            row = (*beams[index // len(choices)], int(choices[index % len(choices)]))
            if fixed or problem.passes(row):
                extended.append(row)
            if len(extended) == settings.beam:
                break
        beams = extended


_METHODS: Mapping[str, Callable[[Problem, np.random.Generator], Asking]] = {
    "repeat": repeat,
    "coordinate": coordinate,
    "beam": beam,
}


class Sweep:
    """A search by one of the generators above; a step is one ask of each attempt."""

    def __init__(self, problem: Problem, scorer: Scorer):
        self.problem = problem
        self.rejected = np.zeros(len(problem.signs), np.int64)  # an attempt, for their text
        self._behind = _Behind(problem, scorer)
        method = _METHODS[problem.settings.method]
        rngs = [np.random.default_rng(stream) for stream in problem.streams()]
        self._asking = [method(problem, rng) for rng in rngs]
        self._asked: list[Ask | None] = [next(asking, None) for asking in self._asking]
        attempts, length = len(self._asking), problem.settings.length
        self._told: list[list[np.ndarray]] = [[] for _ in range(attempts)]
        self._rewards = np.full(attempts, -np.inf, np.float32)
        self._ids = np.zeros((attempts, length), np.int32)

    def advance(self, limit: int, budget: float) -> Steps:
        """Takes up to `limit` steps, fewer where `budget` FLOPs an attempt end first."""
        rewards, ids, costs = [], [], []
        for _ in range(min(limit, self.problem.settings.every)):
            cost = max((self._cost(ask) for ask in self._asked if ask), default=0.0)
            if not cost or sum(costs) + cost > budget:
                break
            for attempt, ask in enumerate(self._asked):
                if ask:
                    sign = self.problem.signs[attempt]
                    self._tell(attempt, ask, sign * self._behind.rewards(*ask))
            rewards.append(self._rewards.copy())
            ids.append(self._ids.copy())
            costs.append(cost)
        shape = (0, *self._ids.shape)
        return (
            np.array(rewards, np.float32).reshape(-1, len(self._asking)),
            np.stack(ids) if ids else np.empty(shape, np.int32),
            np.array(costs),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The rewards of every ask."""
        return {
            f"told/{a}": np.concatenate(told) if told else np.empty(0, np.float32)
            for a, told in enumerate(self._told)
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Tells every generator again what it was told."""
        for attempt in range(len(self._asking)):
            told = arrays[f"told/{attempt}"]
            while len(told):
                ask = self._asked[attempt]
                assert ask is not None, "a search was told more than it asked"
                now, told = np.split(told, [len(ask[1])])
                self._tell(attempt, ask, now)

    def _tell(self, attempt: int, ask: Ask, rewards: np.ndarray) -> None:
        left, rows = ask
        if not np.isfinite(rewards).all():
            raise not_finite([*left, *rows[np.argmin(np.isfinite(rewards))]])
        self._told[attempt].append(rewards)
        if len(left) + rows.shape[1] == self.problem.settings.length:
            for index in np.argsort(-rewards, kind="stable"):
                if not rewards[index] > self._rewards[attempt]:
                    break
                ids = np.array([*left, *rows[index]], np.int32)
                if self.problem.passes(ids):
                    self._rewards[attempt], self._ids[attempt] = rewards[index], ids
                    break
                self.rejected[attempt] += 1
        try:
            self._asked[attempt] = self._asking[attempt].send(rewards)
        except StopIteration:
            self._asked[attempt] = None

    def _cost(self, ask: Ask) -> float:
        left, rows = ask
        own = rows.shape[1] + len(self.problem.suffix)
        return sum(
            len(rows) * flops.response(self.problem.config, own, len(p.prefix) + len(left))
            for p in self.problem.prompts
        )


class _Behind:
    """Rewards of rows behind what is already written; the K/V of the last writing are kept."""

    def __init__(self, problem: Problem, scorer: Scorer):
        self._problem, self._scorer = problem, scorer
        self._left: tuple[int, ...] | None = None
        self._prefixes: list[Prefix] = []

    def rewards(self, left: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
        """Mean over the prompts: float32 [C]."""
        prompts = self._written(left)
        every = [
            _scores(self._scorer, prefix, prompt, rows)
            for prefix, prompt in zip(self._prefixes, prompts, strict=True)
        ]
        return np.stack(every).mean(axis=0, dtype=np.float32)

    def _written(self, left: tuple[int, ...]) -> list[PromptIds]:
        prompts = [
            PromptIds(prompt=p.prompt, prefix=(*p.prefix, *left), suffix=p.suffix)
            for p in self._problem.prompts
        ]
        if left != self._left:
            room = self._problem.settings.length - len(left)  # one shape for all of them
            self._prefixes = [self._scorer.prefill(p, room) for p in prompts]
            self._left = left
        return prompts


def _scores(scorer: Scorer, prefix: Prefix, prompt: PromptIds, rows: np.ndarray) -> np.ndarray:
    if rows.shape[1] == 1:
        candidates = token_candidates(prompt, rows[:, 0])
    else:
        suffix = np.tile(np.array(prompt.suffix, np.int32), (len(rows), 1))
        ids = np.concatenate([rows, suffix], axis=1).astype(np.int32)
        candidates = Candidates(
            ids=ids,
            shared=np.full(len(ids), len(prompt.prefix), np.int32),
            last=np.full(len(ids), ids.shape[1] - 1, np.int32),
        )
    return np.concatenate([step[0] for step in scorer.rewards(prefix, candidates)])


def _chunks(problem: Problem, tokens: np.ndarray) -> Iterator[np.ndarray]:
    size = problem.settings.candidates
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _starts(free: tuple[int, ...]) -> dict[int, int]:
    """Position -> where its sweep is computed from: few, since each is compiled."""
    count = min(_MAX_STARTS, max(1, len(free) // 2))
    parts = [part.tolist() for part in np.array_split(np.array(free), count)]
    return {i: part[0] for part in parts for i in part}
