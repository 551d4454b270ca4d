"""The same token as an answer to a good and to a bad question: correlations, sums, differences."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    INTERVAL,
    KENDALL,
    MODEL,
    PEARSON,
    SPEARMAN,
    TOKENS,
    Block,
    Column,
    Heading,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.chapters.framing_sentences import findings
from analysis.chapters.tokens import stems_of
from analysis.ends import TOKEN_ENDS, token_ends
from analysis.figures import style, token_bars
from analysis.measures.combined import COMBINED, Combined, combined
from analysis.run import Run
from analysis.statistics import Array, correlation, ranks
from analysis.statistics.correlation import principal_axes
from analysis.statistics.inference import with_q
from analysis.statistics.kendall import ranking, tau_matrix
from analysis.study import NO_VOCABULARY, Absent, Study, Table, required, table
from engine.runs.schema import Columns

_PAIR: Columns = dict.fromkeys(("model", "prompt_a", "prompt_b"), pl.String)
_INTERVAL = ("ci_low", "ci_high", "p")
_DIFFERENCE = ("difference", "difference_low", "difference_high", "difference_p")
_NUMBERS: Columns = {
    **dict.fromkeys(("pearson", "spearman", "kendall"), pl.Float64),
    **dict.fromkeys(("n", "stems"), pl.Int64),
    **dict.fromkeys((*_INTERVAL, "reference", *_DIFFERENCE), pl.Float64),
}
_ONE_FRAMING = frozenset({"greatest", "best"})  # Two questions of one framing: both ask for good.
_ENDS: Columns = {**TOKEN_ENDS, "reward": pl.Float64}
_SHARE = ("share", "ci_low", "ci_high")
_AXIS: Columns = {
    **_PAIR,
    "axis": pl.Int64,
    "axis_kind": pl.String,
    **dict.fromkeys(("loading_a", "loading_b", *_SHARE), pl.Float64),
    "n": pl.Int64,
}


def tables(study: Study) -> Iterator[Table]:
    """framing.csv, framing_sum.csv, framing_difference.csv and framing_axis.csv."""
    run, count = study.run, study.settings.top
    yield table("framing", make=partial(_every_pair, study))
    for how in COMBINED:
        ends = partial(framing_ends, run, study.scored, prompts_of(study), count, how)
        yield table(f"framing_{how}", make=partial(_of_both, study, ends))
    axes = partial(framing_axis, run, study.scored, prompts_of(study))
    yield table("framing_axis", make=partial(_of_both, study, axes))


def prompts_of(study: Study) -> tuple[str, str]:
    """Ids of the good and the bad prompt."""
    good, bad = study.options.framing
    if good not in study.run.vocabulary_prompts and bad != "greatest":
        good = "greatest"
    return good, bad


def framing_table(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Every two prompts of a model against each other, over its whole vocabulary.

    The reference is r between "greatest" and "best", two questions of one framing: what r is where
    both prompts ask for something good. Pairs that hold one of the two are compared with it.

    Returns:
      The table `framing.csv`: model, prompt_a, prompt_b, pearson, spearman, kendall (tau-b), n
      (tokens), stems, ci_low, ci_high (95 %, of pearson), p (of pearson 0), q (over the models of
      one pair), reference (r of those two), difference (pearson less the reference),
      difference_low, difference_high, difference_p, difference_q. Intervals keep forms of one word
      together. In the order of `models`, then of the run's prompts.
    """
    return compared(_scored_twice(run, models))


def compared(rewards: Iterable[tuple[str, Mapping[str, Array], Array]]) -> pl.DataFrame:
    """The table `framing.csv` of given rewards.

    Args:
      rewards: of each model its slug, prompt -> rewards [N], and the number of the stem of each
        token [N].
    """
    pairs = [row for model, own, stems in rewards for row in _pairs(model, own, stems)]
    table = pl.DataFrame(pairs, schema={**_PAIR, **_NUMBERS}, orient="row")
    if not table.height:
        return table.with_columns(q=pl.lit(None), difference_q=pl.lit(None))
    of_difference = with_q(table, tuple(_PAIR)[1:], "difference_p")["q"]
    return with_q(table, tuple(_PAIR)[1:]).with_columns(difference_q=of_difference)


def _scored_twice(
    run: Run, models: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Array], Array]]:
    """What `compared` takes, of the models that were scored under two prompts at least."""
    for model in models:
        scored = [p for p in run.vocabulary_prompts if (model, p) in run.results]
        if len(scored) > 1:
            token_ids, own = _rewards(run, model, scored)
            if len(token_ids):
                yield model, own, stems_of(run, model, token_ids)


def _pairs(
    model: str, rewards: Mapping[str, Array], stems: Array
) -> Iterator[tuple[str | float, ...]]:
    """A row for every two prompts of one model."""
    prompts, values = list(rewards), list(rewards.values())
    orders = [ranking(x) for x in values]
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
            interval = correlation.difference_interval(apart, points - same, stems)
            other = (reference, apart, *interval)
        yield (
            *(model, prompts[i], prompts[j], r, float(spearman[i, j]), float(kendall[i, j])),
            *(len(stems), int(stems.max()) + 1),
            *correlation.pearson_interval(r, points, stems),
            *other,
        )


