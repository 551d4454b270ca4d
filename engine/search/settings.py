"""Settings of a search, their defaults, and the search methods."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError
from engine.scoring.reward_passes import dtype_named

DIRECTIONS = {"max": 1, "min": -1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMethod:
    """A method that runs the compiled step: how it proposes candidates and which it keeps.

    Attributes:
      propose: `gradient` draws from the top-k tokens of each position by first-order gain; `pairs`
        takes the best pairs of position and token; `mutation` draws uniform tokens at a few
        positions; `fresh` draws uniform sequences.
      keep: `elite` keeps the best sequences so far; `latest` keeps the best candidate of each step,
        even if it is worse than its parent, unless it was visited recently.
    """

    propose: str
    keep: str = "elite"

    @property
    def gradient(self) -> bool:
        """Whether a step takes the gradient of its parent's reward."""
        return self.propose in ("gradient", "pairs")


STEP_METHODS = {
    "gcg-merged": StepMethod(propose="gradient", keep="latest"),
    "gcg-original": StepMethod(propose="gradient", keep="latest"),
    "gcg": StepMethod(propose="gradient"),
    "mutate": StepMethod(propose="mutation"),
    "random": StepMethod(propose="fresh"),
    "paper": StepMethod(propose="pairs", keep="latest"),
}
ENUMERATIONS = ("repeat", "coordinate", "beam")
METHODS = (*STEP_METHODS, *ENUMERATIONS)

# Defaults of the default method; Any: settings are of several types. configs/gcg.py, which may not
# import the engine, repeats those that all methods share: a test compares the two.
DEFAULTS: dict[str, Any] = {
    "method": "gcg-merged",
    "length": 8,
    "steps": 500,
    "flops": 0.0,
    "candidates": 64,
    "topk": 256,
    "restarts": 1,
    "buffer": 1,
    "beam": 8,
    "replace_first": 1,
    "replace_last": 1,
    "temperature": math.inf,
    "spread": 0.0,
    "distance": 0.0,
    "momentum": 0.0,
    "screen": 0,
    "merge": 7,
    "target": 0.0,
    "wrong_sign": False,
    "ascii_only": True,
    "specials": False,
    "allow": (),
    "deny": (),
    "fixed": (),
    "initial": "",
    "round_trip": True,
    "patience": 0,
    "threshold": math.inf,
    "certify": 0,
    "certify_step": 0,
    "every": 10,
    "seed": 0,
}

# What other methods have in their place.
_BUFFERED = {"buffer": 8, "replace_first": 4, "temperature": 1.0, "spread": 2.0, "merge": 0}
_OTHERS = dict.fromkeys(METHODS, _BUFFERED) | {"gcg-original": {"merge": 0}, "gcg-merged": {}}


def with_defaults(given: Mapping[str, Any], *, universal: bool = False) -> dict[str, Any]:
    """The given settings, and the defaults of their method for those that are missing or None.

    Args:
      given: by name.
      universal: of a search for several models or prompts, whose default method is `gcg`.
    """
    own = {name: value for name, value in given.items() if value is not None}
    own = {"method": "gcg" if universal else DEFAULTS["method"]} | own
    every: dict[str, Any] = DEFAULTS | _OTHERS.get(str(own["method"]), {}) | own
    scored = every["screen"] or every["candidates"]
    if "merge" not in own and isinstance(scored, int) and scored < every["merge"]:
        every["merge"] = scored if scored > 1 else 0
    return every


