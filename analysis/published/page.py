"""paper.html: the comparison as one page that loads nothing. Jinja2 escapes what it is given."""

import dataclasses
import itertools
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.published import verdicts
from analysis.published.comparison import Compared, Line, TokenList, totals, uncounted
from analysis.published.explanations import explanations, unexplained
from analysis.report.page import TEMPLATES, template
from analysis.sentences import minus

_OWN = pathlib.Path(__file__).parent / "templates"
_FOLDED_ABOVE = 12  # numbers of an exhibit
SYMBOLS = {
    verdicts.SAME: "same",
    verdicts.NOISE: "noise",
    verdicts.DIFFERS: "differs",
    verdicts.NOT_RUN: "notrun",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What a reader of the page has to know of the run."""

    # Nickname, and what was done or why it failed, of every model that was asked for.
    models: Sequence[tuple[str, str]]
    # Name of a convention, in the paper's reading, and in ours.
    settings: Sequence[tuple[str, str, str]]
    facts: Sequence[str]  # lines about devices, dtypes and versions
    tried: Sequence[str]  # of which models single conventions were changed, and of which not
    published: str  # what it was compared with: the paper, or a folder of values


def render(
    compared: Sequence[Compared],
    about: About,
    figures: Mapping[str, Sequence[tuple[str, str]]],
) -> str:
    """The page as one string of HTML.

    Args:
      compared: every exhibit, in the order of the paper.
      about: the run.
      figures: exhibit -> data URI and caption of each of its figures.
    """
    filters = {
        "shown": shown,
        "signed": signed,
        "symbol": SYMBOLS.__getitem__,
        "short": lambda kind: {verdicts.NOISE: "noise"}.get(kind, kind),
    }
    explained = explanations(compared)
    sheets = [TEMPLATES / "style.css", _OWN / "paper.css"]
    return template("paper.html.j2", filters, _OWN, TEMPLATES).render(
        compared=compared,
        about=about,
        figures=figures,
        kinds=verdicts.KINDS,
        totals=totals(compared),
        uncounted=uncounted(compared),
        folded_above=_FOLDED_ABOVE,
        summary=summary,
        rows_of=rows_of,
        explained=explained,
        unexplained=unexplained(explained),
        style="".join(sheet.read_text(encoding="utf-8") for sheet in sheets),
    )


def shown(value: float | str | None, published: str) -> str:
    """A number of the run with two digits more than the published one, where that has few."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    digits = len(published.partition(".")[2])
    more = 2 if digits < 4 else 0
    text = f"{value:.{digits + more}f}" if 0 < digits < 7 else f"{value:.6g}"
    return minus(text)


def signed(value: float | None) -> str:
    """A difference with its sign; a dash where there is none."""
    if value is None or value != value:
        return "–"
    return minus(f"{value:+.3g}") if value else "0"


def summary(lines: Sequence[Line]) -> str:
    """How far a run's numbers are from the published ones, in one sentence."""
    off = [line for line in lines if line.difference is not None]
    if not off:
        return f"{len(lines)} published values"
    sizes = sorted(abs(line.difference or 0.0) for line in off)
    largest = max(off, key=lambda line: abs(line.difference or 0.0))
    return (
        f"{len(lines)} published values; median difference {statistics.median(sizes):.2g}; largest "
        f"{signed(largest.difference)} ({largest.of})"
    )


def rows_of(one: TokenList) -> list[tuple[int, Any]]:  # Any: tokens or None
    """Rank, and published token and the run's in both readings; None beyond the end of a list."""
    return list(enumerate(itertools.zip_longest(one.published, one.computed, one.ours), 1))