def both_rewards(run: Run, model: str, prompts: tuple[str, str]) -> pl.DataFrame:
    """token_id, a, b: float64 rewards of a model's whole vocabulary under two prompts."""
    a, b = (_frame(run, model, p, name) for p, name in zip(prompts, "ab", strict=True))
    return a.join(b, on="token_id", how="inner", validate="1:1").sort("token_id")


def _frame(run: Run, model: str, prompt: str, name: str) -> pl.DataFrame:
    """token_id, and a model's rewards under a prompt as the float64 column `name`."""
    schema: Columns = {"token_id": pl.UInt32, name: pl.Float64}
    return pl.DataFrame(list(run.rewards(model, prompt)), schema=schema, orient="col")


def framing_ends(
    run: Run, models: Sequence[str], prompts: tuple[str, str], count: int, how: Combined
) -> pl.DataFrame:
    """Tokens at both ends of the sum, or of the difference, of the rewards under two prompts.

    Args:
      run: the run.
      models: slugs in the order of the rows; those not scored under both prompts are left out.
      prompts: ids of the good and the bad prompt.
      count: tokens at each end.
      how: "sum", or "difference" (first prompt less second).

    Returns:
      The table `framing_sum.csv` or `framing_difference.csv`: model, end, rank, token_id, token,
      reward (the sum or the difference). Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema=_ENDS)]
    for model in _with_both(run, models, prompts):
        good, bad = (_frame(run, model, prompt, "reward") for prompt in prompts)
        token_ids, values = (column.to_numpy() for column in combined(good, bad, how))
        frames.append(token_ends(run, model, token_ids, values, count, _ENDS))
    return pl.concat(frames)


def framing_axis(run: Run, models: Sequence[str], prompts: tuple[str, str]) -> pl.DataFrame:
    """Principal axes of the rewards under two prompts (Fig A9), in reward units.

    Two axes at right angles are always one of each kind, "same" and "opposed", in noise too. Which
    of them holds more variance depends on the sign of r, so neither is a finding.

    Returns:
      model, prompt_a, prompt_b, axis (1 holds more variance), axis_kind ("opposed" or "same"),
      loading_a (>= 0), loading_b (unit length together), share (of variance; 1 over both axes),
      ci_low, ci_high (of the share, 95 %, forms of one word kept together), n (tokens).
    """
    axes = []
    for model in _with_both(run, models, prompts):
        both = both_rewards(run, model, prompts)
        stems = stems_of(run, model, both["token_id"].to_numpy())
        principal = principal_axes(both["a"].to_numpy(), both["b"].to_numpy(), stems)
        for axis, (a, b, *share) in enumerate(principal, 1):
            kind = "same" if b >= 0 else "opposed"
            axes.append((model, *prompts, axis, kind, a, b, *share, both.height))
    return pl.DataFrame(axes, schema=_AXIS, orient="row")


def _every_pair(study: Study) -> pl.DataFrame:
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    pairs = framing_table(study.run, study.scored)
    return required(pairs, "No model was scored under two prompts.")


def _of_both(study: Study, make: partial[pl.DataFrame]) -> pl.DataFrame:
    """What `make` returns, if a model scored enough tokens under the good and the bad prompt."""
    _ = study.tables["framing"]  # absent where no model was scored under two prompts at all
    good, bad = prompts_of(study)
    if not _with_both(study.run, study.scored, (good, bad)):
        raise Absent(f"No model was scored under both “{good}” and “{bad}”.")
    return required(make(), f"Too few tokens were scored under both “{good}” and “{bad}”.")


def _rewards(run: Run, model: str, prompts: Sequence[str]) -> tuple[Array, dict[str, Array]]:
    """Ids of the tokens that were scored under all prompts, ascending, and prompt -> rewards."""
    each = {prompt: run.rewards(model, prompt) for prompt in prompts}
    first = next(iter(each.values()))[0]
    if all(np.array_equal(token_ids, first) for token_ids, _ in each.values()):
        return first, {p: x.astype(float) for p, (_, x) in each.items()}
    common = functools.reduce(np.intersect1d, (token_ids for token_ids, _ in each.values()))
    rewards = {p: x[np.searchsorted(ids, common)].astype(float) for p, (ids, x) in each.items()}
    return common, rewards


def _with_both(run: Run, models: Sequence[str], prompts: tuple[str, str]) -> list[str]:
    return [m for m in models if all((m, prompt) in run.results for prompt in prompts)]


def contrast_of(
    run: Run,
    models: Sequence[str],
    axes: pl.DataFrame,
    names: Mapping[str, str],
    prompts: tuple[str, str],
) -> style.Figure:
    """`contrast` of the models' rewards."""
    return contrast({m: both_rewards(run, m, prompts) for m in models}, axes, names, prompts)


