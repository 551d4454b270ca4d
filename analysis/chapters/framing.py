"""The same token as an answer to a good and to a bad question."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Mark, Marks, Picture, Text
from analysis.charts.estimates import estimates
from analysis.columns import (
    KENDALL,
    MODEL,
    PEARSON,
    PROMPTS,
    SPEARMAN,
    Column,
    P,
    Spec,
    ends,
    q,
)
from analysis.measures.combined import TOO_FEW, prompts_of, scored_prompts
from analysis.measures.shared_tokens import stems_of
from analysis.run import Run
from analysis.sentences import count, decimals, listed, part_of, significant, span
from analysis.statistics import Array, correlation, ranks
from analysis.statistics.inference import clustered
from analysis.statistics.kendall import tau_matrix
from analysis.statistics.ranks import Ranking
from analysis.study import NO_VOCABULARY, Analysis, Study, Table, required, table
from analysis.words.questions import questions

_PAIR = (MODEL, *PROMPTS)
FRAMING = Spec(
    "framing",
    (
        *(*_PAIR, PEARSON, SPEARMAN, KENDALL),
        *(Column("n", "count", help="tokens"), Column("stems", "count")),
        *ends("fixed", "95 %, of pearson"),
        P.but(help="of pearson 0"),
        q("prompt_a", "prompt_b", title="q of r = 0"),
        Column(
            "reference",
            "fixed",
            "r of “greatest” and “best”",
            "pearson of `greatest` and `best`, two questions of one framing",
        ),
        Column("difference", "fixed", help="pearson − reference"),
        *ends("fixed", "95 %; none for fewer than 50 stems", stem="difference"),
        P.but(key="difference_p"),
        q("prompt_a", "prompt_b", of="difference_p", title="q of no difference"),
    ),
    page="model prompt_a prompt_b pearson ci_low ci_high q reference difference difference_low "
    "difference_high difference_q spearman kendall",
)
_ONE_FRAMING = frozenset({"greatest", "best"})  # Two questions of one framing: both ask for good.
_NAMED = 2  # Models that a headline names.
_WORDINGS = "framing_wordings"


def _tables(study: Study) -> Iterator[Table]:
    why = "No model was scored under two prompts." if study.run.results else NO_VOCABULARY
    make = partial(framing_table, study.run, study.scored)
    yield table(FRAMING.name, make=make, why=why)
    yield table(_WORDINGS, make=partial(_wordings, study), file=False)


def framing_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Every two prompts of a model against each other, over its whole vocabulary.

    The reference is r between "greatest" and "best", two questions of one framing: what r is where
    both prompts ask for something good. Pairs that hold one of the two are compared with it.
    Intervals keep forms of one word together.

    Returns:
      The table `FRAMING`, in the order of `models`, then of the run's prompts.
    """
    return compared(_scored_twice(run, models))


def compared(
    models: Iterable[tuple[str, Mapping[str, Array], Sequence[Ranking], Array]],
) -> pl.DataFrame:
    """The table `FRAMING` of given rewards.

    Args:
      models: of each its slug, prompt -> rewards [N], their rankings, and the number of the stem of
        each token [N].
    """
    return FRAMING.frame(row for model in models for row in _pairs(*model))


def _scored_twice(
    run: Run, models: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Array], Sequence[Ranking], Array]]:
    """What `compared` takes, of the models with two prompts or more that share tokens."""
    for model in models:
        scored = [p for p in run.vocabulary_prompts if (model, p) in run.results]
        if len(scored) > 1:
            token_ids, by_prompt = _rewards(run, model, scored)
            if len(token_ids):
                orders = [run.ranked(model, prompt, token_ids) for prompt in scored]
                yield model, by_prompt, orders, stems_of(run, model, token_ids)


