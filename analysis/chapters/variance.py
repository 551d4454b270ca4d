"""Model or prompt: variance components of token percentiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import INTERVAL_OF_SHARE, Block, Column, Finding, Picture, Section, notes, rows
from analysis.figures import style
from analysis.statistics import ranks
from analysis.statistics.variance import (
    COMPONENTS,
    estimated_shares,
    estimates,
    noise_shares,
    shares,
)
from analysis.study import Study, Table, required, table
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_SCHEMA: Columns = {
    "component": pl.String,
    **dict.fromkeys(("share", "ci_low", "ci_high", "estimate", "noise_share"), pl.Float64),
    **dict.fromkeys(("estimated_share", "estimated_low", "estimated_high"), pl.Float64),
}


def tables(study: Study) -> Iterator[Table]:
    """variance.csv."""
    yield table("variance", make=partial(_variance, study))


def variance_table(rewards: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Variance of the tokens' percentiles, split by model and prompt.

    Percentiles, because rewards of two models have no common unit. So models and prompts have no
    effects of their own, only effects on tokens.

    Args:
      rewards: prompt -> its table of `tokens.shared_rewards`; only models that are in all tables
        count.

    Returns:
      component ("token": common to all models and prompts; "token × model": specific to a model;
      "token × prompt": specific to a prompt, for all models; "token × model × prompt": the rest,
      noise included), share (of the sum of squares; 1 together), ci_low, ci_high (95 %, over
      stems), estimate (the variance component; NaN for one model or one prompt), noise_share (the
      share that pure noise has), estimated_share (of the estimates in their sum: 0 on average
      where there is noise alone, but for the last), estimated_low, estimated_high (95 % for the
      first three together, over stems). No rows for fewer than two tokens, or for one model under
      one prompt.
    """
    frames = list(rewards.values())
    models = [m for m in frames[0].columns[1:] if all(m in t.columns for t in frames)]
    if not models or len(models) * len(frames) < 2:
        return pl.DataFrame(schema=_SCHEMA)
    common = functools.reduce(
        lambda a, b: a.join(b, on="token", how="inner", validate="1:1"),
        (frame.select("token") for frame in frames),
    ).sort("token")
    if common.height < 2:
        return pl.DataFrame(schema=_SCHEMA)
    cube = np.empty((len(frames), len(models), common.height)).transpose(2, 1, 0)
    for prompt, frame in enumerate(frames):
        own = common.join(frame, on="token", how="left", validate="1:1", maintain_order="left")
        for place, model in enumerate(models):
            cube[:, place, prompt] = ranks.percentiles(own[model].to_numpy())
    stems = stem_numbers(common["token"])
    numbers = (
        *shares(cube, stems),
        estimates(cube),
        noise_shares(*cube.shape[1:]),
        *estimated_shares(cube, stems),
    )
    components = zip(COMPONENTS, *numbers, strict=True)
    return pl.DataFrame(list(components), schema=_SCHEMA, orient="row")


def _variance(study: Study) -> pl.DataFrame:
    why = (
        "Variance is split over shared tokens and two models or two prompts at least; this run has "
        "too few."
    )
    rewards = {prompt: frame for (prompt,), frame in study.tables.of("shared_rewards").items()}
    common = {p: frame for p, frame in rewards.items() if frame.height and frame.width > 1}
    return required(variance_table(common) if common else pl.DataFrame(schema=_SCHEMA), why)


@style.styled
def share_bars(table: pl.DataFrame) -> style.Figure:
    """Estimated shares with their intervals, and beside them the raw shares and those of noise.

    Args:
      table: as `variance_table` returns it.
    """
    figure = style.canvas(7.6, 0.42 * table.height + 1.1)
    if table["estimated_share"].is_nan().any():
        axes = [figure.subplots()]
    else:
        axes = list(figure.subplots(1, 2, sharey=True))
        _estimated(axes[0], table)
    _raw(axes[-1], table)
    axes[0].set_yticks(range(table.height), [style.name(c, 40) for c in table["component"]])
    axes[0].invert_yaxis()
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        ax.margins(x=0.2)
    return figure