@style.styled
def contrast(
    pairs: Mapping[str, pl.DataFrame],
    principal: pl.DataFrame,
    names: Mapping[str, str],
    prompts: tuple[str, str],
) -> style.Figure:
    """Rewards under one prompt against those under another, one panel of hexagons per model.

    Args:
      pairs: slug -> what `both_rewards` returns.
      principal: `framing_axis` of the same prompts.
      names: slug -> nickname, in the order of the panels; models without pairs are left out.
      prompts: the two prompt ids.
    """
    models = [model for model in names if model in pairs]
    figure, axes = style.panels(names, models, 5, (2.2, 2.35))
    for model, ax in axes.items():
        a, b = (pairs[model][name].to_numpy() for name in "ab")
        _hexagons(ax, a, b)
        _axes(ax, a, b, principal.filter(model=model))
        r = ranks.pearson(a, b)
        ax.text(
            0.04,
            0.95,
            "r undefined" if math.isnan(r) else style.minus(f"r = {r:.2f}"),
            transform=ax.transAxes,
            va="top",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
        )
    figure.supxlabel(style.drawable(f"reward under “{prompts[0]}”"), fontsize=9)
    figure.supylabel(style.drawable(f"reward under “{prompts[1]}”"), fontsize=9)
    return figure


def _hexagons(ax: style.Axes, x: Array, y: Array) -> None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # hexbin needs an extent to cut into hexagons.
        ax.plot(x, y, "o", color=style.INK, markersize=3)
        return
    # Starts well above white, so that a hexagon of one token shows.
    colours = style.gradient("#b4cde6", "#3a7ab5", "#0a2440")
    ax.hexbin(x, y, gridsize=38, bins="log", mincnt=1, cmap=colours, linewidths=0.1)


def _axes(ax: style.Axes, x: Array, y: Array, principal: pl.DataFrame) -> None:
    """The principal axes through the mean, two standard deviations each way."""
    points = np.stack([x, y], axis=1)
    middle = points.mean(axis=0)
    for row in principal.iter_rows(named=True):
        along = np.array([row["loading_a"], row["loading_b"]])
        reach = 2 * np.std((points - middle) @ along) * along
        ends = np.stack([middle - reach, middle + reach])
        colour = style.BOTTOM if row["axis_kind"] == "same" else style.TOP
        ax.plot(*ends.T, color="white", linewidth=2.6)
        ax.plot(*ends.T, color=colour, linewidth=1.4)


def section(study: Study) -> Section:
    """Hexagons, correlations beside their reference, and both ends of the sum and difference."""
    made = study.tables
    good, bad = prompts_of(study)
    blocks: list[Block] = []
    axes = made.get("framing_axis")
    if axes is not None:
        caption = (
            f"Rewards of all tokens under “{good}” (across) and “{bad}” (up), model by model; "
            "darker hexagons hold more tokens, on a logarithmic scale. r says how alike the two "
            "are. Lines are the principal axes, two standard deviations each way: one rises and "
            "one falls in any cloud of points, in noise too."
        )
        models = _with_both(study.run, study.models, (good, bad))
        draw = partial(contrast_of, study.run, models, axes, study.names, (good, bad))
        blocks.append(Picture("framing", caption, draw))
    blocks += rows(made.get("framing"), _CORRELATIONS, "framing.csv")
    captions = {
        "sum": f"Tokens with the highest and the lowest sum of the rewards under “{good}” and "
        f"“{bad}”.",
        "difference": f"Tokens with the highest and the lowest reward under “{good}” less that "
        f"under “{bad}”.",
    }
    for how, caption in captions.items():
        ends = made.get(f"framing_{how}")
        if ends is not None:
            blocks.append(Heading(f"{how.title()} of “{good}” and “{bad}”"))
            label = f"{how} of the rewards under “{good}” and “{bad}”"
            count = study.settings.figure_top
            draw = partial(token_bars.ends, ends, study.names, count, "reward", label)
            blocks.append(Picture(f"framing_{how}", caption, draw))
            columns = (*TOKENS, ("reward", how, "number"))
            blocks += rows(ends, columns, f"framing_{how}.csv")
    names = ("framing", "framing_sum", "framing_axis")
    return Section(
        id="framing",
        title="Framing",
        label="Framing",
        lead="How alike one model rates tokens under two prompts. Where the second prompt asks for "
        "the opposite, a model that follows the question has r below 0. The reference, where both "
        "were scored, is r of “greatest” and “best”: two questions of one framing, which both ask "
        "for something good.",
        blocks=[*blocks, *notes(made.reason(name) for name in names)],
        caveats=(
            "The sum weighs the prompt whose rewards vary more.",
            "Intervals keep forms of one word together (“love” and “␣Loved”); q is over the models "
            "of a pair of prompts.",
        ),
        findings=findings(made.get("framing"), (good, bad)),
    )


_CORRELATIONS: tuple[Column, ...] = (
    MODEL,
    ("prompt_a", "prompt", "text"),
    ("prompt_b", "and prompt", "text"),
    PEARSON,
    *INTERVAL,
    ("q", "q of r = 0", "p"),
    ("reference", "r of “greatest” and “best”", "fixed"),
    ("difference", "difference", "fixed"),
    ("difference_low", "from", "fixed"),
    ("difference_high", "to", "fixed"),
    ("difference_q", "q of no difference", "p"),
    SPEARMAN,
    KENDALL,
)
