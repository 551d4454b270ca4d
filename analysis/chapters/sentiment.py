"""Reward against the sentiment of a word (Fig 3A-C, A4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Mark, Marks, Picture, Text
from analysis.charts.estimates import estimates
from analysis.columns import MODEL, PROMPT, Column, P, Spec, ends, q
from analysis.measures import matched_words
from analysis.sentences import counted, deviations, significant, unclear
from analysis.statistics import regression
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, required, table
from analysis.words import lexicons
from analysis.words.stems import stems


def slope_columns(unit: str) -> tuple[Column, ...]:
    """The columns of `slope_of` with their q; `unit` is that of the slope."""
    return (
        Column("slope", "number", help=unit),
        *(Column("stderr", "number", "standard error", "clustered by stem"), P, q()),
        Column("n", "count", "tokens", "tokens"),
        *ends(
            "number",
            "95 %, by the same t as p; its degrees of freedom are those of Bell and McCaffrey, "
            "for errors that are equal within a stem",
        ),
    )


SLOPES = Spec(
    "sentiment_slopes",
    (
        MODEL,
        PROMPT,
        Column("valence", help="`negative`: all others, also 0"),
        *slope_columns("reward per unit of value"),
    ),
    page="model prompt valence slope ci_low ci_high stderr p q n",
)
_SIDES = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
_NAMED = 3  # Prompts that a sentence names.
_FROM_TO = "from the mildest positive word to the strongest"


def _tables(study: Study) -> Iterator[Table]:
    """For other chapters: ("sentiment_points",)."""
    yield table("sentiment_points", make=partial(_points, study), file=False)
    yield table(SLOPES.name, make=lambda: sentiment_slopes(study.tables["sentiment_points"]))


def sentiment_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on value, separately for positive (> 0) and negative (<= 0) words.

    Errors are clustered by stem: spellings and forms of one word ("love", " Loved") have the same
    value and similar rewards. A slope is NaN where too few words, or words of one value, matched.
    The table `SLOPES` of what `lexicon_rewards` returns.
    """
    fits = []
    for cell, words in matched_words.by_model_and_prompt(with_stems(points)):
        for valence, chosen in _SIDES.items():
            y, x, stem = (
                words.filter(chosen)[name].to_numpy() for name in ("reward", "value", "stem")
            )
            fits.append({**cell, "valence": valence, **slope_of(regression.ols(y, x, stem))})
    return SLOPES.frame(fits)


def with_stems(points: pl.DataFrame) -> pl.DataFrame:
    """`points` with the column stem: the number of the stem of the word."""
    return points.with_columns(stem=stems(points["word"]).rank("dense"))


def slope_of(fit: regression.Fit) -> dict[str, float]:
    """slope, stderr, p, n, ci_low and ci_high of the first predictor of a fit."""
    slope, stderr, p = (float(v[1]) for v in (fit.value, fit.stderr, fit.p))
    ends = {"ci_low": float(fit.low[1]), "ci_high": float(fit.high[1])}
    return {"slope": slope, "stderr": stderr, "p": p, "n": fit.n, **ends}


def _lexicon(study: Study) -> pl.DataFrame:
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    try:
        return lexicons.afinn(study.options.afinn)
    except lexicons.NoPackage as error:
        raise Absent(f"No lexicon: {error}.") from error


def _points(study: Study) -> pl.DataFrame:
    options = study.options
    points = matched_words.lexicon_rewards(
        study.run, study.models, _lexicon(study), options.match_trim
    )
    return required(points, f"No token matches a word of {options.afinn or 'AFINN-111'}.")


