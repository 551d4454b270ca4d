"""Shuffles values over tokens so that the forms of a word mostly take those of one other word."""

import numpy as np


def shuffled_places(stems: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The place from which each token takes its value; a permutation, int64 [N].

    Tokens are laid out stem after stem in one random order of the stems, and their values in
    another. So a value says nothing of the token that takes it, not even by the number of forms of
    its word, and neighbours still resemble one another as forms of one word do.

    Args:
      stems: number of the stem of each token, from 0 without gaps; int64 [N].
      rng: draws both orders.
    """
    taken, given = (
        np.lexsort((rng.random(len(stems)), rng.random(int(stems.max()) + 1)[stems]))
        for _ in range(2)
    )
    places = np.empty(len(stems), dtype=np.int64)
    places[taken] = given
    return places
