"""The certificate of a found sequence: no allowed swap of one of its tokens improves it.

A sweep scores every allowed token at one position; the sweeps of all free positions score
every single-token swap. If one improves, the sequence is replaced by the best, and its other
positions are swept again: the ascent. It ends when no swap improves, or with the budget of sweeps.

A swap improves if its gain exceeds the tolerance of the self-check, relative to max(1, |reward|).
The gain is taken within one sweep, which scores the sequence itself among its swaps: the two
rewards come from one program on one shape. Between sweeps, whose shapes differ, the sequence's
reward may move by that tolerance; more is an error.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer, tolerance_of_one
from engine.search.baselines import SuffixScorer, starts_of, swaps
from engine.search.loop import frame_of
from engine.search.objective import SearchObjective, not_finite
from engine.settings import DIRECTIONS, SearchSettings

_SHAPES = 8  # lengths of rows at most, as each is compiled


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionSweep:
    """What the swaps at one position gave; rewards are signed, so that higher is better."""

    position: int  # of the swapped token, from 0
    unchanged: float  # reward of the unchanged sequence in this sweep
    token: int  # id of the best swap that is admitted; -1: none is
    reward: float  # its reward
    gain: float  # how much better it is than the sequence; -inf: none is admitted
    second_gain: float  # that of the second-best admitted swap; -inf: there is none
    rejected: int  # swaps that improve the sequence but whose text does not tokenise back to them
    rejected_above: int  # rejected swaps that would also improve on the best admitted one

    # Any: JSON values.
    def to_json(self) -> list[Any]:
        """The fields in their order; JSON knows no infinity."""
        values = dataclasses.astuple(self)
        return [None if value == -np.inf else value for value in values]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "PositionSweep":
        """The inverse of `to_json`."""
        names = [field.name for field in dataclasses.fields(cls)]
        known: list[Any] = [-np.inf if value is None else value for value in values]
        return cls(**dict(zip(names, known, strict=True)))


class Ascent:
    """Where a certificate stands: a function of the found sequence and the sweeps so far."""

    def __init__(self, ids: np.ndarray, reward: float, free: Sequence[int], tolerance: float):
        self.ids, self.reward = np.array(ids, np.int32), float(reward)  # [T]; signed
        self.sweeps: list[PositionSweep] = []
        self.steps = 0  # swaps that were taken
        self.noise = 0.0  # largest difference between two rewards of one sequence
        self.history: list[tuple[np.ndarray, float]] = []  # sequence and reward after each sweep
        self._free, self._tolerance = tuple(free), tolerance
        self._last: dict[int, PositionSweep] = {}  # position -> its latest sweep
        self._here: dict[int, PositionSweep] = {}  # the same, of `ids`

    @property
    def certified(self) -> bool:
        """Whether every swap of the sequence was scored, and none improves."""
        return self.next_position() is None

    @property
    def margin(self) -> float:
        """The gain that a swap must exceed to improve the sequence."""
        return self._tolerance * max(1.0, abs(self.reward))

    @property
    def best_gain(self) -> float:
        """The largest gain of a swap of the sequence that was scored; -inf: none was admitted."""
        return max((sweep.gain for sweep in self._here.values()), default=-np.inf)

    @property
    def rejected(self) -> int:
        """Swaps of the sequence that improve but whose text does not tokenise back to them."""
        return sum(sweep.rejected for sweep in self._here.values())

    def next_position(self) -> int | None:
        """The position to sweep next; None: all swaps of the sequence were scored.

        First all in order, then those that had the best swaps before.
        """
        missing = [i for i in self._free if i not in self._here]
        if not missing:
            return None
        if len(self._last) < len(self._free):
            return missing[0]
        return max(missing, key=lambda i: self._last[i].gain)

    def take(self, sweep: PositionSweep) -> None:
        """Notes a sweep of `next_position`; moves to the best swap where one improves.

        It first moves when all positions were swept once. Raises AssayError for a sweep that gives
        the sequence another reward.
        """
        difference = abs(sweep.unchanged - self.reward)
        if not difference <= self.margin:
            raise AssayError(
                f"self-check of a certificate: reward {self.reward:.6g}, the sweep of position "
                f"{sweep.position} gives {sweep.unchanged:.6g}; allowed difference "
                f"{self.margin:.2g}"
            )
        self.noise = max(self.noise, difference)
        self.sweeps.append(sweep)
        self._last[sweep.position] = self._here[sweep.position] = sweep
        best = max(self._here.values(), key=lambda each: each.gain)
        if len(self._last) == len(self._free) and best.gain > self.margin:
            self.ids[best.position] = best.token
            self.reward, self.steps = best.reward, self.steps + 1
            # The sweep has scored the swaps of the new sequence at this position too.
            gain = max(best.second_gain, 0.0) - best.gain
            known = dataclasses.replace(best, gain=gain, rejected=best.rejected_above)
            self._here = {best.position: known}
        self.history.append((self.ids.copy(), self.reward))


# Any: values of a trace's row.
def run_certificate(
    objective: SearchObjective,
    scorer: RewardScorer,
    found: Mapping[str, Any],
    known: Iterable[PositionSweep] = (),
    *,
    step_size: int = 0,
    save: Callable[[Ascent], object] = lambda ascent: None,
    advance: Callable[[int], object] = lambda swaps: None,
) -> Ascent:
    """Sweeps until no swap improves, or `settings.certify` sweeps are done.

    It goes on from the `known` sweeps of the `token_ids` and `reward` that were found, in one
    direction, in steps of `step_size` swaps on each device; 0: the scorer's. After each sweep it
    calls `save`, and `advance` with numbers of swaps that were scored.

    Raises:
      AssayError: a reward that is not finite, or one sequence with two rewards.
    """
    settings = objective.settings
    scorer = dataclasses.replace(scorer, step_size=step_size or scorer.step_size)
    tolerance = tolerance_of_one(settings.dtype, objective.config)
    reward = DIRECTIONS[settings.direction] * found["reward"]
    ascent = Ascent(found["token_ids"], reward, settings.free, tolerance)
    suffixes, starts = SuffixScorer(objective, scorer), starts_of(settings.free, _SHAPES)
    tokens = np.flatnonzero(objective.allowed)  # the one that is there is scored with the others
    for sweep in known:
        ascent.take(sweep)
    while len(ascent.sweeps) < settings.certify:
        position = ascent.next_position()
        if position is None:
            break
        beginning, rows = swaps(ascent.ids, position, starts[position], tokens)
        rewards = objective.signs[0] * suffixes.rewards(beginning, rows, advance)
        ascent.take(judged(objective, ascent.ids, position, rewards))
        save(ascent)
    return ascent


def judged(
    objective: SearchObjective, ids: np.ndarray, position: int, rewards: np.ndarray
) -> PositionSweep:
    """The sweep of a position of a sequence, from the signed rewards of its `swaps`."""
    tokens = np.flatnonzero(objective.allowed)

    def swapped(place: int) -> np.ndarray:
        changed = np.array(ids, np.int32)
        changed[position] = tokens[place]
        return changed

    if not np.isfinite(rewards).all():
        raise not_finite(swapped(int(np.argmin(np.isfinite(rewards)))))
    here = int(np.searchsorted(tokens, ids[position]))  # the swap that changes nothing
    good, unchanged = _good(rewards, objective.settings.target), float(rewards[here])
    gains = good - good[here]
    tolerance = tolerance_of_one(objective.settings.dtype, objective.config)
    margin = tolerance * max(1.0, abs(unchanged))
    order = np.argsort(-gains, kind="stable")
    admitted = (int(p) for p in order if p != here and objective.passes(swapped(p)))
    best, second = next(admitted, None), next(admitted, None)
    gain = -np.inf if best is None else float(gains[best])
    return PositionSweep(
        position=position,
        unchanged=unchanged,
        token=-1 if best is None else int(tokens[best]),
        reward=unchanged if best is None else float(rewards[best]),
        gain=gain,
        second_gain=-np.inf if second is None else float(gains[second]),
        rejected=int((gains > max(gain, margin)).sum()),
        rejected_above=int((gains > max(gain, 0.0) + margin).sum()),
    )


def _good(rewards: np.ndarray, target: float) -> np.ndarray:
    """What a search seeks, in units of the reward: float64 [C], higher is better."""
    exact = rewards.astype(np.float64)
    return -np.abs(exact - target) if target else exact


def ascent_frame(
    objective: SearchObjective, scorer: RewardScorer, ascent: Ascent, spent: float
) -> pl.DataFrame:
    """The sequence after each sweep: `schema.SEQUENCE_COLUMNS`; a step is a sweep.

    `spent` are operations of the search before.
    """
    settings, tokens = objective.settings, np.flatnonzero(objective.allowed)
    suffixes, starts = SuffixScorer(objective, scorer), starts_of(settings.free, _SHAPES)
    ids, rewards = (np.array(each) for each in zip(*ascent.history, strict=True))
    costs = {i: suffixes.flops(*swaps(ids[0], i, start, tokens)) for i, start in starts.items()}
    flops = spent + np.cumsum([costs[sweep.position] for sweep in ascent.sweeps])
    steps = np.arange(1, len(ids) + 1)
    return frame_of(objective, settings.direction, steps, rewards.astype(np.float32), ids, flops)


def summary(objective: SearchObjective, ascent: Ascent, found: Mapping[str, Any]) -> Json:
    """What a certificate says of what was found, as JSON values (docs/run-format.md)."""
    tokens, settings = int(objective.allowed.sum()), objective.settings
    return {
        "certified": ascent.certified,
        "sweeps": len(ascent.sweeps),
        "swaps": len(ascent.sweeps) * (tokens - 1),
        "ascent_steps": ascent.steps,
        "best_gain": ascent.best_gain if np.isfinite(ascent.best_gain) else None,
        "margin": ascent.margin,
        "noise": ascent.noise,
        "target": DIRECTIONS[settings.direction] * settings.target if settings.target else None,
        "searched_reward": found["reward"],
        "searched_ids": list(found["token_ids"]),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the swaps of single tokens say about a reply.

    Attributes:
      certified: whether every allowed swap was scored, and none improves the last reply.
      sweeps: positions that were swept.
      swaps: rewards of swaps that were computed.
      ascent_steps: swaps that were taken.
      best_gain: of a swap of the last reply that was scored, in the direction sought; None: no
        swap is admitted.
      margin: what a gain must exceed to improve the reply.
      noise: largest difference between two rewards of one reply.
      steps: the reply after each sweep, as a trace's frame.
    """

    certified: bool
    sweeps: int
    swaps: int
    ascent_steps: int
    best_gain: float | None
    margin: float
    noise: float
    steps: pl.DataFrame


