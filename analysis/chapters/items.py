"""Lists of replies: what each model rates first and last of them, and where each item stands.

A list under more than a few prompts is read by question: the wordings of one question together
(`analysis.words.questions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture, notes
from analysis.chapters import items_controls
from analysis.charts.cells import standings
from analysis.columns import LIST, MODEL, PROMPT, RANK, Column, P, Spec, q, several
from analysis.ends import both_ends, head_and_tail
from analysis.measures import list_scores
from analysis.sentences import listed, significant
from analysis.statistics import Array
from analysis.statistics.permutation_tests import mean_place_test
from analysis.study import Absent, Analysis, Study, Table, prompts_in, required, table
from analysis.words.questions import ASKED_FOR, POSITIVE
from engine import display

_NAMED = 3  # Items that a finding names at each end.
QUESTION, FRAMING = Column("question"), Column("framing")
ITEM_ID, ITEM = Column("item_id", "count", "item id", dtype=pl.UInt32), Column("item", "token")
PROMPTS = Spec(
    "items_prompts",
    (
        *(LIST, PROMPT, QUESTION.but(help="what the prompt asks for")),
        FRAMING.but(help="`positive`, `negative` or empty"),
        Column("wording", help="the text, with `…` for what is asked for"),
    ),
)
QUESTIONS = Spec(
    "items_questions",
    (
        *(LIST, QUESTION, FRAMING, Column("prompts", "count", "wordings", "wordings")),
        *(ITEM_ID, ITEM, Column("n", "count", "models", "models")),
        *several("share", "mean_percentile lowest highest", "over the models"),
        Column(
            "wording_spread",
            "share",
            "spread over wordings",
            "standard deviation over the wordings, mean over the models",
        ),
        P.but(help="against models whose orders have nothing in common"),
        q("list", "question"),
    ),
    page="item n mean_percentile lowest highest wording_spread p q",
)
ROWS_SHOWN = 10  # Rows at each end of a list on the page; the file holds all.
FEW = 3  # Prompts of a list up to which each has a figure of its own.
ENDS = Spec(
    "items_top_bottom",
    (
        *(LIST, PROMPT, MODEL, Column("end"), RANK, ITEM_ID, ITEM),
        Column("reward", "number", dtype=pl.Float32),
    ),
)


def items_questions(
    scores: list_scores.ListScores, rng: np.random.Generator, draws: int
) -> pl.DataFrame:
    """Where each item of one list stands under each question: the table `QUESTIONS`.

    A model's percentile of an item is its mean over the wordings of the question. From the highest
    mean down, then by item_id; p is two-sided, of `mean_place_test`.
    """
    frames = []
    for question, framing, at in scores.parts():
        models, means = scores.means(at)
        if question == list_scores.ALL or not models:
            continue
        same = {"list": scores.name, "question": question, "framing": framing}
        numbers = {
            "mean_percentile": means.mean(axis=0),
            "lowest": means.min(axis=0),
            "highest": means.max(axis=0),
            "wording_spread": _wording_spread(scores, at),
            "p": mean_place_test(means, rng, draws),
        }
        each = scores.items.with_columns(
            **{key: pl.Series(values, dtype=pl.Float64) for key, values in numbers.items()}
        ).with_columns(pl.col("wording_spread").fill_nan(None))
        place = pl.col("mean_percentile").round(12)
        rows = QUESTIONS.frame(each, **same, prompts=len(at), n=len(models))
        frames.append(rows.sort(place, "item_id", descending=[True, False]))
    return QUESTIONS.concat(frames)


def _wording_spread(scores: list_scores.ListScores, at: Array) -> Array:
    """Deviation of each item's percentiles over the prompts `at`, mean over the models; [N]."""
    spreads = [
        scores.percentiles[m, at[known]].std(axis=0, ddof=1)
        for m, known in enumerate(scores.known[:, at])
        if known.sum() > 1
    ]
    return np.mean(spreads, axis=0) if spreads else np.full(scores.items.height, np.nan)


def _prompts(study: Study) -> pl.DataFrame:
    return pl.concat(
        PROMPTS.frame(scores.prompts, list=scores.name) for scores in list_scores.every_list(study)
    )


def _questions(study: Study) -> pl.DataFrame:
    rng, draws = np.random.default_rng(study.options.seed), study.options.permutations
    frames = [items_questions(scores, rng, draws) for scores in list_scores.every_list(study)]
    return required(pl.concat(frames), "No model has an order of the items of a list.")


