"""What a policy trained on each reward would say, exactly, for replies whose probability is known.

No table of the paper: it suggests that reward models shape policies, and measures the rewards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Finding, Folded, Heading, Picture, Text, notes
from analysis.charts import look
from analysis.charts.lines import lines
from analysis.columns import MODEL, PROMPT, RANK, Column, Spec
from analysis.measures.reference_policy import (
    KLS,
    LIST,
    Replies,
    lists,
    vocabularies,
    without_reference,
)
from analysis.sentences import count, listed
from analysis.statistics import Array
from analysis.statistics.exact_policies import (
    best_of,
    best_of_bound,
    entropy,
    kl,
    optimal,
    strengths,
)
from analysis.statistics.ranks import dot, extremes
from analysis.study import Analysis, Study, Table, required, table
from analysis.words import lexicons
from analysis.words.matching import piece_mark
from analysis.words.questions import questions
from engine import display

OPTIMAL, BEST_OF_N = "optimal", "best of n"
DRAWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 262144, 1_000_000)
_ROUNDING = 1e-9  # A KL below it is that of the reference policy itself.
SHOWN_KL = 1.0  # Nats at which the page lists replies: as far as best of 6.

_PLACE = (Column("of", title="replies of", help="`vocabulary`, or `list` and its name"), PROMPT)
POLICIES = Spec(
    "policies",
    (
        *(*_PLACE, MODEL),
        Column("reference", "model", help="slug of the language model"),
        Column("covered", "number", "covered, %", "probability of all these replies; at most 1"),
        Column("method", title="policy", help="`optimal` or `best of n`"),
        Column("n", "count", help="draws"),
        Column("beta", "number", "β", "in units of the reward; 0: only the best replies"),
        Column(
            "kl",
            "fixed",
            "KL, nats",
            "nats, from the reference: optimal policies at fixed KLs up to 10, at each nat beyond, "
            "and at those of best of n",
        ),
        Column("bound", "fixed", help="of best of n, from above"),
        Column("reward", "number", "mean reward", "mean"),
        Column(
            "gain",
            "fixed",
            "gain, sd",
            "rise of the mean, in standard deviations under the reference",
        ),
        Column("entropy", "fixed", help="nats"),
        Column("replies", "number", help="its exponential"),
        Column("top_id", "count", dtype=pl.UInt32),
        Column("top", "token", "most probable"),
        Column("top_share", "share", "its share", "the most probable reply"),
    ),
    page="of prompt model covered method n beta kl bound reward gain entropy replies top top_share",
    title="Policies at a few KLs",
)
REPLIES = Spec(
    "policy_replies",
    (
        *(_PLACE[0].but(help=""), PROMPT, MODEL),
        Column("kl", "number", help="1 or 4 nats"),
        *(Column("end", help="`gains`, `loses`"), RANK),
        *(Column("reply_id", "count", dtype=pl.UInt32), Column("reply", "token")),
        Column("p", "number", "reference, %", "reference"),
        Column("policy", "number", "policy, %"),
        Column("change", "number", "change, points", "policy − p"),
    ),
    page="model end rank reply p policy change",
)
FEW = 3  # Prompts of a list up to which each has a chart of its own.
KL = "KL from the language model, nats"
_REPLIES = "replies with a reference policy"
_LISTED_KLS = (SHOWN_KL, 4.0)
_SHOWN_KLS = (0.5, 1.0, 2.0, 4.0)
_SHOWN_DRAWS = (1, 4, 16, 64, 256, 1024, 65536, 1_000_000)
_NAMED = 3  # Replies that a sentence names.
MANY = (
    f"Of a list under more than {FEW} prompts, charts and sentences are of the first wording "
    f"of up to {FEW} questions; the tables have every prompt."
)


def policies_of(replies: Replies) -> pl.DataFrame:
    """The optimal policy at each KL of `KLS`, and best-of-n for each n of `DRAWS`, by model.

    The optimal policies at the KLs of best-of-n are there too, so that a line through the optimal
    policies is nowhere below best-of-n, and those at each nat beyond `KLS`.

    Returns:
      Rows of `POLICIES`; the optimal policies of a model by KL. The last of them has
      β = 0: it says the replies of the highest reward alone, and no policy is further away.
    """
    rows = [row for at in range(len(replies.models)) for row in _rows_of(replies, at)]
    return pl.DataFrame(rows, schema=POLICIES.schema)


def _rows_of(replies: Replies, at: int) -> Iterator[dict[str, Any]]:
    reward, z = replies.rewards[at], replies.standardised[at]
    # The reward's standard deviation under the reference, in its own unit.
    unit = float(np.ptp(reward) / np.ptp(z))
    keys: dict[str, Any] = {"of": replies.of, "prompt": replies.prompt}
    keys |= {"model": replies.models[at]}
    keys |= {"reference": replies.reference, "covered": replies.covered}
    best = best_of(replies.log_p, reward, DRAWS)
    drawn = {n: _numbers(replies, at, policy) for n, policy in zip(DRAWS, best, strict=True)}
    for strength in _line(replies, at, [values["kl"] for values in drawn.values()]):
        values = {"method": OPTIMAL, "n": None, "beta": unit / strength, "bound": None}
        yield {**keys, **values, **_numbers(replies, at, optimal(replies.log_p, z, strength))}
    for n, numbers in drawn.items():
        values = {"method": BEST_OF_N, "n": n, "beta": None, "bound": best_of_bound(n)}
        yield {**keys, **values, **numbers}


def _line(replies: Replies, at: int, kls: Sequence[float]) -> list[float]:
    """1/β, ascending, at the KLs of `KLS`, each nat beyond, and `kls`; infinity is the last."""
    z = replies.standardised[at]
    beyond = np.arange(KLS[-1] + 1, kl(optimal(replies.log_p, z, math.inf), replies.log_p))
    between = np.unique([*(nats for nats in kls if nats > _ROUNDING), *beyond])
    all_strengths = np.append(replies.strengths[at], strengths(replies.log_p, z, between))
    return [*np.unique(all_strengths[np.isfinite(all_strengths)]).tolist(), math.inf]


def _numbers(replies: Replies, at: int, policy: Array) -> dict[str, Any]:
    pi, top, nats = np.exp(policy), int(policy.argmax()), entropy(policy)
    return {
        "kl": kl(policy, replies.log_p),
        "reward": dot(pi, replies.rewards[at]),
        "gain": dot(pi, replies.standardised[at]),
        "entropy": nats,
        "replies": float(np.exp(nats)),
        "top_id": int(replies.ids[top]),
        "top": replies.texts[top],
        "top_share": float(pi[top]),
    }


def movers(replies: Replies, kls: Sequence[float], count: int) -> pl.DataFrame:
    """The replies that gain and lose most probability, by model.

    Args:
      replies: the replies.
      kls: nats, some of `KLS`.
      count: replies at each end.

    Returns:
      Rows of `REPLIES`; ties go to the lower id.
    """
    p, rows = np.exp(replies.log_p), []
    cells = [(at, nats) for at in range(len(replies.models)) for nats in KLS if nats in kls]
    for at, nats in cells:
        pi = replies.policy(at, nats)
        if pi is None:
            continue
        keys = (replies.of, replies.prompt, replies.models[at], nats)
        for end, change in (("gains", pi - p), ("loses", p - pi)):
            chosen = extremes(change, count, highest=True)
            for rank, i in enumerate(chosen[change[chosen] > 0].tolist(), start=1):
                reply = (int(replies.ids[i]), replies.texts[i])
                rows.append((*keys, end, rank, *reply, p[i], pi[i], pi[i] - p[i]))
    return REPLIES.frame(rows)


def _tables(study: Study) -> Iterator[Table]:
    """Two files."""
    yield table(POLICIES.name, make=partial(_policies, study))
    yield table(REPLIES.name, make=partial(_movers, study))


def known_replies(study: Study) -> list[Replies]:
    """Vocabularies, then lists, that a language model and reward models both read; read once."""
    if _REPLIES not in study.shared:
        sources = (vocabularies(study.run, study.models), lists(study.run, study.models))
        study.shared[_REPLIES] = [replies for source in sources for replies in source]
    known: list[Replies] = study.shared[_REPLIES]
    return known


def reason(study: Study) -> str:
    """Why no exact policy can be computed, and what is needed."""
    if not study.run.logprobs and not study.run.item_logprobs:
        return "No language model’s log-probabilities are in the run: no reference policy."
    known = (
        "No reward model that tells replies apart was scored under a prompt of a language model "
        "with its tokens: a reference policy needs the same vocabulary and the same prompt."
    )
    return " ".join([known, *_left_out(study)])


def _left_out(study: Study) -> list[str]:
    """A sentence on the models that have no reference policy; none where all have one."""
    models = without_reference(study.run, study.models) if study.run.logprobs else []
    if not models:
        return []
    names = listed([study.names[model] for model in models])
    return [
        "No language model of the run has the same tokens under the same ids, so these are left "
        f"out over the vocabulary: {names}."
    ]


def _policies(study: Study) -> pl.DataFrame:
    return required(POLICIES.concat(map(policies_of, known_replies(study))), reason(study))


def _movers(study: Study) -> pl.DataFrame:
    frames = [movers(replies, _LISTED_KLS, study.settings.top) for replies in known_replies(study)]
    return required(REPLIES.concat(frames), reason(study))


def _drawn(study: Study) -> Iterator[Block]:
    all_policies = study.tables[POLICIES.name]
    yield from notes(_left_out(study))
    for of, prompt in drawn(study, all_policies):
        yield from _of_prompt(study, of, prompt)


def _of_prompt(study: Study, of: str, prompt: str) -> Iterator[Block]:
    rows = study.tables[POLICIES.name].filter(of=of, prompt=prompt)
    share = f"{100 * rows['covered'][0]:.3g} % of its probability"
    reference = f"reference policy: {rows['reference'][0]}, which gives these replies {share}"
    caption = (
        "Rise of the mean reward, in standard deviations under the language model, against the KL "
        "from it. Lines: the optimal policy, which nothing can be above; a line ends where the "
        "policy says the replies of the highest reward alone. Points: best of n, for n from 2 to a "
        "million."
    )
    yield Heading(place_of(study, of, prompt), reference)
    yield Picture(stem_of("policies", of, prompt), caption, partial(gains, rows, study))
    moved = study.tables.get(REPLIES.name)
    if moved is None:  # no policy is as far away
        return
    first = pl.col("rank") <= study.settings.figure_top
    shown = moved.filter(first, of=of, prompt=prompt, kl=SHOWN_KL)
    if inside := REPLIES.rows(_in_percent(shown, "p", "policy", "change"), unfolded=True):
        yield Folded(f"Replies that gain and lose most at a KL of {SHOWN_KL:g} nat", inside)


def gains(rows: pl.DataFrame, study: Study) -> look.Chart:
    """The optimal policies of each model as lines, best of n as points; of one prompt's rows."""
    optimal = from_zero(rows.filter(method=OPTIMAL), ("model",))
    best = rows.filter(pl.col("n") > 1, method=BEST_OF_N)  # n = 1 is where the lines start.
    titles = (KL, "gain of the mean reward, sd")
    return lines(optimal, study.names, titles, x="kl", y="gain", points=best, panel="")


