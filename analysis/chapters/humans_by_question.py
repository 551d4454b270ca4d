"""What is compared with people: a list under each prompt, or, under many prompts, each question.

Part of the chapter `humans`.
"""

from collections.abc import Iterator

import polars as pl

from analysis.chapters.items import FEW
from analysis.chapters.items_agreement import file_name
from analysis.measures.human_agreement import beside, side_by_side
from analysis.measures.list_scores import ALL, ListScores, scores_of
from analysis.study import Study


def compared(study: Study) -> Iterator[tuple[str, str]]:
    """List and prompt of each comparison with people.

    Of a list under more than three prompts, the second name is that of a question: a model is then
    compared by its mean percentiles over the wordings.
    """
    for name in study.run.item_lists():
        prompts = [prompt for items, prompt in study.run.lists() if items == name]
        if len(prompts) > FEW and study.tables.get("items_points", name) is not None:
            scores = scores_of(study, name)
            questions = (question for question, _, _ in scores.parts() if question != ALL)
            yield from ((name, file_name(question)) for question in questions)
        else:
            yield from ((name, prompt) for prompt in prompts)


def sides(study: Study, key: tuple[str, str], least_matches: int = 0) -> pl.DataFrame | None:
    """People beside the models, as `side_by_side` returns them; None where people ranked nothing.

    Args:
      study: the run and its tables.
      key: one of `compared`.
      least_matches: as in `side_by_side`.
    """
    name, asked = key
    if key in study.run.lists():
        return side_by_side(study.run, name, asked, study.models, least_matches)
    people = study.run.humans(name)
    means = _means(scores_of(study, name), asked)
    return None if people is None else beside(people, means, least_matches)


def _means(scores: ListScores, asked: str) -> pl.DataFrame:
    """item_id, item, and the mean percentiles of each model under the question `asked`."""
    places = {file_name(question): at for question, _, at in scores.parts()}
    models, means = scores.means(places[asked])
    columns = {
        model: pl.Series(values, dtype=pl.Float64)
        for model, values in zip(models, means, strict=True)
    }
    return scores.items.with_columns(**columns)
