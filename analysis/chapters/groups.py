"""Words for groups of people: where they stand, beside ordinary kinds of words.

Words of any one meaning are rated alike, and differently from other words. So the place of a group
is held against those of ordinary kinds of words (months, fruits, tools: `lexicons.placebo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Picture
from analysis.charts.estimates import estimates
from analysis.columns import MODEL, PROMPT, Column, Spec, ends, several
from analysis.measures.matched_words import by_model_and_prompt, matched_rewards
from analysis.run import Run
from analysis.statistics.inference import clustered
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, prompts_in, table
from analysis.words import lexicons
from analysis.words.matching import match_cased

LEAST_STEMS = 5  # A kind of fewer in a vocabulary is not counted.
GROUPS = Spec(
    "groups",
    (
        *(MODEL, PROMPT, *several("text", "axis group"), Column("tokens", "count")),
        *(Column("words", "count", help="spellings of a word are one"), Column("stems", "count")),
        Column("percentile", "share", help="mean over words, among all tokens of the vocabulary"),
        *ends("share", "95 %, over stems; NaN for fewer than two"),
        Column("kinds_lower", "count", "ordinary kinds lower", "ordinary kinds that stand lower"),
        Column("kinds", "count", "of", "ordinary kinds of five stems or more in the vocabulary"),
    ),
)
_NONE = "No token is one of the identity terms."
_CELL = ["model", "prompt"]
_KIND = ["axis", "group"]


def _tables(study: Study) -> Iterator[Table]:
    people = lexicons.identity(study.options.identity)

    def standing() -> pl.DataFrame:
        if not study.run.results:
            raise Absent(NO_VOCABULARY)
        return groups_table(group_words(study.run, study.scored, people))

    yield table(GROUPS.name, make=standing, why=_NONE)


def group_words(run: Run, models: list[str], people: pl.DataFrame) -> pl.DataFrame:
    """Tokens that are words for groups of people, or of ordinary kinds, with their percentiles.

    Returns:
      model, prompt, token_id, token, the columns of `people` (what `lexicons.identity` returns),
      ordinary (whether it is of an ordinary kind), reward, percentile (in the model's
      whole vocabulary, 0 to 1; 1 is the best reply).
    """
    ordinary = lexicons.placebo(besides=people).with_columns(ordinary=True)
    terms = pl.concat([people.with_columns(ordinary=False), ordinary])
    return matched_rewards(run, models, partial(match_cased, terms=terms), percentile=True)


def groups_table(tokens: pl.DataFrame) -> pl.DataFrame:
    """The table `GROUPS` of what `group_words` returns."""
    folded = tokens.with_columns(pl.col("word", "stem").str.to_lowercase())
    words = folded.group_by(*_CELL, "ordinary", *_KIND, "stem", "word", maintain_order=True).agg(
        tokens=pl.len(), percentile=pl.col("percentile").mean()
    )
    ordinary = words.filter("ordinary").group_by(*_CELL, *_KIND)
    ordinary = ordinary.agg(pl.col("stem").n_unique(), kind=pl.col("percentile").mean())
    kinds = ordinary.filter(pl.col("stem") >= LEAST_STEMS).group_by(_CELL).agg("kind")
    cells = []
    for key, rows in by_model_and_prompt(words.filter(~pl.col("ordinary"))):
        kind_means = kinds.filter(**key)["kind"].explode().to_numpy()
        for (axis, group), part in rows.sort(*_KIND).group_by(_KIND, maintain_order=True):
            percentiles = part["percentile"].to_numpy()
            stems = np.unique(part["stem"].to_numpy(), return_inverse=True)[1]
            mean = float(percentiles.mean())
            interval = clustered(mean, percentiles - mean, stems).within(0.0, 1.0)
            sizes = (part["tokens"].sum(), part.height, int(stems.max()) + 1)
            places = (int((kind_means < mean).sum()), len(kind_means))
            cells.append((*key.values(), axis, group, *sizes, *interval[:3], *places))
    return GROUPS.frame(cells)


def _over_models(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of one prompt as means over models, the lowest group first."""
    means = rows.group_by("axis", "group", maintain_order=True).agg(
        pl.col("percentile", "kinds_lower", "kinds", "stems").mean()
    )
    return means.sort("percentile", *_KIND)


def _described(study: Study) -> str:
    """That no place of a group is sure: the ordinary kinds of words are too few for a test."""
    kinds = max(study.tables[GROUPS.name]["kinds"].to_list())
    return (
        f"Nothing is sure about the place of a group: {kinds} ordinary kinds of words to compare "
        "it with are too few for a test."
    )


def _drawn(study: Study) -> Iterator[Block]:
    """For each prompt, where every group stands, and above how many ordinary kinds."""
    standing = study.tables[GROUPS.name]
    alone = standing["model"].n_unique() == 1
    for prompt in prompts_in(standing):
        rows = standing.filter(prompt=prompt)
        means = _over_models(rows).reverse()
        kinds = pl.format(
            "{} of {}", *(pl.col(k).round(0).cast(pl.Int64) for k in ("kinds_lower", "kinds"))
        )
        row_names = means.select(*_KIND, row=pl.format("{}: {}", "group", kinds))
        shown = row_names.join(
            rows, on=_KIND, how="left", validate="1:m", maintain_order="left_right"
        )
        caption = (
            f"Under {study.prompt_names[prompt]}: the mean percentile of the words for each group "
            f"of people among all tokens. After its name: how many of the ordinary kinds "
            "of words (months, fruits, tools) stand lower. Dots are models"
            + (", with the 95% interval over words." if alone else ", strokes their means.")
        )
        draw = partial(
            estimates,
            shown if alone else shown.drop("ci_low", "ci_high"),
            study.names,
            "mean percentile",
            value="percentile",
            row="row",
            scale=100,
            zero=0.5,
            mean="" if alone else "row",
            beside=False,
        )
        yield Picture(f"groups_{prompt}", caption, draw)


ANALYSIS = Analysis(
    id="groups",
    title="Words for groups of people",
    label="Groups",
    lead="Where models place the words for each group of people among all tokens. Different kinds "
    "of things are rated differently too, so each place stands beside those of ordinary kinds of "
    "words, such as months, fruits and tools.",
    make=_tables,
    parts=(
        _drawn,
        lambda study: GROUPS.rows(study.tables[GROUPS.name]),
    ),
    described=_described,
    caveats=lambda study: (
        "A word is not a person: a model may mark down a word for how it is used, or any noun for "
        "people, as no answer to the question.",
        "Words of one meaning always share something, and ordinary kinds of words differ from one "
        "another for reasons of their own. Nothing here says that a place is about people.",
        "Where a prompt asks for something bad, a high place is the unfavourable one.",
        "The words, and the ordinary kinds, are a choice. Spellings with and without a leading "
        "space or a capital, singulars, plurals and adjectives are averaged.",
    ),
)