def in_order(points: pl.DataFrame, prompts: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each prompt that has any, in the order of `prompts`."""
    for prompt in prompts:
        rows = points.filter(prompt=prompt)
        if rows.height:
            yield prompt, rows


def _slopes_drawn(study: Study) -> Iterator[Block]:
    slopes = study.tables[SLOPES.name]
    unit = f"standard deviations {_FROM_TO}"
    shown = in_deviations(study, slopes, 4.0).with_columns(
        question=pl.col("prompt").replace(study.prompt_names),
        valence=pl.col("valence").replace("negative", "all others"),
    )
    place = pl.col("prompt").cast(pl.Enum(list(study.run.vocabulary_prompts)))
    shown = shown.sort(place, "slope", descending=[False, True], maintain_order=True)
    draw = partial(estimates, shown, study.names, unit, value="slope", panel="question")
    draw = partial(draw, colour="valence", kinds=["positive", "all others"], beside=False)
    caption = (
        "Right of zero, better words score higher, among positive and among all other words. "
        f"In standard deviations of a model’s rewards {_FROM_TO}, with 95% intervals."
    )
    yield Picture("sentiment_slopes", caption, draw)
    yield from (*SLOPES.rows(slopes), Text(FAMILY, "how"))


FAMILY = (
    "q is the p-value corrected for all rows of this table, which are one family (Benjamini and "
    "Hochberg). Standard errors, intervals and p are clustered by the stem of a word (“love” and "
    "“loved” are one). Their t has the degrees of freedom that hold where errors are equal within "
    "a stem (Bell and McCaffrey)."
)
# How spellings of a word with outer spaces are treated, by `Options.match_trim`.
SPELLINGS = {
    "auto": "Where rewards are of token ids, “love” and “␣love” are two replies and both count as "
    "the word; where they are of texts, or it is not known, only the spelling without spaces "
    "does.",
    "always": "Spellings of a word with and without outer spaces both count as the word.",
    "never": "A token with a leading space matches no word, as in the paper.",
}
_RISES = ("more positive ones score higher", "more positive ones score lower", "lower")
_AMONG = {"positive": "among positive words", "negative": "among all other words"}


def slope_findings(slopes: pl.DataFrame, prompts: Mapping[str, str]) -> Iterator[Finding]:
    """What slopes say under the prompts under which one is sure.

    Args:
      slopes: the table `SLOPES`.
      prompts: prompt id -> how the page calls it, in the order of the sentences.
    """
    alike: dict[str, list[str]] = {}
    for prompt, _ in in_order(significant(slopes), list(prompts)):
        sides = {side: slopes.filter(prompt=prompt, valence=side) for side in _AMONG}
        said = [
            counted(part, "slope", *_RISES) or "no slope is significant" for part in sides.values()
        ]
        sure = [frozenset(significant(part)["model"]) for part in sides.values()]
        same = said[0] == said[1] and sure[0] == sure[1]
        among = [" and ".join(_AMONG.values())] if same else [*_AMONG.values()]
        clauses = map(", ".join, zip(among, said, strict=False))
        alike.setdefault("; ".join(clauses), []).append(prompts[prompt])
    for clauses, names in alike.items():
        many = len(names) > _NAMED
        questions = f"{len(names)} prompts, such as {names[0]}" if many else " or ".join(names)
        yield Finding(text=f"Asked {questions}: {clauses}.", picture="sentiment_slopes")


def in_deviations(study: Study, slopes: pl.DataFrame, scale: float = 1.0) -> pl.DataFrame:
    """`slopes` in standard deviations of the model's rewards: its keys, slope, ci_low, ci_high.

    Slopes that are not known are left out, and those of a model that rates every token alike.
    """
    pairs = slopes.select("model", "prompt").iter_rows()
    spreads = [np.std(study.run.rewards(*pair)[1], dtype=np.float64) for pair in pairs]
    known = slopes.with_columns(sd=pl.Series(spreads, dtype=pl.Float64))
    known = known.filter(pl.col("sd") > 0, pl.col("slope").is_not_nan())
    numbers = (pl.col(key) * scale / pl.col("sd") for key in ("slope", "ci_low", "ci_high"))
    keys = [key for key in ("prompt", "valence") if key in slopes.columns]
    return known.select("model", *keys, *numbers)


def slope_marks(study: Study, slopes: pl.DataFrame, unit: str, scale: float = 1.0) -> Marks | None:
    """Slopes under the first prompt with a sure one, in standard deviations of a model's rewards.

    Args:
      study: the study.
      slopes: one row per model and prompt, with the columns of `slope_columns`.
      unit: what one step of the slope is, such as "for each point of sentiment".
      scale: how much of what the slope is of makes that step.
    """
    order = list(in_order(significant(slopes), list(study.prompt_names)))
    if not order:
        return None
    prompt, marks = order[0][0], []
    for row in in_deviations(study, slopes.filter(prompt=prompt), scale).iter_rows(named=True):
        marks.append(Mark(study.names[row["model"]], row["slope"], row["ci_low"], row["ci_high"]))
    size = deviations(float(np.median([abs(mark.value) for mark in marks]))) if marks else ""
    axis = f"asked {study.prompt_names[prompt]}: standard deviations of a model’s rewards {unit}"
    return Marks.some(marks, axis, f"{size} {unit}") if marks else None


def _marks(study: Study) -> Marks | None:
    rises = study.tables[SLOPES.name].filter(valence="positive")
    return slope_marks(study, rises, _FROM_TO, 4.0)


ANALYSIS = Analysis(
    id="sentiment",
    title="Sentiment",
    lead="Does a model’s reward follow the valence of a word? For the tokens that are words of "
    "the AFINN lexicon, the reward is regressed on valence (−5 to 5), separately for positive "
    "words and all others.",
    make=_tables,
    parts=(_slopes_drawn,),
    told=(lambda s: slope_findings(s.tables[SLOPES.name], s.prompt_names),),
    marks=_marks,
    described=lambda study: unclear(study.tables[SLOPES.name], "slopes of reward on valence"),
    caveats=lambda study: (
        f"Only words of one token are compared, in English. {SPELLINGS[study.options.match_trim]}",
        "A slope is in the model’s own unit of reward: compare signs and prompts within a "
        "model, not sizes between models.",
    ),
)