def from_zero(curves: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The keys, kl and gain of curves by KL, each from the reference policy on."""
    columns = [*keys, "kl", "gain"]
    start = curves.select(keys).unique(maintain_order=True).with_columns(kl=0.0, gain=0.0)
    return pl.concat([start.select(columns), curves.select(columns).sort("kl")])


def drawn(study: Study, rows_of: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Replies and prompt of each chart: vocabularies, and lists under up to `FEW` prompts."""
    for of, prompts in prompts_by_replies(rows_of):
        many = len(prompts) > FEW and of.startswith(LIST)
        chosen = _first_wordings(study, prompts) if many else prompts
        yield from ((of, prompt) for prompt in chosen)


def prompts_by_replies(rows_of: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """Each set of replies of a table, and its prompts."""
    for (of,), rows in rows_of.group_by("of", maintain_order=True):
        yield str(of), rows["prompt"].unique(maintain_order=True).to_list()


def _first_wordings(study: Study, prompts: Sequence[str]) -> list[str]:
    """The first wordings of up to `FEW` questions; questions of each framing take turns."""
    texts = {prompt: study.run.prompts[prompt] for prompt in prompts}
    worded = questions(texts, study.options.questions)
    first = worded.unique("question", keep="first", maintain_order=True)
    turn = pl.int_range(pl.len()).over("framing")
    return first.sort(turn, maintain_order=True)["prompt"].head(FEW).to_list()


def stem_of(name: str, of: str, prompt: str) -> str:
    """File stem of a chart of replies under a prompt."""
    return "_".join((name, re.sub(r"[^\w.-]+", "_", of), prompt))


def place_of(study: Study, of: str, prompt: str) -> str:
    """Prompt and replies in words, such as "Asked “best”, over the list “words”"."""
    replies = f"list “{of.removeprefix(LIST)}”" if of.startswith(LIST) else of
    return f"Asked {study.prompt_names[prompt]}, over the {replies}"


def _few_kls(study: Study) -> Iterator[Block]:
    all_policies = study.tables[POLICIES.name]
    shown = all_policies.filter(
        (pl.col("method") == OPTIMAL) & pl.col("kl").round(6).is_in(_SHOWN_KLS)
        | (pl.col("method") == BEST_OF_N) & pl.col("n").is_in(_SHOWN_DRAWS)
    )
    yield from POLICIES.rows(_in_percent(shown, "covered"))
    how = (
        "covered is the part of the language model’s probability that these replies have "
        "together; policies share it out. entropy is in nats; replies is its exponential, the "
        "effective number of different replies. β has the unit of the reward. bound is "
        "log n − (n − 1)/n, which the KL of best of n cannot exceed. The file has every KL from "
        f"{KLS[0]:g} to {KLS[-1]:g} and each nat beyond, the KLs of best of n, and the limit "
        "β = 0, where only the replies of the highest reward are left."
    )
    yield Text(how, "how")


def _in_percent(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Shares in percent with three digits, however small they are."""
    return frame.with_columns((pl.col(name) * 100).round_sig_figs(3) for name in columns)


def findings(study: Study) -> Iterator[Finding]:
    """The replies that gain most in the models under each prompt of a chart."""
    moved = study.tables[REPLIES.name].filter(kl=SHOWN_KL, end="gains", rank=1)
    common = lexicons.common_words(study.options.frequency)
    for of, prompt in drawn(study, study.tables[POLICIES.name]):
        rows = moved.filter(of=of, prompt=prompt)
        first = rows.group_by("reply", maintain_order=True).agg("model").head(_NAMED)
        replies = []
        for reply, models in first.iter_rows():
            mark = "" if of.startswith(LIST) else piece_mark(reply, common)
            about = "; ".join([mark] * bool(mark) + [_who(study, models)])
            replies.append(f"“{display.plain(reply.strip() or reply)}” ({about})")
        more = rows["reply"].n_unique() - len(replies)
        others = [count(more, "other reply", "other replies")] if more else []
        if replies:
            yield Finding(
                text=f"{place_of(study, of, prompt)}: light training on a reward (a KL of "
                f"{SHOWN_KL:g} nat) would most increase the probability of "
                f"{listed([*replies, *others])}.",
                picture=stem_of("policies", of, prompt),
            )


def _who(study: Study, models: Sequence[str]) -> str:
    """The nicknames of `models`, or "all 5 models"."""
    if len(models) == len(study.names) > 2:
        return f"all {len(models)} models"
    return listed([study.names[model] for model in models])


ANALYSIS = Analysis(
    id="policies",
    title="What a trained policy would say",
    label="Trained policies",
    lead="A language model says how probable it is that a reply begins with each token, and a "
    "reward model gives the token a reward. So the optimum of training with a KL penalty, "
    "π ∝ p·exp(r/β), and the best of n samples are known exactly, without training and without "
    "sampling.",
    make=_tables,
    parts=(_drawn, _few_kls),
    told=(findings,),
    caveats=lambda study: (
        "A reply is one token, or one item of a list, and the language model’s probability is "
        "that of a reply that begins with it: longer replies may behave differently.",
        "Policies over a list say nothing but its items: they share out what the language model "
        "gives all items together, which may be a small part of its probability.",
        "Training may not reach this optimum, and a language model that was trained further "
        "starts from another reference.",
        MANY,
    ),
)
