"""Tables of wordings, from arrays."""

import numpy as np
import polars as pl

from analysis.measures.wording_tables import COMPARISON, wording_rows
from analysis.measures.wordings import QUESTION, Wordings
from analysis.statistics import ranks

SIZE, MODELS = 200, ("a", "b", "c")


def crossed(rng, question, alike, wordings=6):
    """Two questions of each framing in the same wordings, which are of two kinds.

    Wordings of one kind share much, whatever the question; a question has a little of its own.
    """
    names = [("best", "positive"), ("greatest", "positive"), ("worst", "negative")]
    names.append(("most bad", "negative"))
    rows = [(f"{m}-{w}", m, f, f"wording {w}") for m, f in names for w in range(wordings)]
    prompts = pl.DataFrame(rows, schema=["prompt", "question", "framing", "wording"], orient="row")
    values = {}
    for model in MODELS:
        taste, kinds = rng.normal(size=SIZE), alike * rng.normal(size=(2, SIZE))
        own = question * rng.normal(size=(len(names), SIZE))
        cells = [
            taste + kinds[w % 2] + own[q] + 0.3 * rng.normal(size=SIZE)
            for q in range(len(names))
            for w in range(wordings)
        ]
        values[model] = np.array([ranks.percentiles(cell) for cell in cells])
    return Wordings(
        source="words",
        level=QUESTION,
        items=[f"item {i}" for i in range(SIZE)],
        clusters=np.arange(SIZE),
        models=MODELS,
        prompts=prompts,
        read=values.__getitem__,
    )


def test_a_question_is_found_beside_wordings_that_differ_much():
    """Questions are permuted inside each wording, so that kinds of wordings are no noise."""
    found = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        [row] = wording_rows(crossed(rng, question=0.15, alike=1.0), rng, 199)[COMPARISON.name]
        found += row[-1] < 0.05
    assert found == 5


def test_wordings_of_two_kinds_are_no_question():
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        [row] = wording_rows(crossed(rng, question=0.0, alike=1.0), rng, 199)[COMPARISON.name]
        alarms += row[-1] < 0.05
    assert alarms <= 4
