"""Runs in which several models scored a list of words under many prompts."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.words import lexicons
from analysis.words.questions import NEGATIVE, questions
from configs.prompts import FOLLOW_UP
from tests.support import large_runs, runs

WORDS = 265  # As many as the follow-up paper's list of the Big Two has.


def list_run(
    folder: pathlib.Path,
    rng: np.random.Generator,
    models: Sequence[str] = tuple(large_runs.PAPER),
    prompts: Mapping[str, str] = FOLLOW_UP,
    words: int = WORDS,
    name: str = "words",
    people: bool = False,
    language_models: int = 0,
) -> pathlib.Path:
    """A run of one list, scored by `models` under `prompts`.

    Args:
      folder: the run folder, which is made.
      rng: draws the rewards.
      models: slugs; those with "gemma" in them share a taste, and so do the others.
      prompts: prompt id -> text.
      words: number of words, of the sentiment lexicon AFINN.
      name: name of the list.
      people: whether people ranked the list too.
      language_models: number of language models that scored the list under every prompt.
    """
    listed = graded_words(words)
    runs.write_run(folder, {}, dict.fromkeys(models), {})
    for (model, prompt), own in rewards(rng, models, prompts, list(listed.values())).items():
        runs.add_items(folder, name, model, prompt, dict(zip(listed, own, strict=True)))
    for model in (f"lm-{number}" for number in range(language_models)):
        lengths = rng.integers(1, 5, words)
        for prompt in prompts:
            logprobs = -3.0 * lengths - rng.exponential(2, words)
            replies = dict(zip(listed, zip(lengths, logprobs, strict=True), strict=True))
            runs.add_item_logprobs(folder, name, model, f"{prompt}.chat", replies)
    if people:
        order = sorted(listed, key=lambda word: (-listed[word], word))
        runs.add_humans(folder, name, {word: 1700.0 - i for i, word in enumerate(order)})
    asked = dict(prompts)
    if language_models:
        asked |= {f"{prompt}.chat": text for prompt, text in prompts.items()}
    runs.edit_manifest(folder, lambda content: content.update(prompts=asked))
    return folder


def graded_words(count: int) -> dict[str, float]:
    """`count` words of AFINN with their values, from the whole range."""
    graded = lexicons.afinn("").sort("word").gather_every(max(1, 2400 // count)).head(count)
    return dict(graded.select("word", "value").iter_rows())


def rewards(
    rng: np.random.Generator,
    models: Sequence[str],
    prompts: Mapping[str, str],
    values: Sequence[float],
) -> dict[tuple[str, str], np.ndarray]:
    """(model, prompt) -> rewards of words of these values.

    A reward holds what the word is worth (turned round where the prompt asks for something bad), a
    taste of the model's base, a taste of the model, how much the model likes the word whatever the
    question in general, what the single question adds, and the noise of the wording.
    """
    asked = questions(prompts)
    size = len(values)
    worth = np.asarray(values) / 3
    bases = {base: rng.normal(size=size) for base in ("gemma", "other")}
    adds = {question: 0.4 * rng.normal(size=size) for question in asked["question"].unique()}
    drawn = {}
    for model in models:
        base = bases["gemma" if "gemma" in model else "other"]
        taste = worth + 0.7 * base + 0.7 * rng.normal(size=size)
        liking = 0.7 * rng.normal(size=size)
        scale, shift = rng.uniform(0.5, 5), rng.normal(0, 5)
        for prompt, question, framing, _ in asked.iter_rows():
            sign = -0.6 if framing == NEGATIVE else 1.0
            noise = 0.5 * rng.normal(size=size)
            drawn[model, prompt] = (
                shift + scale * (sign * taste + liking + adds[question] + noise)
            ).astype(np.float32)
    return drawn
