"""Whether a model rates a word higher when it begins with a capital letter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from analysis.blocks import MODEL, PROMPT, Block, Column, Picture, Section, notes, rows
from analysis.figures import style
from analysis.run import Run
from analysis.statistics import ranks
from analysis.study import Study, Table, required, table
from engine.runs.schema import Columns

_TABLE: Columns = {
    "model": pl.String,
    "prompt": pl.String,
    "n": pl.Int64,
    "difference": pl.Float64,
    "stderr": pl.Float64,
}
_PLACES: Columns = {"token_id": pl.UInt32, "percentile": pl.Float64}
_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("n", "words", "count"),
    ("difference", "difference", "fixed"),
    ("stderr", "standard error", "fixed"),
)


def tables(study: Study) -> Iterator[Table]:
    """capitals.csv."""
    make = partial(capitals, study.run, study.scored)
    yield table("capitals", make=lambda: required(make(), "No word has both spellings."))


def capitals(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Percentile of a capitalised word minus that of the same word in lower case.

    Returns:
      The table `capitals.csv`: model, prompt, n (words), difference (their mean), stderr.
    """
    found = []
    for model in models:
        words = _words(run.vocabulary(model).collect())
        for prompt in [p for m, p in run.results if m == model]:
            token_ids, rewards = run.rewards(model, prompt)
            places = [token_ids, ranks.percentiles(rewards)]
            place = pl.DataFrame(places, schema=_PLACES, orient="col")
            scored = words.join(place, on="token_id", how="inner", validate="1:1")
            lower = scored.filter(~pl.col("capital")).select("word", lower="percentile")
            both = scored.filter("capital").join(lower, on="word", how="inner", validate="1:1")
            if both.height > 1:
                difference = (both["percentile"] - both["lower"]).to_numpy()
                stderr = difference.std(ddof=1) / both.height**0.5
                found.append((model, prompt, both.height, difference.mean(), stderr))
    return pl.DataFrame(found, schema=_TABLE, orient="row")


def _words(vocabulary: pl.DataFrame) -> pl.DataFrame:
    """token_id, word, capital: tokens that are a space and a word of three or more letters."""
    found = vocabulary.filter(pl.col("token").str.contains("^ [A-Za-z][a-z]{2,}$"))
    text = pl.col("token").str.strip_chars()
    word, capital = text.str.to_lowercase(), text.str.contains("^[A-Z]")
    return found.unique("token", keep="none").select("token_id", word=word, capital=capital)


@style.styled
def draw(frame: pl.DataFrame, names: dict[str, str]) -> style.Figure:
    """One panel per model, one point per prompt."""
    models = [model for model in names if model in frame["model"]]
    figure, panels = style.panels(names, models, 4, (2.4, 1.8))
    for model, ax in panels.items():
        part = frame.filter(model=model)
        prompts = [style.name(prompt, 14) for prompt in part["prompt"]]
        ax.errorbar(part["difference"], prompts, xerr=part["stderr"], fmt="o", color=style.INK)
        ax.axvline(0, color=style.FAINT, linewidth=1)
    figure.supxlabel("difference of percentiles, Word − word", fontsize=9)
    return figure


def section(study: Study) -> Section:
    """The figure and the table."""
    frame = study.tables.get("capitals")
    blocks: list[Block] = []
    if frame is not None:
        caption = "Right of the line: the capitalised word is rated higher."
        blocks.append(Picture("capitals", caption, partial(draw, frame, study.names)))
    blocks += rows(frame, _COLUMNS, "capitals.csv")
    return Section(
        id="capitals",
        title="Capital letters",
        label="Capitals",
        lead="Each word is compared with its own capitalised form.",
        blocks=[*blocks, *notes([study.tables.reason("capitals")])],
    )
