"""Whether a model rates a word higher when it begins with a capital letter."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Picture
from analysis.charts.estimates import estimates
from analysis.columns import MODEL, PROMPT, Column, Spec, ends
from analysis.study import Analysis, Study, Table, required, table

CAPITALS = Spec(
    "capitals",
    (
        *(MODEL, PROMPT, Column("n", "count", "words", "words of both spellings")),
        Column("difference", "fixed", help="mean percentile of Word less that of word"),
        *ends("fixed"),
    ),
)


def _tables(study: Study) -> Iterator[Table]:
    rows = (row for cell in study.run.results for row in _row(study, *cell))
    yield table("capitals", make=lambda: required(CAPITALS.frame(rows), "No word has both."))


def _row(study: Study, model: str, prompt: str) -> Iterator[tuple[object, ...]]:
    """The row of a model under a prompt, over pairs of tokens such as " love" and " Love"."""
    token_ids, _ = study.run.rewards(model, prompt)
    shares = study.run.ranked(model, prompt).percentiles
    scored = pl.DataFrame({"token_id": token_ids, "percentile": shares})
    spelt = study.run.vocabulary(model).collect().unique("token", keep="none")
    words = spelt.filter(pl.col("token").str.contains("^ [A-Za-z][a-z]+$"))
    placed = words.join(scored, on="token_id", validate="1:1").sort("token_id")
    lower = placed.select("percentile", word="token")
    upper = placed.select(
        upper="percentile", word=pl.col("token").str.to_lowercase(), as_is="token"
    )
    both = upper.filter(pl.col("word") != pl.col("as_is")).join(lower, on="word", validate="1:1")
    if both.height > 1:
        differences = both["upper"] - both["percentile"]
        mean, half = differences.mean(), 1.96 * differences.std() / both.height**0.5
        yield model, prompt, both.height, mean, mean - half, mean + half


def _drawn(study: Study) -> Iterator[Block]:
    frame, label = study.tables["capitals"], "difference of percentiles, Word − word"
    draw = partial(estimates, frame, study.names, label, value="difference", row="prompt")
    yield Picture("capitals", "With 95% intervals.", partial(draw, panel="name"))
    yield from CAPITALS.rows(frame)


ANALYSIS = Analysis(
    id="capitals",
    title="Capital letters",
    lead="Is a word rated higher when it begins with a capital letter?",
    make=_tables,
    parts=(_drawn,),
)
