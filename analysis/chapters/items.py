"""Lists of replies: what each model rates first and last of them, and where each item stands.

A list under more than a few prompts is read by question: the wordings of one question together
(`analysis.words.questions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Heading, Picture, Section, notes
from analysis.chapters import items_questions
from analysis.charts.token_bars import token_bars
from analysis.ends import both_ends
from analysis.figures.standings import shown_items, standings
from analysis.measures.list_scores import ITEM, KEYS, items_points, scores_of
from analysis.study import Absent, Study, Table, prompts_in, required, table
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

ROWS_SHOWN = 10  # Rows at each end of a list on the page; the file holds all.
FEW = 3  # Prompts of a list up to which each has a figure of its own.
_ENDS: Columns = {**KEYS, "end": pl.String, "rank": pl.UInt32, **ITEM, "reward": pl.Float32}


def tables(study: Study) -> Iterator[Table]:
    """items_top_bottom.csv, items_prompts.csv and items_questions.csv.

    For the figures and other chapters: ("items_points", list).
    """
    for name in study.run.item_lists():
        yield table("items_points", name, make=partial(_of_list, study, name), file=False)
    yield table(
        "items_top_bottom", make=lambda: items_top_bottom(_points(study), study.settings.top)
    )
    yield from items_questions.tables(study)


def items_top_bottom(points: pl.DataFrame, count: int) -> pl.DataFrame:
    """The `count` highest and lowest items of each list, prompt and model.

    Returns:
      The table `items_top_bottom.csv`: list, prompt, model, end ("top" or "bottom"), rank (1 is
      the extreme), item_id, item, reward. Ties go to the lower item_id; the ends overlap in a list
      of fewer than twice `count` items.
    """
    frames = [pl.DataFrame(schema=_ENDS)]
    for _, own in points.group_by(list(KEYS), maintain_order=True):
        frames.append(both_ends(own, "reward", count).select(list(_ENDS)))
    return pl.concat(frames)


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


def section(study: Study) -> Section:
    """Each list: one prompt after the other, or by question where there are many prompts."""
    blocks = notes([study.tables.reason("items_top_bottom"), *_incomparable(study)])
    for (name,), points in study.tables.of("items_points").items():
        prompts = prompts_in(points)
        if len(prompts) > FEW:
            blocks += items_questions.blocks(study, scores_of(study, name), ROWS_SHOWN)
        else:
            for prompt in prompts:
                blocks += _under(study, name, prompt, points.filter(prompt=prompt))
            blocks += items_questions.ends(study, name, ROWS_SHOWN)
    return Section(
        id="items",
        title="Lists of replies",
        label="Lists",
        lead="Of the replies of a list, which do the models rate first and last, and do they agree "
        "on it? An item’s percentile is the share of the list that a model rates lower, counting "
        "half of what it rates alike.",
        blocks=blocks,
        caveats=(
            "A longer reply is another reply: models may go by length or spelling, not by meaning.",
            "An item with a middling mean may be first for some models and last for others.",
        ),
        findings=items_questions.findings(study, FEW),
    )


def _under(study: Study, name: str, prompt: str, points: pl.DataFrame) -> list[Block]:
    """One list under one prompt, model by model."""
    top, names = study.settings.figure_top, study.names
    standing = items_questions.over(points, "percentile")
    ends = study.tables["items_top_bottom"].filter(list=name, prompt=prompt)
    count = min(top, max(1, standing.height // 2))
    groups = shown_items(standing, top)
    colours = partial(standings, points, "model", "percentile", groups, names)
    bars = ends.rename({"item": "token"})
    sides = partial(token_bars, bars, names, count, "reward", "reward")
    caption = (
        "One row per item, from the highest mean down; one column per model. A long list is shown "
        "in three groups: the highest means, the items on which models differ most, and the lowest "
        "means."
    )
    stem = f"{name}_{prompt}"
    return [
        Heading(f"{name}, prompt “{prompt}”"),
        Picture(f"items_standing_{stem}", caption, colours),
        Picture(f"items_top_bottom_{stem}", "What each model rates first and last.", sides),
    ]