def _pairs(
    model: str, rewards: Mapping[str, Array], orders: Sequence[Ranking], stems: Array
) -> Iterator[tuple[str | float, ...]]:
    """A row for every two prompts of one model."""
    prompts, values = list(rewards), list(rewards.values())
    pearson = ranks.pearson_matrix(values)
    spearman = ranks.pearson_matrix([order.average for order in orders])
    kendall = tau_matrix(orders)
    scaled = [correlation.standardised(x) for x in values]
    good = [i for i, prompt in enumerate(prompts) if prompt in _ONE_FRAMING]
    reference, same = math.nan, np.empty(0)
    if len(good) == 2:
        reference = float(pearson[good[0], good[1]])
        same = correlation.influence(*(scaled[i] for i in good))
    for i, j in itertools.combinations(range(len(prompts)), 2):
        r = float(pearson[i, j])
        points = correlation.influence(scaled[i], scaled[j])
        other = (math.nan,) * 5
        if len(good) == 2 and len({i, j} & set(good)) == 1:
            apart = r - reference
            interval = clustered(apart, points - same, stems, correlation.LEAST_FOR_A_DIFFERENCE, 2)
            other = (reference, *interval)
        yield (
            *(model, prompts[i], prompts[j], r, float(spearman[i, j]), float(kendall[i, j])),
            *(len(stems), int(stems.max()) + 1),
            *correlation.pearson_interval(r, points, stems)[1:],
            *other,
        )


def _wordings(study: Study) -> pl.DataFrame:
    """Mean τ of two wordings of one question (`wordings`), and of two questions of one framing.

    Two questions are compared in different wordings, as the wordings of one question are. Null
    where there are no such pairs.
    """
    asked = questions(study.run.prompts, study.options.questions)
    pairs = study.tables[FRAMING.name].select("model", "prompt_a", "prompt_b", "kendall")
    for side in "ab":
        side_questions = asked.rename({key: f"{key}_{side}" for key in asked.columns})
        pairs = pairs.join(side_questions, on=f"prompt_{side}", how="left", validate="m:1")
    same, framed, worded = (
        pl.col(f"{key}_a") == pl.col(f"{key}_b") for key in ("question", "framing", "wording")
    )
    tau = pl.col("kendall").fill_nan(None)
    other = framed & (pl.col("framing_a") != "") & ~same & ~worded
    return pairs.select(wordings=tau.filter(same).mean(), other=tau.filter(other).mean())


def _rewards(run: Run, model: str, prompts: Sequence[str]) -> tuple[Array, dict[str, Array]]:
    """Ids of the tokens that were scored under all prompts, ascending, and prompt -> rewards."""
    by_prompt = {prompt: run.rewards(model, prompt) for prompt in prompts}
    first = next(iter(by_prompt.values()))[0]
    if all(np.array_equal(token_ids, first) for token_ids, _ in by_prompt.values()):
        return first, {p: x.astype(float) for p, (_, x) in by_prompt.items()}
    common = functools.reduce(np.intersect1d, (token_ids for token_ids, _ in by_prompt.values()))
    rewards = {
        p: x[np.searchsorted(ids, common)].astype(float) for p, (ids, x) in by_prompt.items()
    }
    return common, rewards


def _drawn(study: Study) -> Iterator[Block]:
    yield from FRAMING.rows(study.tables[FRAMING.name])
    prompts = scored_prompts(study)
    required(study.tables[FRAMING.name].filter(between(prompts)), TOO_FEW.format(*prompts))
    good, bad = (study.prompt_names[prompt] for prompt in prompts)
    label = f"Pearson’s r of rewards under {good} and {bad}"
    order = _of_prompts(study).sort("pearson", descending=True)
    draw = partial(estimates, order, study.names, label, value="pearson")
    caption = "1: rated alike under both prompts, −1: the opposite. Lines are 95% intervals."
    yield Picture("framing", caption, draw)


def between(prompts: tuple[str, str]) -> pl.Expr:
    """Whether a row of `FRAMING` is of two prompts."""
    return pl.col("prompt_a").is_in(prompts) & pl.col("prompt_b").is_in(prompts)


