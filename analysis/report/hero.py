"""The finding above the words: models that rate words alike whatever the question asks for."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.chapters.framing import FRAMING, between
from analysis.measures.combined import prompts_of
from analysis.report.first_screen import whole_words
from analysis.run import places
from analysis.sentences import significant
from analysis.statistics import Array
from analysis.statistics.ranks import ranking
from analysis.study import Study
from analysis.words import lexicons
from engine import display

SAME = 0.8  # The lower end of r above which a model is said hardly to read the question.
_WORDS = 5  # At either end.
_GAP = 20  # Pixels between two words.


@dataclasses.dataclass(frozen=True)
class Line:
    """A word, and its height under both questions, in pixels from above."""

    word: str
    top: bool  # whether it is one of the words that the models rate highest
    ends: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Hero:
    """One sentence, and the same ten words of two models under two questions.

    Attributes:
      text: the sentence.
      below: what it means and how the chart is read.
      questions: what the page calls both questions.
      panels: slug of a model, what is said of it, and its lines; highest words first.
    """

    text: str
    below: str
    questions: tuple[str, str]
    panels: Sequence[tuple[str, str, Sequence[Line]]]
    high: int = _GAP * (2 * _WORDS - 1)


def story(study: Study) -> Hero | None:
    """The finding, where a model ranks tokens alike under two opposite questions; else None."""
    prompts = prompts_of(study)
    framing = study.tables.get(FRAMING.name)
    if framing is None:
        return None
    rows = framing.filter(between(prompts) & pl.col("pearson").is_not_nan()).sort("pearson")
    certain = significant(rows)
    blind = certain.filter(pl.col("ci_low") > SAME)["model"].to_list()
    turned = certain.filter(pl.col("pearson") < 0)["model"].to_list()
    if not blind:
        return None
    shown = [*turned[:1], blind[-1]]
    good, bad = questions = [study.prompt_names[prompt] for prompt in prompts]
    words = _words(study, shown, prompts[0])
    if words.height < 2 * _WORDS:
        return None
    panels = [
        (
            slug,
            "rates them the other way round" if slug in turned else "rates them nearly as before",
            lines,
        )
        for slug in shown
        if (lines := _lines(study, slug, words, prompts))
    ]
    read = "reads" if len(blind) == 1 else "read"
    text = f"{len(blind)} of {rows.height} models hardly {read} the question"
    if rows.height == 1:
        text = "This model hardly reads the question"
    who = "they rate" if len(blind) > 1 else "it rates"
    average = ", on average" if len(shown) > 1 else ""
    below = (
        f"Asked {bad} instead of {good}, {who} words in nearly the same order. The chart shows the "
        f"{_WORDS} words with the highest and the {_WORDS} with the lowest rewards under {good}"
        f"{average}, in order."
    )
    return Hero(text, below, (questions[0], questions[1]), panels)


def _words(study: Study, models: Sequence[str], prompt: str) -> pl.DataFrame:
    """The words with the highest and the lowest mean percentile: word, token, top."""
    common = lexicons.common_words(study.options.frequency)
    joined: pl.DataFrame | None = None
    for at, model in enumerate(models):
        own = whole_words(study, model, common)
        shares, known = _shares(study, model, prompt, own["token_id"].to_numpy())
        own = own.select("word", "token", share=pl.Series(shares)).filter(pl.Series(known))
        own = own.unique("token", keep="none").rename({"share": f"share_{at}"})
        joined = own if joined is None else joined.join(own.drop("word"), on="token")
    assert joined is not None
    mean = pl.mean_horizontal(pl.selectors.starts_with("share_"))
    ranked = joined.select("word", "token", mean=mean).sort(
        "mean", "token", descending=[True, False]
    )
    ends = [
        ordered.unique("word", keep="first", maintain_order=True).head(_WORDS)
        for ordered in (ranked, ranked.reverse())
    ]
    chosen = pl.concat(
        end.select("word", "token", top=pl.lit(top))
        for end, top in zip(ends, (True, False), strict=True)
    )
    return chosen.unique("word", keep="none", maintain_order=True)


def _shares(study: Study, model: str, prompt: str, ids: Array) -> tuple[Array, Array]:
    """Percentiles of the tokens `ids` [N], and which were scored."""
    at, known = places(study.run.rewards(model, prompt)[0], ids)
    return study.run.ranked(model, prompt).percentiles[at], known


def _lines(study: Study, model: str, words: pl.DataFrame, prompts: tuple[str, str]) -> list[Line]:
    """The lines of a model's panel; none where it scored not all of the words."""
    tokens = study.run.vocabulary(model).filter(pl.col("token").is_in(words["token"].implode()))
    ids = dict(tokens.select("token", "token_id").collect().iter_rows())
    wanted = np.array([ids[token] for token in words["token"]], dtype=np.uint32)
    by_prompt = [_shares(study, model, prompt, wanted) for prompt in prompts]
    if not all(known.all() for _, known in by_prompt):
        return []
    # Most of the words are at an end of their ranking, so that percentiles would fall on one point.
    heights = [_GAP * (len(wanted) - ranking(shares).ranks) for shares, _ in by_prompt]
    names = [display.plain(token.strip()) for token in words["token"]]
    lines = zip(names, words["top"], *map(Array.tolist, heights), strict=True)
    return [Line(name, top, (first, second)) for name, top, first, second in lines]
