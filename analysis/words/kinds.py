"""Kinds of words in a vocabulary: positive and negative words, groups of people, categories."""

import polars as pl

from analysis.words import lexicons
from analysis.words.categories import categories as category_words
from analysis.words.matching import match, match_cased
from analysis.words.stems import stems
from engine.runs.schema import Columns

KINDS: Columns = {
    **dict.fromkeys(("list", "words"), pl.String),
    "token_id": pl.UInt32,
    "stem": pl.String,
}


def kinds(
    vocabulary: pl.DataFrame, afinn: str, identity: str, categories: str, trim: bool
) -> pl.DataFrame:
    """Tokens of each kind of words; positive and negative ones where AFINN is installed.

    Args:
      vocabulary: token_id and token.
      afinn: path of an AFINN file; "" for the installed package.
      identity: path of identity terms that are added to the built-in ones; "" adds none.
      categories: path of words in categories; "" for the built-in ones.
      trim: whether outer white space of a token is ignored for AFINN; see `Options.match_trim`.

    Returns:
      list ("AFINN", an axis of groups, or a scale of categories), words ("positive words", a group
      or a category), token_id, stem.
    """
    people = match_cased(vocabulary, lexicons.identity(identity))
    people = people.filter(pl.col("axis") != lexicons.NEUTRAL)
    named = people.select(pl.col("axis").alias("list"), pl.col("group").alias("words"))
    frames = [named.with_columns(people["token_id"], people["stem"])]
    for (scale,), own in category_words(categories).group_by("scale", maintain_order=True):
        once = own.unique("word", keep="none", maintain_order=True)  # words of two categories: out
        found = match(vocabulary, once, trim)
        columns = (pl.lit(scale).alias("list"), pl.col("category").alias("words"), "token_id")
        frames.append(found.select(*columns, stems(found["word"]).alias("stem")))
    try:
        graded = match(vocabulary, lexicons.afinn(afinn), trim)
    except lexicons.LexiconError:  # the chapter on sentiment says so
        graded = None
    if graded is not None:
        graded = graded.filter(pl.col("value") != 0).sort(pl.col("value") < 0, maintain_order=True)
        side = pl.when(pl.col("value") > 0).then(pl.lit("positive")).otherwise(pl.lit("negative"))
        words = graded.select(pl.lit("AFINN").alias("list"), (side + " words").alias("words"))
        frames.insert(
            0, words.with_columns(graded["token_id"], stems(graded["word"]).alias("stem"))
        )
    return pl.concat([frame.cast(pl.Schema(KINDS)) for frame in frames])
