"""Which published values a run may be judged by: why others are only shown, or not there at all."""

from collections.abc import Sequence

import polars as pl

from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS, ITEMS, LOGPROBS, NEEDS, Exhibit
from analysis.published.records import Line
from analysis.published.run_values import TEN, WORDFREQ, RunValues


def unlike(exhibit: Exhibit, published: Published, computed: RunValues) -> str:
    """Why a run's values of an exhibit are shown and not judged; "" where they are judged.

    It is known before any comparison that such values differ: the run has other words, or another
    vocabulary. Values that a run with the same words and the same models has left are judged.
    """
    if exhibit.id == "figure_3d":
        return _other_words(published.numbers.filter(exhibit=exhibit.id), computed)
    return _other_vocabulary(published, computed) if exhibit.of_shared else ""


def _other_words(numbers: pl.DataFrame, computed: RunValues) -> str:
    before = numbers["source"].str.contains(WORDFREQ, literal=True).any()
    if not computed.frequencies or before == (computed.frequencies == WORDFREQ):
        return ""
    if before:
        return f"it rests on {WORDFREQ}, and this run on {computed.frequencies}"
    return f"it needs --config.frequency, the BNC list: {WORDFREQ} stands in for it"


def _other_vocabulary(published: Published, computed: RunValues) -> str:
    shared = pl.col("exhibit").is_in([exhibit.id for exhibit in EXHIBITS if exhibit.of_shared])
    numbers, tokens = published.numbers.filter(shared), published.tokens.filter(shared)
    named = {*numbers["model"], *numbers["other"], *tokens["model"]} & computed.slugs.keys()
    scored = {name for name, slug in computed.slugs.items() if slug in computed.scored}
    if not named or not scored or named == scored:
        return ""
    here = f"that of {len(scored)}" if len(scored) != len(named) else "that of others"
    return f"it is over the vocabulary that {len(named)} models share; here it is {here}"


def missing(exhibit: Exhibit, computed: RunValues, lines: Sequence[Line]) -> str:
    """Why a run has nothing of an exhibit; "" where it has something, or each value says why."""
    tables = computed.tables
    if exhibit.id == "figure_a3" and ("bing_effects",) not in tables:
        return "Not run: it needs the Bing lexicon (--config.bing)."
    if exhibit.stage == ITEMS:
        return _no_items(computed, lines)
    if exhibit.stage == LOGPROBS:
        there = any(key[0] == "logprobs" for key in tables)
    else:
        frame = tables.get(({"sweep": "moments", "search": "sequences"}[exhibit.stage],))
        there = frame is not None and frame.height > 0
    return "" if there else f"Not run: it needs {NEEDS[exhibit.stage]}."


def _no_items(computed: RunValues, lines: Sequence[Line]) -> str:
    """Why there is nothing of the items; a list without human ranks is not a missing list."""
    if any(line.computed is not None for line in lines):
        return ""
    if not computed.lists():
        return f"Not run: it needs {NEEDS[ITEMS]}."
    reason = computed.reasons.get(("humans_correlation",), "")
    return f"Not run: {reason.strip().rstrip('.')}." if reason else ""


def remarks(exhibit: Exhibit, computed: RunValues) -> list[str]:
    """What a reader has to know of the comparison."""
    said = [exhibit.note] if exhibit.note else []
    count = len(computed.scored)
    if exhibit.of_shared and 0 < count < TEN:
        said.append(
            f"The shared vocabulary is here that of {count} of the ten models: it holds other "
            "tokens than the paper’s, so its values are shown beside the printed ones and not "
            "judged."
        )
    return said
