"""Word lists: sentiment, frequency, words for groups of people, and words in categories.

No word list of others is shipped. AFINN, wordfreq and the spelling list of pyspellchecker are read
from the packages of those names where they are installed (their data files only; the code is never
imported), or from a path.
"""

import bisect
import functools
import gzip
import importlib.util
import itertools
import json
import pathlib
import re
from collections.abc import Iterator, Sequence

import msgpack
import numpy as np
import polars as pl

from engine.csv_files import read_csv
from engine.errors import AssayError
from engine.runs.schema import Columns

_IDENTITY = pathlib.Path(__file__).parent / "identity.csv"
_CATEGORIES = pathlib.Path(__file__).parent / "categories.csv"
_PLACEBO = pathlib.Path(__file__).parent / "placebo.csv"
_LEAST_FREQUENT = 0.3  # Of a million words.
_LONGER = 5  # Times as frequent as a word: longer words that begin with it, at most.
_OUR = re.compile(r"(?<=..)our(?!$)|(?<=...)our$")
_ISE = re.compile(r"(?<=...)is(?=(?:e[ds]?|ing|ation|er)$)")
_TERMS = ("word", "group", "axis", "stem")
_IN_CATEGORIES: Columns = dict.fromkeys(("word", "category", "scale"), pl.String)
_AFINN: Columns = {"word": pl.String, "value": pl.Float64}
_FREQUENCY: Columns = {"word": pl.String, "per_million": pl.Float64}


class LexiconError(AssayError):
    """A word list that is missing or malformed; the message is one line."""


class NoPackage(LexiconError):
    """The package of a word list, which nobody named, is not installed or not readable."""


def afinn(path: str = "") -> pl.DataFrame:
    """AFINN-111 (Nielsen 2011): word, value (-5 to 5); words lower-case, once each.

    From a file with a word, a tab and a value in each line, by default that of the installed
    package `afinn`.
    """
    source = path or _installed("afinn", "data/AFINN-111.txt", "an AFINN file by options.afinn")
    rows = [line.rsplit("\t", 1) for line in _lines(source) if line.strip()]
    try:
        table = [(word.strip().lower(), float(value)) for word, value in rows]
        if not np.isfinite([value for _, value in table]).all():
            raise ValueError
    except ValueError:
        raise LexiconError(f"{source}: not lines of a word, a tab and a value") from None
    return _distinct(pl.DataFrame(table, schema=_AFINN, orient="row"), str(source))


def frequency(path: str = "", join: str = "forms") -> pl.DataFrame:
    """How often words occur: word, per_million (> 0).

    Args:
      path: list 1.1 of Leech, Rayson & Wilson 2001 (the BNC, which the paper used): tab-separated
        word, part of speech, variant, frequency per million, range, dispersion. "" for English of
        the installed package `wordfreq`.
      join: of the list, "forms" takes the frequencies of word forms (the rows of variants, or a
        head word without variants), summed over parts of speech: each word once. "paper" takes the
        column of head words as it is: a word has a row for each of its parts of speech, and forms
        that are no head words have none.
    """
    if path:
        return _bnc_heads(path) if join == "paper" else _bnc(path)
    file = "data/large_en.msgpack.gz"
    return _wordfreq(_installed("wordfreq", file, "a BNC word list by options.frequency"))


@functools.cache
def common_words(path: str = "") -> frozenset[str]:
    """Words that are not rare, in lower case; none where no package of words is installed.

    A word stands in the spelling list of the installed package `pyspellchecker`. Text of which
    longer words make much more use ("hydro") is left out: as a token it is a piece of them.
    """
    spelt = _spelling()
    try:
        table = frequency(path)
    except NoPackage:
        table = spelt
    words, often = table["word"].to_list(), table["per_million"].to_numpy()  # sorted by word
    before, kept = np.append(0.0, often.cumsum()), set()
    for at in np.flatnonzero(often >= _LEAST_FREQUENT).tolist():
        end = bisect.bisect_left(words, f"{words[at]}\U0010ffff", lo=at)
        if before[end] - before[at + 1] <= _LONGER * often[at]:
            kept.add(words[at])
    spelling = frozenset(spelt["word"])
    return frozenset(w for w in kept if not spelling or {w, _american(w)} & spelling)


def _american(word: str) -> str:
    """A British spelling as the list has it: "favourite", "realised", "theatre"."""
    word = _OUR.sub("or", word)
    return _ISE.sub("iz", word) if not word.endswith("tre") else f"{word[:-2]}er"


@functools.cache
def _spelling() -> pl.DataFrame:
    """Words in correct spelling, as `frequency` has them; none where the package is not there."""
    try:
        source = _installed("spellchecker", "resources/en.json.gz", "")
        counts: dict[str, int] = json.loads(gzip.decompress(source.read_bytes()))
    except (OSError, ValueError, NoPackage):
        return pl.DataFrame(schema=_FREQUENCY)
    table = pl.DataFrame([[*counts], [*counts.values()]], schema=_FREQUENCY, orient="col")
    millions = pl.col("per_million") * 1e6 / pl.col("per_million").sum()
    return _distinct(table.with_columns(pl.col("word").str.to_lowercase(), millions), str(source))


