"""Reward against the sentiment of a word (Fig 3A-C, A3, A4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from analysis.blocks import (
    INTERVAL,
    MODEL,
    P_AND_Q,
    PROMPT,
    Block,
    Column,
    Finding,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.figures import reward_by_valence
from analysis.figures.word_points import SIDES
from analysis.measures.matched_words import (
    CELL,
    by_model_and_prompt,
    lexicon_matches,
    lexicon_rewards,
    matches_block,
    rules_in_words,
)
from analysis.run import Run
from analysis.significant_effects import CHOSEN, clearest, counted, interval, significant
from analysis.statistics import regression
from analysis.statistics.distributions import auc, cohens_d
from analysis.statistics.inference import with_q
from analysis.study import NO_VOCABULARY, Absent, Study, Table, required, table
from analysis.words import lexicons
from analysis.words.stems import stems
from engine.runs.schema import Columns

SLOPES: Columns = {
    **dict.fromkeys(("slope", "stderr", "p"), pl.Float64),
    "n": pl.Int64,
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64),
}
_EFFECTS: Columns = {
    **dict.fromkeys(("cohens_d", "auc", "ci_low", "ci_high", "p"), pl.Float64),
    **dict.fromkeys(("n_positive", "n_negative"), pl.Int64),
}


def tables(study: Study) -> Iterator[Table]:
    """sentiment_slopes.csv, bing_effects.csv, matches_sentiment.csv and matches_bing.csv.

    For other chapters and the figures: ("sentiment_points",) and ("bing_points",).
    """
    for name, lexicon in (("sentiment", "afinn"), ("bing", "bing")):
        yield table("matches", name, make=partial(_matches, study, lexicon))
        yield table(f"{name}_points", make=partial(_points, study, lexicon), file=False)
    made = study.tables
    yield table("sentiment_slopes", make=lambda: sentiment_slopes(made["sentiment_points"]))
    yield table("bing_effects", make=lambda: valence_effects(made["bing_points"]))


def sentiment_points(
    run: Run, models: Sequence[str], lexicon: pl.DataFrame, match_trim: str = "auto"
) -> pl.DataFrame:
    """Tokens that are words of a lexicon, with their rewards.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      lexicon: what `lexicons.afinn` (or `bing`) returns.
      match_trim: as in `Options`.

    Returns:
      model, prompt, token_id, token, word, value (or valence), reward.
    """
    return lexicon_rewards(run, models, lexicon, match_trim)


def sentiment_slopes(points: pl.DataFrame) -> pl.DataFrame:
    """Least squares of reward on value, separately for positive (> 0) and negative (<= 0) words.

    Errors are clustered by stem: spellings and forms of one word ("love", " Loved") have the same
    value and similar rewards. A slope is NaN where too few words, or words of one value, matched.

    Args:
      points: what `sentiment_points` returns.

    Returns:
      The table `sentiment_slopes.csv`: model, prompt, valence, slope (reward per unit of value),
      stderr, p (two-sided, against 0), q (the family is all slopes of the table), n (tokens),
      ci_low, ci_high (95 %, by the same t as p).
    """
    fits = []
    sides = {"positive": pl.col("value") > 0, "negative": pl.col("value") <= 0}
    for cell, own in by_model_and_prompt(with_stems(points)):
        for valence, chosen in sides.items():
            y, x, stem = (
                own.filter(chosen)[name].to_numpy() for name in ("reward", "value", "stem")
            )
            fits.append({**cell, "valence": valence, **slope_of(regression.ols(y, x, stem))})
    return with_q(pl.DataFrame(fits, schema={**CELL, "valence": pl.String, **SLOPES}))


def with_stems(points: pl.DataFrame) -> pl.DataFrame:
    """`points` with the column stem: the number of the stem of the word."""
    return points.with_columns(stem=stems(points["word"]).rank("dense"))


def slope_of(fit: regression.Fit) -> dict[str, float]:
    """The columns `SLOPES` of the first predictor of a fit."""
    slope, stderr, p = (float(v[1]) for v in (fit.coefficients, fit.stderr, fit.p))
    ends = {"ci_low": float(fit.low[1]), "ci_high": float(fit.high[1])}
    return {"slope": slope, "stderr": stderr, "p": p, "n": fit.n, **ends}


def valence_effects(points: pl.DataFrame) -> pl.DataFrame:
    """Positive against negative words of a lexicon without grades (Bing, Fig A3).

    Args:
      points: `sentiment_points` of `lexicons.bing`.

    Returns:
      model, prompt, cohens_d, auc (probability that a positive word scores higher), ci_low,
      ci_high (of auc, 95 %), p (of auc against 1/2; both clustered by stem, as the slopes are),
      q (the family is all rows of the table), n_positive, n_negative (tokens).
    """
    effects = []
    for cell, own in by_model_and_prompt(with_stems(points)):
        (good, good_stems), (bad, bad_stems) = (
            (side["reward"].to_numpy(), side["stem"].to_numpy())
            for side in (own.filter(valence=valence) for valence in SIDES)
        )
        numbers = (cohens_d(good, bad), *auc(good, bad, good_stems, bad_stems))
        numbers += (len(good), len(bad))
        effects.append({**cell, **dict(zip(_EFFECTS, numbers, strict=True))})
    return with_q(pl.DataFrame(effects, schema={**CELL, **_EFFECTS}))


def _lexicon(study: Study, name: str) -> tuple[pl.DataFrame, str]:
    """A lexicon and its source."""
    options = study.options
    path = {"afinn": options.afinn, "bing": options.bing}[name]
    if name == "bing" and not path:
        raise Absent("No Bing lexicon was named (options.bing).")
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    try:
        lexicon = lexicons.afinn(path) if name == "afinn" else lexicons.bing(path)
    except lexicons.LexiconError as error:
        raise Absent(f"No lexicon: {error}.") from error
    return lexicon, path or "AFINN-111"


def _matches(study: Study, name: str) -> pl.DataFrame:
    rule = study.options.match_trim
    return lexicon_matches(study.run, study.models, *_lexicon(study, name), rule)


def _points(study: Study, name: str) -> pl.DataFrame:
    lexicon, source = _lexicon(study, name)
    rule = study.options.match_trim
    own = lexicon_rewards(study.run, study.models, lexicon, rule)
    how = rules_in_words(study.run, rule)
    return required(own, f"No token matches a word of {source} ({how}).")


def in_order(points: pl.DataFrame, prompts: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each prompt that has any, in the order of `prompts`."""
    for prompt in prompts:
        own = points.filter(prompt=prompt)
        if own.height:
            yield prompt, own


