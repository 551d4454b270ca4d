"""How one model's rewards are distributed under one prompt."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl
import scipy.ndimage

from analysis.load import Run
from engine.runs.schema import Columns

Sample = tuple[str, str, np.ndarray]

_CELL: Columns = {"model": pl.String, "prompt": pl.String}
_FLOATS = ("mean", "variance", "skewness", "kurtosis", "min", "max")
_MOMENTS: Columns = {
    "n": pl.Int64,
    **dict.fromkeys(_FLOATS, pl.Float64),
    "distinct_rewards": pl.Int64,
}
_BINS = 1024
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def moments(x: np.ndarray) -> dict[str, float]:
    """Moments of `x` [N >= 1], computed in float64.

    Returns:
      n, mean, variance (ddof 0), skewness (biased: m3 / m2^1.5), kurtosis (excess and biased:
      m4 / m2^2 - 3, so 0 for a normal law), min, max, distinct_rewards (different values).
      Skewness and kurtosis are NaN where all values are equal. These are the definitions of
      the paper's Table 3 (`scipy.stats.skew` and `kurtosis` with their defaults).
    """
    x = np.asarray(x, dtype=np.float64)
    centred = x - x.mean()
    m2 = float(np.mean(centred**2))
    flat = bool(x.min() == x.max())
    return {
        "n": len(x),
        "mean": float(x.mean()),
        "variance": 0.0 if flat else m2,
        "skewness": math.nan if flat else float(np.mean(centred**3)) / m2**1.5,
        "kurtosis": math.nan if flat else float(np.mean(centred**4)) / m2**2 - 3.0,
        "min": float(x.min()),
        "max": float(x.max()),
        "distinct_rewards": len(np.unique(x)),
    }


def density(x: np.ndarray, points: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian kernel density of `x` [N >= 1], between its least and greatest value.

    Scott's bandwidth, as `scipy.stats.gaussian_kde` takes it, but on binned values: O(N).

    Returns:
      The rewards [points] and the density at each, per unit of reward. Where all values are
      equal, that one value with density 1.
    """
    x = np.asarray(x, dtype=np.float64)
    low, high = float(x.min()), float(x.max())
    step = (high - low) / (_BINS - 1)
    if step == 0 or not low < low + step:
        return np.array([low]), np.array([1.0])
    width = float(x.std(ddof=1)) * len(x) ** -0.2
    edges = low + step * (np.arange(_BINS + 1) - 0.5)
    counts, _ = np.histogram(x, bins=edges)
    smooth = scipy.ndimage.gaussian_filter1d(
        counts / (len(x) * step), width / step, mode="constant", truncate=6.0
    )
    grid = np.linspace(low, high, points)
    return grid, np.interp(grid, low + step * np.arange(_BINS), smooth)


def samples(run: Run, rewards: dict[str, pl.DataFrame]) -> Iterator[Sample]:
    """Every scored (model, prompt, rewards [N]), by prompt, then in the order of the columns.

    Args:
      run: the run.
      rewards: prompt -> its table of `tokens.shared_rewards`. Where that table has no rows, the
        models share nothing, and each model's whole vocabulary stands in.
    """
    for prompt, table in rewards.items():
        for model in table.columns[1:]:
            own = table[model].to_numpy() if table.height else run.rewards(model, prompt)[1]
            yield model, prompt, own


def moments_table(data: Iterable[Sample]) -> pl.DataFrame:
    """The table `moments.csv`: model, prompt, then the keys of `moments`; a row a sample."""
    rows = [{"model": m, "prompt": p} | moments(x) for m, p, x in data]
    return pl.DataFrame(rows, schema=_CELL | _MOMENTS)


def quantiles_table(data: Iterable[Sample]) -> pl.DataFrame:
    """model, prompt, q05, q25, median, q75, q95 of the rewards; a row a sample."""
    names, levels = list(_QUANTILES), list(_QUANTILES.values())
    rows = [
        {"model": m, "prompt": p}
        | dict(zip(names, np.quantile(x.astype(np.float64), levels).tolist(), strict=True))
        for m, p, x in data
    ]
    return pl.DataFrame(rows, schema={**_CELL, **dict.fromkeys(names, pl.Float64)})


def density_table(data: Iterable[Sample]) -> pl.DataFrame:
    """model, prompt, reward, density (as `density` gives them); rewards ascending a sample."""
    numbers = dict.fromkeys(("reward", "density"), pl.Float64)
    frames = [pl.DataFrame(schema={**_CELL, **numbers})]
    for model, prompt, x in data:
        grid, height = density(x)
        frame = pl.DataFrame({"reward": grid, "density": height}, schema=numbers)
        names = {"model": pl.lit(model), "prompt": pl.lit(prompt)}
        frames.append(frame.select(**names, reward="reward", density="density"))
    return pl.concat(frames)