def _estimated(ax: style.Axes, table: pl.DataFrame) -> None:
    columns = ("estimated_share", "estimated_low", "estimated_high")
    for at, row in enumerate(table.select(columns).rows()):
        share, low, high = (100 * x for x in row)
        rest = at == table.height - 1  # It holds the noise, so it is no finding.
        colour = style.FAINT if rest else style.TOP
        filled = colour if rest or low > 0 else "none"
        ax.barh(at, share, facecolor=filled, edgecolor=colour, height=0.6)
        ax.plot([low, high], [at, at], color=style.INK, linewidth=1.2)
        ax.text(max(share, high, 0) + 1, at, style.minus(f"{share:.1f}%"), va="center")
    ax.axvline(0, color=style.FAINT, linewidth=0.8)
    ax.set_xlabel("variance component,\n% of their sum")


def _raw(ax: style.Axes, table: pl.DataFrame) -> None:
    for at, (share, noise) in enumerate(table.select("share", "noise_share").rows()):
        ax.plot([100 * share], [at], "o", color=style.INK, markersize=5)
        ax.plot([100 * noise] * 2, [at - 0.3, at + 0.3], color=style.BOTTOM, linewidth=2)
    ax.set_xlim(left=0)
    ax.set_xlabel("share of the sum of squares, %\n(bar: pure noise)")


def section(study: Study) -> Section:
    """Variance components, and the raw shares beside those of noise."""
    split = study.tables.get("variance")
    blocks: list[Block] = notes([study.tables.reason("variance")])
    if split is not None:
        caption = (
            "Left: what each source adds to the variance of a token’s percentile, corrected for "
            "noise, with its interval; filled where it is above 0 beyond chance, grey where it may "
            "be noise. Right: the shares of the sum of squares (dots) beside those that pure noise "
            "has in as many models and prompts (bars)."
        )
        blocks = [
            Picture("variance", caption, partial(share_bars, split)),
            *rows(split, _COLUMNS, "variance.csv"),
        ]
    return Section(
        id="variance",
        title="Model or prompt",
        label="Variance",
        lead="How much of the variance of a token’s percentile is common to all models and "
        "prompts, specific to a model, and specific to a prompt. Pure noise has a part in every "
        "share of the sum of squares; the variance components are corrected for it.",
        blocks=blocks,
        caveats=(
            "The last component contains the noise, because each token has one score per model "
            "and prompt.",
            "Models and prompts are taken as they are: intervals are over words (forms of one word "
            "together).",
        ),
        findings=[] if split is None else findings(split),
    )


def findings(table: pl.DataFrame) -> list[Finding]:
    """The components that are above 0 beyond chance; nothing where none is."""
    parts = [
        f"{_percent(row['estimated_share'])} % ({_percent(row['estimated_low'])} to "
        f"{_percent(row['estimated_high'])}) is {_MEANING[row['component']]}"
        for row in table.iter_rows(named=True)
        if row["component"] in _MEANING and row["estimated_low"] > 0
    ]
    if not parts:
        return []
    rest = table.filter(component=COMPONENTS[-1])["estimated_share"].item()
    text = (
        f"Of the variance of a token’s percentile, {', '.join(parts)}; {_percent(rest)} % cannot "
        "be told from noise. Intervals are of 95 %, over words, for all components together."
    )
    return [Finding(text=text, picture="variance")]


def _percent(share: float) -> str:
    return style.minus(f"{100 * share:.1f}")


_MEANING = {
    "token": "the token’s own under every model and prompt",
    "token × model": "specific to a model",
    "token × prompt": "specific to a prompt, for all models",
}
_COLUMNS: tuple[Column, ...] = (
    ("component", "what differs", "text"),
    ("estimated_share", "variance component, share", "share"),
    ("estimated_low", "from", "share"),
    ("estimated_high", "to", "share"),
    ("share", "share of the sum of squares", "share"),
    *INTERVAL_OF_SHARE,
    ("noise_share", "share expected from noise", "share"),
)
