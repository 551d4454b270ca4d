"""Claims about what explains agreement: models that have their traits by chance."""

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from analysis.chapters import agreement, explained, tokens
from analysis.run import Run
from bench.claims import Rate, rates_of

_ALPHA = 0.05
_ORDERS = 999  # Permutations of the models; all of them where these are fewer.
_REAL = "real rewards, traits drawn at random"
_MADE = "synthetic: agreement by chance, ten models"


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """False-alarm rates of Mantel's test, the joint tests and the sentences on traits."""
    shared = tokens.shared_vocabulary(run)
    real = {
        prompt: agreement.kendall_matrix(tokens.shared_rewards(run, shared, prompt))
        for prompt in run.vocabulary_prompts
    }
    for matrices, null in (({p: m for p, m in real.items() if m.height > 3}, _REAL), ({}, _MADE)):
        rng = np.random.default_rng(0)
        drawn = (_claims(matrices or _by_chance(rng), rng) for _ in range(draws))
        yield from rates_of(null, drawn)


def _claims(matrices: Mapping[str, pl.DataFrame], rng: np.random.Generator) -> dict[str, bool]:
    """Which claims appear where the models have their traits by chance."""
    models = next(iter(matrices.values()))["model"].to_list()
    by = explained.predictors(_traits(models, rng))
    fitted = {p: explained.rsa_table(m, by, rng, _ORDERS) for p, m in matrices.items()}
    tests = explained.corrected({prompt: each for prompt, (each, _) in fitted.items()})
    first = tests[rng.choice(list(tests))]
    said = {}
    for name in ("mantel_p", "permutation_p"):
        p = first[name].drop_nans()
        said[f"explained: {name}"] = len(p) > 0 and p[int(rng.integers(len(p)))] < _ALPHA
    said["explained: joint p"] = fitted[rng.choice(list(matrices))][1]["p"][0] < _ALPHA
    pairs = {prompt: int(fit["pairs"][0]) for prompt, (_, fit) in fitted.items()}
    return {**said, "explained: sentence": any(explained.findings(tests, pairs))}


def _by_chance(rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Similarities of ten models under three prompts, alike in part from prompt to prompt."""
    names = [f"m{i}" for i in range(10)]
    common = rng.normal(scale=0.1, size=(10, 10))
    matrices = {}
    for prompt in ("greatest", "best", "worst"):
        noise = common + rng.normal(scale=0.05, size=(10, 10))
        values = 0.3 + (noise + noise.T) / 2
        np.fill_diagonal(values, 1.0)
        matrices[prompt] = pl.DataFrame({"model": names} | dict(zip(names, values, strict=True)))
    return matrices


def _traits(models: list[str], rng: np.random.Generator) -> pl.DataFrame:
    count = len(models)
    return pl.DataFrame(
        {
            "model": models,
            "base": [f"base {'ab'[i]}" for i in _both_kinds(count, rng)],
            "developer": [f"developer {'ab'[i]}" for i in _both_kinds(count, rng)],
            "size_b": rng.choice([2.0, 3.0, 8.0, 27.0, 70.0], count),
            "rewardbench_rank": rng.permutation(count) + 1,
        }
    )


def _both_kinds(count: int, rng: np.random.Generator) -> list[int]:
    """Labels 0 and 1, at least two of each."""
    return rng.permutation([0, 0, 1, 1, *rng.integers(0, 2, count - 4)]).tolist()
