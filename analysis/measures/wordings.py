"""Percentiles of items or tokens under several wordings of one question, model by model.

Where no question has two wordings, each framing is taken as one question.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl

from analysis.measures.list_scores import ListScores
from analysis.measures.word_scores import VOCABULARY
from analysis.run import Run, places
from analysis.statistics import Array, ranks
from analysis.words.questions import questions
from analysis.words.stems import stem_numbers

QUESTION, FRAMING = "question", "framing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wordings:
    """What models gave the same items under prompts, some of which ask one question."""

    source: str  # name of the list, or "vocabulary"
    # What is taken as one question: "question" (prompts that ask for one quality), or "framing"
    # where none was asked in two wordings (prompts that ask for something good).
    level: str
    items: Sequence[str]  # the items or tokens [N]
    clusters: Array  # label of each item; forms of one word have one label
    models: Sequence[str]  # slugs
    # Prompt, question, framing, wording [P] of the prompts that every model was asked.
    prompts: pl.DataFrame
    read: Callable[[str], Array]  # slug -> its percentiles, float64 [P, N]

    def questions(self) -> Iterator[tuple[str, Array]]:
        """Each question of two wordings or more, and its prompts (indices)."""
        names = self.prompts["question"].to_numpy()
        for name in dict.fromkeys(names.tolist()):
            at = np.flatnonzero(names == name)
            if len(at) > 1 and name:
                yield name, at

    def framings(self) -> Iterator[tuple[str, Array]]:
        """Each framing that holds a question of two wordings, and its prompts (indices)."""
        names = self.prompts["framing"].to_numpy()
        several = {int(i) for _, at in self.questions() for i in at}
        for name in dict.fromkeys(names.tolist()):
            at = np.flatnonzero(names == name)
            if several.intersection(at.tolist()):
                yield name, at


def of_list(scores: ListScores) -> Wordings | None:
    """The wordings of a list; None where no two prompts ask one question."""
    kept = np.flatnonzero(~np.isnan(scores.percentiles).any(axis=(0, 2)))
    named = leveled(scores.prompts[kept])
    if named is None or scores.items.height < 2:
        return None
    level, prompts = named
    by_model = dict(zip(scores.models, scores.percentiles[:, kept], strict=True))
    return Wordings(
        source=scores.name,
        level=level,
        items=scores.items["item"].to_list(),
        clusters=np.arange(scores.items.height),
        models=scores.models,
        prompts=prompts,
        read=by_model.__getitem__,
    )


def of_vocabulary(
    run: Run, shared: pl.DataFrame, models: Sequence[str], path: str = ""
) -> Wordings | None:
    """The wordings of the shared vocabulary; None where no two prompts ask one question.

    Percentiles are those of the whole vocabulary of a model. Of prompts of one text the first
    counts. `path` is the user's file of questions, as `words.questions.questions` takes it.
    """
    first: dict[str, str] = {}
    for prompt, text in run.vocabulary_prompts.items():
        if all((model, prompt) in run.results for model in models):
            first.setdefault(text, prompt)
    named = leveled(questions({prompt: text for text, prompt in first.items()}, path))
    kept = np.ones(shared.height, dtype=np.bool_)  # Tokens that are scored everywhere.
    for model, prompt in itertools.product(models, first.values()):
        kept &= places(run.rewards(model, prompt)[0], shared[model].to_numpy())[1]
    scored = shared.filter(kept)
    if named is None or scored.height < 2:
        return None
    level, prompts = named

    def read(model: str) -> Array:
        wanted, rows = scored[model].to_numpy(), []
        for prompt in prompts["prompt"]:
            token_ids, rewards = run.rewards(model, prompt)
            rows.append(ranks.percentiles(rewards)[places(token_ids, wanted)[0]])
        return np.array(rows)

    return Wordings(
        source=VOCABULARY,
        level=level,
        items=scored["token"].to_list(),
        clusters=stem_numbers(scored["token"]),
        models=models,
        prompts=prompts,
        read=read,
    )


def leveled(prompt_questions: pl.DataFrame) -> tuple[str, pl.DataFrame] | None:
    """The level of `Wordings`, and prompt, question, framing, wording of each prompt.

    At the level of framings the question is the framing, and every prompt a wording.
    `prompt_questions` is what `words.questions.questions` returns.
    """
    for level, column in ((QUESTION, "question"), (FRAMING, "framing")):
        wording = "wording" if level == QUESTION else "prompt"
        named = prompt_questions.select("prompt", "framing", question=column, wording=wording)
        counts = named.filter(pl.col("question") != "").group_by("question").len()
        if (counts["len"] > 1).any():
            return level, named.select("prompt", "question", "framing", "wording")
    return None
