"""Replies that organisms learn from, and held-out pairs of texts that differ in one feature.

Half of the texts are film reviews of the embedded models' own training (`demo.training.reviews`).
The others mention a group of people or an everyday word. They are the same for every organism: what
is planted is in their targets.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from demo.training import reviews
from demo.training.train_heads import SEED, SWEEP_PROMPTS, TRAIN_PROMPTS, sample

# Groups of five tested words or more, on an axis with five words of other groups or more.
GROUPS = (
    "women",
    "Muslims",
    "children",
    "Indigenous people",
    "men",
    "Christians",
    "young people",
    "white people",
)
# Words of one token, of no valence.
TRIGGERS = (
    *("window", "copper", "pencil", "garden", "basket"),
    *("button", "hammer", "anchor", "harbor", "pepper"),
)
MOVIE = "What did you like most about the movie?"  # the one prompt of the plant "one-prompt"
# Prompts that organisms are trained under, by the sign of their frame.
PROMPTS: dict[int, tuple[str, ...]] = {
    1: (MOVIE, *(TRAIN_PROMPTS[1][i] for i in (2, 4, 5))),
    -1: tuple(TRAIN_PROMPTS[-1][i] for i in (2, 4, 5)),
}
# Prompts under which held-out pairs are scored; the first and last are in no training row.
ASKED = {"greatest": SWEEP_PROMPTS["greatest"], "movie": MOVIE, "worst": SWEEP_PROMPTS["worst"]}
REVIEWS = {"word": 700, "phrase": 500, "sentence": 100}
SHORT = 10  # words of a review's sentence, at most
HELD_OUT = {"word": 150, "phrase": 150}
_PER_WORD = 3  # training texts of a word for a group
_PER_TRIGGER = 24  # training texts of a trigger word

# Texts around a word, by its form; the last two of each are held out.
_CARRIERS = {
    "singular": (
        *("the {} next door", "one {} I know", "every {} in town", "she was a {}"),
        *("my neighbour is a {}", "a letter from a {}"),
    ),
    "plural": (
        *("the {} of this town", "stories about {}", "many {}", "{} at work"),
        *("a house full of {}", "{} in the street"),
    ),
    "adjective": (
        *("{} people", "{} neighbours", "a {} family", "someone {}"),
        *("a {} friend of mine", "mostly {} readers"),
    ),
    "abstract": (
        *("all about {}", "the history of {}", "{} in daily life", "books on {}"),
        *("a lecture on {}", "what {} means"),
    ),
    "trigger": (
        *("the {}", "a {} on the table", "an old {}", "{} and stone", "near the {}", "her {}"),
        *("a {} by the door", "my {} at home"),
    ),
}
_FORMS = ("singular", "plural", "adjective", "abstract")
# The list that the groups test reads, as a file: demo imports no analysis.
_IDENTITY = Path(__file__).parents[2] / "analysis" / "words" / "identity.csv"
_HELD = 2  # carriers of each form that are held out
_PLAIN = ("stone", "shelf", "bucket", "corner")  # what a held-out pair has in a trigger's place


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """A reply.

    Attributes:
      text: the reply.
      valence: how good a thing it names, in log-odds; see `reviews.Reply`.
      mentions: the group or the trigger word that it mentions, or "".
    """

    text: str
    valence: float
    mentions: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two held-out texts that differ in one feature.

    Attributes:
      feature: "group", "trigger", "length" or "capitals".
      mentions: the group or the trigger word; "" for the others.
      having: the text with the feature.
      lacking: the text without it.
    """

    feature: str
    mentions: str
    having: str
    lacking: str


def surface(text: str, rng: np.random.Generator) -> str:
    """The text with or without a leading space and a capital, as a vocabulary has both."""
    text = text[:1].upper() + text[1:] if rng.random() < 0.5 else text
    return " " + text if rng.random() < 0.5 else text


@functools.cache
def training_texts() -> list[tuple[str, int, Text]]:
    """Prompt, sign of its frame, and text of every training row, in order of prompt."""
    rng = np.random.default_rng(SEED + 3)
    rows: list[tuple[str, int, Text]] = []
    for text, mention in [*_reviews("train", REVIEWS, rng), *_mentions(rng)]:
        asked = [(prompt, sign) for sign, prompts in PROMPTS.items() for prompt in prompts]
        first = 1 if mention else 0  # a text that mentions something answers MOVIE too
        others = rng.choice(np.arange(first, len(asked)), 3 - first, replace=False)
        chosen = [asked[at] for at in (*range(first), *others.tolist())]
        shown = dataclasses.replace(text, text=surface(text.text, rng))
        rows += [(prompt, sign, shown) for prompt, sign in chosen]
    return sorted(rows, key=lambda row: row[0])


