"""Which published values a run may be judged by: why others are only shown, or not there at all."""

from collections.abc import Sequence

import polars as pl

from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS, ITEMS, LOGPROBS, NEEDS, Exhibit
from analysis.published.records import Line
from analysis.published.run_values import TEN, WORDFREQ, RunValues


def unlike(exhibit: Exhibit, published: Published, run_values: RunValues) -> str:
    """Why a run's values of an exhibit are shown and not judged; "" where they are judged.

    It is known before any comparison that such values differ: the run has other words, or another
    vocabulary. Values that a run with the same words and the same models has left are judged.
    """
    if exhibit.id == "figure_3d":
        return _other_words(published.numbers.filter(exhibit=exhibit.id), run_values)
    return _other_vocabulary(published, run_values) if exhibit.of_shared else ""


def _other_words(numbers: pl.DataFrame, run_values: RunValues) -> str:
    before = numbers["source"].str.contains(WORDFREQ, literal=True).any()
    if not run_values.frequencies or before == (run_values.frequencies == WORDFREQ):
        return ""
    if before:
        return f"it rests on {WORDFREQ}, and this run on {own.frequencies}"
    return f"it needs --config.frequency, the BNC list: {WORDFREQ} stands in for it"


def _other_vocabulary(published: Published, run_values: RunValues) -> str:
    shared = pl.col("exhibit").is_in([exhibit.id for exhibit in EXHIBITS if exhibit.of_shared])
    numbers, tokens = published.numbers.filter(shared), published.tokens.filter(shared)
    named = {*numbers["model"], *numbers["other"], *tokens["model"]} & run_values.slugs.keys()
    scored = {name for name, slug in run_values.slugs.items() if slug in run_values.scored}
    if not named or not scored or named == scored:
        return ""
    here = f"that of {len(scored)}" if len(scored) != len(named) else "that of others"
    return f"it is over the vocabulary that {len(named)} models share; here it is {here}"


def missing(exhibit: Exhibit, run_values: RunValues, lines: Sequence[Line]) -> str:
    """Why a run has nothing of an exhibit; "" where it has something, or each value says why."""
    tables = run_values.tables
    if exhibit.id == "figure_a3" and ("bing_effects",) not in tables:
        return "Not run: it needs the Bing lexicon (--config.bing)."
    if exhibit.stage == ITEMS:
        return _no_items(run_values, lines)
    if exhibit.stage == LOGPROBS:
        there = any(key[0] == "logprobs" for key in tables)
    else:
        frame = tables.get(({"sweep": "moments", "search": "sequences"}[exhibit.stage],))
        there = frame is not None and frame.height > 0
    return "" if there else f"Not run: it needs {NEEDS[exhibit.stage]}."


def _no_items(run_values: RunValues, lines: Sequence[Line]) -> str:
    """Why there is nothing of the items; a list without human ranks is not a missing list."""
    if any(line.run_values is not None for line in lines):
        return ""
    if not run_values.lists():
        return f"Not run: it needs {NEEDS[ITEMS]}."
    reason = run_values.reasons.get(("humans_correlation",), "")
    return f"Not run: {reason.strip().rstrip('.')}." if reason else ""


def remarks(exhibit: Exhibit, run_values: RunValues) -> list[str]:
    """What a reader has to know of the comparison."""
    said = [exhibit.note] if exhibit.note else []
    count = len(run_values.scored)
    if exhibit.of_shared and 0 < count < TEN:
        said.append(
            f"The shared vocabulary is here that of {count} of the ten models: it holds other "
            "tokens than the paper’s, so its values are shown beside the printed ones and not "
            "judged."
        )
    return said
