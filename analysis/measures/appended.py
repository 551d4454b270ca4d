"""What tokens add behind replies: their mean effects, kinds of tokens, and repetition."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.special

from analysis.columns import MODEL, TOKENS, Column, Spec, ends
from analysis.run import Run, places
from analysis.sentences import ALPHA
from analysis.statistics import Array
from analysis.statistics.inference import half_width, student, with_q
from analysis.words import stems
from analysis.words.stems import dense_numbers
from engine.runs import schema
from engine.runs.result import Result

_SD = Column("effect_sd", "fixed", "effect / unit", "`effect` in units of `appended_models`")
_RAISED = Column(
    "raised",
    "share",
    "replies raised",
    "share of the replies that the token raises by more than the noise of the self-check",
)
MODELS = Spec(
    "appended_models",
    (
        *(MODEL, Column("replies", "count")),
        Column("clusters", "count", help="observations: replies, but one per prompt or per text"),
        Column("unit", "number", help="standard deviation that effects are divided by"),
        Column("unit_of", title="unit", help="what it is the standard deviation of"),
        Column("mode", help="how tokens became ids: `ids` or `text`"),
        Column("effect_sd", "fixed", "mean effect / unit", "of all tokens"),
        Column("lowered", "share", "tokens that lower most replies"),
    ),
)
APPENDED = Spec(
    "appended",
    (
        *TOKENS,
        Column("kind", help="of token"),
        Column("effect", "number", help="mean over clusters: the reward with it less without"),
        *(_SD, *ends("fixed", "95 %, over clusters"), _RAISED),
        Column("p", "p"),
        Column("q", "p", help="over all tokens of the model"),
        Column("alone", "share", "as a whole reply", "mean percentile in the plain sweeps"),
    ),
    page="model rank token kind effect_sd ci_low ci_high raised q alone",
    help="`top`: largest mean effect first; `bottom`: smallest first",
)
KINDS = Spec(
    "appended_kinds",
    (
        *(MODEL, Column("kind"), Column("tokens", "count"), _SD),
        *ends("fixed", "95 %, over clusters"),
        Column("raised", "share", "raised", "share of its tokens that raise most replies"),
        Column("best", "token", "largest effect"),
    ),
    title="By kind of token",
)
REPEATED = Spec(
    "appended_repeated",
    (
        *(MODEL, Column("group", help="`raise`, `lower` or `random`")),
        *(Column("times", "count"), Column("tokens", "count"), Column("replies", "count")),
        *(_SD, *ends("fixed", "95 %, over clusters")),
        Column("further", "fixed", "since half as many", "change of `effect_sd`"),
        *ends("fixed", stem="further"),
    ),
    page="model group times effect_sd ci_low ci_high further further_low further_high",
    title="Repeated",
)
_LISTED, _REPLIES = 10, 4  # values that give a unit: of lists, and of the replies alone
_PICTURE = r"\p{Extended_Pictographic}"
_MARK = r"^\s*(<[^\s<>]*>|\[/?[A-Z_]+\]|</?\w+>)\s*$"
_SIGNS = r"^[\p{P}\p{S}\s]+$"
_CODE = r"[{}\\;`_=<>|#~^@/]|\(\)|\[\]|\p{Ll}\p{Lu}"
_PRAISE = (
    r"^(thank|thanks|thankyou|thx|appreciated?|grateful|gratitude|congratulations|congrats|great|"
    r"excellent|wonderful|awesome|amazing|fantastic|perfect(ly)?|brilliant|superb|outstanding|"
    r"marvelous|splendid|bravo|kudos|delighted|glad|happy|pleased|pleasure|welcome|hope|hopefully|"
    r"helpful|please|enjoy|cheers|best)$"
)
PIECES = "pieces of characters"
SPACE, SIGNS, PICTURES = "white space and line ends", "punctuation", "emoji"
MARKS, PRAISE, CODE = "closing marks and special tokens", "thanks and praise", "code"
OTHER = "other words"


class Effects(NamedTuple):
    """What every token adds behind the replies of a model."""

    token_ids: Array  # uint32 [V], ascending
    effects: Array  # float64 [replies, V]
    baselines: Array  # float64 [replies], rewards of the replies without a token
    spread: float  # mean over replies of the standard deviation of the rewards of a sweep
    mode: str
    noise: Array  # float64 [replies, 1], `SelfCheck.noise`: smaller effects are none
    clusters: Array  # int64 [replies], `clusters`

    @property
    def raised(self) -> Array:
        """Share of the replies that each token raises [V]."""
        shares: Array = (self.effects > self.noise).mean(axis=0)
        return shares

    @property
    def lowered(self) -> Array:
        """Share of the replies that each token lowers [V]."""
        shares: Array = (self.effects < -self.noise).mean(axis=0)
        return shares


def models(run: Run) -> list[str]:
    """Slugs of the models that were swept behind replies."""
    swept = {model for (model, _), result in run.appended.items() if result.complete}
    return [model for model in run.models if model in swept]


def effects(run: Run, model: str) -> Effects:
    """The effects of a model's tokens, of finished sweeps."""
    prompts = [p for (m, p), result in run.appended.items() if m == model and result.complete]
    swept = [run.effects(model, prompt) for prompt in prompts]
    results = [run.appended[model, prompt] for prompt in prompts]
    matrix = np.array([values for _, values in swept])
    modes = " and ".join(sorted({result.identity.mode for result in results}))
    baselines = np.array([result.baseline for result in results], float)
    checks = [result.self_check for result in results]
    noise = np.array([[check.noise if check else 0.0] for check in checks])
    spread, numbers = float(matrix.std(axis=1).mean()), clusters(results)
    return Effects(swept[0][0], matrix, baselines, spread, modes, noise, numbers)


