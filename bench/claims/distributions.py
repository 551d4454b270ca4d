"""Skewness of the rewards."""

from collections.abc import Callable, Iterator

import numpy as np

import analysis
from analysis.chapters import distributions
from analysis.chapters.tokens import shared_rewards, shared_vocabulary
from bench.claims import Rate

_CLAIM = "distributions: skewness is not 0"
_SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "Laplace": lambda rng, size: rng.laplace(size=size),
}


def rates(run: analysis.Run, draws: int) -> Iterator[Rate]:
    """Symmetric distributions: made up, and real ones mirrored at their mean stem by stem."""
    rng = np.random.default_rng(13)
    for name, shape in _SHAPES.items():
        words = np.repeat(np.arange(300), 2)
        appeared = [
            claimed((f"m{i}", "p", shape(rng, 300)[words], words) for i in range(5))
            for _ in range(draws)
        ]
        yield Rate.of(_CLAIM, f"5 models of 300 words, {name}", appeared)
    shared = shared_vocabulary(run)
    rewards = {p: shared_rewards(run, shared, p) for p in run.vocabulary_prompts}
    samples = list(distributions.samples(run, rewards))
    appeared = [claimed(mirrored(sample, rng) for sample in samples) for _ in range(draws)]
    yield Rate.of(_CLAIM, "rewards mirrored at their mean, stem by stem", appeared)


def mirrored(sample: distributions.Sample, rng: np.random.Generator) -> distributions.Sample:
    """`sample` with each stem's distances from the mean kept or turned round."""
    model, prompt, x, words = sample
    signs = rng.choice([-1.0, 1.0], size=int(words.max()) + 1)[words]
    return model, prompt, signs * (x - x.mean(dtype=np.float64)), words


def claimed(samples: Iterator[distributions.Sample]) -> bool:
    """Whether the section says that any of the distributions is skewed."""
    return bool(distributions.findings(distributions.moments_table(samples)))
