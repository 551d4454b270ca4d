"""The first screen: under each question, the words that every model rates highest and lowest."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.study import Study
from analysis.words import lexicons, spellings

WORDS = 10  # At either end.
_BARS = 48
_WORD = r"^[ _▁]?[\p{L}\p{M}][\p{L}\p{M}'’-]+$"
_STARTS = r"^[ _▁]"  # Where a tokenizer marks the starts of words, other tokens are mostly endings.
_LEAST_FREQUENT = 0.3  # Of a million words: above it, few tokens are the beginning of a word.
_MOST_MODELS = 12  # Further ones are in the explorer.


@dataclasses.dataclass(frozen=True)
class Word:
    """A word that a model rates at one end of its ranking.

    Attributes:
      token: the token, as the tokenizer spells it.
      reward: its reward.
      percentile: share of the tokens that score lower, in percent; ties counted half.
      strength: 0 at the model's median reward, 1 at its most extreme word of this end.
    """

    token: str
    reward: float
    percentile: float
    strength: float


@dataclasses.dataclass(frozen=True)
class Panel:
    """Both ends of a model's ranking of words under one prompt.

    Attributes:
      model: slug.
      highest: the words with the highest rewards, the highest first.
      lowest: those with the lowest, the lowest first.
      bars: heights of a histogram of all rewards, from 0 to 1; its ends are `least` and `most`.
      least: the lowest reward of any token.
      most: the highest.
    """

    model: str
    highest: Sequence[Word]
    lowest: Sequence[Word]
    bars: Sequence[float]
    least: float
    most: float


@dataclasses.dataclass(frozen=True)
class Question:
    """A prompt under which vocabularies were scored, and the ends of each model's ranking.

    Attributes:
      prompt: its id.
      text: its words.
      panels: one for each model shown.
      more: number of models that are not shown.
    """

    prompt: str
    text: str
    panels: Sequence[Panel]
    more: int


def questions(study: Study, prompts: Sequence[str]) -> list[Question]:
    """The first screen under each of `prompts`."""
    common = common_words(study)
    words = {model: whole_words(study, model, common) for model in study.scored[:_MOST_MODELS]}
    made = []
    for prompt in prompts:
        models = study.scored_under(prompt)
        shown = [model for model in models if model in words]
        panels = [_panel(study, words[model], model, prompt) for model in shown]
        text = study.run.prompts[prompt]
        made.append(Question(prompt, text, panels, len(models) - len(shown)))
    return made


def common_words(study: Study) -> set[str]:
    """Words that are not rare, in lower case; none where no list of frequencies is at hand."""
    try:
        frequency = lexicons.frequency(study.options.frequency)
    except lexicons.LexiconError:
        return set()
    common = frequency.filter(pl.col("per_million") >= _LEAST_FREQUENT)
    return set(common["word"].str.to_lowercase())


def whole_words(study: Study, model: str, common: set[str]) -> pl.DataFrame:
    """token_id, token and word (in lower case) of a vocabulary's tokens that are whole words."""
    tokens = study.run.vocabulary(model).filter(~pl.col("is_special")).collect()
    words = tokens.select("token_id", "token", word=spellings.folded(pl.col("token")))
    words = words.filter(pl.col("token").str.contains(_WORD))
    for kept in (pl.col("token").str.contains(_STARTS), pl.col("word").is_in(sorted(common))):
        fewer = words.filter(kept)
        words = fewer if fewer.height >= 2 * WORDS else words
    return words


def _panel(study: Study, words: pl.DataFrame, model: str, prompt: str) -> Panel:
    token_ids, rewards = study.run.rewards(model, prompt)
    scored = pl.DataFrame({"token_id": token_ids, "reward": rewards}).with_columns(
        percentile=(pl.col("reward").rank("average") - 0.5) * 100 / pl.len()
    )
    ranked = words.join(scored, on="token_id").sort("reward", "token_id", descending=[True, False])
    ranked = ranked.unique("word", keep="first", maintain_order=True)
    low = words.join(scored, on="token_id").sort("reward", "token_id")
    low = low.unique("word", keep="first", maintain_order=True)
    middle = float(np.median(rewards))
    counts, _ = np.histogram(rewards, bins=_BARS)
    return Panel(
        model=model,
        highest=_ends(ranked, middle),
        lowest=_ends(low, middle),
        bars=[float(count) for count in counts / max(counts.max(), 1)],
        least=float(rewards.min()),
        most=float(rewards.max()),
    )


def _ends(ranked: pl.DataFrame, middle: float) -> list[Word]:
    """The first words of a ranking; each spelling of a word at its extreme, once."""
    rows = ranked.head(min(WORDS, ranked.height // 2) or ranked.height)
    columns = rows.select("token", "reward", "percentile").iter_rows()
    far = max((abs(reward - middle) for reward in rows["reward"]), default=0.0)
    return [
        Word(token, reward, percentile, abs(reward - middle) / far if far else 0.0)
        for token, reward, percentile in columns
    ]
