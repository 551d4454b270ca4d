"""Sets of tokens by which the explorer filters: script, sentiment, word categories, groups.

A filter has values, such as "Latin"; a token has none of them, one or several.
"""

import dataclasses
from collections.abc import Callable, Sequence

import polars as pl

from analysis.settings import Options
from analysis.statistics import Array
from analysis.words import lexicons, matching
from analysis.words.lexicons import NoPackage, categories

# Script -> characters of it. Letters of no script in the list are "other letters".
_SCRIPTS = {
    "Latin": r"\p{Latin}",
    "Cyrillic": r"\p{Cyrillic}",
    "Greek": r"\p{Greek}",
    "Arabic": r"\p{Arabic}",
    "Hebrew": r"\p{Hebrew}",
    "Chinese, Japanese, Korean": r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}",
    "Indic": (
        r"\p{Devanagari}\p{Bengali}\p{Gurmukhi}\p{Gujarati}\p{Oriya}\p{Tamil}\p{Telugu}\p{Kannada}"
        r"\p{Malayalam}\p{Sinhala}"
    ),
}
_OTHER, _MIXED = "other letters", "several scripts"
# Of a token without letters: the first that it has.
_REST = {
    "digits": r"\p{N}",
    "broken characters": "\ufffd",
    "punctuation and symbols": r"[\p{P}\p{S}\p{M}]",
    "spaces and controls": "",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSets:
    """A filter of the explorer."""

    label: str  # its name
    values: Sequence[str]  # its values, in the order in which they are offered
    rows: Array  # rows that have a value, ascending; a row with two values is there twice (uint32)
    of: Array  # place of that value in `values` (uint32)


def sets_of(texts: Sequence[str], options: Options) -> list[TokenSets]:
    """The filters of the tokens `texts`; one that fits no token, or lacks its words, is left out.

    Args:
      texts: the text of each row of the explorer.
      options: which word lists are taken.
    """
    tokens = pl.DataFrame({"token": texts}, schema={"token": pl.String})
    tokens = tokens.with_row_index("token_id")
    makers: dict[str, Callable[[], pl.DataFrame]] = {
        "script": lambda: scripts(tokens),
        "sentiment (AFINN)": lambda: _sentiment(tokens, options.afinn),
        "word category": lambda: _categories(tokens, options.categories),
        "group of people": lambda: _groups(tokens, options.identity),
    }
    made = []
    for label, make in makers.items():
        try:
            matched = make()
        except NoPackage:  # the word list is not installed; its section says so
            continue
        if matched.height:
            made.append(_sets(label, matched))
    return made


def scripts(tokens: pl.DataFrame) -> pl.DataFrame:
    """The script of each token, from its letters; of one without letters, what it is made of.

    Args:
      tokens: token_id and token.

    Returns:
      token_id, value; one row per token, in their order.
    """
    known = "".join(_SCRIPTS.values())
    classes = {name: f"[{chars}]" for name, chars in _SCRIPTS.items()}
    # A mark or a symbol of a script (a vowel sign, an emoji) is no letter by itself.
    classes = {name: rf"[{chars}&&[\p{{L}}\p{{M}}]]" for name, chars in classes.items()}
    classes[_OTHER] = rf"[\p{{L}}--[{known}]]"
    text = pl.col("token")
    has = {name: text.str.contains(pattern) for name, pattern in classes.items()}
    count = pl.sum_horizontal(expression.cast(pl.UInt8) for expression in has.values())
    value = pl.when(count > 1).then(pl.lit(_MIXED))
    for name, expression in has.items():
        value = value.when(expression).then(pl.lit(name))
    for name, pattern in _REST.items():
        value = value.when(text.str.contains(pattern)).then(pl.lit(name))
    return tokens.select("token_id", value=value)


def _sentiment(tokens: pl.DataFrame, path: str) -> pl.DataFrame:
    matched = matching.match(tokens, lexicons.afinn(path), trim=True)
    sign = pl.when(pl.col("value") > 0).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    return matched.filter(pl.col("value") != 0).select("token_id", value=sign)


def _categories(tokens: pl.DataFrame, path: str) -> pl.DataFrame:
    words = categories(path)
    of = words.group_by("word", maintain_order=True).agg("category")
    matched = matching.match(tokens, of, trim=True)
    return matched.explode("category").select("token_id", value="category")


def _groups(tokens: pl.DataFrame, path: str) -> pl.DataFrame:
    matched = matching.match_cased(tokens, lexicons.identity(path))
    return matched.select("token_id", value=pl.format("{}: {}", "axis", "group"))


def _sets(label: str, matched: pl.DataFrame) -> TokenSets:
    """A filter of a table token_id, value."""
    order = [*_SCRIPTS, _OTHER, _MIXED, *_REST]
    names = set(matched["value"].unique())
    values = [name for name in order if name in names] + sorted(names - set(order))
    place = pl.col("value").replace_strict(values, range(len(values)), return_dtype=pl.UInt32)
    rows = matched.unique().select("token_id", place=place).sort("token_id", "place")
    return TokenSets(
        label=label,
        values=values,
        rows=rows["token_id"].cast(pl.UInt32).to_numpy(),
        of=rows["place"].to_numpy(),
    )
