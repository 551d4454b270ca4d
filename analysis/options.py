"""Settings of a report; `configs/analyze.py` declares each with its default."""

import dataclasses

from engine.errors import AssayError

_FLAGS = (
    "shared_trim",
    "shared_fold_case",
    "shared_round_trip",
    "shared_ends",
    "humans_in_median",
)
_MATCH_TRIM = ("auto", "always", "never")
_FILES = ("afinn", "frequency", "bing", "identity", "categories", "questions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Choices of the analyses.

    Attributes:
      shared_trim: strings that differ only in outer spaces are one string of the shared vocabulary.
      shared_fold_case: strings that differ only in case are one string of the shared vocabulary.
      shared_round_trip: the shared vocabulary takes only tokens whose text tokenises to
        themselves in every model.
      shared_ends: whether the top and bottom tokens of each model, and of the sum and difference of
        the prompts of `framing`, are also listed on the shared vocabulary (Tables A7-A9).
      match_trim: whether a token matches a word of a lexicon whatever its outer spaces: "always",
        "never" (as in the paper, where " love" matches nothing), or "auto": in results of mode
        `ids` and in log-probabilities, in which " love" and "love" are two replies, but not in
        results of mode `text`, in which a template trims one to the other, nor where the mode is
        not known (imported scores). Case never counts, as in the paper.
      afinn: path of an AFINN file (word, tab, value); "" takes the one of the package `afinn`,
        where that is installed.
      frequency: path of a word list of the BNC; "" takes the package `wordfreq`, where that is
        installed.
      bing: path of a Bing Liu lexicon (word, sentiment); "" leaves that analysis out.
      identity: path of a CSV of identity terms that is added to the built-in list; "" adds none.
      categories: path of a CSV of words in categories (word, category, and scale where there are
        several), which replaces the built-in list; "" takes the built-in one.
      questions: path of a CSV (prompt, question, framing) that says which prompts ask one
        question; "" reads it from their texts alone.
      framing: prompt ids of good and bad; "greatest" replaces the first where it was not scored.
      humans_matches: items that people compared fewer times are left out of the comparison with
        people; 0 keeps all, as the paper does.
      humans_in_median: the quirk of the released code: the median rank of the models includes the
        human ranks.
      rbo_p: persistence of rank-biased overlap, in (0, 1).
      permutations: draws of each permutation test.
      bootstraps: draws of each bootstrap interval.
      seed: seed of all draws.
    """

    shared_trim: bool
    shared_fold_case: bool
    shared_round_trip: bool
    shared_ends: bool
    match_trim: str
    afinn: str
    frequency: str
    bing: str
    identity: str
    categories: str
    questions: str
    framing: tuple[str, str]
    humans_matches: int
    humans_in_median: bool
    rbo_p: float
    permutations: int
    bootstraps: int
    seed: int

    def __post_init__(self) -> None:
        for key in _FLAGS:
            self._require(key, type(getattr(self, key)) is bool, "True, False")
        for key in _FILES:
            self._require(key, isinstance(getattr(self, key), str), "a path, or ''")
        for key in ("permutations", "bootstraps"):
            value = getattr(self, key)
            self._require(key, type(value) is int and value >= 99, "integers >= 99")
        matches = type(self.humans_matches) is int and self.humans_matches >= 0
        self._require("humans_matches", matches, "integers >= 0")
        allowed = ", ".join(map(repr, _MATCH_TRIM))
        self._require("match_trim", self.match_trim in _MATCH_TRIM, allowed)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Settings of one report.

    Attributes:
      top: tokens at each end in the tables.
      figure_top: tokens at each end in the figures and in the lists of the page.
      page_prompts: prompts of vocabularies that most sections of the page show; the tables hold
        all of them.
      allow_incomplete: report on a sweep that has not finished.
      options: choices of the analyses.
    """

    top: int
    figure_top: int
    page_prompts: int
    allow_incomplete: bool
    options: Options

    def __post_init__(self) -> None:
        for key in ("top", "figure_top", "page_prompts"):
            value = getattr(self, key)
            if type(value) is not int or value < 1:
                raise AssayError(f"analyze.{key}={value!r}; allowed: integers >= 1")
        if self.figure_top > self.top:
            raise AssayError(
                f"analyze.figure_top={self.figure_top!r}; allowed: at most top={self.top}"
            )
        if type(self.allow_incomplete) is not bool:
            raise AssayError(
                f"analyze.allow_incomplete={self.allow_incomplete!r}; allowed: True, False"
            )
