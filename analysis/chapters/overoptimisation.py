"""Optimise one model's reward exactly and read another's: where more optimisation does harm.

After *Scaling Laws for Reward Model Overoptimization* (Gao et al. 2022, arXiv 2210.10760). The gold
reward is here any other model of the run, and the curves are exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl
from scipy.optimize import isotonic_regression

from analysis.blocks import Block, Finding, Heading, Picture
from analysis.chapters import policies
from analysis.charts import look
from analysis.charts.lines import MOST, lines
from analysis.columns import PROMPT, Column, P, Spec, q
from analysis.measures.reference_policy import KLS, LIST, Replies
from analysis.sentences import ALPHA, count, part_of
from analysis.statistics import Array
from analysis.statistics.ranks import dot
from analysis.study import Absent, Analysis, Study, Table, table
from analysis.words.stems import stem_numbers

_PAIR = ("of", "prompt", "optimised", "read")
_KEYS = (
    *(Column("of", title="replies of"), PROMPT, Column("optimised", "model")),
    Column("read", "model", help="slugs"),
)
CURVES = Spec(
    "overoptimisation",
    (
        *_KEYS,
        Column("kl", "number"),
        Column(
            "gain", "fixed", help="of the read reward, in standard deviations under the reference"
        ),
        Column("own_gain", "fixed", help="of the optimised one"),
    ),
)
PAIRS = Spec(
    "overoptimisation_pairs",
    (
        *(*_KEYS[:3], Column("read", "model")),
        Column("correlation", "fixed", help="Pearson's, weighted by the reference"),
        Column("peak_kl", "number", "peak at KL"),
        Column("peak_gain", "fixed", "gain there, sd"),
        Column("last_kl", "number", "last KL"),
        Column("last_gain", "fixed", "gain there, sd"),
        Column("loss", "fixed", help="peak − last"),
        P.but(
            help="of falls as clear, at any KL, where the read reward rises with the optimised one "
            "but for errors of either sign by word; NaN up to a correlation of .5"
        ),
        q(),
        Column(
            "course",
            title="the read reward",
            help="`rises`, `turns down`, or `falls` from the start; by 0.1 or more",
        ),
    ),
    page="of prompt optimised read correlation peak_kl peak_gain last_kl last_gain loss q course",
    title="Every pair: optimise the first, read the second",
)
# A curve that ends this far below its peak turns down if it had risen as far, and else falls.
RISES, TURNS, FALLS = "rises", "turns down", "falls"
LEAST_LOSS = 0.1  # standard deviations of the read reward under the reference policy
_SIGNS = 499  # draws of a test
_AGREE = 0.5  # Correlation of two rewards above which one may stand for the other.
_TWO_MODELS = (
    "Over-optimisation takes two reward models with the tokens and the prompt of one language "
    "model."
)


def curves_of(replies: Replies) -> pl.DataFrame:
    """Gain of every model's reward under the optimal policies of every model.

    Returns:
      Rows of `CURVES`.
    """
    frames = []
    for at, optimised in enumerate(replies.models):
        kls, optima = replies.policies(at)
        gains = np.array([[dot(pi, z) for z in replies.standardised] for pi in optima])
        gains = gains.reshape(-1, len(replies.models))
        for model_index, read in enumerate(replies.models):
            names = dict(zip(_PAIR, (replies.of, replies.prompt, optimised, read), strict=True))
            numbers = {"kl": kls, "gain": gains[:, model_index], "own_gain": gains[:, at]}
            frames.append(CURVES.frame(pl.DataFrame(numbers), **names))
    return pl.concat(frames)


def pairs_of(replies: Replies, curves: pl.DataFrame) -> pl.DataFrame:
    """Where each curve of two different models peaks, and how far below it ends.

    Args:
      replies: what `curves` was made from.
      curves: what `curves_of` returned.

    Returns:
      Rows of `PAIRS` without p and q; the greatest loss first. A peak at KL 0 is the reference
      policy itself.
    """
    z = replies.standardised
    correlation = (z * np.exp(replies.log_p)) @ z.T
    places = {model: at for at, model in enumerate(replies.models)}
    rows = []
    for key, curve in curves.group_by(list(_PAIR), maintain_order=True):
        names = dict(zip(_PAIR, map(str, key), strict=True))
        if names["optimised"] == names["read"]:
            continue
        # The reference policy itself is where every curve starts.
        kls = np.append(0.0, curve["kl"].to_numpy())
        gains = np.append(0.0, curve["gain"].to_numpy())
        peak = int(gains.argmax())
        loss = float(gains[peak] - gains[-1])
        r = correlation[places[names["optimised"]], places[names["read"]]]
        ends = (kls[peak], gains[peak], kls[-1], gains[-1], loss)
        turned = TURNS if gains[peak] >= LEAST_LOSS else FALLS
        rows.append((*names.values(), r, *ends, RISES if loss < LEAST_LOSS else turned))
    known = {key: kind for key, kind in PAIRS.schema.items() if key not in ("p", "q")}
    return pl.DataFrame(rows, schema=known, orient="row").sort(
        "loss", "optimised", "read", descending=[True, False, False]
    )


def with_p(replies: Replies, pairs: pl.DataFrame, least: float, seed: int) -> pl.DataFrame:
    """`pairs` with a column p: of falls as clear where nothing but chance turns.

    Null hypothesis: the read reward never falls where the optimised one rises (its isotonic
    regression), plus errors that are as likely of either sign, one draw for all spellings of a
    word. At a large KL a policy says few replies, so such rewards turn down often, too. The
    statistic is the largest fall from an earlier peak, at any KL, in standard deviations of that
    fall over the draws. p is NaN for pairs whose correlation is at most `least`.

    Args:
      replies: what `pairs` was made from.
      pairs: what `pairs_of` returned.
      least: correlation above which a pair is tested.
      seed: of the draws.
    """
    stem = stem_numbers(replies.texts)
    rng = np.random.default_rng(seed)
    signs = rng.integers(0, 2, (int(stem.max()) + 1, _SIGNS), dtype=np.int8)
    signs = 2 * signs.astype(np.float64) - 1
    places = {model: at for at, model in enumerate(replies.models)}
    tested = pairs.filter(pl.col("correlation") > least).select("optimised", "read")
    p_values = {}
    for (optimised,), alike in tested.group_by("optimised"):
        at = places[str(optimised)]
        said = np.concatenate([[np.exp(replies.log_p)], replies.policies(at)[1]])
        order = np.argsort(replies.standardised[at], kind="stable")
        for read in alike["read"]:
            z = replies.standardised[places[read]]
            p_values[optimised, read] = _p_of_falls(said, z, order, stem, signs)
    each = pairs.select("optimised", "read").iter_rows()
    return pairs.with_columns(
        p=pl.Series([p_values.get(pair, math.nan) for pair in each], dtype=pl.Float64)
    )


def _p_of_falls(said: Array, read: Array, order: Array, stem: Array, signs: Array) -> float:
    """P of the falls of one reward where another one is optimised.

    Args:
      said: probabilities of the reference policy, and of optimal policies by KL [K, N].
      read: the reward that is read, standardised [N].
      order: places of the replies by the optimised reward, the lowest first [N].
      stem: number of the word of each reply [N].
      signs: -1 or 1 by word and draw [S, D].
    """
    rising = np.empty_like(read)
    rising[order] = isotonic_regression(read[order]).x
    errors = read - rising
    by_word = np.array([np.bincount(stem, pi * errors, minlength=len(signs)) for pi in said])
    known = np.array([dot(pi, rising) for pi in said])[:, None]
    by_chance = _falls(known + by_word @ signs)
    fall = _falls(known + by_word.sum(axis=1, keepdims=True))
    spread = by_chance.std(axis=1, keepdims=True)
    at = spread[:, 0] > 0  # not at the first KL, from which nothing can have fallen
    if not at.any():
        return math.nan
    middle = by_chance[at].mean(axis=1, keepdims=True)
    drawn, here = (((x[at] - middle) / spread[at]).max(axis=0) for x in (by_chance, fall))
    equal = 1e-9  # Draws that are equal but for rounding count as equal.
    return float((1 + np.count_nonzero(drawn >= here - equal)) / (1 + signs.shape[1]))


def _falls(gains: Array) -> Array:
    """How far each gain [K, D] is below the highest one at a smaller KL."""
    return np.asarray(np.maximum.accumulate(gains, axis=0) - gains)


def _tables(study: Study) -> Iterator[Table]:
    """Two files."""
    crossed = functools.cache(partial(_crossed, study))
    yield table(CURVES.name, make=lambda: pl.concat(curves for curves, _ in crossed()))
    yield table(PAIRS.name, make=lambda: PAIRS.frame(pl.concat(pairs for _, pairs in crossed())))


def _crossed(study: Study) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """What `curves_of` and `with_p` return of each set of replies."""
    known = policies.known_replies(study)
    several = [replies for replies in known if len(replies.models) > 1]
    if not several:
        raise Absent(_TWO_MODELS if known else policies.reason(study))
    curves = [curves_of(replies) for replies in several]
    seed = study.options.seed
    return [
        (curve, with_p(r, pairs_of(r, curve), _AGREE, seed))
        for r, curve in zip(several, curves, strict=True)
    ]


def _drawn(study: Study) -> Iterator[Block]:
    curves = study.tables[CURVES.name]
    caption = (
        "Each panel: the model whose reward is optimised. Lines: the rise of the rewards of all "
        "models, in standard deviations under the language model, against the KL from it. The "
        "thick line is the optimised reward itself, which cannot fall. Where a line turns down, "
        "more of the one reward costs the other; q in the table of pairs says whether by more "
        f"than chance. Lines end at {KLS[-1]:g} nats, or where no policy is further away. At most "
        f"{MOST} models are drawn."
    )
    for of, prompt in policies.drawn(study, curves):
        shown = curves.filter(of=of, prompt=prompt)
        yield Heading(policies.place_of(study, of, prompt))
        yield Picture(
            policies.stem_of(CURVES.name, of, prompt), caption, partial(crossed, shown, study)
        )
    yield from PAIRS.rows(study.tables[PAIRS.name])


def crossed(curves: pl.DataFrame, study: Study) -> look.Chart:
    """One panel for each optimised model: the gains of all models, at every other KL."""
    few = [model for model in study.names if model in curves["optimised"]][:MOST]
    last = pl.col("kl") == pl.col("kl").max().over("optimised")
    some = curves.filter(last | pl.col("kl").is_in(KLS[::2]), pl.col("read").is_in(few))
    each = [
        policies.from_zero(some.filter(optimised=model), ("optimised", "read")) for model in few
    ]
    shown = pl.concat(each).select(
        "kl",
        "gain",
        model="read",
        trained=pl.col("optimised").replace(look.unique(study.names)),
        itself=pl.col("read") == pl.col("optimised"),
    )
    titles = (policies.KL, "gain, sd")
    return lines(shown, study.names, titles, x="kl", y="gain", panel="trained", thick="itself")


def findings(study: Study) -> Iterator[Finding]:
    """Among models that agree at first, how often optimisation turns down; none where it does not.

    Rewards that have nothing to do with each other rise and fall by chance, so only pairs whose
    correlation is above `_AGREE` count; of those, pairs that turn down by more than rewards that
    only rise together do by chance. A list under more than `FEW` prompts is counted once.
    """
    pairs = study.tables[PAIRS.name]
    for of, prompts in policies.prompts_by_replies(pairs):
        counted_once = of.startswith(LIST) and len(prompts) > policies.FEW
        for prompt_ids in [prompts] if counted_once else [[prompt] for prompt in prompts]:
            alike = pairs.filter(pl.col("correlation") > _AGREE, of=of)
            alike = alike.filter(pl.col("prompt").is_in(prompt_ids))
            turned = alike.filter(pl.col("q") < ALPHA, course=TURNS)
            if not turned.height:
                continue
            place = policies.place_of(study, of, prompt_ids[0])
            if counted_once:
                place = f"Over the {of.replace(' ', ' “', 1)}”, under {len(prompt_ids)} prompts"
            worst = turned.sort("loss", descending=True, maintain_order=True)["prompt"][0]
            shown = (of, worst) in policies.drawn(study, alike)
            yield Finding(
                text=f"{place}, training on one model’s reward can cost another’s: in "
                f"{part_of(turned.height, alike.height, 'pair')} of models that agree at first, "
                "the other reward rises, and falls again with more training.",
                picture=policies.stem_of(CURVES.name, of, worst) if shown else "",
            )


def _described(study: Study) -> str:
    """That no reward turned down by more than chance among models that agree at first."""
    alike = study.tables[PAIRS.name].filter(pl.col("correlation") > _AGREE)
    if not alike.height:
        return "No two models agree at first, so training on one’s reward cannot cost the other."
    return (
        "Training on one model’s reward makes the other’s rise and then fall in "
        f"{alike.filter(course=TURNS).height} of {count(alike.height, 'pair')} of models that "
        "agree at first; in none by more than chance (q < .05)."
    )


ANALYSIS = Analysis(
    id="overoptimisation",
    title="Over-optimisation",
    lead="A policy is trained on one model’s reward; another model reads what it says. Both are "
    "known for every reply, so the curve is exact: it shows how far the second reward rises, and "
    "where more training begins to cost.",
    make=_tables,
    parts=(_drawn,),
    told=(findings,),
    described=_described,
    caveats=lambda study: (
        f"Models agree at first where their rewards correlate above {_AGREE:g} under the language "
        "model; a pair counts once for each model trained on, prompt and set of replies. A reward "
        f"falls again where it ends {LEAST_LOSS:g} standard deviations or more below its peak, by "
        "more than chance does where two rewards only rise together.",
        "The read model is no more right than the optimised one: a loss says that the two "
        "disagree about what the policy has moved to.",
        policies.MANY,
    ),
)