def ends_beyond_chance(part: pl.DataFrame) -> str:
    """The items with q < .05 under every question of `part`, in a sentence.

    "" where there is none; `part` are rows of `QUESTIONS` of one list.
    """
    questions = part["question"].unique(maintain_order=True).to_list()
    certain = significant(part).with_columns(high=pl.col("mean_percentile") > 0.5)
    each = certain.group_by("item_id", "item", "high", maintain_order=True).agg(
        questions=pl.len(), mean=pl.col("mean_percentile").mean()
    )
    each = each.filter(questions=len(questions)).sort("mean", "item_id", descending=[True, False])
    ends = {
        "highest": each.filter(high=True).head(_NAMED),
        "lowest": each.filter(high=False).tail(_NAMED).reverse(),
    }
    named = {end: items for end, items in ends.items() if items.height}
    if not named:
        return ""
    models = part.select(pl.col("n").max()).item()
    said = " and ".join(
        f"{listed([f'“{display.plain(item, 40)}”' for item in items['item']])} {end}"
        for end, items in named.items()
    )
    return (
        f"Asked for {listed([f'“{name}”' for name in questions])}, the {models} models together "
        f"rate {said} of the list “{part['list'][0]}”."
    )


def over(cells: pl.DataFrame, value: str) -> pl.DataFrame:
    """item_id, item, mean, lowest and highest of `value`; from the highest mean down.

    Percentiles are compared because the rewards of two models have no common unit. Means that
    differ only by rounding are ties, which go to the lower item_id.
    """
    values = pl.col(value)
    each = cells.group_by("item_id", "item", maintain_order=True).agg(
        mean=values.mean(), lowest=values.min(), highest=values.max()
    )
    return each.sort(pl.col("mean").round(12), "item_id", descending=[True, False])


def shown_items(standing: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """The items to show of a long list: highest, most disputed and lowest, `count` of each.

    Args:
      standing: what `over` returns of one list.
      count: items in each group.

    Returns:
      The groups, each from the highest mean down. Disputed are those of the rest whose lowest and
      highest percentile are furthest apart; where no item of the rest varies, that group is left
      out. A list of at most three times `count` items is one group.
    """
    if standing.height <= 3 * count:
        return [standing]
    width = (pl.col("highest") - pl.col("lowest")).round(12)
    rest = standing[count:-count].with_row_index("at").filter(width > 0)
    widest = rest.sort(width, "at", descending=[True, False]).head(count)
    groups = [standing.head(count), widest.sort("at").drop("at"), standing.tail(count)]
    return [group for group in groups if group.height]


def _tables(study: Study) -> Iterator[Table]:
    for name in study.run.item_lists():
        make = partial(list_scores.items_points, study.run, name, study.models)
        why = f"No item of “{name}” was scored by every model of a prompt."
        yield table("items_points", name, make=make, file=False, why=why)
    yield table(ENDS.name, make=lambda: items_top_bottom(_points(study), study.settings.top))
    yield table(PROMPTS.name, make=partial(_prompts, study))
    yield table(QUESTIONS.name, make=partial(_questions, study))
    yield from items_controls.tables(study)


def items_top_bottom(points: pl.DataFrame, count: int) -> pl.DataFrame:
    """The `count` highest and lowest items of each list, prompt and model: the table `ENDS`.

    Rank 1 is the extreme. Ties go to the lower item_id; the ends overlap in a list of fewer than
    twice `count` items.
    """
    each = points.group_by(list(list_scores.KEYS), maintain_order=True)
    return ENDS.concat(ENDS.frame(both_ends(rows, "reward", count)) for _, rows in each)


def _points(study: Study) -> pl.DataFrame:
    points = list(study.tables.of("items_points").values())
    if not points:
        raise Absent(next(_incomparable(study), "No reward model scored a list of items."))
    return pl.concat(points)


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
            yield from _by_question(study, list_scores.scores_of(study, name))
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


def _by_question(study: Study, scores: list_scores.ListScores) -> Iterator[Block]:
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
            purpose = f", asked for {ASKED_FOR[framing]}" if framing else ""
            prompts = "prompts" if len(at) > 1 else "prompt"
            caption = f"The models{purpose}: each one’s mean over {len(at)} {prompts}."
            stem = "_".join(filter(None, ("items_models", name, framing)))
            cells = _means(scores, at)
            yield _standing(study, cells, "model", "percentile", study.names, stem, caption)


def _means(scores: list_scores.ListScores, at: Array) -> pl.DataFrame:
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
        rows = standing.filter(list=name)
        for question in rows["question"].unique(maintain_order=True).head(list_scores.SOME):
            both = head_and_tail(rows.filter(question=question), ROWS_SHOWN)
            yield from QUESTIONS.rows(both, title=f"{name}: “{question}”")


def _told(study: Study) -> Iterator[Finding]:
    """The items of each list that the models together put first and last, beyond chance.

    Items count that have q < .05 under every positive question, or, where the framing of the
    prompts is not known, under the list's first question.
    """
    standing, prompts = study.tables[QUESTIONS.name], study.tables["items_prompts"]
    for name in list_scores.lists_in(standing):
        items, wordings = standing.filter(list=name), prompts.filter(list=name)
        part = items.filter(framing=POSITIVE)
        if not part.height:
            part = items.filter(question=items["question"][0])
        first = wordings.filter(question=part["question"][0])["prompt"][0]
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