# Least values of the integers; 1 for the others.
_SMALLEST = dict.fromkeys(("seed", "patience", "certify", "certify_step", "screen", "merge"), 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings of a search; its result depends on all but `every` and those of certificates."""

    method: str  # one of METHODS
    direction: str  # max, min, both
    length: int  # tokens of the reply
    steps: int  # one step of an enumeration scores `candidates` tokens
    flops: float  # budget of each direction; 0: `steps` alone
    candidates: int  # scored per step and restart
    topk: int  # tokens per position that may be proposed
    restarts: int  # attempts per direction, side by side
    buffer: int  # sequences that an attempt keeps
    beam: int  # beginnings that `beam` keeps
    replace_first: int  # most tokens that a candidate changes, in the first step …
    replace_last: int  # … and in the last that steps and flops allow; linear between
    temperature: float  # of proposals, in standard deviations of the gain; inf: uniform in the topk
    spread: float  # of the parent over the buffer, in ranks; 0: always the best
    distance: float  # weight of the distance between embeddings (Faster-GCG)
    momentum: float  # weight of the earlier gradients in their running mean (MAC)
    screen: int  # candidates scored, those that half of the layers rate highest; 0: all
    merge: int  # best candidates whose changes are also tried together (I-GCG); 0: none
    target: float  # approach ±target by squared distance, and stop there; 0: no target
    wrong_sign: bool  # bug of the code of Christian et al. 2025: `min` takes the gradient of `max`
    ascii_only: bool  # printable ASCII alone
    specials: bool  # special tokens may be used
    allow: tuple[str, ...]  # texts of the only tokens that may be used; empty: all
    deny: tuple[str, ...]  # texts of tokens that may not be used
    fixed: tuple[int, ...]  # positions of `initial` that stay
    initial: str  # where every restart begins; "": random tokens
    round_trip: bool  # only sequences whose text tokenises back to them
    patience: int  # steps without a better reward after which a search ends; 0: never
    threshold: float  # end at reward >= threshold (max) or <= -threshold (min); inf: never
    certify: int  # sweeps of the vocabulary, one per position, to certify what is found; 0: none
    certify_step: int  # swaps per step on each device; 0: as memory and kind of device allow
    every: int  # steps between two host updates
    dtype: str  # of the decoder
    seed: int

    def __post_init__(self) -> None:
        dtype_named(self.dtype)
        _one_of("method", self.method, METHODS)
        _one_of("direction", self.direction, (*DIRECTIONS, "both"))
        for name in (field.name for field in dataclasses.fields(self) if field.type is int):
            value, least = getattr(self, name), _SMALLEST.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name}={value!r}; allowed: integers >= {least}")
        for name in ("flops", "spread", "distance", "momentum", "target"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise AssayError(f"{name}={value!r}; allowed: finite numbers >= 0")
        method = STEP_METHODS.get(self.method)
        for name in ("momentum", "screen", "merge"):
            if getattr(self, name) and (method is None or not method.gradient):
                allowed = ", ".join(repr(m) for m, own in STEP_METHODS.items() if own.gradient)
                raise AssayError(
                    f"{name}={getattr(self, name)!r} with method={self.method!r}; allowed: 0, or "
                    f"method={allowed}"
                )
        if not self.momentum < 1:
            raise AssayError(f"momentum={self.momentum!r}; allowed: numbers >= 0 and < 1")
        if self.screen >= self.candidates:
            raise AssayError(
                f"screen={self.screen}; allowed: 0, or fewer than the {self.candidates} candidates"
            )
        if self.merge == 1 or self.merge > (self.screen or self.candidates):
            raise AssayError(
                f"merge={self.merge}; allowed: 0, or 2 to {self.screen or self.candidates}, the "
                "candidates that are scored"
            )
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
        if 0 < self.certify < len(self.free):
            raise AssayError(
                f"certify={self.certify}; allowed: 0, or at least {len(self.free)} sweeps, one for "
                "each free position"
            )

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions that are searched."""
        return tuple(DIRECTIONS) if self.direction == "both" else (self.direction,)

    @property
    def attempts(self) -> int:
        """Attempts per direction: the restarts, or 1 for methods whose restarts are identical."""
        return 1 if self.method in ("repeat", "beam") else self.restarts

    @property
    def free(self) -> tuple[int, ...]:
        """Positions that may change, ascending."""
        return tuple(i for i in range(self.length) if i not in self.fixed)

    def of_compiled_step(self) -> "SearchSettings":
        """These settings with every field that no compiled step reads set to a fixed value.

        Searches for which the results are equal share one compiled step.
        """
        return dataclasses.replace(
            self,
            direction="max",
            steps=1,
            flops=0.0,
            restarts=1,
            buffer=1,
            beam=1,
            patience=0,
            threshold=math.inf,
            certify=0,
            certify_step=0,
            ascii_only=False,
            specials=False,
            allow=(),
            deny=(),
            initial="given" if self.fixed else "",
            round_trip=False,
            dtype="float32",
            seed=0,
        )

    # Any: JSON values.
    def fingerprint(self, direction: str) -> dict[str, Any]:
        """Settings that must agree for a search to be resumed, as JSON values."""
        fields = dataclasses.asdict(self) | {"direction": direction}
        for name in ("every", "certify", "certify_step"):  # cannot change the result
            del fields[name]
        for name in ("momentum", "screen", "merge"):  # searches that are older have not said them
            if not fields[name]:
                del fields[name]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AssayError(f"{name}={value!r}; allowed: {', '.join(map(repr, allowed))}")