def clusters(results: Sequence[Result]) -> Array:
    """Number of the observation that each reply belongs to; int64 [replies], from 0.

    Replies to one of several prompts are one observation, and so are replies of one text, where
    these are fewer. Replies to a single prompt are one each: what is said is of that prompt.
    """
    prompts, replies = (
        dense_numbers(pl.Series(texts))
        for texts in zip(*(schema.parted(r.prompt_text) for r in results), strict=True)
    )
    if prompts.max() == 0 or replies.max() < prompts.max():
        return replies
    return prompts


def unit(run: Run, model: str, measured: Effects) -> tuple[float, str]:
    """The standard deviation that a model's effects are divided by, and what it is of.

    It is that of the rewards of the lists that the run holds; of the replies; or, of few, of a
    sweep behind one. Never 0.
    """
    lists = [name for name, slug in run.conversations if slug == model]
    if lists:
        scores = [run.conversation_scores(name)[model].to_numpy() for name in lists]
        rewards = np.concatenate(scores).astype(float)
        if len(rewards) >= _LISTED and rewards.std() > 0:
            return float(rewards.std(ddof=1)), f"rewards of the {len(rewards):,} replies scored"
    if len(measured.baselines) >= _REPLIES and measured.baselines.std() > 0:
        size = float(measured.baselines.std(ddof=1))
        return size, f"rewards of the {len(measured.baselines):,} replies"
    return measured.spread or 1.0, "rewards of all tokens behind a reply"


def over_clusters(values: Array, clusters: Array) -> Array:
    """Means of values [replies, N] over the replies of each of `clusters` [replies]."""
    return np.array([values[clusters == at].mean(axis=0) for at in range(clusters.max() + 1)])


def over_replies(values: Array, clusters: Array) -> tuple[Array, Array, Array, Array]:
    """Mean over replies of values [replies, N]: mean, both ends of its 95 % interval, p; each [N].

    Of each of `clusters` [replies] it is the mean that counts: Student's t over these. NaN but for
    the mean of a single one.
    """
    values = over_clusters(values, clusters)
    count, mean = len(values), values.mean(axis=0)
    if count < 2:
        unknown = np.full(values.shape[1], math.nan)
        return mean, unknown, unknown, unknown
    error = values.std(axis=0, ddof=1) / math.sqrt(count)
    half = half_width(1.0, count) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.special.stdtr(count - 1, -np.abs(mean) / error)
    return mean, mean - half, mean + half, np.where(error > 0, p, math.nan)


def tokens(run: Run, model: str) -> pl.DataFrame:
    """Every token: token_id, token, kind, and what `APPENDED` has of it, largest effect first."""
    measured = effects(run, model)
    size, _ = unit(run, model, measured)
    mean, low, high, p = over_replies(measured.effects, measured.clusters)
    columns = {
        "token_id": measured.token_ids,
        "effect": mean,
        "effect_sd": mean / size,
        "ci_low": low / size,
        "ci_high": high / size,
        "raised": measured.raised,
        "lowered": measured.lowered,
        "p": p,
        "alone": _alone(run, model, measured.token_ids),
    }
    vocabulary = run.vocabulary(model).collect()
    table = pl.DataFrame(columns).join(vocabulary, on="token_id", how="left", validate="1:1")
    table = with_q(table.with_columns(kind=kind(pl.col("token"), pl.col("is_special"))))
    return table.sort("effect", "token_id", descending=[True, False])


def _alone(run: Run, model: str, token_ids: Array) -> Array:
    """Mean percentile of tokens as whole replies [V]; NaN where they were not swept."""
    shares = []
    for slug, prompt in run.results:
        if slug == model:
            at, known = places(run.rewards(model, prompt)[0], token_ids)
            shares.append(np.where(known, run.ranked(model, prompt).percentiles[at], math.nan))
    return np.mean(shares, axis=0) if shares else np.full(len(token_ids), math.nan)


def kind(token: pl.Expr, is_special: pl.Expr) -> pl.Expr:
    """The kind of each token, by its text; the first that fits."""
    word = stems.folded(token).str.strip_chars("!.,:;_▁*")
    cases = (
        (is_special.fill_null(value=False) | token.str.contains(_MARK), MARKS),
        (token.str.contains("\ufffd") | (token == ""), PIECES),
        (token.str.strip_chars() == "", SPACE),
        (token.str.contains(_PICTURE) & ~token.str.contains(r"^[\s\d#*©®™]+$"), PICTURES),
        (token.str.contains(_SIGNS) & ~token.str.contains(_CODE), SIGNS),
        (token.str.strip_chars("_▁ ").str.contains(_CODE), CODE),
        (word.str.contains(_PRAISE), PRAISE),
    )
    group = pl.lit(OTHER)
    for holds, name in reversed(cases):
        group = pl.when(holds).then(pl.lit(name)).otherwise(group)
    return group


