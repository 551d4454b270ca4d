"""Words in categories: a built-in list, or a file of the user's own."""

import pathlib

import polars as pl

from analysis.words.lexicons import LexiconError, read_table
from engine.runs.schema import Columns

_BUILT_IN = pathlib.Path(__file__).parent / "categories.csv"
_COLUMNS: Columns = {"word": pl.String, "category": pl.String, "scale": pl.String}


def categories(path: str = "") -> pl.DataFrame:
    """Words by category, and the scale on which categories are compared.

    The built-in list is `analysis/words/categories.csv`. It was written for Assay from general
    knowledge and is not part of any published dictionary: nouns of agency and communion (the Big
    Two of social judgement), and nouns for the virtues and the vices of five moral foundations.
    Both ends of a scale are equally good or equally bad, so that a category does not stand high
    because its words are kinder.

    Args:
      path: a CSV word,category or word,category,scale, which replaces the built-in list. Without
        the column scale all categories are on one scale, which has the name of the file.

    Returns:
      word (lower-case), category, scale; in the order of the file. A word of two categories of one
      scale is left out of that scale, because it belongs to both sides of their comparison.

    Raises:
      LexiconError: no such file or column, an empty cell, or no words.
    """
    source = path or str(_BUILT_IN)
    table = read_table(source, ("word", "category"))
    if "scale" not in table.columns:
        table = table.with_columns(scale=pl.lit(pathlib.Path(source).stem))
    table = table.select(list(_COLUMNS)).with_columns(pl.all().str.strip_chars())
    table = table.with_columns(pl.col("word").str.to_lowercase())
    if table.height == 0 or any((table[name].fill_null("") == "").any() for name in _COLUMNS):
        raise LexiconError(f"{source}: no rows, or an empty cell")
    distinct = table.unique(maintain_order=True)
    return distinct.filter(~pl.struct("word", "scale").is_duplicated())
