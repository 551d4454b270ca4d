"""Choices that the analyses leave to their user; `configs/analyze.py` declares each."""

import dataclasses

from engine.errors import AssayError

_FLAGS = (
    "shared_trim",
    "shared_fold_case",
    "shared_round_trip",
    "match_trim",
    "humans_in_median",
)
_FILES = ("afinn", "frequency", "bing", "identity")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How the analyses match and draw; the defaults do the right thing, not the paper's slips.

    Attributes:
      shared_trim: strings that differ only in outer spaces are one in the shared vocabulary.
      shared_fold_case: so are strings that differ only in case.
      shared_round_trip: the shared vocabulary takes only tokens whose text tokenises to
        themselves in every model.
      match_trim: a token matches a word of a lexicon whatever its outer spaces (the paper: no,
        so that " love" matches nothing); case never counts, as in the paper.
      afinn: path of an AFINN file (word, tab, value); "" takes the one of the package `afinn`,
        where that is installed.
      frequency: path of a word list of the BNC; "" takes the package `wordfreq`, where that is
        installed.
      bing: path of a Bing Liu lexicon (word, sentiment); "" leaves that analysis out.
      identity: path of a CSV of identity terms that adds to ours; "" for ours alone.
      framing: prompt ids of good and bad; "greatest" stands in for the first where it lacks.
      humans_in_median: the released quirk: humans count among the models in the median rank.
      rbo_p: persistence of rank-biased overlap, in (0, 1).
      permutations: draws of each permutation test.
      bootstraps: draws of each bootstrap interval.
      seed: of both.
    """

    shared_trim: bool = False
    shared_fold_case: bool = False
    shared_round_trip: bool = False
    match_trim: bool = False
    afinn: str = ""
    frequency: str = ""
    bing: str = ""
    identity: str = ""
    framing: tuple[str, str] = ("best", "worst")
    humans_in_median: bool = False
    rbo_p: float = 0.9
    permutations: int = 9_999
    bootstraps: int = 2_000
    seed: int = 0

    def __post_init__(self):
        for key in _FLAGS:
            self._require(key, type(getattr(self, key)) is bool, "True, False")
        for key in _FILES:
            self._require(key, isinstance(getattr(self, key), str), "a path, or ''")
        for key in ("permutations", "bootstraps"):
            value = getattr(self, key)
            self._require(key, type(value) is int and value >= 99, "integers >= 99")
        self._require("seed", type(self.seed) is int and self.seed >= 0, "integers >= 0")
        between = isinstance(self.rbo_p, float) and 0 < self.rbo_p < 1
        self._require("rbo_p", between, "numbers between 0 and 1")
        names = self.framing
        pair = isinstance(names, tuple) and len(names) == 2 and names[0] != names[-1]
        self._require("framing", pair, "two different prompt ids")

    def _require(self, key: str, holds: bool, allowed: str) -> None:
        if not holds:
            value = getattr(self, key)
            raise AssayError(f"analyze.options.{key}={value!r}; allowed: {allowed}")
