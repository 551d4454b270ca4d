"""What a reward model learned, step by step: the chapters of the page of `assay watch` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts.estimates import estimates
from analysis.charts.lines import lines
from analysis.charts.trajectories import trajectories
from analysis.measures import steps as measured
from analysis.measures.probes import EDIT, SHAM
from analysis.measures.steps import Steps
from analysis.sentences import bounds, count, decimals
from analysis.study import Analysis, Study, Table, required, table
from engine import display

_LINES, _BAND = 6, ("ci_low", "ci_high")  # of a chart
_NAMES = {
    "tau_previous": "the step before",
    "tau_last": "the last step",
    "accuracy": "share of pairs judged right",
    "margin": "mean margin",
    "longer": "share in which the longer is preferred",
    "log_loss": "log loss",
}


def over_steps(training: Steps) -> list[Analysis]:
    """The chapters of the steps of one training."""

    def tables(study: Study) -> Iterator[Table]:
        yield table(measured.STEPS.name, make=lambda: training.table)
        yield table(measured.TURNS.name, make=lambda: training.turns)
        yield table(measured.WORDS.name, make=training.trajectories)
        yield table(measured.SERIES.name, make=lambda: training.series)
        if len(training.last) > 1:
            yield table(measured.TRAININGS.name, make=lambda: training.trainings)

    def moved(study: Study) -> Iterator[Block]:
        stem, noise = "steps_words", float(training.noise.max())
        caption = (
            f"Percentiles of {measured.SHOWN} words at every step: half of them moved furthest "
            "between two steps, half from the first to the last. Bands are the noise of the "
            "self-check. A token that is searched is violet; its name shows at its points."
        )
        words = (study.tables[measured.WORDS.name], training.shown(measured.SHOWN))
        draw = partial(trajectories, *words, noise, f"#search-{stem}")
        yield Picture(stem, caption, draw, "Show other tokens that begin with")
        yield from measured.TURNS.rows(training.turns.head(study.settings.top), unfolded=True)
        yield from measured.STEPS.rows(training.table, unfolded=True)

    shams = training.series.filter(of=SHAM)["value"].abs().max()
    noise = float(shams) if isinstance(shams, float) else 0.0
    first = Analysis(
        id="steps",
        title="Words over the steps",
        lead="Which words rose and fell while the model was trained?",
        make=tables,
        parts=(moved,),
        told=(lambda study: _told(training),),
        described=lambda study: headline(training),
        caveats=lambda study: _CAVEATS,
    )
    return [
        first,
        _section(
            training,
            "tau",
            ("How much the ranking changed", "Agreement of steps"),
            "How alike do two steps rank the same tokens?",
            "Kendall’s τ of each step’s ranking with that of the step before, and with that of the "
            "last, with 95 % intervals, over the same random tokens.",
            "Kendall’s τ",
            "There is one step.",
            panel="",
        ),
        _section(
            training,
            "kinds",
            ("Kinds of words over the steps", "Kinds of words"),
            "Where do words of a kind stand at each step?",
            f"Median percentile of each kind of words, or of the {_LINES} that moved furthest "
            "since the first step. Bands are the middle half of the words.",
            "percentile",
            "Nothing to compare.",
            marks=(50,),
            form="number",
        ),
        *[_trainings(training)] * (len(training.last) > 1),
        _section(
            training,
            "pairs",
            ("Pairs over the steps", "Pairs"),
            "How well does each step judge the pairs, how sure is it, and does length help?",
            "The share of pairs judged right, and of those in which the longer reply has the "
            "higher reward; the mean margin; the loss of training; and the temperature, above 1 "
            "where margins are too sure. Bands are 95 % intervals.",
            "",
            "No pairs were scored (assay watch --items=pairs.jsonl).",
            apart="y",
        ),
        _section(
            training,
            EDIT,
            ("What style buys over the steps", "Style"),
            "How much do edits that leave what a reply says change its reward?",
            "Mean change of the reward by an edit of the reply, in median margins, with 95 % "
            "intervals. Dotted: the largest effect of an edit that no reader sees, the noise.",
            "median margins",
            "No edited replies were scored (--probes).",
            marks=(-noise, noise),
        ),
        _section(
            training,
            "behind",
            ("Tokens behind replies over the steps", "Behind replies"),
            "Which tokens raise replies when they stand at the end?",
            "Mean effect of a token at the end of a reply, in standard deviations of the rewards, "
            "with 95 % intervals over replies.",
            "effect",
            "No token was scored behind replies (--after_items).",
            marks=(0.0,),
        ),
    ]


def _section(
    training: Steps,
    of: str,
    heading: tuple[str, str],
    lead: str,
    caption: str,
    axis: str,
    why: str,
    **keys: Any,
) -> Analysis:
    """A section of one chart, of rows of `SERIES`: those furthest from 0, or kinds from the first.

    `heading` is its title and label, `why` says why there is none; `keys` are of `charts.lines`.
    """

    def drawn(study: Study) -> Iterator[Block]:
        rows, size = training.series.filter(of=of).drop_nulls("value"), pl.col("value")
        if of == "kinds":
            size -= size.first().over("what")
            rows = rows.with_columns(pl.col("value", *_BAND) * 100)
        most = rows.with_columns(size=size.abs()).group_by("what", maintain_order=True)
        most = most.agg(pl.col("size").max()).sort("size", descending=True, maintain_order=True)
        shown = rows.filter(pl.col("what").is_in(most["what"].head(_LINES).implode()))
        names = pl.col("what").replace(_NAMES).map_elements(display.plain, pl.String)
        shown = required(shown, why).with_columns(model=pl.lit(study.models[0]), what=names)
        chosen = {"panel": "what", "line": "what", "form": "fixed", "band": _BAND} | keys
        draw = partial(lines, shown, study.names, ("step", axis), x="step", y="value", **chosen)
        yield Picture(f"steps_{of}", caption, draw)

    def described(study: Study) -> str:
        rows = training.series.filter(of=of, what="tau_last").drop_nulls("value")
        alike, last = rows.select("step", "value", *_BAND).rows()[:1], training.steps[-1].step
        text = "Kendall’s τ of steps {} and {} is {} ({})."
        return "".join(text.format(s, last, decimals(t), bounds(*ends)) for s, t, *ends in alike)

    title, label = heading
    told: dict[str, Any] = {"make": _no_tables, "parts": (drawn,), "described": described}
    return Analysis(id=f"steps-{of}", title=title, label=label, lead=lead, **told)


def _trainings(training: Steps) -> Analysis:
    """Where several trainings end, by kinds of words."""

    def drawn(study: Study) -> Iterator[Block]:
        ends = required(training.trainings, "Nothing to compare.")
        look: dict[str, Any] = {"row": "training", "panel": "what", "colour": "training"}
        draw = partial(estimates, ends, study.names, "median percentile", value="value", **look)
        draw = partial(draw, kinds=[*training.last], zero=0.5, scale=100, width=155)
        caption = (
            "Median percentile of kinds of words at the last step of each training. Lines are the "
            "middle half of the words."
        )
        yield Picture(measured.TRAININGS.name, caption, draw)
        yield from measured.TRAININGS.rows(ends)

    return Analysis(
        id="steps-trainings",
        title="Where trainings end",
        lead="Do trainings on other data, or of other models, end with the same kinds of words?",
        make=_no_tables,
        parts=(drawn,),
    )


def _no_tables(study: Study) -> list[Table]:
    return []


def headline(training: Steps) -> str:
    """What the steps say in one sentence."""
    first, last = training.steps[0].step, training.steps[-1].step
    if first == last:
        return f"Step {first} is scored; what moved is known from the next step on."
    settled = f"since step {training.settled} no word moved by more than the noise"
    if training.turns.is_empty():
        return f"{settled[0].upper()}{settled[1:]}."
    turn = training.turns.row(0, named=True)
    did, move = ("rose", "rise") if turn["after"] > turn["before"] else ("fell", "fall")
    text = (
        f"Between steps {turn['previous']} and {turn['step']} “{display.plain(turn['word'])}” "
        f"{did} from the {_place(turn['before'])} to the {_place(turn['after'])} percentile, while "
        f"95 % of random tokens moved by less than {100 * turn['controls']:.0f} points"
    )
    if (since := training.since(turn)) < turn["previous"]:
        text += f"; its {move} began at step {since}"
    return f"{text}; {settled}." if training.settled < last else f"{text}."


def lede(training: Steps, source: str, question: str) -> str:
    """What the page is of."""
    first, last = training.steps[0].step, training.steps[-1].step
    whole = training.table.filter(scored="vocabulary").height
    steps = count(len(training.steps), "step")
    scored = f"Each scored all {len(training.tokens):,} tokens of the vocabulary"
    if whole < len(training.steps):
        scored = (
            f"{count(whole, 'step')} scored all {len(training.tokens):,} tokens, the others a panel"
        )
    return (
        f"{steps} of {source}, from {first} to {last}, asked “{question}” {scored}. Percentiles "
        f"are among {len(training.controls):,} random tokens, the same at every step."
    )


def _told(training: Steps) -> Iterator[Finding]:
    if not training.turns.is_empty() or training.settled < training.steps[-1].step:
        yield Finding(text=headline(training), picture="steps_words")


def _place(share: float) -> str:
    number = round(100 * share)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 != 1 else "th"
    return f"{number}{ending}"


_CAVEATS: Sequence[str] = (
    "The word of the headline moved furthest beyond what 95 % of random tokens moved between the "
    "same two steps. It is the largest of thousands, so it is larger than it would be in another "
    "training run.",
    "Between whole sweeps a panel is scored: random tokens, common words, words of lists, and the "
    "ends of the last whole sweep. Another word that moves is seen at the next whole sweep.",
)
