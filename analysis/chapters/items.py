"""Lists of replies: what each model rates first and last of them, and where each item stands.

A list under more than a few prompts is read by question: the wordings of one question together
(`analysis.words.questions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, notes
from analysis.chapters import items_controls
from analysis.chapters.items_questions import (
    ITEM,
    ITEM_ID,
    QUESTIONS,
    SOME,
    ends_beyond_chance,
    over,
    shown_items,
    tables,
)
from analysis.charts.cells import standings
from analysis.columns import LIST, MODEL, PROMPT, Column, Spec
from analysis.ends import both_ends, head_and_tail
from analysis.measures.list_scores import KEYS, ListScores, items_points, lists_in, scores_of
from analysis.statistics import Array
from analysis.study import Absent, Analysis, Study, Table, prompts_in, required, table
from analysis.words.questions import ASKED_FOR, POSITIVE

ROWS_SHOWN = 10  # Rows at each end of a list on the page; the file holds all.
FEW = 3  # Prompts of a list up to which each has a figure of its own.
ENDS = Spec(
    "items_top_bottom",
    (
        *(LIST, PROMPT, MODEL),
        Column("end"),
        Column("rank", "count", dtype=pl.UInt32),
        *(ITEM_ID, ITEM),
        Column("reward", "number", dtype=pl.Float32),
    ),
)


def _tables(study: Study) -> Iterator[Table]:
    for name in study.run.item_lists():
        yield table("items_points", name, make=partial(_of_list, study, name), file=False)
    yield table(ENDS.name, make=lambda: items_top_bottom(_points(study), study.settings.top))
    yield from tables(study)
    yield from items_controls.tables(study)


def items_top_bottom(points: pl.DataFrame, count: int) -> pl.DataFrame:
    """The `count` highest and lowest items of each list, prompt and model: the table `ENDS`.

    Rank 1 is the extreme. Ties go to the lower item_id; the ends overlap in a list of fewer than
    twice `count` items.
    """
    each = points.group_by(list(KEYS), maintain_order=True)
    return ENDS.concat(ENDS.frame(both_ends(own, "reward", count)) for _, own in each)


def _points(study: Study) -> pl.DataFrame:
    points = list(study.tables.of("items_points").values())
    if not points:
        raise Absent(next(_incomparable(study), "No reward model scored a list of items."))
    return pl.concat(points)


def _of_list(study: Study, name: str) -> pl.DataFrame:
    points = items_points(study.run, name, study.models)
    return required(points, f"No item of “{name}” was scored by every model of a prompt.")


def _incomparable(study: Study) -> Iterator[str]:
    """Why each list that has no points has none."""
    reasons = (study.tables.reason("items_points", name) for name in study.run.item_lists())
    return (reason for reason in reasons if reason)


def _drawn(study: Study) -> Iterator[Block]:
    """Each list: one prompt after the other, or by question where there are many prompts."""
    _ = study.tables[ENDS.name]
    yield from notes(_incomparable(study))
    for (name,), points in study.tables.of("items_points").items():
        prompts = prompts_in(points)
        if len(prompts) > FEW:
            yield from _by_question(study, scores_of(study, name))
        else:
            for prompt in prompts:
                yield Heading(f"{name}, asked {study.prompt_names[prompt]}")
                cells = points.filter(prompt=prompt)
                stem = f"items_standing_{name}_{prompt}"
                yield _standing(study, cells, "model", "percentile", study.names, stem, _MODELS)
        yield from _ends(study, name)


_MODELS = (
    "One row per item, one column per model; of a long list the highest means, the items on which "
    "models differ most, and the lowest means."
)
_QUESTIONS = (
    "One row per item, one column per question with its number of wordings: the mean over wordings "
    "and models. Of a long list: high whatever is asked, changed most by the question, and low "
    "whatever is asked."
)


def _standing(
    study: Study,
    cells: pl.DataFrame,
    by: str,
    value: str,
    columns: dict[str, str],
    stem: str,
    caption: str,
) -> Picture:
    groups = shown_items(over(cells, value), study.settings.figure_top)
    return Picture(stem, caption, partial(standings, cells, by, value, groups, columns))


def _by_question(study: Study, scores: ListScores) -> Iterator[Block]:
    """One list under many prompts: by question, and model by model for each framing."""
    name = scores.name
    standing = study.tables[QUESTIONS.name].filter(list=name)
    counts = standing.select("question", "prompts").unique(maintain_order=True)
    columns = {question: f"{question} ({n})" for question, n in counts.iter_rows()}
    yield Heading(name, f"{scores.prompts.height} prompts, {len(columns)} questions")
    stem = f"items_prompts_{name}"
    yield _standing(study, standing, "question", "mean_percentile", columns, stem, _QUESTIONS)
    for framing in (*ASKED_FOR, ""):
        at = scores.framed(framing)
        if len(at):
            asked = f", asked for {ASKED_FOR[framing]}" if framing else ""
            prompts = "prompts" if len(at) > 1 else "prompt"
            caption = f"The models{asked}: each one’s mean over {len(at)} {prompts}."
            stem = "_".join(filter(None, ("items_models", name, framing)))
            cells = _means(scores, at)
            yield _standing(study, cells, "model", "percentile", study.names, stem, caption)


def _means(scores: ListScores, at: Array) -> pl.DataFrame:
    """item_id, item, model, percentile: the mean over the prompts `at`."""
    models, means = scores.means(at)
    return pl.concat(
        scores.items.with_columns(model=pl.lit(model), percentile=pl.Series(values))
        for model, values in zip(models, means, strict=True)
    )


def _ends(study: Study, name: str) -> Iterator[Block]:
    """The first and last items of a list under each of the first questions, as tables."""
    standing = study.tables.get(QUESTIONS.name)
    if standing is not None:
        own = standing.filter(list=name)
        for question in own["question"].unique(maintain_order=True).head(SOME):
            both = head_and_tail(own.filter(question=question), ROWS_SHOWN)
            yield from QUESTIONS.rows(both, title=f"{name}: “{question}”")


def _told(study: Study) -> Iterator[Finding]:
    """The items of each list that the models together put first and last, beyond chance.

    Items count that have q < .05 under every positive question, or, where the framing of the
    prompts is not known, under the list's first question.
    """
    standing, prompts = study.tables[QUESTIONS.name], study.tables["items_prompts"]
    for name in lists_in(standing):
        own, asked = standing.filter(list=name), prompts.filter(list=name)
        part = own.filter(framing=POSITIVE)
        if not part.height:
            part = own.filter(question=own["question"][0])
        first = asked.filter(question=part["question"][0])["prompt"][0]
        few = len(prompts_in(study.tables["items_points", name])) <= FEW
        stem = f"items_standing_{name}_{first}" if few else f"items_prompts_{name}"
        if text := ends_beyond_chance(part):
            yield Finding(text=text, picture=stem)


ANALYSIS = Analysis(
    id="items",
    title="Lists of replies",
    label="Lists",
    lead="Which replies of a list do the models rate first and last, and do they go by length or "
    "by how common a word is? An item’s percentile is the share of the list that a model rates "
    "lower, counting half of what it rates alike.",
    make=_tables,
    parts=(_drawn, items_controls.drawn),
    told=(_told, items_controls.told),
    caveats=lambda study: (
        "A longer reply is another reply: models may go by length or spelling, not by meaning.",
        "An item with a middling mean may be first for some models and last for others.",
        *items_controls.CAVEATS,
    ),
    every_prompt=True,
)