# Any: values of a trace's row.
def of_found(
    objective: SearchObjective, scorer: RewardScorer, found: Mapping[str, Any]
) -> Certificate:
    """The certificate of `token_ids` and `reward` that were found, with `flops` or without.

    The settings' `certify_step` are its swaps per step; 0: the scorer's.
    """
    step = objective.settings.certify_step
    ascent = run_certificate(objective, scorer, found, step_size=step)
    steps = ascent_frame(objective, scorer, ascent, found.get("flops", 0.0))
    said = summary(objective, ascent, found)
    names = [field.name for field in dataclasses.fields(Certificate) if field.name != "steps"]
    return Certificate(steps=steps, **{name: said[name] for name in names})


def of_reply(
    objective: SearchObjective,
    scorer: RewardScorer,
    ids: Sequence[int],
    sweeps: int,
    *,
    fixed: tuple[int, ...] = (),
    round_trip: bool = SearchSettings.round_trip,
) -> Certificate:
    """The certificate of any reply; raises AssayError for one that is not admitted."""
    settings = dataclasses.replace(
        objective.settings,
        fixed=fixed,
        round_trip=round_trip,
        certify=sweeps,
        initial="given" if fixed else "",
    )
    objective = dataclasses.replace(objective, settings=settings)
    objective.check(ids, "reply")
    [split] = objective.prompts
    reward = float(scorer.plain_rewards([[*split.prefix, *ids, *split.suffix]])[0, 0])
    found = {"token_ids": list(map(int, ids)), "reward": reward}
    return of_found(objective, scorer, found)
