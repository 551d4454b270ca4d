"""Words of one origin ("abandon", "abandoned"), which are one cluster of errors."""

import functools
import re

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.words.spellings import dense_numbers, folded

# Endings, longest first; a final e is taken off before one is looked for. "less" is not among
# them, because it turns the valence round. A final s is no plural in "famous", "crisis" and "kiss".
_ENDING = re.compile(
    r"(?<=...)("
    r"ement|ment|ness|able|ance|ence|ful|ing|ion|ism|ist|ity|ous|abl|ibl|anc|enc|ant|ent|"
    r"est|al|(?<=....)at|ed|er|es|ic|iv|iz|ly|or|y|i|e|(?<![uis])s)$"
)
_VOWEL = re.compile("[aeiouy]")
_DOUBLE = re.compile(r"([b-df-hj-np-tv-z])\1$")


@functools.lru_cache(maxsize=2**18)  # A report asks for the same words again and again.
def stem(word: str) -> str:
    """`word` without its endings, the same for most forms of a word.

    Endings are taken off while three letters with a vowel remain. It is made for clusters of
    errors: that two words of several origins share a stem ("passion" and "pass") only makes
    clusters larger. Irregular forms ("anger" and "angry") stay apart.
    """
    left = word.lower()
    while True:
        found = _ending(left)
        if not found:
            return _DOUBLE.sub(r"\1", re.sub("y$", "i", left))
        left = left[:-found]


def stems(words: pl.Series) -> pl.Series:
    """The stem of each word."""
    distinct = words.unique()
    return words.replace_strict(distinct, [stem(word) for word in distinct], return_dtype=pl.String)


def stem_numbers(tokens: pl.Series) -> npt.NDArray[np.int64]:
    """Number of the stem of each token; case and outer spaces make no difference.

    Args:
      tokens: text of each token [N].

    Returns:
      int64 [N], from 0 without gaps.
    """
    return dense_numbers(stems(folded(tokens)))


def _ending(word: str) -> int:
    """Letters of the ending of `word`; 0 where it has none, or too little would be left."""
    if len(word) > 3 and word[-1] == "e" and _VOWEL.search(word[:-1]):
        return 1
    match = _ENDING.search(word)
    return len(match[1]) if match and _VOWEL.search(word[: match.start()]) else 0
