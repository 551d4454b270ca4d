"""Search methods without a gradient that enumerate the vocabulary: repeat, coordinate, beam.

Each method is a generator. It yields a query, rows of tokens behind a common beginning, and is sent
their rewards. A generator cannot be saved, but it is deterministic: a resumed search sends it the
same rewards again (`drivers.EnumerationDriver`).
"""

from collections.abc import Callable, Generator, Iterator, Mapping

import numpy as np

from engine.search.objective import SearchObjective

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
    starts = _starts(settings.free)
    current = objective.initial()[0] if settings.initial else objective.draw(rng)
    best = -np.inf
    while True:
        before = best
        for position in rng.permutation(settings.free).tolist():
            start, rewards = starts[position], []
            for chunk in _chunks(objective, tokens):
                rows = np.tile(current[start:], (len(chunk), 1))
                rows[:, position - start] = chunk
                rewards.append((yield tuple(current[:start].tolist()), rows))
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


def _starts(free: tuple[int, ...]) -> dict[int, int]:
    """Position -> first position that is computed when it changes; few, as each is compiled."""
    count = min(_MAX_STARTS, max(1, len(free) // 2))
    parts = [part.tolist() for part in np.array_split(np.array(free), count)]
    return {i: part[0] for part in parts for i in part}
