"""What a reward model learned, step by step: the chapters of the page of `assay watch` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import polars as pl

from analysis.blocks import Block, Finding, Picture, Text
from analysis.charts.lines import lines
from analysis.charts.trajectories import trajectories
from analysis.measures import steps as measured
from analysis.measures.probes import EDIT, SHAM
from analysis.measures.steps import Steps
from analysis.sentences import count
from analysis.study import Analysis, Study, Table, required, table
from engine import display

_LINES = 6  # words in the chart of trajectories, lines in others
_PAIRS = {
    "accuracy": "pairs judged right, %",
    "margin": "mean margin",
    "log_loss": "log loss",
    "temperature": "temperature of the margins",
    "longer": "longer reply preferred, %",
}
_NO_PAIRS = "No pairs were scored (assay watch --items=pairs.jsonl)."


def over_steps(every: Steps) -> list[Analysis]:
    """The chapters of the steps of one training."""

    def words(study: Study) -> Iterator[Table]:
        yield table(measured.STEPS.name, make=lambda: every.table)
        yield table(measured.TURNS.name, make=lambda: every.turns)
        yield table(measured.WORDS.name, make=every.trajectories)

    def moved(study: Study) -> Iterator[Block]:
        shown, noise = every.shown(_LINES), float(every.noise.max())
        caption = (
            f"Percentiles of the {len(shown)} words that moved most, at every step: half of them "
            "moved furthest between two steps, half from the first to the last. Bands are the "
            "noise of the self-check."
        )
        draw = partial(trajectories, study.tables[measured.WORDS.name], shown, noise)
        stem = "steps_words"
        yield Picture(stem, caption, partial(draw, f"#search-{stem}"), "Show another token")
        yield from measured.TURNS.rows(every.turns.head(study.settings.top), unfolded=True)
        yield from measured.STEPS.rows(every.table, unfolded=True)

    def alike(study: Study) -> Iterator[Block]:
        named = {"tau_previous": "the step before", "tau_last": "the last step"}
        shown = _stacked(every.table, named)
        caption = (
            "Kendall’s τ of each step’s ranking with that of the step before, and with that of the "
            "last, with 95 % intervals, over the same random tokens."
        )
        titles = ("step", "Kendall’s τ")
        keys: dict[str, Any] = {"line": "what", "panel": "", "band": ("low", "high")}
        yield Picture("steps_tau", caption, _drawn(study, shown, titles, **keys))

    def kinds(study: Study) -> Iterator[Block]:
        every_kind = required(every.by_kind, "No kind of words is in this vocabulary.")
        spread = pl.col("percentile").max() - pl.col("percentile").min()
        tested = every_kind.filter(pl.col("ci_low").is_not_nan())
        order = tested.group_by("list", "words", maintain_order=True).agg(spread=spread)
        order = order.sort(pl.col("list") != "AFINN", -pl.col("spread"), maintain_order=True)
        chosen = order.head(_LINES).select("list", "words")
        shown = chosen.join(every_kind, on=["list", "words"], maintain_order="left")
        shown = shown.with_columns(pl.col("percentile", "ci_low", "ci_high") * 100)
        caption = (
            "Mean percentile of the words of each kind, with 95 % intervals: those of the "
            "sentiment list AFINN, and the kinds that moved most."
        )
        keys: dict[str, Any] = {"line": "words", "panel": "words", "band": ("ci_low", "ci_high")}
        titles, marks = ("step", "percentile"), (50.0,)
        draw = _drawn(study, shown, titles, y="percentile", marks=marks, **keys)
        yield Picture("steps_kinds", caption, draw)
        yield from measured.KINDS.rows(every_kind)

    def judged(study: Study) -> Iterator[Block]:
        numbers = required(every.table.drop_nulls("accuracy"), _NO_PAIRS)
        shares = [f"{key}{end}" for key in ("accuracy", "longer") for end in ("", "_low", "_high")]
        shown = _stacked(numbers.with_columns(pl.col(shares) * 100), _PAIRS)
        caption = (
            "Pairs at every step, with 95 % intervals: the share judged right; the mean margin; "
            "the loss of training; the temperature, above 1 where margins are too sure; and how "
            "often the longer reply has the higher reward."
        )
        keys: dict[str, Any] = {"line": "what", "panel": "what", "band": ("low", "high")}
        yield Picture("steps_pairs", caption, _drawn(study, shown, ("step", ""), apart="y", **keys))

    def edits(study: Study) -> Iterator[Block]:
        found = required(every.by_edit(), "No edited replies were scored (--probes).")
        size = pl.col("effect").abs().max().over("probe")
        shams = found.filter(kind=SHAM)["effect"].abs().max()
        noise = float(shams) if isinstance(shams, float) else 0.0
        most = found.filter(kind=EDIT).sort(-size, "step", maintain_order=True)
        kept = most["probe"].unique(maintain_order=True).head(_LINES)
        shown = most.filter(pl.col("probe").is_in(kept.implode()))
        caption = (
            "Mean change of the reward by an edit of the reply, in median margins, with 95 % "
            "intervals. Between the dotted lines is what edits do that no reader sees: the noise."
        )
        keys: dict[str, Any] = {"line": "probe", "panel": "probe", "band": ("ci_low", "ci_high")}
        titles, marks = ("step", "median margins"), (-noise, noise)
        draw = _drawn(study, shown, titles, y="effect", marks=marks, **keys)
        yield Picture("steps_probes", caption, draw)
        yield from measured.PROBES.rows(found)

    def behind(study: Study) -> Iterator[Block]:
        found = required(every.behind(), "No token was scored behind replies (--after_items).")
        found = found.with_columns(word=pl.col("token").map_elements(display.plain, pl.String))
        caption = (
            "Mean effect of a token at the end of a reply, in standard deviations of the rewards, "
            "with 95 % intervals over replies: the tokens with the largest effect at some step."
        )
        keys: dict[str, Any] = {"line": "word", "panel": "", "band": ("ci_low", "ci_high")}
        draw = _drawn(study, found, ("step", "effect"), y="effect_sd", marks=(0.0,), **keys)
        yield Picture("steps_appended", caption, draw)
        yield from measured.APPENDED.rows(found.drop("word"))

    def made(spec: Any, make: Any) -> Any:  # Any: of a table
        return lambda study: [table(spec.name, make=make)]

    return [
        Analysis(
            id="steps",
            title="Words over the steps",
            lead="Which words rose and fell while the model was trained?",
            make=words,
            parts=(moved,),
            told=(lambda study: _told(every),),
            described=lambda study: headline(every),
            caveats=(lambda study: _CAVEATS),
        ),
        Analysis(
            id="steps-tau",
            title="How much the ranking changed",
            label="Agreement of steps",
            lead="How alike do two steps rank the same tokens?",
            make=lambda study: (),
            parts=(alike,),
        ),
        Analysis(
            id="steps-kinds",
            title="Kinds of words over the steps",
            label="Kinds of words",
            lead="Where do words of a kind stand at each step?",
            make=made(measured.KINDS, lambda: every.by_kind),
            parts=(kinds,),
        ),
        Analysis(
            id="steps-pairs",
            title="Pairs over the steps",
            label="Pairs",
            lead="How well does each step judge the pairs, how sure is it, and does length help?",
            make=lambda study: (),
            parts=(judged,),
        ),
        Analysis(
            id="steps-probes",
            title="What style buys over the steps",
            label="Style",
            lead="How much do edits that leave what a reply says change its reward?",
            make=made(measured.PROBES, every.by_edit),
            parts=(edits,),
        ),
        Analysis(
            id="steps-appended",
            title="Tokens behind replies over the steps",
            label="Behind replies",
            lead="Which tokens raise replies when they stand at the end?",
            make=made(measured.APPENDED, every.behind),
            parts=(behind,),
        ),
    ]


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
        f"Between steps {turn['previous']} and {turn['step']} “{display.plain(turn['word'])}” {did} "
        f"from the {_place(turn['before'])} to the {_place(turn['after'])} percentile; 95 % of "
        f"random tokens moved by less than {100 * turn['controls']:.0f} points"
    )
    return f"{text}; {settled}." if every.settled < last else f"{text}."


def lede(every: Steps, source: str, question: str) -> str:
    """What the page is of, in two sentences."""
    first, last = every.steps[0].step, every.steps[-1].step
    whole = every.table.filter(scored="vocabulary").height
    steps = count(len(every.steps), "step")
    return (
        f"{steps} of {source}, {first} to {last}, asked “{question}” {whole} of them scored every "
        f"token of the vocabulary, the others a panel of {min(measured.PANEL, len(every.tokens)):,}. "
        f"Percentiles are among {len(every.controls):,} random tokens, the same at every step."
    )


def _told(every: Steps) -> Iterator[Finding]:
    if not every.turns.is_empty() or every.settled < every.steps[-1].step:
        yield Finding(text=headline(every), picture="steps_words")


def _place(share: float) -> str:
    number = round(100 * share)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 != 1 else "th"
    return f"{number}{ending}"


def _stacked(rows: pl.DataFrame, named: dict[str, str]) -> pl.DataFrame:
    """Step, what, value, low and high: a row for each number of a step that has one."""
    frames = []
    for key, name in named.items():
        limits = [pl.col(f"{key}_{end}") if f"{key}_{end}" in rows.columns else None for end in ("low", "high")]
        low, high = (pl.lit(None, pl.Float64) if end is None else end for end in limits)
        value = pl.col(key).cast(pl.Float64)
        frames.append(rows.select("step", what=pl.lit(name), value=value, low=low, high=high))
    return pl.concat(frames).drop_nulls("value")


def _drawn(study: Study, shown: pl.DataFrame, titles: Sequence[str], **keys: Any) -> Any:
    slug = study.models[0]
    named = shown.with_columns(model=pl.lit(slug))
    return partial(lines, named, study.names, titles, **{"x": "step", "y": "value", "form": "fixed"} | keys)


_CAVEATS = (
    "A word is named where it moved further than 95 % of random tokens between the same two steps, "
    "so a step at which everything moves names none lightly. The furthest of thousands of words "
    "is further than it would be on another training run.",
    "A step over the panel scores the ends of the last whole sweep: a word that was at neither end "
    "and is in no list is seen at the next step that scores the vocabulary.",
)
