"""Words in categories: where a category stands, and whether base models differ in it.

The unit of a comparison of base models is the model. Prompts of one model are the same model asked
again; so the test permutes the base labels over the models, and never over prompts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    LIST,
    MODEL,
    P_AND_Q,
    Block,
    Column,
    Files,
    Finding,
    Heading,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.chapters.explained import family
from analysis.figures import category_dots, style
from analysis.measures import word_scores
from analysis.measures.category_contrasts import (
    BOTH,
    BY_BASE,
    BY_MODEL,
    OTHERS,
    UNKNOWN,
    Scale,
    by_base,
    by_model,
    scales,
    with_family,
)
from analysis.measures.category_medians import MEDIANS, category_medians
from analysis.measures.word_scores import WordScores
from analysis.sentences import q_value
from analysis.significant_effects import significant
from analysis.study import Absent, Study, Table, required, table
from analysis.words.categories import categories
from analysis.words.questions import questions

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

NO_WORDS = "No list and no vocabulary has words of two categories of one scale."
_FEW_WORDS = "No list and no vocabulary has five words of a category, and five others of its scale."
_CONTRASTS = "category_contrasts"  # Table, and start of the names of its figures.


def tables(study: Study) -> Iterator[Table]:
    """categories.csv, category_models.csv, category_contrasts.csv and category_logprobs.csv.

    For the figures: ("category_framings",), the medians by framing.
    """
    found = _Found(study)
    yield table("categories", make=found.medians)
    yield table("category_framings", make=partial(_by_framing, study), file=False)
    yield table("category_models", make=found.by_model)
    yield table("category_contrasts", make=found.by_base)
    yield table("category_logprobs", make=found.language_models)


@dataclasses.dataclass
class _Found:
    """The words of categories in the run; read once, for all tables."""

    study: Study

    @functools.cached_property
    def words(self) -> pl.DataFrame:
        """Words by category; a file that cannot be read is an error."""
        return categories(self.study.options.categories)

    @functools.cached_property
    def asked(self) -> pl.DataFrame:
        """Question and framing of each prompt."""
        return questions(self.study.run.prompts, self.study.options.questions)

    @functools.cached_property
    def scores(self) -> list[WordScores]:
        """Rewards of the words, list by list, then of the vocabularies."""
        run, models = self.study.run, self.study.models
        words = self.words["word"].unique().to_list()
        found = [*word_scores.of_lists(run, models, words)]
        if run.results:
            found.append(word_scores.of_vocabulary(run, models, words))
        return [scores for scores in found if scores.words]

    @functools.cached_property
    def scales(self) -> list[Scale]:
        """The scales of each list, then those of the vocabularies."""
        return [scale for scores in self.scores for scale in scales(scores, self.words, self.asked)]

    def medians(self) -> pl.DataFrame:
        """`categories.csv`."""
        each = [category_medians(scores, self.words) for scores in self.scores]
        return required(pl.concat([pl.DataFrame(schema=MEDIANS), *each]), NO_WORDS)

    def by_model(self) -> pl.DataFrame:
        """`category_models.csv`."""
        options = self.study.options
        rng = np.random.default_rng(options.seed)
        each = [by_model(scale, rng, options.permutations) for scale in self.scales]
        found = required(pl.concat([pl.DataFrame(schema=BY_MODEL), *each]), _FEW_WORDS)
        return with_family(found, "category_models.csv")

    def by_base(self) -> pl.DataFrame:
        """`category_contrasts.csv`."""
        if not self.scales:
            raise Absent(_FEW_WORDS)
        options, infos = self.study.options, self.study.infos
        rng = np.random.default_rng(options.seed)
        bases = bases_of(self.study)
        lineages = {model: info.lineage for model, info in infos.items()}
        each = [by_base(scale, bases, lineages, rng, options.permutations) for scale in self.scales]
        why = (
            "Base models are compared where two bases have two models each or more, because the "
            "models are the evidence; this run has too few, or their bases are not known."
        )
        found = required(pl.concat([pl.DataFrame(schema=BY_BASE), *each]), why)
        return with_family(found, "category_contrasts.csv")

    def language_models(self) -> pl.DataFrame:
        """`category_logprobs.csv`."""
        run, options = self.study.run, self.study.options
        if not run.item_logprobs:
            raise Absent("No language model scored a list with words of the categories.")
        rng = np.random.default_rng(options.seed)
        frames = [pl.DataFrame(schema=BY_MODEL)]
        words = self.words["word"].unique().to_list()
        for items in dict.fromkeys(items for items, _, _ in run.item_logprobs):
            replies = word_scores.with_ratios(word_scores.of_replies(run, items, words))
            for scale in scales(replies, self.words, self.asked):
                frames.append(by_model(scale, rng, options.permutations))
        why = "No language model scored enough words of two categories of one scale."
        pair = pl.col("model").str.split_exact(word_scores.PAIR, 1)
        names = {
            "language_model": pair.struct.field("field_0"),
            "compared_with": pair.struct.field("field_1").fill_null(""),
        }
        tested = with_family(required(pl.concat(frames), why), "category_logprobs.csv")
        found = tested.with_columns(**names)
        at = found.columns.index("model")
        before, after = found.columns[:at], found.columns[at + 1 : -2]
        return found.select(*before, *names, *after)


def bases_of(study: Study) -> dict[str, str | None]:
    """Slug -> family of base models; None where it is not known."""
    named = study.described.select("model", "base").iter_rows()
    return {model: family(base) for model, base in named}


def _by_framing(study: Study) -> pl.DataFrame:
    """Mean over the prompts of a framing of the medians of a category, for each model."""
    medians = study.tables["categories"]
    asked = questions(study.run.prompts, study.options.questions).select("prompt", "framing")
    framing = pl.when(pl.col("framing") == "").then(pl.lit(UNKNOWN)).otherwise(pl.col("framing"))
    named = medians.join(
        asked.with_columns(framing=framing), on="prompt", how="left", validate="m:1"
    )
    keys = ["list", "scale", "category", "framing", "model"]
    means = named.group_by(keys, maintain_order=True).agg(pl.col("median_percentile").mean())
    return means.sort(pl.col("framing").replace_strict(_ORDER), maintain_order=True)


_ORDER = {"positive": 0, "negative": 1, UNKNOWN: 2}


def section(study: Study) -> Section:
    """Each scale of each list: base models first, then the models one by one."""
    made = study.tables
    names = ("categories", "category_models", "category_contrasts")
    blocks: list[Block] = notes(made.reason(name) for name in names)
    contrasts = made.get("category_contrasts")
    if contrasts is not None:
        blocks.append(Text(_EVIDENCE, "how"))
    blocks += rows(contrasts, _BASES, "category_contrasts.csv", "Base models compared", True)
    blocks += _figures(study)
    if made.get("category_models") is not None:
        blocks.append(Text(_OVER_WORDS, "how"))
    title = "Contrasts by model"
    blocks += rows(made.get("category_models"), _MODELS, "category_models.csv", title)
    title = "The same contrasts in language models"
    logprobs = made.get("category_logprobs")
    blocks += rows(logprobs, _LANGUAGE_MODELS, "category_logprobs.csv", title)
    if made.get("categories") is not None:
        blocks.append(Files(["categories.csv"]))
    return Section(
        id="categories",
        title="Word categories",
        label="Word categories",
        lead="Which kinds of words does a model rate high: those of agency or of communion, of one "
        "virtue or another? And do models of different bases differ in it? A word’s percentile is "
        "its place among the words of its scale.",
        blocks=blocks,
        caveats=(
            "The words of a category are a choice, and they differ in more than their meaning: in "
            "frequency, length and sound.",
            "The test of bases takes models as independent. Models that share weights or "
            "preference data are not: lineage_p in category_contrasts.csv takes those of one base "
            "and lineage as one.",
            "A contrast is in percentiles of a short list: a large one may be a small difference "
            "in reward.",
        ),
        findings=list(_base_findings(study)),
    )


_EVIDENCE = (
    "The evidence about base models is the column p: the bases are permuted over the models, and "
    "few models can give no p below the column “least p”. q corrects for all tests of the table."
)
_OVER_WORDS = (
    "What one model does with these words is described here, and not tested: words of any kind "
    "differ from words of another kind, months from fruits as well, so that a p over words, such "
    "as those of category_models.csv and category_logprobs.csv, says little about a category."
)


def _figures(study: Study) -> list[Block]:
    """Two figures for each scale of each list."""
    contrasts = study.tables.get("category_models")
    framed = study.tables.get("category_framings")
    if contrasts is None or framed is None:
        return []
    bases = {model: base or "" for model, base in bases_of(study).items()}
    told = _told(study)
    blocks: list[Block] = []
    for items, scale in contrasts.select("list", "scale").unique(maintain_order=True).iter_rows():
        own = contrasts.filter(list=items, scale=scale)
        medians = framed.filter(list=items, scale=scale)
        here = told.filter(list=items, scale=scale)
        chosen = here.select("category", "framing").rows()
        stem = _stem(contrasts, items, scale)
        blocks += [
            Heading(f"{scale}, {said(items)}"),
            Picture(
                f"{_CONTRASTS}_{stem}",
                "How far each model rates the words of a category above the others, with the 95% "
                "interval over words. Words of any kind differ from words of another, so an "
                "interval clear of 0 says little. A thick line is the mean of the models of one "
                "base.",
                partial(category_dots.contrasts, own, study.names, bases, chosen),
            ),
            Picture(
                f"category_medians_{stem}",
                "The median percentile of each category, a mean over the prompts of a framing.",
                partial(category_dots.medians, medians, study.names, bases),
            ),
        ]
    return blocks


def said(items: str) -> str:
    """A list as sentences name it."""
    return "tokens" if items == word_scores.VOCABULARY else f"list “{items}”"


def _against(row: Mapping[str, str]) -> str:
    """What the words of a category are compared with."""
    return f"the other words of {row['scale']}" if row["against"] == OTHERS else row["against"]


def _points(value: float) -> str:
    return style.minus(f"{100 * value:+.0f}")


# A comparison is told under the first of these framings that shows it most clearly.
_TOLD = {"positive": 0, "negative": 1, UNKNOWN: 2, BOTH: 3}


def _heading(row: Mapping[str, str]) -> str:
    asked = f"{row['framing']} prompts" if row["framing"] in ("positive", "negative") else ""
    asked = "prompts for good less prompts for bad" if row["framing"] == BOTH else asked
    where = said(row["list"]) + (f", {asked}" if asked else "")
    text = f"{row['category']} against {_against(row)} ({where})"
    return text[:1].upper() + text[1:]


def _told(study: Study) -> pl.DataFrame:
    """Differences between bases with q below 0.05, each under one framing; smallest p first."""
    contrasts = study.tables.get("category_contrasts")
    if contrasts is None:
        return pl.DataFrame(schema=BY_BASE)
    keys = ["list", "scale", "category", "base", "other_base"]
    order = pl.col("framing").replace_strict(_TOLD)
    certain = significant(contrasts).sort("p", order, maintain_order=True)
    return certain.unique(keys, keep="first", maintain_order=True)


def _base_findings(study: Study) -> Iterator[Finding]:
    """What `_told` holds, in sentences; models are the units."""
    for row in _told(study).iter_rows(named=True):
        lineage = row["lineage_p"]
        alike = "" if math.isnan(lineage) else f"; lineages as units, {style.p_value(lineage)}"
        ends = f"{_points(row['ci_low'])} to {_points(row['ci_high'])}"
        yield Finding(
            text=f"{_heading(row)}: the mean of the {row['models']} {row['base']} models is "
            f"{_points(row['difference'])} points of percentile from that of the "
            f"{row['other_models']} {row['other_base']} models (95% {ends} over models; bases "
            f"permuted over models, {style.p_value(row['p'])}, {q_value(row['q'])}{alike}).",
            picture=_picture(study, row),
        )


def _picture(study: Study, row: Mapping[str, str]) -> str:
    stem = _stem(study.tables["category_models"], row["list"], row["scale"])
    return f"{_CONTRASTS}_{stem}"


def _stem(contrasts: pl.DataFrame, items: str, scale: str) -> str:
    """Part of a figure's name: the list, and the place of the scale among those of the report."""
    places = contrasts["scale"].unique(maintain_order=True).to_list()
    return f"{items}_{places.index(scale) + 1}"


_SIDES: tuple[Column, ...] = (
    LIST,
    ("scale", "scale", "text"),
    ("category", "category", "text"),
    ("against", "against", "text"),
    ("framing", "prompts", "text"),
)
_BASES: tuple[Column, ...] = (
    *_SIDES,
    ("base", "base", "text"),
    ("models", "models", "count"),
    ("other_base", "other base", "text"),
    ("other_models", "models", "count"),
    ("difference", "difference", "share"),
    ("ci_low", "from, over models", "share"),
    ("ci_high", "to, over models", "share"),
    *P_AND_Q,
    ("least_p", "least p", "p"),
)
_WORDS: tuple[Column, ...] = (
    ("words", "words", "count"),
    ("other_words", "other words", "count"),
    ("contrast", "contrast", "share"),
    ("ci_low", "from, over words", "share"),
    ("ci_high", "to, over words", "share"),
)
_MODELS: tuple[Column, ...] = (*_SIDES, MODEL, *_WORDS)
_LANGUAGE_MODELS: tuple[Column, ...] = (
    *_SIDES,
    ("language_model", "language model", "text"),
    ("compared_with", "less than in", "text"),
    *_WORDS,
)
