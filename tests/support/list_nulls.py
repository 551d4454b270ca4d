"""Lists in which there is nothing to claim, and what a page would claim of a list.

Every null is a list of words with rewards of several models under several prompts, from which what
the claim is about has been taken out, and nothing else:

- the items of each model are shuffled, alike under all its prompts: the models share no order;
- the items are shuffled under the negative prompts, alike for all models: framing does not change
  the order in any direction.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.chapters import items
from analysis.measures.list_scores import POINTS, ListScores, list_scores
from analysis.statistics import Array
from analysis.words.questions import NEGATIVE, questions
from configs.prompts import FOLLOW_UP

_PERMUTATIONS = 999
ENDS, AGREE = "list: items first and last", "list: models agree"
OPPOSE = "list: models oppose one another"
FRAMING = "list: opposite framing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """One list, as a chapter reads it."""

    rewards: Mapping[tuple[str, str], Array]  # (model, prompt) -> rewards by word [N]
    prompts: Mapping[str, str]  # prompt id -> text
    models: Sequence[str]  # slugs
    words: int  # N


def synthetic(rng: np.random.Generator, words: int = 60) -> Drawn:
    """Models with tastes of their own and a common one, under two wordings of six questions."""
    prompts = {p: text for p, text in FOLLOW_UP.items() if p.split("-", 1)[1] in _WORDINGS}
    asked = questions(prompts)
    common = rng.normal(size=words)
    worded = {wording: rng.normal(size=words) for wording in asked["wording"].unique()}
    slugs = [f"m-{number}" for number in range(10)]
    rewards = {}
    for model in slugs:
        taste, liking = common + rng.normal(size=words), rng.normal(size=words)
        for prompt, _, framing, wording in asked.iter_rows():
            sign = -1.0 if framing == NEGATIVE else 1.0
            noise = 0.5 * worded[wording] + 0.7 * rng.normal(size=words)
            rewards[model, prompt] = sign * taste + liking + noise
    return Drawn(rewards=rewards, prompts=prompts, models=slugs, words=words)


_WORDINGS = ("ever-one-word", "in_the_world-answer-only")


def shuffled_in_each_model(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    """The items of each model shuffled, alike under all prompts."""
    orders = {model: rng.permutation(drawn.words) for model, _ in drawn.rewards}
    rewards = {(model, p): x[orders[model]] for (model, p), x in drawn.rewards.items()}
    return dataclasses.replace(drawn, rewards=rewards)


def shuffled_under_negative(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    """The items shuffled under the negative prompts, alike for all models."""
    order = rng.permutation(drawn.words)
    negative = questions(drawn.prompts).filter(framing=NEGATIVE)["prompt"].to_list()
    rewards = {(m, p): x[order] if p in negative else x for (m, p), x in drawn.rewards.items()}
    return dataclasses.replace(drawn, rewards=rewards)


Null = Callable[[Drawn, np.random.Generator], Drawn]
NULLS: dict[str, Null] = {
    ENDS: shuffled_in_each_model,
    AGREE: shuffled_in_each_model,
    OPPOSE: shuffled_in_each_model,
    FRAMING: shuffled_under_negative,
}


def claims(drawn: Drawn, claim: str, rng: np.random.Generator) -> bool:
    """Whether a page on this list would make the claim."""
    scores = scores_of(drawn)
    if claim == ENDS:
        standing = items.items_questions(scores, rng, _PERMUTATIONS)
        return bool(items.ends_beyond_chance(standing.filter(question="best")))
    if claim == FRAMING:
        return bool(items.framing_beyond_chance(items.items_models(scores, rng)))
    words = "opposite ways" if claim == OPPOSE else "agree more than chance"
    return any(words in text for text in agreement(scores, rng).values())


def agreement(scores: ListScores, rng: np.random.Generator) -> dict[str, str]:
    """What a page says of the agreement of models under each framing, by its name."""
    agreed, pairs = items.items_agreement(scores, rng), items.items_pairs(scores)
    names = {model: model.upper() for model in scores.models}
    return {
        framing: items.agreement_beyond_chance(
            agreed.filter(question=name), pairs.filter(question=name), names
        )
        for name, framing, _ in scores.framings()
    }


def scores_of(drawn: Drawn) -> ListScores:
    """The list as the chapters read it."""
    listed = pl.DataFrame({"item": [f"word {number}" for number in range(drawn.words)]})
    frames = [
        listed.select(
            pl.lit("words").alias("list"),
            pl.lit(prompt).alias("prompt"),
            pl.lit(model).alias("model"),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("item_id"),
            pl.col("item"),
            pl.Series("reward", rewards, dtype=pl.Float32),
        ).select(list(POINTS))
        for (model, prompt), rewards in drawn.rewards.items()
    ]
    return list_scores(pl.concat(frames), drawn.models, drawn.prompts)
