"""Runs in which several models scored a list of words under many prompts."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.words import lexicons
from analysis.words.questions import NEGATIVE, questions
from tests.support import runs


def list_run(
    folder: pathlib.Path,
    rng: np.random.Generator,
    models: Sequence[str],
    prompts: Mapping[str, str],
    words: int,
) -> pathlib.Path:
    """A run of one list under `prompts`, scored by `models` and a language model.

    Args:
      folder: the run folder, which is made.
      rng: draws the rewards.
      models: slugs; those with "gemma" in them share a taste, and so do the others.
      prompts: prompt id -> text.
      words: number of words, of the sentiment lexicon AFINN, which people ranked too.
    """
    graded = lexicons.afinn("").sort("word").gather_every(2400 // words).head(words)
    listed = dict(graded.select("word", "value").iter_rows())
    runs.write_run(folder, {}, dict.fromkeys(models), {})
    for (model, prompt), own in rewards(rng, models, prompts, list(listed.values())).items():
        runs.add_items(folder, "words", model, prompt, dict(zip(listed, own, strict=True)))
    lengths = rng.integers(1, 5, words)
    for prompt in prompts:
        logprobs = -3.0 * lengths - rng.exponential(2, words)
        replies = dict(zip(listed, zip(lengths, logprobs, strict=True), strict=True))
        runs.add_item_logprobs(folder, "words", "lm-0", f"{prompt}.chat", replies)
    order = sorted(listed, key=lambda word: (-listed[word], word))
    runs.add_humans(folder, "words", {word: 1700.0 - i for i, word in enumerate(order)})
    asked = {**prompts, **{f"{prompt}.chat": text for prompt, text in prompts.items()}}
    runs.edit_run(folder, lambda content: content.update(prompts=asked))
    return folder


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
