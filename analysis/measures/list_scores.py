"""One list of items under many prompts, as an array that every chapter on lists reads."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.columns import Spec
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.study import Absent, Study
from analysis.words.questions import NEGATIVE, POSITIVE, questions
from engine.runs.schema import Columns

KEYS: Columns = {"list": pl.String, "prompt": pl.String, "model": pl.String}
ITEM: Columns = {"item_id": pl.UInt32, "item": pl.String}
POINTS: Columns = {**KEYS, **ITEM, "reward": pl.Float32}
ALL = "all prompts"  # The name of all questions of a list together.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListScores:
    """Where the items of one list stand with every model under every prompt."""

    name: str  # the list
    items: pl.DataFrame  # item_id and item [N], those that every model scored under every prompt
    models: tuple[str, ...]  # slugs [M]
    # Prompt, question, framing, wording [P] (see `words.questions`), the prompts of one question
    # next to one another. Of prompts with the same text the first one is there.
    prompts: pl.DataFrame
    # Float64 [M, P, N]; NaN where the model did not score the list under the prompt, or rates all
    # items alike.
    percentiles: Array

    def questions(self) -> Iterator[tuple[str, str, Array]]:
        """Name, framing and the prompts (indices) of each question."""
        names = self.prompts["question"].to_numpy()
        distinct = self.prompts.select("question", "framing").unique(maintain_order=True)
        for question, framing in distinct.iter_rows():
            yield question, framing, np.flatnonzero(names == question)

    def parts(self) -> Iterator[tuple[str, str, Array]]:
        """The questions; of several, then the framings, and all prompts as `ALL`."""
        by_question = [*self.questions()]
        yield from by_question
        if len(by_question) > 1:
            yield from self.framings()
            yield ALL, "", np.arange(self.prompts.height)

    def views(self) -> list[tuple[str, str, Array]]:
        """The framings and the questions without one; of one question, itself.

        Unlike `parts`, no prompt is in two of them, and none holds opposite framings.
        """
        by_question = [*self.questions()]
        unframed = [part for part in by_question if not part[1]]
        return [*self.framings(), *unframed] if len(by_question) > 1 else by_question

    def framings(self) -> Iterator[tuple[str, str, Array]]:
        """Name, framing and the prompts (indices) of each framing that the prompts have."""
        for framing in (POSITIVE, NEGATIVE):
            at = np.flatnonzero(self.prompts["framing"].to_numpy() == framing)
            if len(at):
                yield f"{framing} prompts", framing, at

    @property
    def known(self) -> Array:
        """Whether each model has an order of the items under each prompt, bool [M, P]."""
        known = np.isfinite(self.percentiles).all(axis=2)
        return np.asarray(known & (self.items.height > 1))

    def means(self, at: Array) -> tuple[list[str], Array]:
        """Mean percentiles over the prompts `at` of every model that has an order under any.

        Returns:
          The slugs, and float64 [those models, N].
        """
        known = self.known[:, at]
        kept = np.flatnonzero(known.any(axis=1))
        filled = np.where(known[:, :, None], self.percentiles[:, at], 0.0)[kept]
        counts = known[kept].sum(axis=1)
        return [self.models[m] for m in kept], filled.sum(axis=1) / counts[:, None]

    def table(self, at: Array) -> pl.DataFrame:
        """item_id, item, and the mean percentiles of each model as `means` has them."""
        models, means = self.means(at)
        columns = {model: pl.Series(values) for model, values in zip(models, means, strict=True)}
        return self.items.with_columns(**columns)


def items_points(run: Run, items: str, models: Sequence[str]) -> pl.DataFrame:
    """Every score of one list, one row per item, model and prompt.

    Returns:
      list, prompt, model, item_id, item, reward; by prompt, then in the order of `models`, then by
      item_id. Items that are not scored by every model of a prompt are left out of it.
    """
    frames = [pl.DataFrame(schema=POINTS)]
    for prompt in (prompt for name, prompt in run.lists() if name == items):
        scored = [model for model in models if (items, model, prompt) in run.items]
        scores = run.item_scores(items, prompt, scored) if scored else pl.DataFrame()
        for model in scored:
            keys = {"list": pl.lit(items), "prompt": pl.lit(prompt), "model": pl.lit(model)}
            frames.append(scores.select("item_id", "item", reward=model, **keys).select([*POINTS]))
    return pl.concat(frames)


def list_scores(
    points: pl.DataFrame, models: Sequence[str], texts: Mapping[str, str], path: str = ""
) -> ListScores:
    """The array of one list.

    Args:
      points: `items_points` of the list, with at least one row.
      models: slugs, in order; those without points are left out.
      texts: prompt id -> text; the prompts of `points` are among them.
      path: the user's own questions, as `words.questions.questions` takes them.
    """
    scored = set(points["model"].unique())
    models = [model for model in models if model in scored]
    points = points.filter(pl.col("model").is_in(models))
    cells = dict(points.partition_by("prompt", "model", as_dict=True, maintain_order=True))
    prompts = dict.fromkeys(str(prompt) for prompt, _ in cells)
    first: dict[tuple[str, tuple[bool, ...]], str] = {}  # Of one text, by the same models.
    for prompt in prompts:
        scored_by = tuple((prompt, model) in cells for model in models)
        first.setdefault((texts[prompt], scored_by), prompt)
    table = questions({prompt: texts[prompt] for prompt in first.values()}, path)
    order = table.select("question").unique(maintain_order=True).with_row_index("at")
    table = table.join(order, on="question", how="left", validate="m:1", maintain_order="left")
    table = table.sort("at", maintain_order=True).drop("at")
    results = points.select("prompt", "model").n_unique()
    common = points.group_by("item_id").agg(n=pl.len()).filter(n=results)["item_id"].implode()
    items = points.select("item_id", "item").unique("item_id").sort("item_id")
    items = items.filter(pl.col("item_id").is_in(common))
    percentiles = np.full((len(models), table.height, items.height), np.nan)
    for p, prompt in enumerate(table["prompt"]):
        for m, model in enumerate(models):
            if (prompt, model) in cells:
                cell = cells[prompt, model].filter(pl.col("item_id").is_in(common))
                rewards = cell.sort("item_id")["reward"].to_numpy()
                if len(rewards) > 1 and np.ptp(rewards) > 0:
                    percentiles[m, p] = ranks.percentiles(rewards)
    return ListScores(
        name=points["list"][0],
        items=items,
        models=tuple(models),
        prompts=table,
        percentiles=percentiles,
    )


def scores_of(study: Study, name: str) -> ListScores:
    """The array of a list that has points."""
    points = study.tables["items_points", name]
    return list_scores(points, study.models, study.run.prompts, study.options.questions)


def every_list(study: Study) -> Iterator[ListScores]:
    """The arrays of all lists that have points.

    Raises:
      Absent: no list has any.
    """
    names = names_of(study)
    if not names:
        why = next(incomparable(study), "No reward model scored a list of items.")
        raise Absent(why)
    return (scores_of(study, name) for name in names)


def incomparable(study: Study) -> Iterator[str]:
    """Why lists have no points."""
    reasons = (study.tables.reason("items_points", name) for name in study.run.item_lists())
    return filter(None, reasons)


def names_of(study: Study) -> list[str]:
    """The lists that have points."""
    return [name for (name,) in study.tables.of("items_points")]


def of_list(study: Study, spec: Spec, name: str) -> pl.DataFrame:
    """The rows of one list of a table; none where there is no such table."""
    made = study.tables.get(spec.name)
    return spec.frame([]) if made is None else made.filter(list=name)