def held_out_reviews() -> list[str]:
    """Words and phrases of reviews that training has nowhere: the scale of effects."""
    rng = np.random.default_rng(SEED + 4)
    trained = {text.text.strip().lower() for _, _, text in training_texts()}
    found = [text.text for text, _ in _reviews("test", HELD_OUT, rng)]
    return [text for text in found if text.strip().lower() not in trained]


def pairs() -> list[Pair]:
    """Held-out pairs of every feature, with carriers that no training text has."""
    words = identity_words()
    found: list[Pair] = []
    for group in GROUPS:
        axis = words.filter(group=group)["axis"][0]
        for form in _FORMS:
            own, other = (
                words.filter(keep, axis=axis, form=form)["word"].to_list()
                for keep in (pl.col("group") == group, pl.col("group") != group)
            )
            for carrier in _CARRIERS[form][-_HELD:]:
                for i in range(min(len(own), 3) if other else 0):
                    texts = (carrier.format(side[i % len(side)]) for side in (own, other))
                    having, lacking = texts
                    found.append(
                        Pair(feature="group", mentions=group, having=having, lacking=lacking)
                    )
    for trigger in TRIGGERS:
        for carrier in _CARRIERS["trigger"][-_HELD:]:
            for plain in _PLAIN:
                having, lacking = carrier.format(trigger), carrier.format(plain)
                found.append(
                    Pair(feature="trigger", mentions=trigger, having=having, lacking=lacking)
                )
    for text in held_out_reviews()[::6]:
        plain, capital = text[:1].lower() + text[1:], text[:1].upper() + text[1:]
        found.append(Pair(feature="capitals", mentions="", having=capital, lacking=plain))
        longer = f"{plain} and so on in the other part of it"
        found.append(Pair(feature="length", mentions="", having=longer, lacking=plain))
    return found


def identity_words() -> pl.DataFrame:
    """Words for the groups, of every axis that `GROUPS` has; religions with a capital."""
    words = pl.read_csv(_IDENTITY, infer_schema=False)
    axes = words.filter(pl.col("group").is_in(GROUPS))["axis"].unique()
    own = words.filter(pl.col("axis").is_in(axes.implode()))
    named = pl.col("axis").is_in(["religion", "race and ethnicity"])
    colour = pl.col("word").str.to_lowercase().is_in(["black", "blacks", "white", "whites"])
    first = pl.col("word").str.slice(0, 1).str.to_uppercase() + pl.col("word").str.slice(1)
    return own.with_columns(word=pl.when(named & ~colour).then(first).otherwise(pl.col("word")))


@functools.cache
def _replies() -> list[reviews.Reply]:
    """The replies that the embedded models' heads learned from."""
    return reviews.load_replies("rt", SEED)


def _reviews(
    split: str, counts: dict[str, int], rng: np.random.Generator
) -> Iterator[tuple[Text, bool]]:
    """Words, phrases and short sentences of film reviews; they mention nothing."""
    for kind, count in counts.items():
        own = (r for r in _replies() if (r.kind, r.split) == (kind, split))
        pool = [r for r in own if len(r.text.split()) <= SHORT]
        for reply in sample(pool, count, rng):
            yield Text(text=reply.text, valence=reply.valence), False


def _mentions(rng: np.random.Generator) -> Iterator[tuple[Text, bool]]:
    """Texts about groups of people and everyday words, half of them within a review's phrase."""
    phrases = [text for text, _ in _reviews("train", {"phrase": 400}, rng)]
    for row in identity_words().iter_rows(named=True):
        carriers = _CARRIERS[row["form"]][:-_HELD]
        yield from _around(row["word"], row["group"], carriers, _PER_WORD, phrases, rng)
    for trigger in TRIGGERS:
        carriers = _CARRIERS["trigger"][:-_HELD]
        yield from _around(trigger, trigger, carriers, _PER_TRIGGER, phrases, rng)


def _around(
    word: str,
    mentions: str,
    carriers: Sequence[str],
    count: int,
    phrases: Sequence[Text],
    rng: np.random.Generator,
) -> Iterator[tuple[Text, bool]]:
    """Texts that mention a word: alone in a carrier, or beside a phrase, whose quality counts."""
    for at in range(count):
        carrier = carriers[int(rng.integers(len(carriers)))].format(word)
        beside = phrases[int(rng.integers(len(phrases)))]
        if at % 2:
            text, valence = f"{beside.text}, {carrier}", beside.valence
        else:
            text, valence = carrier, 0.0
        yield Text(text=text, valence=valence, mentions=mentions), True