@functools.cache
def _wordfreq(source: pathlib.Path) -> pl.DataFrame:
    """The list of the installed package, which takes a quarter of a second to read."""
    try:
        _, *buckets = msgpack.unpackb(gzip.decompress(source.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise NoPackage(f"{source}: not a word list of wordfreq ({error})") from None
    # The first entry is a header; the words of bucket i have frequency 10^(-i/100).
    often = [10 ** (6 - i / 100) for i, words in enumerate(buckets) for _ in words]
    columns = {"word": list(itertools.chain.from_iterable(buckets)), "per_million": often}
    return _distinct(pl.DataFrame(columns, schema=_FREQUENCY), str(source))


def identity(path: str = "") -> pl.DataFrame:
    """Words for groups of people by group and axis.

    The built-in list is `analysis/words/identity.csv`: nouns and adjectives for people of a group,
    the same kinds of words for every group of an axis. It leaves out places, offices and
    conditions ("mosque", "rabbi", "autism"), slurs, and words that mostly mean something else
    ("straight", "senior", "Roma"); a remaining second sense is named in the column `note`. A word
    with a capital matches only with its capital ("black" and "white" are colours); others match in
    any case.

    Args:
      path: a CSV word,group,axis (and stem, where there is such a column) that is added to the
        built-in list. Its rows replace built-in rows of the same word in any case.

    Returns:
      word, group, axis, stem (the same for words of one origin, such as "mother" and "mothers";
      the word itself where a list names none).
    """
    built_in = _terms(str(_IDENTITY), _TERMS)
    if not path:
        return built_in
    more = _terms(path, _TERMS[:3], _TERMS[3:])
    if "stem" not in more.columns:
        more = more.with_columns(stem=pl.col("word").str.to_lowercase())
    more = more.select(_TERMS)
    folded = pl.col("word").str.to_lowercase()
    built_in = built_in.filter(~folded.is_in(more.select(folded)["word"].implode()))
    return pl.concat([more.unique("word", keep="first", maintain_order=True), built_in])


def placebo(besides: pl.DataFrame | None = None) -> pl.DataFrame:
    """Placebo kinds: ordinary words by kind (months, fruits, sizes, …) and axis.

    Groups of people are compared with them. The list is `analysis/words/placebo.csv`. A kind is a
    group, and kinds of one subject are an axis (fruits and drinks are food). No word is about
    people, and no kind is defined by being good or bad (virtues, illnesses, weapons). Columns are
    those of `identity`; words of `besides` are left out, in any case.
    """
    words = _terms(str(_PLACEBO), _TERMS)
    if besides is None:
        return words
    folded = pl.col("word").str.to_lowercase()
    return words.filter(~folded.is_in(besides.select(folded)["word"].implode()))


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
    source = path or str(_CATEGORIES)
    table = read_table(source, ("word", "category"))
    if "scale" not in table.columns:
        table = table.with_columns(scale=pl.lit(pathlib.Path(source).stem))
    table = table.select(list(_IN_CATEGORIES)).with_columns(pl.all().str.strip_chars())
    table = table.with_columns(pl.col("word").str.to_lowercase())
    if table.height == 0 or any((table[name].fill_null("") == "").any() for name in _IN_CATEGORIES):
        raise LexiconError(f"{source}: no rows, or an empty cell")
    distinct = table.unique(maintain_order=True)
    return distinct.filter(~pl.struct("word", "scale").is_duplicated())


def _installed(package: str, file: str, instead: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    places = (spec.submodule_search_locations if spec else None) or []
    path = next((p for p in (pathlib.Path(place) / file for place in places) if p.is_file()), None)
    if path is None:
        raise NoPackage(f"the package {package} is not installed; install it, or name {instead}")
    return path


def _lines(path: str | pathlib.Path) -> list[str]:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise LexiconError(f"{path}: {error.strerror or error}") from None


def read_table(path: str, needed: Sequence[str]) -> pl.DataFrame:
    """A CSV file of words or prompts: all of its columns, as text.

    Raises:
      LexiconError: no such file, malformed CSV, or a needed column is missing.
    """
    try:
        table = read_csv(pathlib.Path(path).read_bytes())
    except (OSError, AssayError) as error:
        raise LexiconError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if missing := [name for name in needed if name not in table.columns]:
        raise LexiconError(f"{path}: no column {missing[0]!r}; it needs {', '.join(needed)}")
    return table


def _terms(path: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> pl.DataFrame:
    """Those columns of a CSV file, without spaces around the cells, none of which is empty."""
    table = read_table(path, needed)
    columns = [*needed, *(name for name in optional if name in table.columns)]
    table = table.select(pl.col(columns).str.strip_chars().replace("", None))
    if table.height == 0 or sum(table.null_count().row(0)):
        raise LexiconError(f"{path}: no rows, or an empty cell")
    return table


def _bnc_rows(path: str) -> Iterator[tuple[str, str, float]]:
    """Head word ("@" in the rows of its forms), variant ("%" of a lemma with forms), frequency."""
    for line in _lines(path):
        fields = [field.strip() for field in line.strip("\n").lstrip("\t").split("\t")]
        if len(fields) >= 4 and fields[3].replace(".", "", 1).isdigit():
            yield fields[0], fields[2], float(fields[3])


def _bnc(path: str) -> pl.DataFrame:
    rows = [
        ((variant if head == "@" else head).lower(), often)
        for head, variant, often in _bnc_rows(path)
        if variant != "%"
    ]
    table = pl.DataFrame(rows, schema=_FREQUENCY, orient="row")
    table = table.group_by("word").agg(pl.col("per_million").sum())
    return _distinct(table.filter(pl.col("per_million") > 0), path)


def _bnc_heads(path: str) -> pl.DataFrame:
    rows = [(head, often) for head, _, often in _bnc_rows(path) if head != "@"]
    table = pl.DataFrame(rows, schema=_FREQUENCY, orient="row").filter(pl.col("per_million") > 0)
    if table.height == 0:
        raise LexiconError(f"{path}: no words in it")
    return table


def _distinct(table: pl.DataFrame, source: str) -> pl.DataFrame:
    if table.height == 0:
        raise LexiconError(f"{source}: no words in it")
    return table.unique("word", keep="first", maintain_order=True).sort("word")
