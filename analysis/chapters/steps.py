"""What a reward model learned, step by step: the chapters of the page of `assay watch` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts.lines import lines
from analysis.charts.trajectories import trajectories
from analysis.columns import Spec
from analysis.measures import steps as measured
from analysis.measures.probes import SHAM
from analysis.measures.steps import Steps
from analysis.sentences import count
from analysis.study import Analysis, Study, Table, required, table
from engine import display

_LINES = 6  # of a chart
_TAU = {"tau_previous": "the step before", "tau_last": "the last step"}
_PAIRS = {
    "accuracy": "pairs judged right, %",
    "longer": "longer reply preferred, %",
    "margin": "mean margin",
    "log_loss": "log loss",
    "temperature": "temperature",
}
_BAND = ("ci_low", "ci_high")


def over_steps(every: Steps) -> list[Analysis]:
    """The chapters of the steps of one training."""

    def tables(study: Study) -> Iterator[Table]:
        yield table(measured.STEPS.name, make=lambda: every.table)
        yield table(measured.TURNS.name, make=lambda: every.turns)
        yield table(measured.WORDS.name, make=every.trajectories)

    def moved(study: Study) -> Iterator[Block]:
        stem, noise = "steps_words", float(every.noise.max())
        caption = (
            f"Percentiles of {measured.SHOWN} words at every step: half of them moved furthest "
            "between two steps, half from the first to the last. Bands are the noise of the "
            "self-check. A token that is searched is violet; its name shows at its points."
        )
        words = (study.tables[measured.WORDS.name], every.shown(measured.SHOWN))
        draw = partial(trajectories, *words, noise, f"#search-{stem}")
        yield Picture(stem, caption, draw, "Show other tokens that begin with")
        yield from measured.TURNS.rows(every.turns.head(study.settings.top), unfolded=True)
        yield from measured.STEPS.rows(every.table, unfolded=True)

    def kinds() -> pl.DataFrame:
        tested = every.by_kind.filter(pl.col("ci_low").is_not_nan())
        shares = pl.col("percentile", *_BAND) * 100
        first = pl.col("percentile").first().over("list", "words")
        return _furthest(tested, "words", pl.col("percentile") - first).with_columns(shares)

    def judged() -> pl.DataFrame:
        shares = [f"{key}{end}" for key in ("accuracy", "longer") for end in measured.ENDS]
        return _stacked(every.table.with_columns(pl.col(shares) * 100), _PAIRS)

    shams = every.by_edit.filter(kind=SHAM)["effect"].abs().max()
    noise = float(shams) if isinstance(shams, float) else 0.0
    first = Analysis(
        id="steps",
        title="Words over the steps",
        lead="Which words rose and fell while the model was trained?",
        make=tables,
        parts=(moved,),
        told=(lambda study: _told(every),),
        described=lambda study: headline(every),
        caveats=lambda study: _CAVEATS,
    )
    return [
        first,
        _section(
            ("steps-tau", "How much the ranking changed", "Agreement of steps"),
            "How alike do two steps rank the same tokens?",
            "Kendall’s τ of each step’s ranking with that of the step before, and with that of the "
            "last, with 95 % intervals, over the same random tokens.",
            lambda: _stacked(every.table, _TAU),
            ("step", "Kendall’s τ"),
            why="There is one step.",
            line="what",
            panel="",
        ),
        _section(
            ("steps-kinds", "Kinds of words over the steps", "Kinds of words"),
            "Where do words of a kind stand at each step?",
            f"Mean percentile of the {_LINES} kinds of words that moved furthest since the first "
            "step, with 95 % intervals.",
            kinds,
            ("step", "percentile"),
            measured.KINDS,
            lambda: every.by_kind,
            y="percentile",
            line="words",
            marks=(50.0,),
        ),
        _section(
            ("steps-pairs", "Pairs over the steps", "Pairs"),
            "How well does each step judge the pairs, how sure is it, and does length help?",
            "The share of pairs judged right, and of those in which the longer reply has the "
            "higher reward; the mean margin; the loss of training; and the temperature, above 1 "
            "where margins are too sure. Bands are 95 % intervals.",
            judged,
            ("step", ""),
            why="No pairs were scored (assay watch --items=pairs.jsonl).",
            line="what",
            apart="y",
        ),
        _section(
            ("steps-probes", "What style buys over the steps", "Style"),
            "How much do edits that leave what a reply says change its reward?",
            "Mean change of the reward by an edit of the reply, in median margins, with 95 % "
            "intervals. Dotted: the largest effect of an edit that no reader sees, the noise.",
            lambda: _furthest(every.by_edit.filter(pl.col("kind") != SHAM), "probe", "effect"),
            ("step", "median margins"),
            measured.PROBES,
            lambda: every.by_edit,
            why="No edited replies were scored (--probes).",
            y="effect",
            line="probe",
            marks=(-noise, noise),
        ),
        _section(
            ("steps-appended", "Tokens behind replies over the steps", "Behind replies"),
            "Which tokens raise replies when they stand at the end?",
            "Mean effect of a token at the end of a reply, in standard deviations of the rewards, "
            "with 95 % intervals over replies.",
            lambda: _furthest(every.by_ending, "token", "effect_sd"),
            ("step", "effect"),
            measured.APPENDED,
            lambda: every.by_ending,
            why="No token was scored behind replies (--after_items).",
            y="effect_sd",
            line="token",
            marks=(0.0,),
        ),
    ]


def _section(
    named: tuple[str, str, str],
    lead: str,
    caption: str,
    charted: Callable[[], pl.DataFrame],
    titles: tuple[str, str],
    spec: Spec | None = None,
    whole: Callable[[], pl.DataFrame] | None = None,
    *,
    why: str = "",
    line: str,
    **keys: Any,
) -> Analysis:
    """A section of one chart over steps, of `charted`, and of the table of a specification.

    `named` is its id, title and label; `keys` are of `charts.lines`.
    """
    id_, title, label = named

    def drawn(study: Study) -> Iterator[Block]:
        shown = required(charted(), why or "Nothing to compare.")
        shown = shown.with_columns(pl.col(line).map_elements(display.plain, pl.String))
        shown = shown.with_columns(model=pl.lit(study.models[0]))
        chosen = {"x": "step", "y": "value", "panel": line, "line": line, "form": "fixed"} | keys
        band = _BAND if "ci_low" in shown.columns else ("low", "high")
        draw = partial(lines, shown, study.names, titles, band=band, **chosen)
        yield Picture(id_.replace("-", "_"), caption, draw)
        if spec and whole:
            yield from spec.rows(whole())

    made = [table(spec.name, make=whole)] if spec and whole else []
    return Analysis(
        id=id_, title=title, label=label, lead=lead, make=lambda study: made, parts=(drawn,)
    )


def headline(every: Steps) -> str:
    """What the steps say in one sentence."""
    first, last = every.steps[0].step, every.steps[-1].step
    if first == last:
        return f"Step {first} is scored; what moved is known from the next step on."
    settled = f"since step {every.settled} no word moved by more than the noise"
    if every.turns.is_empty():
        return f"{settled[0].upper()}{settled[1:]}."
    turn = every.turns.row(0, named=True)
    did = "rose" if turn["after"] > turn["before"] else "fell"
    text = (
        f"Between steps {turn['previous']} and {turn['step']} “{display.plain(turn['word'])}” "
        f"{did} from the {_place(turn['before'])} to the {_place(turn['after'])} percentile, while "
        f"95 % of random tokens moved by less than {100 * turn['controls']:.0f} points"
    )
    return f"{text}; {settled}." if every.settled < last else f"{text}."


def lede(every: Steps, source: str, question: str) -> str:
    """What the page is of."""
    first, last = every.steps[0].step, every.steps[-1].step
    whole, steps = every.table.filter(scored="vocabulary").height, count(len(every.steps), "step")
    scored = f"Each scored all {len(every.tokens):,} tokens of the vocabulary"
    if whole < len(every.steps):
        scored = (
            f"{count(whole, 'step')} scored all {len(every.tokens):,} tokens, the others a panel"
        )
    return (
        f"{steps} of {source}, from {first} to {last}, asked “{question}” {scored}. Percentiles "
        f"are among {len(every.controls):,} random tokens, the same at every step."
    )


def _told(every: Steps) -> Iterator[Finding]:
    if not every.turns.is_empty() or every.settled < every.steps[-1].step:
        yield Finding(text=headline(every), picture="steps_words")


def _place(share: float) -> str:
    number = round(100 * share)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 != 1 else "th"
    return f"{number}{ending}"


def _stacked(rows: pl.DataFrame, named: Mapping[str, str]) -> pl.DataFrame:
    """Step, what, value, low and high: a row for each number that a step has."""
    frames = []
    for key, name in named.items():
        places = {"value": key, "low": f"{key}_low", "high": f"{key}_high"}
        cells = {
            to: pl.col(of).cast(pl.Float64) if of in rows.columns else pl.lit(None, pl.Float64)
            for to, of in places.items()
        }
        frames.append(rows.select("step", what=pl.lit(name), **cells))
    return pl.concat(frames).drop_nulls("value")


def _furthest(rows: pl.DataFrame, name: str, by: pl.Expr | str) -> pl.DataFrame:
    """The rows of the few values of a column in which `by` is furthest from 0 at some step."""
    size = (pl.col(by) if isinstance(by, str) else by).abs().max()
    most = rows.group_by(name, maintain_order=True).agg(size=size)
    kept = most.sort("size", descending=True, maintain_order=True)[name].head(_LINES)
    return rows.filter(pl.col(name).is_in(kept.implode()))


_CAVEATS: Sequence[str] = (
    "The word of the headline moved furthest beyond what 95 % of random tokens moved between the "
    "same two steps. It is the largest of thousands, so it is larger than it would be in another "
    "training run.",
    "Between whole sweeps a panel is scored: random tokens, common words, words of lists, and the "
    "ends of the last whole sweep. Another word that moves is seen at the next whole sweep.",
)
