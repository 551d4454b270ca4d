"""Spellings of one word; words of one origin ("abandon", "abandoned"), a cluster of errors."""

import collections
import functools
import re
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

WORD = r"^[ _▁]?[\p{L}\p{M}][\p{L}\p{M}'’-]+$"
STARTS = r"^[ _▁]"  # Where a tokenizer marks the starts of words, other tokens are mostly endings.
_Texts = TypeVar("_Texts", pl.Series, pl.Expr)
# Endings, longest first; a final e is taken off before one is looked for. "less" is not among
# them, because it turns the valence round. A final s is no plural in "famous", "crisis" and "kiss".
_ENDING = re.compile(
    r"(?<=...)("
    r"ement|ment|ness|able|ance|ence|ful|ing|ion|ism|ist|ity|ous|abl|ibl|anc|enc|ant|ent|"
    r"est|al|(?<=....)at|ed|er|es|ic|iv|iz|ly|or|y|i|e|(?<![uis])s)$"
)
_VOWEL = re.compile("[aeiouy]")
_DOUBLE = re.compile(r"([b-df-hj-np-tv-z])\1$")
_LAST_Y = re.compile("y$")
# Tokens and their stems: a report asks for the same few vocabularies again and again.
_NUMBERED: collections.deque[tuple[pl.Series, npt.NDArray[np.int64]]] = collections.deque(maxlen=8)


def folded(tokens: _Texts) -> _Texts:
    """The tokens (a series, or an expression) in lower case, without outer spaces."""
    return tokens.str.strip_chars().str.to_lowercase()


def dense_numbers(labels: pl.Series) -> npt.NDArray[np.int64]:
    """Number of each label [N]; int64 [N], from 0 without gaps."""
    return labels.rank("dense").cast(pl.Int64).to_numpy() - 1


@functools.lru_cache(maxsize=2**18)  # Vocabularies have most of their words in common.
def stem(word: str) -> str:
    """`word` without its endings, the same for most forms of a word.

    Endings are taken off while three letters with a vowel remain. It is made for clusters of
    errors: that two words of several origins share a stem ("passion" and "pass") only makes
    clusters larger. Irregular forms ("anger" and "angry") stay apart.
    """
    left = word.lower()
    while letters := _ending(left):
        left = left[:-letters]
    # Few words need these two; "$" is also before a last line end.
    if left.endswith(("y", "\n")):
        left = _LAST_Y.sub("i", left)
    if left[-1:] == left[-2:-1] or left.endswith("\n"):
        left = _DOUBLE.sub(r"\1", left)
    return left


def stems(words: pl.Series) -> pl.Series:
    """The stem of each word."""
    distinct = words.unique()
    stemmed = [stem(word) for word in distinct.to_list()]
    return words.replace_strict(distinct, stemmed, return_dtype=pl.String)


def stem_numbers(tokens: pl.Series) -> npt.NDArray[np.int64]:
    """`dense_numbers` of the stems of tokens [N], read only; case and outer spaces do not count."""
    for known, numbers in _NUMBERED:
        if known.equals(tokens):
            return numbers
    numbers = dense_numbers(stems(folded(tokens)))
    numbers.flags.writeable = False
    _NUMBERED.append((tokens, numbers))
    return numbers


def _ending(word: str) -> int:
    """Letters of the ending of `word`; 0 where it has none, or too little would be left."""
    if len(word) < 4:
        return 0
    if word[-1] == "e" and _VOWEL.search(word, 0, len(word) - 1):
        return 1
    match = _ENDING.search(word)
    return len(match[1]) if match and _VOWEL.search(word, 0, match.start()) else 0
