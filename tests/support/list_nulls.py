"""Lists in which there is nothing to claim, and what a page would claim of a list.

Every null is a list of words with rewards of several models under several prompts, from which what
the claim is about has been taken out, and nothing else:

- the items of each model are shuffled, alike under all its prompts: the models share no order;
- the items are shuffled under the negative prompts, alike for all models: framing does not change
  the order in any direction;
- the words are shuffled among the items of like frequency, or of like length.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.chapters import items, items_agreement, items_controls, items_framing
from analysis.measures.list_scores import ALL_MODELS, POINTS, ListScores, list_scores
from analysis.statistics import Array, ranks
from analysis.statistics.inference import with_q
from analysis.words.questions import NEGATIVE, POSITIVE, questions
from configs.prompts import FOLLOW_UP

_PERMUTATIONS = 999
_BANDS = 10  # Of words of like frequency or length.
ENDS, AGREE = "list: items first and last", "list: models agree"
OPPOSE = "list: models oppose one another"
FRAMING, LENGTH, FREQUENCY = "list: opposite framing", "list: length", "list: frequency"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """One list, as a chapter reads it."""

    rewards: Mapping[tuple[str, str], Array]  # (model, prompt) -> rewards by word
    prompts: Mapping[str, str]  # prompt id -> text
    words: pl.DataFrame  # word, characters, log frequency [N]
    models: Sequence[str]  # slugs


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
    about = {
        "word": [f"word {number}" for number in range(words)],
        items_controls.LENGTH: rng.integers(2, 13, words).astype(float),
        items_controls.FREQUENCY: rng.normal(size=words),
    }
    return Drawn(rewards=rewards, prompts=prompts, words=pl.DataFrame(about), models=slugs)


_WORDINGS = ("ever-one-word", "in_the_world-answer-only")


def shuffled_in_each_model(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    """The items of each model shuffled, alike under all prompts."""
    orders = {model: rng.permutation(drawn.words.height) for model, _ in drawn.rewards}
    rewards = {(model, p): x[orders[model]] for (model, p), x in drawn.rewards.items()}
    return dataclasses.replace(drawn, rewards=rewards)


def shuffled_under_negative(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    """The items shuffled under the negative prompts, alike for all models."""
    order = rng.permutation(drawn.words.height)
    negative = questions(drawn.prompts).filter(framing=NEGATIVE)["prompt"].to_list()
    rewards = {(m, p): x[order] if p in negative else x for (m, p), x in drawn.rewards.items()}
    return dataclasses.replace(drawn, rewards=rewards)


def shuffled_words(trait: str) -> Callable[[Drawn, np.random.Generator], Drawn]:
    """Words shuffled among the items that are alike in `trait`."""

    def null(drawn: Drawn, rng: np.random.Generator) -> Drawn:
        places = ranks.average_ranks(drawn.words[trait].to_numpy())
        bands = np.floor(_BANDS * (places - 0.5) / len(places))
        order = np.arange(len(places))
        for band in np.unique(bands):
            at = np.flatnonzero(bands == band)
            order[at] = at[rng.permutation(len(at))]
        rewards = {key: x[order] for key, x in drawn.rewards.items()}
        return dataclasses.replace(drawn, rewards=rewards)

    return null


Null = Callable[[Drawn, np.random.Generator], Drawn]
NULLS: dict[str, Null] = {
    ENDS: shuffled_in_each_model,
    AGREE: shuffled_in_each_model,
    OPPOSE: shuffled_in_each_model,
    FRAMING: shuffled_under_negative,
    LENGTH: shuffled_words(items_controls.FREQUENCY),
    FREQUENCY: shuffled_words(items_controls.LENGTH),
}


def claims(drawn: Drawn, claim: str, rng: np.random.Generator) -> bool:
    """Whether a page on this list would make the claim."""
    scores = scores_of(drawn)
    if claim == ENDS:
        standing = items.items_questions(scores, rng, _PERMUTATIONS)
        return bool(items.ends_beyond_chance(standing.filter(framing=POSITIVE)))
    if claim == AGREE:
        agreement = items_agreement.items_agreement(scores, rng)
        framed = items_agreement.framed_rows(agreement)
        return any(map(items_agreement.agreement_beyond_chance, framed))
    if claim == OPPOSE:
        return _opposed(scores)
    if claim == FRAMING:
        kinds = items_framing.items_prompt_kinds(scores, rng)
        return bool(items_framing.framing_beyond_chance(kinds))
    return _controls(scores, drawn.words, claim)


def _opposed(scores: ListScores) -> bool:
    """Whether models are said to oppose one another under either framing."""
    names = {model: model for model in scores.models}
    pairs = items_agreement.items_pairs(scores)
    blocs = items_agreement.items_blocs(scores, pairs)
    return any(
        items_agreement.opposition(pairs.filter(framing=f), blocs.filter(framing=f), names)
        for f in (POSITIVE, NEGATIVE)
    )


def scores_of(drawn: Drawn) -> ListScores:
    """The list as the chapters read it."""
    frames = [
        drawn.words.select(
            pl.lit("words").alias("list"),
            pl.lit(prompt).alias("prompt"),
            pl.lit(model).alias("model"),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("item_id"),
            pl.col("word").alias("item"),
            pl.Series("reward", rewards, dtype=pl.Float32),
            pl.lit(0.0).alias("percentile"),
        ).select(list(POINTS))
        for (model, prompt), rewards in drawn.rewards.items()
    ]
    return list_scores(pl.concat(frames), drawn.models, drawn.prompts)


def _controls(scores: ListScores, words: pl.DataFrame, claim: str) -> bool:
    traits = words.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("item_id"),
        pl.col("word").alias("item"),
        items_controls.LENGTH,
        pl.lit(None, pl.Float64).alias(items_controls.TOKENS),
        items_controls.FREQUENCY,
    )
    controls = items_controls.items_controls(scores, traits)
    together = controls.filter(model=ALL_MODELS)
    trait = items_controls.LENGTH if claim == LENGTH else items_controls.FREQUENCY
    sure = with_q(together).filter(pl.col("q") < 0.05, trait=trait)
    return bool(items_controls.preferred(sure))
