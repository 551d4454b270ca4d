"""Which question a prompt asks, and in which words.

The 54 prompts of the follow-up paper are nine wordings of six questions. Wordings of one question
are no independent evidence, so a list that was scored under many prompts is read by question.
Questions are grouped further by framing: "best" and "greatest" ask for something good, "worst" for
something bad.
"""

import functools
import pathlib
import re
from collections.abc import Callable, Mapping

import polars as pl

from analysis.settings import Options
from analysis.words import lexicons
from analysis.words.lexicons import LexiconError, read_table
from engine.runs.schema import Columns

POSITIVE, NEGATIVE = "positive", "negative"
ASKED_FOR = {POSITIVE: "something good", NEGATIVE: "something bad"}  # Framing -> in words.
# Quality -> framing: those of the follow-up paper's prompts, its first to last.
QUALITIES = {
    "best": POSITIVE,
    "greatest": POSITIVE,
    "most good": POSITIVE,
    "worst": NEGATIVE,
    "most bad": NEGATIVE,
    "most terrible": NEGATIVE,
}
_QUALITY = "(?P<quality>{})".format("|".join(map(re.escape, QUALITIES)))
# "… is the best thing …", or "What one single thing, person, or concept is the best …".
_ASKED = (
    re.compile(rf"\bthe {_QUALITY} thing\b", re.IGNORECASE),
    re.compile(rf"\bthing\b[^.?!]* is the {_QUALITY}\b", re.IGNORECASE),
)
_COLUMNS: Columns = dict.fromkeys(("prompt", "question", "framing", "wording"), pl.String)
_FILE = ("prompt", "question", "framing")


def questions(prompts: Mapping[str, str], path: str = "") -> pl.DataFrame:
    """The question that each prompt asks, and its wording.

    A prompt asks for a quality of `QUALITIES` where its text has the form "the best thing" or
    "thing … is the best", once. Every other prompt is a question of its own; so "What is the best
    food?" is not the same question as "What is the best thing?".

    Args:
      prompts: prompt id -> text.
      path: a CSV prompt,question,framing whose rows replace what the texts say; framing is
        "positive", "negative" or empty. "" for none. Ids that are not in `prompts` are ignored.

    Returns:
      prompt, question (a quality, such as "most good"; the prompt's id where it asks for none,
      and its text where that id is a quality too), framing ("positive", "negative" or ""),
      wording (the text, with "…" for the quality: equal wordings of two questions differ in
      nothing else); in the order of `prompts`.

    Raises:
      LexiconError: `path` is no such file, or names a prompt twice, or another framing,
        or gives a question two framings.
    """
    from_file = _named(path) if path else {}
    rows = []
    for prompt, text in prompts.items():
        quality, wording = _asked(text)
        if prompt in from_file:
            question, framing = from_file[prompt]
        elif quality:
            question, framing = quality, QUALITIES[quality]
        else:
            question, framing = (text if prompt in QUALITIES else prompt), ""
        rows.append((prompt, question, framing, wording))
    table = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
    framings = table.select("question", "framing").unique(maintain_order=True)
    twice = framings.filter(pl.col("question").is_duplicated())["question"]
    if len(twice):
        raise LexiconError(f"{path}: question {twice[0]!r} has two framings")
    return table


def check_files(options: Options) -> None:
    """Raises AssayError for a word list or a table of questions that is absent or malformed."""
    readers: dict[str, Callable[[str], object]] = {
        "afinn": lexicons.afinn,
        "frequency": lexicons.frequency,
        "identity": lexicons.identity,
        "categories": lexicons.categories,
        "questions": functools.partial(questions, {}),
    }
    for key, read in readers.items():
        path = getattr(options, key)
        if path and not pathlib.Path(path).exists():
            raise LexiconError(f"analyze.options.{key}={path!r}: no such file")
        if path:
            read(path)


def _asked(text: str) -> tuple[str, str]:
    """The quality that `text` asks for, and its wording; "" where it asks for none or several."""
    matches = (match for pattern in _ASKED for match in pattern.finditer(text))
    places = {match.span("quality") for match in matches}
    if len(places) != 1:
        return "", text
    start, stop = places.pop()
    return text[start:stop].lower(), f"{text[:start]}…{text[stop:]}"


def _named(path: str) -> dict[str, tuple[str, str]]:
    """Prompt id -> question and framing of a file of the user's own."""
    table = read_table(path, _FILE).select(pl.col(name).fill_null("") for name in _FILE)
    allowed = (POSITIVE, NEGATIVE, "")
    for prompt, question, framing in table.iter_rows():
        if not question:
            raise LexiconError(f"{path}: prompt {prompt!r} has no question")
        if framing not in allowed:
            raise LexiconError(f"{path}: framing {framing!r} of {prompt!r}; allowed: {allowed}")
    twice = table.filter(pl.col("prompt").is_duplicated())["prompt"]
    if len(twice):
        raise LexiconError(f"{path}: prompt {twice[0]!r} is there twice")
    return {prompt: (question, framing) for prompt, question, framing in table.iter_rows()}
