"""Words in categories: where a category stands, and whether base models differ in it.

Two kinds of evidence are kept apart. Of one model the units are words. Of base models the units are
models: the tests permute the base labels over the models, and never over prompts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, Text
from analysis.charts.estimates import estimates
from analysis.columns import Row, Spec
from analysis.measures import word_scores
from analysis.measures.category_contrasts import (
    BOTH,
    BY_BASE,
    BY_MODEL,
    LANGUAGE_MODEL,
    LOGPROBS,
    OTHERS,
    UNKNOWN,
    Scale,
    by_base,
    by_model,
    scales,
)
from analysis.measures.word_scores import WordScores
from analysis.model_info import family
from analysis.sentences import beside, significant, unclear
from analysis.study import Absent, Analysis, Study, Table, required, table
from analysis.words.lexicons import categories
from analysis.words.questions import NEGATIVE, POSITIVE, questions

_FEW_WORDS = "No list and no vocabulary has five words of a category, and five others of its scale."
_FEW_MODELS = (
    "Base models are compared where two bases have two models each or more, because the models are "
    "the evidence; this run has too few, or their bases are not known."
)
_FRAMINGS = (POSITIVE, NEGATIVE, UNKNOWN, BOTH)  # A comparison is told under the first of them.


def _tables(study: Study) -> Iterator[Table]:
    words = _CategoryWords(study)
    lineages = {model: info.lineage for model, info in study.infos.items()}
    yield table(BY_MODEL.name, make=lambda: words.tested(BY_MODEL, by_model, _FEW_WORDS))
    of_bases = partial(by_base, bases=bases_of(study), lineages=lineages)
    yield table(BY_BASE.name, make=lambda: words.tested(BY_BASE, of_bases, _FEW_MODELS))
    yield table(LOGPROBS.name, make=words.language_models)


@dataclasses.dataclass
class _CategoryWords:
    """The words of categories in the run; read once, for all tables."""

    study: Study

    @functools.cached_property
    def words(self) -> pl.DataFrame:
        """Words by category; a file that cannot be read is an error."""
        return categories(self.study.options.categories)

    @functools.cached_property
    def scores(self) -> list[WordScores]:
        """Rewards of the words, list by list, then of the vocabularies."""
        run, models = self.study.run, self.study.models
        words = self.words["word"].unique().to_list()
        sources = [*word_scores.of_lists(run, models, words)]
        if run.results:
            sources.append(word_scores.of_vocabulary(run, models, words))
        return [scores for scores in sources if scores.words]

    @functools.cached_property
    def scales(self) -> list[Scale]:
        """The scales of each list, then those of the vocabularies."""
        return self.scales_of(self.scores)

    def scales_of(self, lists: Iterable[WordScores]) -> list[Scale]:
        """The scales of some scores."""
        prompt_questions = questions(self.study.run.prompts, self.study.options.questions)
        return [scale for scores in lists for scale in scales(scores, self.words, prompt_questions)]

    def rows(
        self, tested_scales: Iterable[Scale], test: Callable[..., Iterable[Row]]
    ) -> Iterator[Row]:
        """The rows of a test of every scale."""
        options = self.study.options
        rng = np.random.default_rng(options.seed)
        return (
            row
            for scale in tested_scales
            for row in test(scale, rng=rng, draws=options.permutations)
        )

    def tested(self, spec: Spec, test: Callable[..., Iterable[Row]], why: str) -> pl.DataFrame:
        """The table of a test of every scale."""
        return _table(spec, self.rows(self.scales, test), why if self.scales else _FEW_WORDS)

    def language_models(self) -> pl.DataFrame:
        """`LOGPROBS`."""
        run, words = self.study.run, self.words["word"].unique().to_list()
        if not run.item_logprobs:
            raise Absent("No language model scored a list with words of the categories.")
        lists = dict.fromkeys(items for items, _, _ in run.item_logprobs)
        replies = (word_scores.of_replies(run, items, words) for items in lists)
        language_scales = self.scales_of(map(word_scores.with_ratios, replies))
        at = LOGPROBS.columns.index(LANGUAGE_MODEL)
        rows = (
            (*row[:at], *(*str(row[at]).split(word_scores.PAIR), "")[:2], *row[at + 1 :])
            for row in map(tuple, self.rows(language_scales, by_model))
        )
        return _table(
            LOGPROBS, rows, "No language model scored enough words of two categories of one scale."
        )


def _table(spec: Spec, rows: Iterable[Row], why: str) -> pl.DataFrame:
    """The table of rows that lack its last column, `family`; absent where there are none."""
    family = f"all tests of {spec.name}.csv"
    return required(spec.frame((*row, family) for row in rows), why)


def bases_of(study: Study) -> dict[str, str | None]:
    """Slug -> family of base models; None where it is not known."""
    model_bases = study.described.select("model", "base").iter_rows()
    return {model: family(base) for model, base in model_bases}


def _bases_shown(study: Study) -> Iterator[Block]:
    shown = BY_BASE.rows(study.tables[BY_BASE.name], unfolded=True)
    yield from (Text(_EVIDENCE, "how"), *shown)


def _drawn(study: Study) -> Iterator[Block]:
    """The contrasts of each scale of each list; models of one base adjoin."""
    known = bases_of(study)
    order = sorted(study.names, key=lambda model: (known[model] is None, known[model] or ""))
    bases = {model: known[model] or "base not known" for model in order}
    place = pl.col("model").cast(pl.Enum(order))
    contrasts = study.tables[BY_MODEL.name].sort(place, maintain_order=True)
    contrasts = contrasts.with_columns(base=pl.col("model").replace(bases))
    kinds = contrasts["base"].unique(maintain_order=True).to_list()
    look: dict[str, Any] = {"value": "contrast", "scale": 100, "panel": "panel", "beside": False}
    means = " A broad line is the mean of the models of one colour." if any(known.values()) else ""
    if means:
        look |= {"colour": "base", "kinds": kinds, "mean": "base"}
    for items, scale in contrasts.select("list", "scale").unique(maintain_order=True).iter_rows():
        shown, label = _panels(study, contrasts.filter(list=items, scale=scale))
        yield Heading(f"{scale}, {list_in_words(items)}")
        yield Picture(
            f"{BY_BASE.name}_{_stem(study, items, scale)}",
            "How far each model rates the words of a category above the others, with the 95% "
            "interval over words. Words of any kind differ from words of another, so an interval "
            f"clear of 0 says little.{means}",
            partial(estimates, shown, study.names, label, **look),
        )


def _prompts() -> pl.Expr:
    framing = pl.col("framing")
    return pl.when(framing.str.contains(" ")).then(framing).otherwise(framing + " prompts")


def _panels(study: Study, contrasts: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The contrasts of one scale that are drawn, with `panel`, and what they are.

    Every framing of a scale of two categories; the last framing of a scale of more, which is the
    difference of the two opposite ones where both occur, besides what is told.
    """
    last = contrasts["framing"][-1]
    category, against = contrasts.select("category", "against").row(0)
    if against != OTHERS:
        shown = contrasts.with_columns(panel=_prompts())
        return shown, f"{category} above {against}, percentile points"
    keys = ["list", "scale", "category", "framing"]
    told = _sure(study).select(keys).unique()
    also = pl.concat([told, contrasts.filter(framing=last).select(keys).unique()])
    shown = contrasts.join(also.unique(), on=keys, how="semi", maintain_order="left")
    panel = pl.concat_str("category", _prompts(), separator=", ")
    alone = pl.col("category") if shown["framing"].n_unique() == 1 else panel
    return shown.with_columns(panel=alone), f"above the others, {last}, percentile points"


