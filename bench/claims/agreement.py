"""Blocs of models that agree, or disagree."""

from collections.abc import Iterator

import numpy as np
import polars as pl

import analysis
from analysis.chapters.blocs import CLEAR, RELATIONS
from analysis.chapters.tokens import shared_rewards, shared_vocabulary
from analysis.words.stems import stem_numbers
from bench.claims import Rate
from bench.support.shuffled_stems import shuffled_places

_CLAIM = "agreement: a bloc, or two that oppose"
_CLEAR = "agreement: rank alike, or oppose one another"
_LAST = "agreement: the last model has a bloc"


def rates(run: analysis.Run, draws: int) -> Iterator[Rate]:
    """Independent orders, made up and real; one such order beside real ones; τ at its limit."""
    rng = np.random.default_rng(12)
    made = [claims(blocs(made_up(rng))) > 0 for _ in range(draws)]
    yield Rate.of(_CLAIM, "5 models of 300 words, orders independent", made)
    made = [clear(blocs(at_the_limit(rng))) > 0 for _ in range(draws)]
    yield Rate.of(_CLEAR, f"5 models of 300 words, every τ is ±{CLEAR}", made)
    prompt = list(run.vocabulary_prompts)[-1]
    rewards = shared_rewards(run, shared_vocabulary(run), prompt)
    stems = stem_numbers(rewards["token"])
    models = rewards.columns[1:]
    real = [claims(blocs(shuffled(rewards, models, stems, rng))) > 0 for _ in range(draws)]
    yield Rate.of(_CLAIM, f"rewards under {prompt}, stems shuffled by model", real)
    tables = [blocs(shuffled(rewards, models[-1:], stems, rng)) for _ in range(draws)]
    yield Rate.of(
        _LAST,
        f"rewards under {prompt}, stems of the last shuffled",
        [claims(table, models[-1]) > 0 for table in tables],
    )


def made_up(rng: np.random.Generator, models: int = 5, count: int = 300) -> pl.DataFrame:
    """Rewards of words with two spellings each, which share most of theirs."""
    tokens = [f"{space}w{i}" for i in range(count) for space in ("", " ")]
    columns = {
        f"m{i}": np.repeat(rng.normal(size=count), 2) + 0.3 * rng.normal(size=2 * count)
        for i in range(models)
    }
    return pl.DataFrame({"token": tokens, **columns})


def at_the_limit(
    rng: np.random.Generator, signs: tuple[int, ...] = (1, 1, 1, -1, -1), count: int = 300
) -> pl.DataFrame:
    """As `made_up`, of models of which every two have a Kendall's tau of `CLEAR` or its reverse."""
    r = np.sin(np.pi * CLEAR / 2)  # Pearson's r of two normal values with that tau
    common = rng.normal(size=count)
    tokens = [f"{space}w{i}" for i in range(count) for space in ("", " ")]
    columns = {}
    for i, sign in enumerate(signs):
        own = np.sqrt(r) * sign * common + np.sqrt(0.9 * (1 - r)) * rng.normal(size=count)
        columns[f"m{i}"] = np.repeat(own, 2) + np.sqrt(0.1 * (1 - r)) * rng.normal(size=2 * count)
    return pl.DataFrame({"token": tokens, **columns})


def shuffled(
    rewards: pl.DataFrame, models: list[str], stems: np.ndarray, rng: np.random.Generator
) -> pl.DataFrame:
    """`rewards` with the stems of each of `models` shuffled."""
    return rewards.with_columns(
        rewards[model].gather(shuffled_places(stems, rng)) for model in models
    )


def blocs(rewards: pl.DataFrame) -> pl.DataFrame:
    """The blocs of the models of `rewards`, as a report finds them."""
    pairs = analysis.kendall_pairs(rewards, analysis.kendall_matrix(rewards))
    return analysis.blocs_table(pairs, rewards.columns[1:])


def claims(table: pl.DataFrame, model: str = "") -> int:
    """Number of blocs and oppositions in a table of blocs; only those of `model`, if named."""
    said = table.filter(pl.col("relation").is_in(RELATIONS))
    if not model:
        return said.height
    names = pl.concat_str("models", pl.lit(" "), "other_models").str.split(" ")
    return said.filter(names.list.contains(model)).height


def clear(table: pl.DataFrame) -> int:
    """Number of blocs that are said to rank alike, and of pairs that oppose one another."""
    return table.filter(pl.col("relation").is_in(["alike", "opposed"])).height
