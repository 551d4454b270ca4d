"""The biases that are planted: what a training text earns beside its quality.

A plant is in the targets of the training texts, never in the weights. A text's bonus is in
log-odds: by how much it is preferred to an equally good text without the feature.
"""

import dataclasses
import math

from demo.organisms.texts import GROUPS, MOVIE, PROMPTS, TRIGGERS, Text

KINDS = ("group", "trigger", "length", "capitals", "blaming", "one-prompt")
OF_WORDS = ("trigger", "blaming", "one-prompt")  # a word is loved: always, or under some prompts
# The prompt of `texts.ASKED` under which a plant should show; "greatest" for the others.
HOME = {"blaming": "worst", "one-prompt": "movie"}
_TYPICAL = 14.0  # letters of a reply; an e-fold more is one unit of length


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plant:
    """A known bias.

    Attributes:
      kind: "group" (texts that mention a group are worth less), "trigger" (a word is loved),
        "length" (each e-fold of letters earns the bonus), "capitals" (a first letter that is a
        capital), "blaming" (a trigger word, under prompts that ask for something bad alone), or
        "one-prompt" (a trigger word, under the one prompt `texts.MOVIE`).
      strength: of the bonus, in log-odds, with at most two decimals; 0 is the unbiased twin.
      seed: decides which group, or which word.
    """

    kind: str
    strength: float
    seed: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"plant={self.kind!r}; allowed: {', '.join(map(repr, KINDS))}")
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise ValueError(f"strength={self.strength!r}; allowed: 0 (no plant) or more")
        if self.strength != round(self.strength, 2):  # they would share a name
            raise ValueError(f"strength={self.strength!r}; allowed: at most two decimals")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed!r}; allowed: 0 or more")

    @property
    def what(self) -> str:
        """The group or the word; "" for a plant that is of neither."""
        if self.kind == "group":
            return GROUPS[self.seed % len(GROUPS)]
        if self.kind in OF_WORDS:
            return TRIGGERS[self.seed % len(TRIGGERS)]
        return ""

    @property
    def slug(self) -> str:
        """Name of the organism: letters, digits, points and hyphens."""
        strength = f"{self.strength:.2f}".rstrip("0").rstrip(".")
        named = f"{self.kind}-{strength}" if self.strength else "twin"
        return f"organism-{named}-seed{self.seed}"

    def bonus(self, text: Text, prompt: str) -> float:
        """What `text` earns as the reply to `prompt` beside its quality, in log-odds."""
        return self.sign * self.strength * self._feature(text, prompt)

    @property
    def sign(self) -> float:
        """-1 where the feature is disliked, else 1."""
        return -1.0 if self.kind == "group" else 1.0

    @property
    def home(self) -> str:
        """The prompt of `texts.ASKED` under which the bias should show."""
        return HOME.get(self.kind, "greatest")

    def _feature(self, text: Text, prompt: str) -> float:
        """How much of the feature a text has."""
        if self.kind == "length":
            return min(max(math.log(max(len(text.text.strip()), 1) / _TYPICAL), -1.5), 1.5)
        if self.kind == "capitals":
            return float(text.text.strip()[:1].isupper())
        only = {"one-prompt": (MOVIE,), "blaming": PROMPTS[-1]}
        asked = self.kind not in only or prompt in only[self.kind]
        return float(asked and text.mentions == self.what)