def _rows(study: Study) -> Iterator[Block]:
    models, logprobs = study.tables[BY_MODEL.name], study.tables.get(LOGPROBS.name)
    yield from (Text(_OVER_WORDS, "how"), *BY_MODEL.rows(models), *LOGPROBS.rows(logprobs))


def list_in_words(items: str) -> str:
    """A list as sentences name it."""
    return "tokens" if items == word_scores.VOCABULARY else f"list “{items}”"


def _sure(study: Study) -> pl.DataFrame:
    """Differences between bases with q below 0.05, each under one framing; smallest p first."""
    contrasts = study.tables.get(BY_BASE.name)
    certain = significant(BY_BASE.frame([]) if contrasts is None else contrasts)
    keys = ["list", "scale", "category", "base", "other_base"]
    order = pl.col("framing").cast(pl.Enum(_FRAMINGS))
    certain = certain.sort("p", order, maintain_order=True)
    return certain.unique(keys, keep="first", maintain_order=True)


def _told(study: Study) -> Iterator[Finding]:
    """Each difference between bases, the smallest p first."""
    for row in _sure(study).iter_rows(named=True):
        picture = f"{BY_BASE.name}_{_stem(study, row['list'], row['scale'])}"
        yield Finding(text=_headline(row), picture=picture)


