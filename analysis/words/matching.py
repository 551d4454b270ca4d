"""Tokens of a vocabulary that are words of a list, and kinds of them."""

from collections.abc import Set

import polars as pl

from analysis.words import lexicons
from analysis.words.stems import STARTS, WORD, folded, stems
from engine.runs.schema import Columns

PIECE = "piece or rare word"
KINDS: Columns = {
    **dict.fromkeys(("list", "words"), pl.String),
    "token_id": pl.UInt32,
    "stem": pl.String,
}


def match(vocabulary: pl.DataFrame, lexicon: pl.DataFrame, trim: bool) -> pl.DataFrame:
    """Tokens (token_id, token) that are words of a lexicon, in any case.

    The lexicon has word (lower-case, once each), and more columns. With `trim` outer white space of
    a token is ignored. The paper does not ignore it, so that " love" matches nothing.

    Returns:
      token_id, token, word and the lexicon's columns, sorted by token_id.
    """
    text = pl.col("token").str.strip_chars() if trim else pl.col("token")
    forms = vocabulary.select("token_id", "token", word=text.str.to_lowercase())
    return forms.join(lexicon, on="word", how="inner", validate="m:1").sort("token_id")


def match_cased(vocabulary: pl.DataFrame, terms: pl.DataFrame) -> pl.DataFrame:
    """Tokens (token_id, token) that are identity terms, as `lexicons.identity` has them.

    Outer spaces are ignored, a term's capital is required.

    Returns:
      token_id, token, the columns of `terms`; sorted by token_id.
    """
    stripped = pl.col("token").str.strip_chars()
    forms = vocabulary.select(
        "token_id", "token", exact=stripped, folded=stripped.str.to_lowercase()
    ).filter(pl.col("folded") != "")
    capital = pl.col("word") != pl.col("word").str.to_lowercase()
    cased = terms.filter(capital)
    # "Black", "BLACK": any spelling that starts with the capital.
    cased = cased.with_columns(folded=pl.col("word").str.to_lowercase()).unique(
        "folded", keep="first", maintain_order=True
    )
    with_capital = forms.filter(pl.col("exact").str.slice(0, 1) != pl.col("folded").str.slice(0, 1))
    first = with_capital.join(cased, on="folded", how="inner", validate="m:1")
    plain = terms.filter(~capital)
    rest = forms.filter(~pl.col("token_id").is_in(first["token_id"].implode()))
    second = rest.join(plain, left_on="folded", right_on="word", how="inner", validate="m:1")
    second = second.with_columns(word="folded")
    columns = ["token_id", "token", *terms.columns]
    return pl.concat([first.select(columns), second.select(columns)]).sort("token_id")


def words_among(tokens: pl.DataFrame, common: Set[str], least: int) -> pl.DataFrame:
    """token_id, token and word (in lower case) of tokens (token_id, token) that are whole words.

    Those that start a word, and of these the `common` ones, where `least` are left.
    """
    words = tokens.select("token_id", "token", word=folded(pl.col("token")))
    words = words.filter(pl.col("token").str.contains(WORD))
    starts = words.filter(pl.col("token").str.contains(STARTS))
    words = starts if starts.height >= least else words
    known = words.filter(pl.Series([word in common for word in words["word"]], dtype=pl.Boolean))
    return known if known.height >= least else words


def piece_mark(token: str, common: Set[str]) -> str:
    """`PIECE` for a token of letters that is none of the `common` words; "" where none is known."""
    text = pl.Series([token])
    is_word = not common or folded(text)[0] in common or not text.str.contains(WORD)[0]
    return "" if is_word else PIECE


def kinds(
    vocabulary: pl.DataFrame, afinn: str, identity: str, categories: str, trim: bool
) -> pl.DataFrame:
    """Tokens (token_id, token) of each kind of words; those of AFINN where it is installed.

    `afinn`, `identity` and `categories` are paths, as `lexicons` takes them; `trim` as of `match`,
    except for identity terms.

    Returns:
      list ("AFINN", an axis of groups, or a scale of categories), words ("positive words", a group
      or a category), token_id, stem.
    """
    people = match_cased(vocabulary, lexicons.identity(identity))
    frames = [people.select("token_id", "stem", list="axis", words="group")]
    for _, listed in lexicons.categories(categories).group_by("scale", maintain_order=True):
        matched = match(vocabulary, listed, trim)
        stem = stems(matched["word"])
        frames.append(matched.select("token_id", list="scale", words="category", stem=stem))
    try:
        graded = match(vocabulary, lexicons.afinn(afinn), trim)
    except lexicons.NoPackage:  # the chapter on sentiment says so
        graded = None
    if graded is not None:
        graded = graded.filter(pl.col("value") != 0).sort(pl.col("value") < 0, maintain_order=True)
        side = pl.when(pl.col("value") > 0).then(pl.lit("positive")).otherwise(pl.lit("negative"))
        labels = {"list": pl.lit("AFINN"), "words": side + " words"}
        frames.insert(0, graded.select("token_id", **labels, stem=stems(graded["word"])))
    return pl.concat(
        [frame.select(pl.col(k).cast(t) for k, t in KINDS.items()) for frame in frames]
    )
