"""Variance components of percentiles."""

from collections.abc import Iterator

import numpy as np
import polars as pl

import analysis
from analysis.chapters import variance
from analysis.chapters.tokens import shared_rewards, shared_vocabulary
from analysis.words.stems import stem_numbers
from bench.claims import Rate
from bench.support.shuffled_stems import shuffled_places

_ANY = "variance: any component above 0"
_OF = "variance: {} above 0"


def rates(run: analysis.Run, draws: int) -> Iterator[Rate]:
    """Noise, a token's own value with noise, and real rewards with one source taken away."""
    rng = np.random.default_rng(14)
    found = [claimed(made_up(rng, 0.0)) for _ in range(draws)]
    yield Rate.of(_ANY, "5 models × 3 prompts × 300 words, noise", map(bool, found))
    found = [claimed(made_up(rng, 1.0)) for _ in range(draws)]
    for component in ("token × model", "token × prompt"):
        null = "5 models × 3 prompts × 300 words, token and noise"
        yield Rate.of(_OF.format(component), null, (component in c for c in found))
    cube, tokens = real(run)
    stems = stem_numbers(tokens)
    found = [claimed(frames(shuffled(cube, stems, rng), tokens)) for _ in range(draws)]
    yield Rate.of(_ANY, "rewards, stems shuffled by model and prompt", map(bool, found))
    for axis, component in ((1, "token × model"), (2, "token × prompt")):
        found = [claimed(frames(exchanged(cube, stems, axis, rng), tokens)) for _ in range(draws)]
        null = f"rewards, {'models' if axis == 1 else 'prompts'} exchanged within a stem"
        yield Rate.of(_OF.format(component), null, (component in c for c in found))


def made_up(rng: np.random.Generator, own: float) -> dict[str, pl.DataFrame]:
    """Rewards of 300 words with two spellings: `own` times the word's value, and noise."""
    tokens = pl.Series([f"{space}w{i}" for i in range(300) for space in ("", " ")])
    shape = (300, 5, 3)
    values = own * rng.normal(size=(300, 1, 1)) + rng.normal(size=shape)
    return frames(np.repeat(values, 2, axis=0) + 0.2 * rng.normal(size=(600, 5, 3)), tokens)


def real(run: analysis.Run) -> tuple[np.ndarray, pl.Series]:
    """Standardised rewards [T, M, P] of the tokens that all models share, and those tokens."""
    shared = shared_vocabulary(run)
    each = [shared_rewards(run, shared, p) for p in run.vocabulary_prompts]
    models = [m for m in each[0].columns[1:] if all(m in frame.columns for frame in each)]
    cube = np.stack([f.select(models).to_numpy().astype(np.float64) for f in each], axis=2)
    return (cube - cube.mean(axis=0)) / cube.std(axis=0), each[0]["token"]


def frames(cube: np.ndarray, tokens: pl.Series) -> dict[str, pl.DataFrame]:
    """`cube` [T, M, P] as the tables of shared rewards of a study."""
    return {
        f"p{p}": pl.DataFrame({"token": tokens}).with_columns(
            **{f"m{m}": pl.Series(cube[:, m, p]) for m in range(cube.shape[1])}
        )
        for p in range(cube.shape[2])
    }


def shuffled(cube: np.ndarray, stems: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`cube` with the stems of every model and prompt shuffled."""
    _, models, prompts = cube.shape
    drawn = [
        [cube[shuffled_places(stems, rng), m, p] for p in range(prompts)] for m in range(models)
    ]
    return np.array(drawn).transpose(2, 0, 1)


def exchanged(
    cube: np.ndarray, stems: np.ndarray, axis: int, rng: np.random.Generator
) -> np.ndarray:
    """`cube` with the models (or prompts) of each stem and prompt (or model) exchanged."""
    keys = rng.random((int(stems.max()) + 1, *cube.shape[1:]))
    return np.take_along_axis(cube, keys.argsort(axis=axis)[stems], axis=axis)


def claimed(rewards: dict[str, pl.DataFrame]) -> list[str]:
    """The components of which the section says that they are above 0."""
    table = variance.variance_table(rewards)
    if not variance.findings(table):
        return []
    return table.filter(pl.col("estimated_low") > 0)["component"].to_list()[:3]