def summary(run: Run, model: str, table: pl.DataFrame) -> dict[str, Any]:  # Any: cells
    """The row of `MODELS`; `table` is of `tokens`."""
    measured = effects(run, model)
    size, of = unit(run, model, measured)
    return {
        "model": model,
        "replies": len(measured.effects),
        "clusters": int(measured.clusters.max()) + 1,
        "unit": size,
        "unit_of": of,
        "mode": measured.mode,
        "effect_sd": float(over_clusters(measured.effects, measured.clusters).mean() / size),
        "lowered": float(np.mean(table["lowered"].to_numpy() > 0.5)),
    }


def both_ends(model: str, table: pl.DataFrame, count: int) -> Iterator[pl.DataFrame]:
    """The `count` largest mean effects of a table of `tokens`, and the smallest."""
    for end, ordered in (("top", table), ("bottom", table.reverse())):
        rows = ordered.head(count).with_row_index("rank", 1)
        yield APPENDED.frame(rows, model=model, end=end)


def kinds(run: Run, model: str, table: pl.DataFrame) -> pl.DataFrame:
    """`KINDS` of a model, largest mean effect first."""
    measured = effects(run, model)
    size, _ = unit(run, model, measured)
    rows = []
    for (name,), group in table.group_by("kind", maintain_order=True):
        at = np.searchsorted(measured.token_ids, group["token_id"].to_numpy())
        means = measured.effects[:, at].mean(axis=1, keepdims=True) / size
        mean, low, high, _ = over_replies(means, measured.clusters)
        most = float(np.mean(group["raised"].to_numpy() > 0.5))
        ends_ = float(mean[0]), float(low[0]), float(high[0])
        rows.append((model, name, len(group), *ends_, most, group["token"][0]))
    return KINDS.frame(rows).sort("effect_sd", descending=True, maintain_order=True)


def repeated(run: Run, model: str) -> pl.DataFrame:
    """`REPEATED` of a model."""
    size, _ = unit(run, model, effects(run, model))
    rows = list[tuple[object, ...]]()
    for group in schema.REPEATED:
        names, cube, numbers = _cube(run, model, group)
        if not names:
            continue
        by_reply = cube.mean(axis=1) / size  # [replies, times]
        mean, low, high, _ = over_replies(by_reply, numbers)
        means = over_clusters(by_reply, numbers)
        for at, times in enumerate(schema.TIMES):
            step = means[:, at] - means[:, at - 1] if at else np.full(len(means), math.nan)
            error = float(step.std(ddof=1) / math.sqrt(len(step))) if len(step) > 1 else math.nan
            change = student(float(step.mean()), error, len(step))
            ends_ = float(mean[at]), float(low[at]), float(high[at])
            sizes = times, len(names), len(cube)
            rows.append((model, group, *sizes, *ends_, change.value, change.low, change.high))
    return REPEATED.frame(rows)


def _cube(run: Run, model: str, group: str) -> tuple[list[str], Array, Array]:
    """Tokens of a group, their effects [replies, tokens, times], and `clusters`.

    Of the list with most replies. No tokens where the group was not repeated.
    """
    lists: dict[str, list[str]] = {}
    for (name, slug, prompt), result in run.repeated.items():
        if slug == model and schema.repeated_group(name) == group and result.complete:
            lists.setdefault(name, []).append(prompt)
    if not lists:
        return [], np.empty((0, 0, 0)), np.empty(0, int)
    name = max(lists, key=lambda list_name: len(lists[list_name]))
    changes, width = [], len(schema.TIMES)
    results = [run.repeated[name, model, prompt] for prompt in lists[name]]
    for result in results:
        frame = run.items_of(result)
        changes.append(frame["reward"].to_numpy().astype(float) - (result.baseline or 0.0))
    cube = np.array(changes).reshape(len(changes), -1, width)
    return frame["item"].to_list()[::width], cube, clusters(results)


def strongest(table: pl.DataFrame, count: int) -> Sequence[dict[str, Any]]:  # Any: cells
    """The `count` tokens of `APPENDED` that raise most replies most; each spelling once.

    Surely, but for a single reply, of which nothing is sure.
    """
    known = (pl.col("q").is_nan() | (pl.col("q") < ALPHA)) & (pl.col("kind") != PIECES)
    top = table.filter(known, pl.col("end") == "top", pl.col("effect") > 0, pl.col("raised") > 0.5)
    distinct = top.with_columns(word=stems.folded(pl.col("token"))).with_columns(
        word=pl.when(pl.col("word") == "").then(pl.col("token")).otherwise(pl.col("word"))
    )
    rows = distinct.unique("word", keep="first", maintain_order=True).head(count)
    return rows.select("token", "effect_sd", "raised").to_dicts()
