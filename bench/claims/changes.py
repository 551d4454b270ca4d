"""Kinds of words that `assay diff` says have moved, where neither model has a taste for a kind.

The vocabulary and its kinds of words are those of the run. Nulls:

- made up: before and after have a taste of their own for every stem, under three prompts with
  noise of their own;
- real rewards of two models, the stems shuffled in each, once for all prompts.

A draw is one comparison, and the claim appears where it is made under any prompt: that a kind of
words moved (q < .05), or that it moved further than the limit of the verdict allows.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl

from analysis.chapters.tokens import stems_of
from analysis.measures.changes import shifts_of_kinds, words_check
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.words.kinds import kinds
from bench.claims import Rate, rates_of
from bench.support.shuffled_stems import shuffled_places

_PROMPTS = 3
_NOISE = 0.5  # of a prompt, where a taste has the standard deviation 1
_LIMIT = 0.05  # that of configs/diff.py
MOVED = "diff: a kind of words moved, q < .05"
BEYOND = "diff: the limit on kinds of words fails"
# Prompt id -> rewards before and after [N].
Rewards = Mapping[str, tuple[Array, Array]]


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """The rate of both claims under each null.

    Args:
      run: a run folder with real rewards of a vocabulary.
      draws: draws of each null.
    """
    rng = np.random.default_rng(0)
    slug = run.vocabulary_models[0]
    tokens = run.vocabulary(slug).select("token_id", "token").collect()
    words = kinds(tokens, "", "", "", True)
    stems = stems_of(run, slug, tokens["token_id"].to_numpy())
    nulls: dict[str, Callable[[], Rewards]] = {
        "tastes of stems, made up": lambda: made_up(stems, rng),
        "rewards, stems shuffled in each model": lambda: shuffled(run, stems, rng),
    }
    for null, draw in nulls.items():
        yield from rates_of(null, (said(draw(), words) for _ in range(draws)))


def made_up(stems: Array, rng: np.random.Generator) -> Rewards:
    """Two models with tastes of their own for every stem; the number of each token's stem [N]."""
    tastes = [rng.normal(size=int(stems.max()) + 1)[stems] for _ in range(2)]
    noise = _NOISE * rng.normal(size=(_PROMPTS, 2, len(stems)))
    return {
        f"prompt {i}": (tastes[0] + noise[i, 0], tastes[1] + noise[i, 1]) for i in range(_PROMPTS)
    }


def shuffled(run: Run, stems: Array, rng: np.random.Generator) -> Rewards:
    """Real rewards of two models that share the first one's vocabulary, their stems shuffled."""
    first = run.same_vocabulary(run.vocabulary_models[0])
    models = [m for m in run.vocabulary_models if run.same_vocabulary(m) == first]
    before, after = rng.choice(models, 2, replace=False)
    places = [shuffled_places(stems, rng) for _ in range(2)]
    both = [p for p in run.vocabulary_prompts if all((m, p) in run.results for m in models)]
    return {
        prompt: (
            run.rewards(str(before), prompt)[1][places[0]],
            run.rewards(str(after), prompt)[1][places[1]],
        )
        for prompt in both
    }


def said(rewards: Rewards, words: pl.DataFrame) -> dict[str, bool]:
    """Whether the diff of two models makes each claim.

    Args:
      rewards: of every token, by token id.
      words: what `words.kinds.kinds` returned.
    """
    percentiles = {
        prompt: (np.arange(len(before)), ranks.percentiles(before), ranks.percentiles(after))
        for prompt, (before, after) in rewards.items()
    }
    table = shifts_of_kinds(percentiles, words)
    checks = [words_check(prompt, table, [], _LIMIT) for prompt in rewards]
    return {
        MOVED: any(check["measured"] != 0 for check in checks),
        BEYOND: not all(check["holds"] for check in checks),
    }
