"""The findings in plain words, computed from the tables."""

import dataclasses
import math
from collections.abc import Mapping

import polars as pl

from analysis import agreement
from analysis.tables import Tables

_EXTREMES = 3  # Groups of people named an end.
_STRENGTH = (
    (0.8, "almost completely"),
    (0.6, "strongly"),
    (0.4, "moderately"),
    (0.2, "weakly"),
    (0.05, "slightly"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """What one prompt showed.

    Attributes:
      prompt: its id.
      text: what was asked.
      loved: tokens that the models together rank highest, best first.
      hated: tokens that they rank lowest, worst first.
      disputed: tokens on which they differ most; empty for one model.
      agreement: a sentence on how far they agree.
      odds: what that says of two tokens; empty where nothing can be compared.
      slights: a sentence on which groups of people stand lowest and highest; empty where none was
        found.
    """

    prompt: str
    text: str
    loved: list[str]
    hated: list[str]
    disputed: list[str]
    agreement: str
    odds: str
    slights: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class People:
    """How the models stand against people on one list of items.

    Attributes:
      items: name of the list.
      text: what was asked.
      agreement: a sentence on how far they agree.
      lower: items that the models rank furthest below the people, furthest first.
      higher: items that they rank furthest above.
    """

    items: str
    text: str
    agreement: str
    lower: list[str]
    higher: list[str]


def findings(
    tables: Tables, prompts: Mapping[str, str], names: Mapping[str, str], count: int
) -> list[Findings]:
    """Findings of each prompt, `count` tokens a list; `names` maps slug -> nickname."""
    found = []
    for prompt, text in prompts.items():
        table = tables.consensus.get(prompt)
        loved, hated, disputed = ([], [], []) if table is None else _lists(table, count)
        models = tables.rewards[prompt].width - 1
        found.append(
            Findings(
                prompt=prompt,
                text=text,
                loved=loved,
                hated=hated,
                disputed=disputed if models > 1 else [],
                agreement=_agreement(tables, prompt, models, names),
                odds=_odds(tables.kendall.get(prompt)),
                slights=_slights(tables, prompt),
            )
        )
    return found


def people(
    tables: Tables, names: Mapping[str, str], prompts: Mapping[str, str], count: int
) -> list[People]:
    """What each list that people ranked too has shown, `count` items an end."""
    found = []
    for items, prompt in tables.humans_ranks:
        rho = tables.humans_correlation.filter(pl.col("spearman").is_finite(), list=items)
        rho = rho.filter(prompt=prompt).sort("spearman", "model")
        gap = tables.humans_gap.filter(list=items, prompt=prompt)
        gap = gap.sort("gap", "item", descending=[True, False])
        lower, higher = gap.filter(pl.col("gap") > 0), gap.filter(pl.col("gap") < 0)
        found.append(
            People(
                items=items,
                text=prompts[prompt],
                agreement=_with_people(rho, names),
                lower=lower["item"].head(count).to_list(),
                higher=higher["item"].reverse().head(count).to_list(),
            )
        )
    return found


def _with_people(rho: pl.DataFrame, names: Mapping[str, str]) -> str:
    if rho.height == 0:
        return "No model has an order to compare with that of people."
    first, last = rho.row(-1, named=True), rho.row(0, named=True)
    if rho.height == 1:
        return f"Spearman’s ρ with people is {_signed(first['spearman'])}."
    return (
        f"Spearman’s ρ with people runs from {_signed(last['spearman'])} ({names[last['model']]}) "
        f"to {_signed(first['spearman'])} ({names[first['model']]})."
    )


def _slights(tables: Tables, prompt: str) -> str:
    """Which groups stand lowest and highest over the models; how many surely beside neutral."""
    part = tables.identity_q.filter(prompt=prompt)
    if part.height == 0:
        return ""
    # One word is no group: where others have more, it is passed over.
    several = part.filter(pl.col("ci_low").is_not_nan())
    told = several if several.height else part
    means = told.group_by("group").agg(pl.col("mean_percentile").mean()).drop_nulls()
    means = means.sort("mean_percentile", "group")
    each = [f"{group} ({100 * mean:.0f})" for group, mean in means.iter_rows()]
    if len(each) < 2 * _EXTREMES:
        ends = f"By their mean percentile the words for groups of people stand: {_listed(each)}"
    else:
        ends = (
            f"Of the groups of people, the words for {_listed(each[:_EXTREMES])} stand lowest, by "
            f"their mean percentile, and those for {_listed(each[: -_EXTREMES - 1 : -1])} highest"
        )
    sure = part.filter(pl.col("q") < 0.05)
    below = sure.filter(pl.col("difference") < 0).height
    return (
        f"{ends}. Of {part.height} means of a group in a model, {below} lie below neutral words "
        f"like them and {sure.height - below} above, further than by chance (q < .05)."
    )


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def skews(moments: pl.DataFrame) -> str:
    """One sentence on which way the scores lean, over every model and prompt."""
    skewness = moments["skewness"].drop_nans()
    right, left = int((skewness > 0.5).sum()), int((skewness < -0.5).sum())
    total = len(skewness)
    if total == 0:
        return "Every score is the same, so no distribution has a shape."
    if 2 * max(right, left) < total:
        return f"Of {total} distributions, {right} lean right (skewness above 0.5) and {left} left."
    if right >= left:
        return (
            f"{_of(right, total)} right (skewness above 0.5): most tokens crowd near the "
            "bottom and a few stand far above them."
        )
    return (
        f"{_of(left, total)} left (skewness below −0.5): most tokens crowd near the top "
        "and a few fall far below them."
    )


def _of(part: int, whole: int) -> str:
    if whole == 1:
        return "The one distribution leans"
    return f"{part} of {whole} distributions {'leans' if part == 1 else 'lean'}"


def _lists(table: pl.DataFrame, count: int) -> tuple[list[str], list[str], list[str]]:
    lowest = table.sort("percentile", "token")
    apart = table.sort("spread", "token", descending=[True, False])
    return _words(table, count), _words(lowest, count), _words(apart, count)


def _words(table: pl.DataFrame, count: int) -> list[str]:
    """First `count` tokens of `table`, one of each that differ only by case and outer space."""
    # Spellings of one word crowd the ends; a long head holds enough different ones.
    head = table.head(100 * count).with_columns(
        folded=pl.col("token").str.strip_chars().str.to_lowercase()
    )
    return head.unique("folded", keep="first", maintain_order=True)["token"].head(count).to_list()


def _agreement(tables: Tables, prompt: str, models: int, names: Mapping[str, str]) -> str:
    if models == 1:
        return "One model only: there is nothing to agree with."
    if prompt not in tables.kendall:
        return "The models share no tokens, so their orders cannot be compared."
    pairs = agreement.pairs(tables.kendall[prompt])
    if pairs.height == 0:
        return "A model that scores every token alike has no order to compare."
    mean = math.fsum(pairs["value"]) / pairs.height
    first, last = pairs.row(0, named=True), pairs.row(-1, named=True)
    said = f"The models {_strength(mean)}: Kendall’s τ is {_signed(mean)}"
    if pairs.height > 1:
        said += (
            f" on average over {pairs.height} pairs, from {_signed(last['value'])} "
            f"({names[last['a']]} and {names[last['b']]}) to {_signed(first['value'])} "
            f"({names[first['a']]} and {names[first['b']]})"
        )
    return f"{said}."


def _strength(tau: float) -> str:
    words = next((word for least, word in _STRENGTH if abs(tau) >= least), None)
    if words is None:
        return "agree no more than chance would have it"
    return f"{'disagree' if tau < 0 else 'agree'} {words}"


def _odds(kendall: pl.DataFrame | None) -> str:
    values = [] if kendall is None else agreement.pairs(kendall)["value"].to_list()
    if not values:
        return ""
    share = round(50 * (1 + sum(values) / len(values)))
    return (
        f"Of two tokens drawn at random, two models put the same one first about {share} times "
        "in a hundred; chance alone gives 50."
    )


def _signed(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.2f}".replace("-", "−")