def section(study: Study) -> Section:
    """Points, slopes, and the Bing lexicon where one is named."""
    made, names = study.tables, study.names
    prompts = list(study.run.vocabulary_prompts)
    blocks: list[Block] = []
    slopes, graded = made.get("sentiment_slopes"), made.get("sentiment_points")
    if slopes is not None and graded is not None:
        text = (
            "Each point is a token: its reward against its valence, under “{}”. Teal words are "
            "positive, brown ones are not; lines are least squares within each side."
        )
        blocks += [
            Picture(
                f"sentiment_points_{prompt}",
                text.format(prompt),
                partial(reward_by_valence.clouds, own, slopes.filter(prompt=prompt), names),
            )
            for prompt, own in in_order(graded, prompts)
        ]
        caption = (
            "A line rising to the right: better words score higher. A line falling to the left: "
            "worse words score lower. Lines start at zero, so they show slopes, not levels; bands "
            "are 95% intervals. Each model has its own unit of reward."
        )
        draw = partial(reward_by_valence.fans, slopes, names, prompts)
        blocks.append(Picture("sentiment_slopes", caption, draw))
        blocks += [*rows(slopes, SLOPE_COLUMNS, "sentiment_slopes.csv"), Text(FAMILY, "how")]
    effects, plain = made.get("bing_effects"), made.get("bing_points")
    if effects is not None and plain is not None:
        text = (
            "Rewards of the negative and the positive words of the Bing lexicon under “{}”; the "
            "bars are medians."
        )
        blocks += [
            Picture(
                f"bing_points_{prompt}",
                text.format(prompt),
                partial(reward_by_valence.swarms, own, names),
            )
            for prompt, own in in_order(plain, prompts)
        ]
        label = "share of pairs in which the positive word scores higher"
        caption = "Bing lexicon: 0.5 is chance, 1 puts every positive word above every negative."
        draw = partial(reward_by_valence.intervals, effects, names, label)
        blocks.append(Picture("bing_effects", caption, draw))
        blocks += [*rows(effects, _BING_COLUMNS, "bing_effects.csv"), Text(FAMILY, "how")]
    blocks += notes(made.reason(name) for name in ("sentiment_slopes", "bing_effects"))
    return Section(
        id="sentiment",
        title="Sentiment",
        label="Sentiment",
        lead="Does a model’s reward follow the valence of a word? For the tokens that are words of "
        "the AFINN lexicon, the reward is regressed on valence (−5 to 5), separately for positive "
        "words and all others.",
        blocks=[*blocks, *matches_block(made, "sentiment", "bing")],
        findings=[
            *slope_findings(slopes, names, prompts),
            *bing_findings(effects, names, prompts),
        ],
        caveats=(
            "Only words of one token are compared, in English. "
            + SPELLINGS[study.options.match_trim],
            "A slope is in the model’s own unit of reward: compare signs and prompts within a "
            "model, not sizes between models.",
        ),
    )


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
    "does. The table of matched tokens says which rule was used.",
    "always": "Spellings of a word with and without outer spaces both count as the word.",
    "never": "A token with a leading space matches no word, as in the paper.",
}
_SIDES = {"positive": "among positive words", "negative": "among all other words"}


