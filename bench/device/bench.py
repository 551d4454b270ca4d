"""What the sections of one model share: its weights, the mesh, the clock, and measured ceilings."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import models
from bench.support.matmul import Step
from engine.scoring.reward_passes import RewardScorer
from engine.types import Prefix, PromptIds

GIB = 2**30
_PREFIX_MULTIPLE = 16  # a prefix is padded to a multiple of it


class Skipped(Exception):
    """A section that this machine, or the time left, does not allow; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a section found.

    Attributes:
      text: lines for a person.
      result: the same numbers by name, for the JSON file; units are in the names.
    """

    text: str
    # Any: JSON values.
    result: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The fastest that the device multiplied and copied.

    Attributes:
      flops_per_s: by candidates in a step, of the step's matrix products alone.
      bytes_per_s: of a copy, bytes read and written.
    """

    flops_per_s: Mapping[int, float]
    bytes_per_s: float

    def floor_s(self, flops: float, moved: float) -> float:
        """Seconds below which no program gets: the arithmetic's or the memory's, the larger."""
        return max(flops / max(self.flops_per_s.values()), moved / self.bytes_per_s)


@dataclasses.dataclass
class Bench:
    """One model on one device.

    Attributes:
      model: its shapes.
      toy: whether they are toy shapes.
      until: Unix time at which the sections must have ended.
      step_sizes: candidates in a step, those that are measured.
      ceiling: of the device, once its section has measured it.
      fastest: the step size with the most candidates/s, and that rate, once measured.
    """

    model: models.Model
    toy: bool
    until: float
    step_sizes: list[int]
    ceiling: Ceiling | None = None
    fastest: tuple[int, float] | None = None

    @property
    def left_s(self) -> float:
        """Seconds that are left for all remaining sections."""
        return self.until - time.time()

    @functools.cached_property
    def device(self) -> jax.Device:
        """The device that is measured: the first."""
        return jax.devices()[0]

    @functools.cached_property
    def scorer(self) -> RewardScorer:
        """The engine's scorer over random bfloat16 weights, with the largest step size.

        Raises:
          Skipped: the weights do not fit on the device.
        """
        self.check_room()
        mesh = models.one_device(self.device)
        graph, params = models.random_model(self.model, mesh, jnp.dtype("bfloat16"))
        jax.block_until_ready(params)
        return RewardScorer.build(graph, params, mesh, step_size=max(self.step_sizes))

    def scorer_of(self, step_size: int) -> RewardScorer:
        """The same weights with another step size."""
        return dataclasses.replace(self.scorer, step_size=step_size)

    @functools.cached_property
    def prompt(self) -> PromptIds:
        """A prompt of random ids."""
        return self.model.prompt()

    @functools.cached_property
    def prefix(self) -> Prefix:
        """Its keys and values on the device."""
        return jax.block_until_ready(self.scorer.prefill(self.prompt))

    @property
    def padded_prefix(self) -> int:
        """Positions of the prefix with its padding, which is computed too."""
        return -(-self.model.prefix // _PREFIX_MULTIPLE) * _PREFIX_MULTIPLE

    def step(self, candidates: int) -> Step:
        """The shapes of a step that scores tokens."""
        return Step(
            config=self.model.decoder,
            candidates=candidates,
            positions=1 + self.model.suffix,
            prefix=self.padded_prefix,
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters in bfloat16."""
        return models.weight_bytes(self.model, jnp.dtype("bfloat16"))

    @property
    def layer_bytes(self) -> int:
        """Bytes of the layers' parameters, which every pass reads once."""
        return models.layer_bytes(self.model, jnp.dtype("bfloat16"))

    def check_room(self) -> None:
        """Raises Skipped where the weights are larger than the device's memory."""
        room = (self.device.memory_stats() or {}).get("bytes_limit")
        if room and self.weight_bytes > room:
            raise Skipped(
                f"does not fit: {self.weight_bytes / GIB:.1f} GiB of weights, "
                f"{room / GIB:.1f} GiB of memory that JAX may use"
            )

    def ceilings(self) -> Ceiling:
        """The device's ceilings, measured now if their section has not run."""
        if self.ceiling is None:
            from bench.device.ceiling import measured  # it imports this module

            self.ceiling = measured(self)[0]
        return self.ceiling

    @property
    def best_size(self) -> int:
        """The fastest step size; the first one where the sweep was not measured."""
        return self.fastest[0] if self.fastest else self.step_sizes[0]


def seconds_of(run: Callable[[], object], *, at_least_s: float, most: int = 50) -> list[float]:
    """Seconds of each of several runs; `run` has been run before and waits for the device."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < at_least_s and len(times) < most):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def check_rewards(rewards: np.ndarray) -> None:
    """Raises ValueError where rewards are not finite or do not vary: a speed would mean nothing."""
    if not np.isfinite(rewards).all():
        raise ValueError(f"{np.sum(~np.isfinite(rewards))} of {rewards.size} rewards not finite")
    if rewards.size > 1 and not np.std(rewards) > 0:
        raise ValueError(f"all {rewards.size} rewards are equal")
