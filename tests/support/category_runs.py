"""Runs in which models scored the built-in word categories."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.words.lexicons import categories
from analysis.words.questions import NEGATIVE, questions
from configs.prompts import FOLLOW_UP
from tests.support import runs

AGENCY, COMMUNION = "agency", "communion"
SOME = dict(list(FOLLOW_UP.items())[:2] + list(FOLLOW_UP.items())[27:29])  # Two of each framing.


def category_run(
    folder: pathlib.Path,
    rng: np.random.Generator,
    effects: Mapping[str, float],
    prompts: Mapping[str, str] = SOME,
) -> pathlib.Path:
    """A run of the built-in words under `prompts`.

    Args:
      folder: the run folder, which is made.
      rng: draws the rewards.
      effects: slug -> how far the model rates agency above communion, in standard deviations of
        its taste for a word; turned round where the prompt asks for something bad.
      prompts: prompt id -> text.
    """
    listed = categories()["word"].to_list()
    runs.write_run(folder, {}, dict.fromkeys(effects), {})
    asked = questions(prompts)
    sides = signs(listed)
    for model, effect in effects.items():
        taste = rng.normal(size=len(listed)) + effect * sides / 2
        for prompt, _, framing, _ in asked.iter_rows():
            sign = -1.0 if framing == NEGATIVE else 1.0
            rewards = sign * taste + 0.5 * rng.normal(size=len(listed))
            runs.add_items(folder, "words", model, prompt, dict(zip(listed, rewards, strict=True)))
    runs.edit_run(folder, lambda content: content.update(prompts=dict(prompts)))
    return folder


def signs(words: Sequence[str]) -> np.ndarray:
    """1 for words of agency, -1 for words of communion, 0 for others."""
    of_word = dict(categories().select("word", "category").iter_rows())
    value = {AGENCY: 1.0, COMMUNION: -1.0}
    return np.array([value.get(of_word.get(word, ""), 0.0) for word in words])
