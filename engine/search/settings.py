"""What a search is told, and what each method is made of."""

import dataclasses
import math
from typing import Any

from engine.errors import AssayError
from engine.scoring.reward_passes import dtype_named

DIRECTIONS = {"max": 1, "min": -1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A method that climbs by the compiled step: where its candidates come from, what it keeps.

    propose: `gradient` (top-k of each position by the first-order gain), `pairs` (the best pairs of
      position and token), `mutation` (uniform tokens at a few positions), `fresh` (uniform
      sequences).
    keep: `elite` (the best so far), `latest` (the best candidate of each step, better or not,
      unless it was visited lately).
    """

    propose: str
    keep: str = "elite"


CLIMBS = {
    "gcg": Method(propose="gradient"),
    "mutate": Method(propose="mutation"),
    "random": Method(propose="fresh"),
    "paper": Method(propose="pairs", keep="latest"),
}
SWEEPS = ("repeat", "coordinate", "beam")
METHODS = (*CLIMBS, *SWEEPS)

_COUNTS = {
    "length": 1, "steps": 1, "candidates": 1, "topk": 1, "restarts": 1, "buffer": 1, "beam": 1,
    "replace_first": 1, "replace_last": 1, "every": 1, "seed": 0, "patience": 0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How sequences are searched; all but `every` decide what is found."""

    method: str
    direction: str  # max, min or both
    length: int  # tokens of the reply
    steps: int
    flops: float  # budget of a direction; 0: none but `steps`
    candidates: int  # scored a step and restart
    topk: int  # tokens a position that are proposed; 0 < topk <= what the filters leave
    restarts: int
    buffer: int  # sequences that a restart keeps (paper: visited ones that it will not visit again)
    beam: int  # sequences that a beam search extends
    replace_first: int  # most tokens that a candidate changes, in the first step …
    replace_last: int  # … and in the last that steps and flops allow; linear between
    temperature: float  # of proposals, in standard deviations of the gain; inf: uniform in the topk
    spread: float  # of the parent over the buffer, in ranks; 0: always the best
    distance: float  # weight of the distance between embeddings (Faster-GCG)
    target: float  # climb towards ±target by squared distance, and stop there; 0: no target
    wrong_sign: bool  # the released code's slip: the gradient aims at the maximum in `min` too
    ascii_only: bool
    specials: bool  # special tokens may be used
    allow: tuple[str, ...]  # the only texts of tokens that may be used; empty: all
    deny: tuple[str, ...]  # texts of tokens that may not be used
    fixed: tuple[int, ...]  # positions of `initial` that stay
    initial: str  # where every restart begins; "": random tokens
    round_trip: bool  # only sequences whose text tokenises back to them
    patience: int  # steps without a better reward after which a search ends; 0: never
    threshold: float  # ends at reward >= it (max), or <= minus it (min); inf: never
    every: int  # steps between the host's looks
    dtype: str
    seed: int

    def __post_init__(self):
        dtype_named(self.dtype)
        _one_of("method", self.method, METHODS)
        _one_of("direction", self.direction, (*DIRECTIONS, "both"))
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")
        for name in ("flops", "spread", "distance", "target"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise AssayError(f"{name}={value!r}; allowed: finite numbers >= 0")
        if math.isnan(self.threshold):
            raise AssayError("threshold=nan; allowed: numbers, or inf")
        if not self.temperature > 0:
            raise AssayError(f"temperature={self.temperature!r}; allowed: numbers > 0, or inf")
        for position in self.fixed:
            if not 0 <= position < self.length:
                raise AssayError(f"fixed={position}; allowed: positions 0 to {self.length - 1}")
        if self.fixed and not self.initial:
            raise AssayError("fixed positions need an initial string to take their tokens from")
        if len(set(self.fixed)) == self.length:
            raise AssayError(f"fixed={self.fixed}: every position; allowed: at least one is free")

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions that are sought."""
        return tuple(DIRECTIONS) if self.direction == "both" else (self.direction,)

    @property
    def attempts(self) -> int:
        """Attempts a direction: restarts, where they differ."""
        return 1 if self.method in ("repeat", "beam") else self.restarts

    @property
    def free(self) -> tuple[int, ...]:
        """Positions that may change, ascending."""
        return tuple(i for i in range(self.length) if i not in self.fixed)

    def of_a_step(self) -> "SearchSettings":
        """These with what no compiled step depends on at one value: equal ones share a step."""
        return dataclasses.replace(
            self, direction="max", steps=1, flops=0.0, restarts=1, buffer=1, beam=1, patience=0,
            threshold=math.inf, ascii_only=False, specials=False, allow=(), deny=(),
            initial="given" if self.fixed else "", round_trip=False, dtype="float32", seed=0,
        )  # fmt: skip

    def fingerprint(self, direction: str) -> dict[str, Any]:
        """What must agree for a search to be continued; without what cannot change its result."""
        fields = dataclasses.asdict(self) | {"direction": direction}
        return {k: list(v) if isinstance(v, tuple) else v
                for k, v in fields.items() if k != "every"}  # fmt: skip


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AssayError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")
