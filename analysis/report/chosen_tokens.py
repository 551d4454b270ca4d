"""Which tokens the explorer holds when there are too many rewards for one page.

Words that a reader may look for come first. The rest is taken from the two ends of all models and
prompts together, from the tokens on which the models differ most, and from those that the prompt
moves most, in turns.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from analysis.run import Run
from analysis.statistics import Array

_WORDS = 0.5  # Share of the tokens that may be words of the lists.
# Model, prompt, rows of the model's tokens, and their percentiles (NaN where not scored).
Column: TypeAlias = tuple[int, int, Array, Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """Where each row stands over all models and prompts."""

    mean: Array  # mean percentile [rows]
    models: Array  # standard deviation over models of their means [rows]
    prompts: Array  # standard deviation over prompts of their means [rows]
    held: Array  # number of models that have the row [rows]


def columns_of(run: Run, by_model: Mapping[str, Array]) -> Iterator[Column]:
    """The percentiles of every model and prompt that was scored, by row.

    Args:
      run: the run.
      by_model: slug -> the row of each place of its vocabulary.
    """
    for at, (model, rows) in enumerate(by_model.items()):
        places = run.vocabulary(model).select("token_id").collect()["token_id"].to_numpy()
        for which, prompt in enumerate(run.vocabulary_prompts):
            if (model, prompt) in run.results:
                scored_rows = rows[np.searchsorted(places, run.rewards(model, prompt)[0])]
                yield at, which, scored_rows, run.ranked(model, prompt).percentiles


def standing(columns: Iterator[Column], rows: int, models: int, prompts: int) -> Standing:
    """Means and spreads of the percentiles of `rows` rows, read one column at a time."""
    sums = [np.zeros((groups, rows), dtype=np.float32) for groups in (models, prompts)]
    counts = [np.zeros((groups, rows), dtype=np.uint16) for groups in (models, prompts)]
    for model, prompt, places, percentile in columns:
        for of, group in enumerate((model, prompt)):
            sums[of][group, places] += percentile
            counts[of][group, places] += 1
    with np.errstate(invalid="ignore"):  # NaN where a group has no value
        by_model, by_prompt = (s / n.astype(np.float32) for s, n in zip(sums, counts, strict=True))
        mean = sums[0].sum(axis=0) / counts[0].sum(axis=0)
    return Standing(
        mean=mean,
        models=_spread(by_model),
        prompts=_spread(by_prompt),
        held=(counts[0] > 0).sum(axis=0),
    )


def chosen(standing: Standing, words: Array, count: int) -> Array:
    """Rows of at most `count` tokens, ascending (uint32).

    Args:
      standing: of every row.
      words: rows of the words of the lists.
      count: number of rows.
    """
    scored = np.flatnonzero(standing.held)
    if len(scored) <= count:
        return scored.astype(np.uint32)
    far = np.abs(standing.mean - 0.5)
    words = np.intersect1d(words, scored)
    taken = list(_first(words, -far)[: int(_WORDS * count)])
    common = scored[standing.held[scored] == standing.held.max()]
    orders = [
        _first(common, -standing.mean),
        _first(common, standing.mean),
        _first(common, -standing.models),
        _first(common, -standing.prompts),
    ]
    # Words that found no room, and tokens of few models, only where the rest leaves any.
    rest = np.concatenate([words, _first(scored, -far)])
    picked = dict.fromkeys(taken)
    for row in [*np.stack(orders, axis=1).ravel(), *rest]:
        if len(picked) >= count:
            break
        picked[row] = None
    return np.sort(np.fromiter(picked, dtype=np.uint32))


def _first(rows: Array, key: Array) -> Array:
    """`rows` by rising `key`; ties by row, and rows without a key last."""
    return rows[np.argsort(key[rows], kind="stable")]


def _spread(means: Array) -> Array:
    """Standard deviation over the first axis of what is not NaN; 0 for one value, NaN for none."""
    count = (~np.isnan(means)).sum(axis=0)
    mean = np.nansum(means, axis=0) / np.maximum(count, 1)
    squares = np.nansum(np.square(means - mean), axis=0) / np.maximum(count, 1)
    return np.where(count > 0, np.sqrt(squares), np.nan)