def slope_findings(
    slopes: pl.DataFrame | None, names: Mapping[str, str], prompts: Sequence[str]
) -> Iterator[Finding]:
    """One sentence for each prompt under which a slope is sure.

    Args:
      slopes: `sentiment_slopes.csv`, or None.
      names: slug -> nickname.
      prompts: prompt ids, in the order of the sentences.
    """
    if slopes is None:
        return
    for prompt, part in in_order(significant(slopes), prompts):
        clauses = [
            f"{said} {where}"
            for side, where in _SIDES.items()
            if (said := _slopes_counted(slopes.filter(prompt=prompt, valence=side)))
        ]
        best = clearest(part, ("model", "valence"))
        text = (
            f"Under “{prompt}”, {'; '.join(clauses)} (q < .05 over {slopes.height} slopes). The "
            f"clearest slope{CHOSEN} is that of {names[best['model']]} {_SIDES[best['valence']]}: "
            f"{interval(best['slope'], best['ci_low'], best['ci_high'])} per unit of valence."
        )
        yield Finding(text=text, picture="sentiment_slopes")


def _slopes_counted(part: pl.DataFrame) -> str | None:
    above, below = "reward rises with valence", "reward falls with valence"
    return counted(part, "slope", above, below, "falls")


def bing_findings(
    effects: pl.DataFrame | None, names: Mapping[str, str], prompts: Sequence[str]
) -> Iterator[Finding]:
    """One sentence for each prompt under which the words of two valences surely differ.

    Args:
      effects: `bing_effects.csv`, or None.
      names: slug -> nickname.
      prompts: prompt ids, in the order of the sentences.
    """
    if effects is None:
        return
    for prompt, part in in_order(significant(effects), prompts):
        own = effects.filter(prompt=prompt)
        better = "positive words of the Bing lexicon score higher than negative ones"
        worse = "positive words of the Bing lexicon score lower than negative ones"
        best = clearest(part, ("model",))
        text = (
            f"Under “{prompt}”, {counted(own, 'auc', better, worse, 'lower', 0.5)} (q < .05 over "
            f"{effects.height} comparisons). The clearest{CHOSEN} is {names[best['model']]}: the "
            f"positive word scores higher in {100 * best['auc']:.0f} % of pairs (95% "
            f"{100 * best['ci_low']:.0f} to {100 * best['ci_high']:.0f})."
        )
        yield Finding(text=text, picture="bing_effects")


SLOPE_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("valence", "valence", "text"),
    ("slope", "slope", "number"),
    ("ci_low", "from", "number"),
    ("ci_high", "to", "number"),
    ("stderr", "standard error", "number"),
    *P_AND_Q,
    ("n", "n", "count"),
)
_BING_COLUMNS: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("auc", "pairs in order", "fixed"),
    *INTERVAL,
    ("cohens_d", "Cohen’s d", "fixed"),
    *P_AND_Q,
    ("n_positive", "n positive", "count"),
    ("n_negative", "n negative", "count"),
)
