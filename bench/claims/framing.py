"""Correlations of the rewards under two prompts."""

from collections.abc import Callable, Iterator

import numpy as np

import analysis
from analysis.chapters import framing, framing_sentences
from analysis.chapters.tokens import stems_of
from bench.claims import Rate
from bench.support.shuffled_stems import shuffled_places

_SIGN = "framing: r of best and worst is not 0"
_LOWER = "framing: r is below its reference"
_SAYS_SIGN, _SAYS_LOWER = "Pearson", "lower"  # Words of the sentence that makes each claim.
_PROMPTS = ("greatest", "best", "worst")
# Model -> rewards [3, N] under `_PROMPTS`, and the number of the stem of each token.
_Rewards = dict[str, tuple[np.ndarray, np.ndarray]]


def rates(run: analysis.Run, draws: int) -> Iterator[Rate]:
    """Unrelated prompts, and two prompts that are exchanged at random stem by stem."""
    rng = np.random.default_rng(15)
    made = [_SAYS_SIGN in said(made_up(rng)) for _ in range(draws)]
    yield Rate.of(_SIGN, "5 models of 300 words, prompts unrelated", made)
    made = [_SAYS_LOWER in said(changed(alike(rng), exchanged, rng)) for _ in range(draws)]
    yield Rate.of(_LOWER, "5 models of 300 words, questions exchanged", made)
    rewards = real(run)
    if rewards:
        made = [_SAYS_SIGN in said(changed(rewards, shuffled, rng)) for _ in range(draws)]
        yield Rate.of(_SIGN, "rewards, stems shuffled by model and prompt", made)
        made = [_SAYS_LOWER in said(changed(rewards, exchanged, rng)) for _ in range(draws)]
        yield Rate.of(_LOWER, "rewards, greatest and worst exchanged by stem", made)


def made_up(rng: np.random.Generator) -> _Rewards:
    """Five models; words with two spellings; heavier tails than normal."""
    words = np.repeat(np.arange(300), 2)
    return {f"m{i}": (rng.standard_t(5, size=(3, 300))[:, words], words) for i in range(5)}


def alike(rng: np.random.Generator) -> _Rewards:
    """As `made_up`, but the prompts share most of a word's reward."""
    return {
        model: (2 * rng.normal(size=300)[words] + rewards, words)
        for model, (rewards, words) in made_up(rng).items()
    }


def real(run: analysis.Run) -> _Rewards:
    """Standardised rewards of every model that was scored under the three prompts."""
    found = {}
    for model in run.vocabulary_models:
        if all((model, prompt) in run.results for prompt in _PROMPTS):
            rewards = np.stack([run.rewards(model, prompt)[1] for prompt in _PROMPTS])
            rewards = rewards.astype(np.float64)
            scaled = rewards - rewards.mean(axis=1, keepdims=True)
            words = stems_of(run, model, run.rewards(model, _PROMPTS[0])[0])
            found[model] = (scaled / rewards.std(axis=1, keepdims=True), words)
    return found


def changed(
    rewards: _Rewards,
    change: Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray],
    rng: np.random.Generator,
) -> _Rewards:
    """`rewards` after `change`."""
    return {model: (change(x, words, rng), words) for model, (x, words) in rewards.items()}


def shuffled(x: np.ndarray, words: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The stems of every prompt shuffled."""
    return np.stack([own[shuffled_places(words, rng)] for own in x])


def exchanged(x: np.ndarray, words: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The first and the last prompt exchanged in every other stem, at random."""
    swap = (rng.random(int(words.max()) + 1) < 0.5)[words]
    greatest, best, worst = x
    return np.stack([np.where(swap, worst, greatest), best, np.where(swap, greatest, worst)])


def said(rewards: _Rewards) -> str:
    """What the section says of best and worst; "" where it says nothing."""
    rows = ((m, dict(zip(_PROMPTS, x, strict=True)), words) for m, (x, words) in rewards.items())
    found = framing_sentences.findings(framing.compared(rows), ("best", "worst"))
    return " ".join(finding.text for finding in found)
