"""Words for groups of people, neutral words and placebo kinds with planted places."""

import numpy as np
import polars as pl

from analysis.words import lexicons

AXES = ("class", "gender", "migration", "religion", lexicons.NEUTRAL)
SIDES = {"northerners": "nor", "southerners": "sou"}
KINDS = ("food", "home", "tools", "transport", "body", "look", "feel", "matter", "knowledge")


def vocabulary() -> pl.DataFrame:
    """The column token and those of a term: words of some axes, each after a space.

    Of every placebo kind, there are those of the first eight stems.
    """
    people = lexicons.identity().filter(pl.col("axis").is_in(AXES))
    people = pl.concat([people, of_two_groups()]).with_columns(placebo=False)
    placebo = lexicons.placebo(besides=people).filter(pl.col("axis").is_in(KINDS))
    first = pl.col("stem").rank("dense").over("group") <= 8
    terms = pl.concat([people, placebo.filter(first).with_columns(placebo=True)])
    return terms.with_columns(token=" " + pl.col("word"))


def of_two_groups() -> pl.DataFrame:
    """Terms of an axis of our own, "side": eight made-up words for each of two groups."""
    words = [(f"{start}{at}ers", group) for group, start in SIDES.items() for at in "abcdefgh"]
    terms = pl.DataFrame(words, schema=["word", "group"], orient="row")
    return terms.with_columns(axis=pl.lit("side"), form=pl.lit("plural"), stem=pl.col("word"))


def rewards(
    table: pl.DataFrame,
    rng: np.random.Generator,
    models: int,
    shift: dict[str, float] | None = None,
    kinds: float = 0.3,
) -> np.ndarray:
    """Rewards [models, tokens]: of stems, of words, and of each model's own taste.

    Args:
      table: what `vocabulary` returns.
      rng: draws them.
      models: number of models, which agree about words.
      shift: what is added for the words of a group.
      kinds: how far placebo kinds stand apart (standard deviation).
    """
    stem = table.select(pl.struct("group", "stem").rank("dense")).to_series().to_numpy() - 1
    kind = table.select(pl.struct("placebo", "group").rank("dense")).to_series().to_numpy() - 1
    apart = rng.normal(0, kinds, kind.max() + 1)[kind] * table["placebo"].to_numpy()
    own = apart + rng.normal(size=stem.max() + 1)[stem] + 0.3 * rng.normal(size=len(stem))
    for group, size in (shift or {}).items():
        own = own + size * (table["group"] == group).to_numpy()
    drawn: np.ndarray = own + 0.3 * rng.normal(size=(models, len(stem)))
    return drawn