def _described(study: Study) -> str:
    """That no difference between bases is sure; of one model, nothing is tested."""
    contrasts = study.tables.get(BY_BASE.name)
    if contrasts is not None:
        return unclear(contrasts, "differences between base models")
    _ = study.tables[BY_MODEL.name]
    return (
        "Nothing is sure about a category: models are the evidence, and a test needs two base "
        "models with two models each."
    )


Cells = Mapping[str, Any]  # Any: cells of a table


def _headline(row: Cells) -> str:
    side = "higher" if row["difference"] > 0 else "lower"
    points = beside(abs(100 * row["difference"]), 0, 0)
    return (
        f"The {row['models']} {row['base']} models place words of {row['category']} {side} than "
        f"the {row['other_models']} {row['other_base']} models do: by "
        f"{points} percentile points on average, compared with "
        f"{_against(row)} ({_where(row)})."
    )


def _where(row: Cells) -> str:
    """The list and the prompts of a comparison."""
    prompts = {BOTH: ", prompts for good less prompts for bad", UNKNOWN: ""}
    return list_in_words(row["list"]) + prompts.get(row["framing"], f", {row['framing']} prompts")


def _against(row: Cells) -> str:
    """What the words of a category are compared with."""
    return f"the other words of {row['scale']}" if row["against"] == OTHERS else row["against"]


def _stem(study: Study, items: str, scale: str) -> str:
    """Part of a figure's name: the list, and the place of the scale among those of the report."""
    places = study.tables[BY_MODEL.name]["scale"].unique(maintain_order=True).to_list()
    return f"{items}_{places.index(scale) + 1}"


_EVIDENCE = (
    "The evidence about base models is the column p: the bases are permuted over the models, and "
    "few models can give no p below the column “least p”. q corrects for all tests of the table."
)
_OVER_WORDS = (
    "What one model does with these words is described here, and not tested: words of any kind "
    "differ from words of another kind, months from fruits as well, so that a p over words, such "
    "as those of category_models.csv and category_logprobs.csv, says little about a category."
)
ANALYSIS = Analysis(
    id="categories",
    title="Word categories",
    lead="Which kinds of words does a model rate high: those of agency or of communion, of one "
    "virtue or another? And do models of different bases differ in it? A word’s percentile is its "
    "place among the words of its scale.",
    make=_tables,
    parts=(_bases_shown, _drawn, _rows),
    told=(_told,),
    described=_described,
    caveats=lambda study: (
        "The words of a category are a choice, and they differ in more than their meaning: in "
        "frequency, length and sound.",
        "The test of bases takes models as independent. Models that share weights or preference "
        "data are not: lineage_p in category_contrasts.csv takes those of one base and lineage as "
        "one.",
        "A contrast is in percentiles of a short list: a large one may be a small difference in "
        "reward.",
    ),
    every_prompt=True,
)
