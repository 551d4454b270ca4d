"""Search methods without a gradient that enumerate the vocabulary: repeat, coordinate, beam.

Each method is a generator. It yields a query, rows of tokens behind a common beginning, and is sent
their rewards. A generator cannot be saved, but it is deterministic: a resumed search sends it the
same rewards again (`EnumerationDriver`). `mutate` and `random` run the compiled step of `step`.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import numpy as np

from engine.models import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search.objective import SearchObjective, not_finite
from engine.types import Prefix, PromptIds

# The tokens of the common beginning, and the rows that continue it: int32 [C, t].
Query = tuple[tuple[int, ...], np.ndarray]
# Sent: signed rewards of the rows, float32 [C].
Queries = Generator[Query, np.ndarray, None]

_MAX_STARTS = 5


def repeat(objective: SearchObjective, rng: np.random.Generator) -> Queries:
    """Repeats one token in every free position, for each token; best single token first."""
    tokens = np.flatnonzero(objective.allowed)
    singles = []
    for chunk in _chunks(objective, tokens):
        singles.append((yield (), chunk[:, None]))
    order = tokens[np.argsort(-np.concatenate(singles), kind="stable")]
    settings = objective.settings
    given = objective.initial()[0] if settings.fixed else np.zeros(settings.length, np.int32)
    for chunk in _chunks(objective, order):
        rows = np.tile(given, (len(chunk), 1))
        rows[:, list(settings.free)] = chunk[:, None]
        yield (), rows


def coordinate(objective: SearchObjective, rng: np.random.Generator) -> Queries:
    """Coordinate ascent: tries every token at one position after the other and keeps the best.

    When no position improves any more, it starts again from a random sequence.
    """
    settings, tokens = objective.settings, np.flatnonzero(objective.allowed)
    starts = starts_of(settings.free, min(_MAX_STARTS, max(1, len(settings.free) // 2)))
    current = objective.initial()[0] if settings.initial else objective.draw(rng)
    best = -np.inf
    while True:
        before = best
        for position in rng.permutation(settings.free).tolist():
            rewards = []
            for chunk in _chunks(objective, tokens):
                rewards.append((yield swaps(current, position, starts[position], chunk)))
            every = np.concatenate(rewards)
            for index in np.argsort(-every, kind="stable"):
                if not every[index] > best:
                    break
                changed = current.copy()
                changed[position] = tokens[index]
                if objective.passes(changed):
                    current, best = changed, every[index]
                    break
        if best == before:
            current, best = objective.draw(rng), -np.inf


def beam(objective: SearchObjective, rng: np.random.Generator) -> Queries:
    """Beam search: extends the best beginnings of each length by every token."""
    settings, tokens = objective.settings, np.flatnonzero(objective.allowed)
    given = objective.initial()[0]
    beams: list[tuple[int, ...]] = [()]
    for position in range(settings.length):
        fixed = position in settings.fixed
        choices = given[position : position + 1] if fixed else tokens
        rewards = []
        for beginning in beams:
            for chunk in _chunks(objective, choices):
                rewards.append((yield beginning, chunk[:, None]))
        every, extended = np.concatenate(rewards), []
        for index in np.argsort(-every, kind="stable"):
            row = (*beams[index // len(choices)], int(choices[index % len(choices)]))
            if fixed or objective.passes(row):
                extended.append(row)
            if len(extended) == settings.beam:
                break
        beams = extended


QUERIES: Mapping[str, Callable[[SearchObjective, np.random.Generator], Queries]] = {
    "repeat": repeat,
    "coordinate": coordinate,
    "beam": beam,
}


def _chunks(objective: SearchObjective, tokens: np.ndarray) -> Iterator[np.ndarray]:
    size = objective.settings.candidates
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def swaps(ids: np.ndarray, position: int, start: int, tokens: np.ndarray) -> Query:
    """The tokens before `start`, and rows of those from there on, with each token at a position."""
    rows = np.tile(ids[start:], (len(tokens), 1))
    rows[:, position - start] = tokens
    return tuple(ids[:start].tolist()), rows


def starts_of(free: Sequence[int], shapes: int) -> dict[int, int]:
    """Position -> first position that is computed when it changes.

    Up to `shapes` positions start at themselves, which is the least that can be computed; of more,
    neighbours share a start, as each length is compiled.
    """
    parts = [part.tolist() for part in np.array_split(np.array(free), min(shapes, len(free)))]
    return {i: part[0] for part in parts for i in part}


class EnumerationDriver:
    """Drives a method of `ENUMERATIONS`; a step scores one query of each attempt."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self.objective = objective
        self.rejected = np.zeros(len(objective.signs), np.int64)
        self._suffixes = SuffixScorer(objective, scorer)
        method = QUERIES[objective.settings.method]
        rngs = [np.random.default_rng(stream) for stream in objective.streams()]
        self._generators = [method(objective, rng) for rng in rngs]
        self._queries: list[Query | None] = [next(each, None) for each in self._generators]
        attempts, length = len(self._generators), objective.settings.length
        self._sent: list[list[np.ndarray]] = [[] for _ in range(attempts)]
        self._rewards = np.full(attempts, -np.inf, np.float32)
        self._ids = np.zeros((attempts, length), np.int32)

    def advance(self, limit: int, budget: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `StepDriver.advance`."""
        rewards, ids, costs = [], [], []
        for _ in range(min(limit, self.objective.settings.every)):
            cost = max(
                (self._suffixes.flops(*query) for query in self._queries if query), default=0.0
            )
            if not cost or sum(costs) + cost > budget:
                break
            for attempt, query in enumerate(self._queries):
                if query:
                    sign = self.objective.signs[attempt]
                    self._send(attempt, query, sign * self._suffixes.rewards(*query))
            rewards.append(self._rewards.copy())
            ids.append(self._ids.copy())
            costs.append(cost)
        return (
            np.array(rewards, np.float32).reshape(-1, len(self._generators)),
            np.stack(ids) if ids else np.empty((0, *self._ids.shape), np.int32),
            np.array(costs),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The rewards that answered every query of each attempt."""
        return {
            f"told/{a}": np.concatenate(sent) if sent else np.empty(0, np.float32)
            for a, sent in enumerate(self._sent)
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Sends every generator the same rewards again."""
        for attempt in range(len(self._generators)):
            rest = arrays[f"told/{attempt}"]
            while len(rest):
                query = self._queries[attempt]
                assert query is not None, "more rewards than queries"
                rewards, rest = np.split(rest, [len(query[1])])
                self._send(attempt, query, rewards)

    def _send(self, attempt: int, query: Query, rewards: np.ndarray) -> None:
        beginning, rows = query
        if not np.isfinite(rewards).all():
            raise not_finite([*beginning, *rows[np.argmin(np.isfinite(rewards))]])
        self._sent[attempt].append(rewards)
        if len(beginning) + rows.shape[1] == self.objective.settings.length:
            for index in np.argsort(-rewards, kind="stable"):
                if not rewards[index] > self._rewards[attempt]:
                    break
                ids = np.array([*beginning, *rows[index]], np.int32)
                if self.objective.passes(ids):
                    self._rewards[attempt], self._ids[attempt] = rewards[index], ids
                    break
                self.rejected[attempt] += 1
        try:
            self._queries[attempt] = self._generators[attempt].send(rewards)
        except StopIteration:
            self._queries[attempt] = None


class SuffixScorer:
    """Rewards of a search's replies; keeps the keys and values of the last beginning."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self._objective, self._scorer = objective, scorer
        self._beginning: tuple[int, ...] | None = None
        self._prefixes: list[Prefix] = []

    def rewards(
        self,
        beginning: tuple[int, ...],
        rows: np.ndarray,
        advance: Callable[[int], object] = lambda rows: None,
    ) -> np.ndarray:
        """Mean rewards over the prompts, float32 [C], of rows [C, t] behind a beginning.

        `advance` is called with a number of rows that were scored, under one of the prompts.
        """
        prompts = [
            PromptIds(prompt=p.prompt, prefix=(*p.prefix, *beginning), suffix=p.suffix)
            for p in self._objective.prompts
        ]
        if beginning != self._beginning:
            room = self._objective.settings.length - len(beginning)  # one shape for all beginnings
            self._prefixes = [self._scorer.prefill(p, room) for p in prompts]
            self._beginning = beginning
        every = [
            self._scorer.rewards(prefix, token_candidates(prompt, rows), advance)[0]
            for prefix, prompt in zip(self._prefixes, prompts, strict=True)
        ]
        means: np.ndarray = np.stack(every).mean(axis=0, dtype=np.float32)
        return means

    def flops(self, beginning: tuple[int, ...], rows: np.ndarray) -> float:
        """Operations of `rewards`, the keys and values of the beginning left out."""
        positions = rows.shape[1] + len(self._objective.suffix)
        return sum(
            len(rows)
            * flops.response(self._objective.config, positions, len(p.prefix) + len(beginning))
            for p in self._objective.prompts
        )
