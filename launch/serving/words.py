"""The words that a ranking begins with."""

from collections.abc import Mapping

import polars as pl

from analysis.words import lexicons
from analysis.words.matching import match

_PLAIN = r"^ ?[a-z]{3,}$"  # without a list of frequencies; merges stand in their order


def common_words(tokens: Mapping[int, str], count: int) -> list[int]:
    """Ids of the tokens that are the most frequent words: up to `count`, the most frequent first.

    Frequencies are those of the package `wordfreq`; without it the first plain words of the
    vocabulary are taken. Of the tokens of one word, the one without a space counts.
    """
    columns = {"token_id": list(tokens), "token": list(tokens.values())}
    frame = pl.DataFrame(columns, schema={"token_id": pl.UInt32, "token": pl.String})
    try:
        matched = match(frame, lexicons.frequency(), trim=True)
    except lexicons.LexiconError:
        matched = frame.filter(pl.col("token").str.contains(_PLAIN)).with_columns(
            word=pl.col("token").str.strip_chars(), per_million=pl.lit(1.0)
        )
    length = pl.col("token").str.len_chars()
    ranked = matched.sort("per_million", length, "token_id", descending=[True, False, False])
    first = ranked.unique("word", keep="first", maintain_order=True).head(count)
    ids: list[int] = first["token_id"].to_list()
    return ids
