"""Choices of the analyses, and the limits of a comparison (`engine.settings` has all others)."""

import dataclasses
import math

from engine.errors import AssayError
from engine.settings import check_choice, check_integer, check_switch, is_number, setting

_SWITCHES = ("humans_in_median",)
_MATCH_TRIM = ("auto", "always", "never")
_FREQUENCY_JOIN = ("forms", "paper")
_FILES = ("afinn", "frequency", "identity", "categories", "questions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Choices of the analyses."""

    match_trim: str = setting(
        'Does " love" match "love" in a list of words? "always", "never" (as in the paper), or '
        '"auto": "always" for mode ids and log-probabilities, "never" for mode text and imported '
        "scores. Case never counts.",
        "auto",
    )
    afinn: str = setting("AFINN file (word, tab, value); empty: the package afinn, if there.", "")
    frequency: str = setting("BNC word list; empty: the package wordfreq.", "")
    frequency_join: str = setting(
        'Which BNC entries match a token. "forms": word forms, summed over parts of speech. '
        '"paper": head words; a word counts once per part of speech.',
        "forms",
    )
    identity: str = setting("CSV of more identity terms (word, group, axis, stem).", "")
    categories: str = setting(
        "CSV of words (word, category, and scale if several); empty: the built-in list.", ""
    )
    questions: str = setting(
        "CSV of what prompts ask for (prompt, question, framing); empty: taken from their texts.",
        "",
    )
    framing: tuple[str, str] = setting(
        'Ids of a prompt about good and one about bad; if the first was not scored, "greatest".',
        ("best", "worst"),
    )
    humans_matches: int = setting(
        "Leave items that people compared fewer times out of the comparison with people; 0 keeps "
        "all, as the paper does.",
        50,
    )
    humans_in_median: bool = setting(
        "Include the human ranks in the models' median rank, as in the released code.", False
    )
    permutations: int = setting("Random permutations per test.", 9_999)
    bootstraps: int = setting("Bootstrap samples per interval.", 2_000)
    seed: int = setting("Seed of the permutations and bootstrap samples.", 0)

    def __post_init__(self) -> None:
        for key in _SWITCHES:
            check_switch(f"analyze.options.{key}", getattr(self, key))
        for key in _FILES:
            self._require(key, isinstance(getattr(self, key), str), "a path, or ''")
        least = {"permutations": 99, "bootstraps": 99, "humans_matches": 0, "seed": 0}
        for key, low in least.items():
            check_integer(f"analyze.options.{key}", getattr(self, key), low)
        check_choice("analyze.options.match_trim", self.match_trim, _MATCH_TRIM)
        check_choice("analyze.options.frequency_join", self.frequency_join, _FREQUENCY_JOIN)
        names = self.framing
        pair = isinstance(names, tuple) and len(names) == 2 and names[0] != names[-1]
        self._require("framing", pair, "two different prompt ids")

    def _require(self, key: str, holds: bool, allowed: str) -> None:
        if not holds:
            value = getattr(self, key)
            raise AssayError(f"analyze.options.{key}={value!r}; allowed: {allowed}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Settings of one report."""

    top: int = setting("Number of highest, and of lowest, tokens in tables.", 20)
    figure_top: int = setting("Number of highest, and of lowest, in charts; at most `top`.", 10)
    page_prompts: int = setting("Number of prompts that most sections show; tables hold all.", 6)
    figures: str = setting("Formats of chart files, comma-separated: `svg`, `png`, `pdf`.", "svg")
    figure_width: str = setting(
        "Width of chart files: `page`, as on the page; for papers `column` (3.3 inches) or `text` "
        "(6.9 inches), with type of 8 points where a chart can be made so narrow.",
        "page",
    )
    allow_incomplete: bool = setting("Report on sweeps that are not finished, too.", False)
    options: Options = setting("Choices of the analyses.", Options())

    def __post_init__(self) -> None:
        for key in ("top", "figure_top", "page_prompts"):
            check_integer(f"analyze.{key}", getattr(self, key), 1)
        if self.figure_top > self.top:
            raise AssayError(
                f"analyze.figure_top={self.figure_top!r}; allowed: at most top={self.top}"
            )
        for kind in self.formats:
            check_choice("analyze.figures", kind, ("svg", "png", "pdf"))
        check_choice("analyze.figure_width", self.figure_width, ("page", "column", "text"))
        check_switch("analyze.allow_incomplete", self.allow_incomplete)

    @property
    def formats(self) -> tuple[str, ...]:
        """The kinds of `figures`."""
        return tuple(kind.strip() for kind in self.figures.split(","))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What two models may differ by."""

    kendall: float = setting("Smallest allowed Kendall's τ-b between the two rankings.", 0.9)
    ends: int = setting("Number of highest, and of lowest, tokens that `kept` compares.", 100)
    kept: float = setting("Smallest allowed share of the highest (lowest) that stay so.", 0.8)
    words: float = setting(
        "Largest allowed significant (q < .05) shift of a word category's mean percentile, up or "
        "down; 0.05 = five percentile points.",
        0.05,
    )
    accuracy: float = setting("Smallest allowed share of pairs that --after ranks as people.", 0.5)
    probe: float = setting(
        "With --probes, largest allowed significant effect of an edit of style on --after, up or "
        "down, in its median margins.",
        0.5,
    )

    def __post_init__(self) -> None:
        for name, low in (("kendall", -1.0), ("kept", 0.0), ("words", 0.0), ("accuracy", 0.0)):
            value = getattr(self, name)
            if not (is_number(value) and low <= value <= 1):
                raise AssayError(f"diff.limits.{name}={value!r}; allowed: {low:g} to 1")
        if not (is_number(self.probe) and 0 <= self.probe < math.inf):
            raise AssayError(f"diff.limits.probe={self.probe!r}; allowed: numbers >= 0")
        check_integer("diff.limits.ends", self.ends, 1)

    def check_ends(self, prompt: str, compared: int) -> None:
        """Raises AssayError if the two ends of `compared` tokens would overlap under a prompt."""
        if 2 * self.ends > compared:
            raise AssayError(
                f"diff.limits.ends={self.ends} of {compared:,} compared tokens under {prompt!r}; "
                f"allowed: at most half of them, {compared // 2:,}"
            )