def _of_prompts(study: Study) -> pl.DataFrame:
    """The rows of `FRAMING` of the two opposite prompts, of which r is defined."""
    rows = study.tables[FRAMING.name].filter(between(prompts_of(study)))
    return rows.filter(pl.col("pearson").is_not_nan())


def _reworded(study: Study) -> Iterator[Block]:
    """One line where a question was asked in several wordings."""
    wordings, other = study.tables[_WORDINGS].row(0)
    if wordings is not None:
        beside = ""
        if other is not None:
            beside = f", and {decimals(other)} between two questions of one framing"
        yield Text(
            f"Kendall’s τ is on average {decimals(wordings)} between two wordings of one question"
            f"{beside}."
        )


def _told(study: Study) -> Iterator[Finding]:
    table, prompts = study.tables[FRAMING.name], prompts_of(study)
    yield from findings(table, prompts, study.names, study.prompt_names)


def _marks(study: Study) -> Marks:
    """The correlation r of both prompts, of every model."""
    prompts = prompts_of(study)
    numbers = _of_prompts(study).select("model", "pearson", "ci_low", "ci_high").iter_rows()
    good, bad = (study.prompt_names[prompt] for prompt in prompts)
    axis = f"Pearson’s r of rewards under {good} and {bad}; 1: alike, −1: opposite"
    return Marks.some([Mark(study.names[slug], *ends) for slug, *ends in numbers], axis)


def findings(
    table: pl.DataFrame,
    prompts: tuple[str, str],
    names: Mapping[str, str],
    prompt_names: Mapping[str, str],
) -> Iterator[Finding]:
    """Which models turn their ranking around, and where r is below its reference.

    Args:
      table: the table `FRAMING`.
      prompts: ids of the good and the bad prompt.
      names: slug -> nickname.
      prompt_names: prompt id -> how the page calls it.
    """
    rows = table.filter(between(prompts) & pl.col("pearson").is_not_nan())
    good, bad = (prompt_names.get(prompt, f"“{prompt}”") for prompt in prompts)
    certain = significant(rows)
    if certain.height:
        sides = (certain.filter(pl.col("pearson") < 0), certain.filter(pl.col("pearson") > 0))
        turned, kept = ([names[m] for m in part["model"]] for part in sides)
        text = _headline(turned, kept, rows.height, good, bad)
        yield Finding(text=text, picture="framing")
    lower = significant(rows, "difference_q").filter(pl.col("difference") < 0)
    if lower.height:
        gaps = span(-lower["difference"].to_numpy(), 3)
        models = part_of(lower.height, rows.height, "model")
        text = (
            f"In {models}, Pearson’s r between {good} and {bad} is lower than between “greatest” "
            f"and “best”, two questions of one framing, by {gaps} (q < .05)."
        )
        yield Finding(text=text, picture="framing")


def _headline(turned: Sequence[str], kept: Sequence[str], of: int, good: str, bad: str) -> str:
    """Which models follow the question and which ignore it, by nickname where they are few."""
    clauses, what = [], "tokens"
    for models, how in ((turned, "in the opposite order"), (kept, "in the same order")):
        if models:
            who = part_of(len(models), of, "model") if len(models) > _NAMED else listed(models)
            clauses.append(f"{who} tend{'s' * (len(models) == 1)} to rate {what} {how}")
            what = "them"
    if unsure := of - len(turned) - len(kept):
        clauses.append(f"nothing is sure of {count(unsure, 'other model')}")
    return f"Asked {bad} instead of {good}, {'; '.join(clauses)}."


ANALYSIS = Analysis(
    id="framing",
    title="Framing",
    lead="How alike one model rates tokens under two prompts. Where the second prompt asks for "
    "the opposite, a model that follows the question has Pearson’s r below 0. The reference, "
    "where both were scored, is r between “greatest” and “best”: two questions of one framing, "
    "which both ask for something good.",
    make=_tables,
    parts=(_drawn, _reworded),
    told=(_told,),
    marks=_marks,
    caveats=lambda study: (
        "Intervals keep forms of one word together (“love” and “␣Loved”); q is over the models "
        "of a pair of prompts.",
    ),
)
