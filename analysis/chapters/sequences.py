"""Longer replies found by search: the best of each search, and how other models reward them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    MODEL,
    PROMPT,
    Block,
    Column,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.chapters.sequence_sentences import (
    certificate_blocks,
    certified_findings,
    matrix_blocks,
    universal_findings,
)
from analysis.figures import style
from analysis.measures.transfer import rule_of, transfer_matrix
from analysis.run import Run
from analysis.statistics import Array
from analysis.statistics.ranks import percentile_among
from analysis.study import Study, Table, required, table
from engine.runs.schema import ASCENT, Columns

_KEYS: Columns = {
    **dict.fromkeys(("model", "prompt", "direction", "method"), pl.String),
    "seed": pl.Int64,
}
_BEST: Columns = {
    **_KEYS,
    "length": pl.Int64,
    "reward": pl.Float32,
    "percentile": pl.Float64,
    "text": pl.String,
    "round_trips": pl.Boolean,
    "flops": pl.Float64,
    "reward_from_text": pl.Float32,
    "rejected": pl.Int64,
}
_TRACE: Columns = {
    **_KEYS,
    "step": pl.UInt32,
    "reward": pl.Float32,
    "best": pl.Float32,
    "flops": pl.Float64,
}
_TRANSFER: Columns = {
    **dict.fromkeys(("source", "target", "prompt", "direction", "method"), pl.String),
    "seed": pl.Int64,
    "text": pl.String,
    "reward": pl.Float32,
    "percentile": pl.Float64,
}
_CERTIFICATES: Columns = {
    **_KEYS,
    "certified": pl.Boolean,
    "sweeps": pl.Int64,
    "swaps": pl.Int64,
    "ascent_steps": pl.Int64,
    "searched_reward": pl.Float32,
    "reward": pl.Float32,
    "best_gain": pl.Float64,
    "margin": pl.Float64,
    "noise": pl.Float64,
    "target": pl.Float64,
    "rejected": pl.Int64,
    "text": pl.String,
}


def tables(study: Study) -> Iterator[Table]:
    """sequences.csv, and sequence_certificates, _transfer and _matrix.csv.

    For the page: ("searches",), which has two columns more, and ("sequence_traces",).
    """
    made = study.tables
    yield table("searches", make=partial(_searches, study), file=False)
    yield table("sequence_traces", make=partial(_traces, study), file=False)
    yield table("sequences", make=lambda: made["searches"].drop("reward_from_text", "rejected"))
    yield table("sequence_certificates", make=partial(_certificates, study))
    yield table("sequence_transfer", make=partial(_transfer, study))
    yield table("sequence_matrix", make=partial(_matrix, study))


def sequences_table(run: Run) -> pl.DataFrame:
    """The best sequence of every search.

    Returns:
      The table `sequences.csv`: model, prompt, direction, method, seed, length (tokens), reward,
      percentile (0 to 1: share of the model's single tokens under that prompt that score below;
      null where the vocabulary was not scored), text, round_trips (whether the text tokenises to
      these ids), flops (of the whole search), and two columns more: reward_from_text (of
      the text as a chat would tokenise it) and rejected (candidates that did not round-trip; both
      null where the manifest does not name them). By model, prompt, direction, method, seed. Of
      equal rewards the earliest is taken. Of a certificate (which may seek a target) and of a
      universal search (which does not seek one model's reward), the last step is taken.
    """
    best = []
    singles: dict[tuple[str, str], Array] = {}
    for keys, steps, record in run.read_searches():
        order = steps.sort("reward", "step", descending=[keys["direction"] == "max", False])
        if _last_counts(keys["method"]):
            order = steps.tail(1)
        first = order.row(0, named=True)
        cell = (keys["model"], keys["prompt"])
        if cell in run.results and cell not in singles:
            singles[cell] = np.sort(run.rewards(*cell)[1])
        best.append(
            {
                **keys,
                "seed": int(keys["seed"]),
                "length": len(first["token_ids"] or []),
                "reward": first["reward"],
                "percentile": _percentile(singles.get(cell), first["reward"]),
                "text": first["text"],
                "round_trips": first["round_trips"],
                "flops": steps["flops"].max(),
                "reward_from_text": record.reward_from_text,
                "rejected": record.rejected,
            }
        )
    return pl.DataFrame(best, schema=_BEST).sort(*_KEYS)


def sequence_traces(run: Run) -> pl.DataFrame:
    """Every step of each search: its keys, step, reward, best (so far), flops.

    Where `sequences_table` takes the last step, `best` is each step's own.
    """
    frames = [pl.DataFrame(schema=_TRACE)]
    for keys, steps, _ in run.read_searches():
        reward = pl.col("reward")
        best = reward.cum_max() if keys["direction"] == "max" else reward.cum_min()
        if _last_counts(keys["method"]):
            best = reward
        named = {name: pl.lit(keys[name]).cast(dtype) for name, dtype in _KEYS.items()}
        frames.append(steps.select(**named, step="step", reward="reward", best=best, flops="flops"))
    return pl.concat(frames)


def sequence_certificates(run: Run) -> pl.DataFrame:
    """What certificates say of the sequences that searches found.

    Returns:
      The table `sequence_certificates.csv`: model, prompt, direction, method (of the search), seed,
      certified (every allowed swap of one token was scored, and none improves the sequence),
      sweeps, swaps (that they scored), ascent_steps (swaps that were taken), searched_reward (of
      what the search found), reward (of the sequence after the last step), best_gain (of a swap
      of it, in the direction sought; null: none was admitted), margin (that a gain must exceed to
      improve it), noise (largest difference between two rewards of one sequence), target (the
      reward that it was to come close to; null: none), rejected (swaps that would improve it, but
      whose text does not round-trip), text. By the first five.
    """
    said = []
    for keys, steps, record in run.read_searches():
        if record.certificate is None:
            continue
        own = {**keys, "seed": int(keys["seed"]), "rejected": record.rejected}
        own["method"] = keys["method"].removesuffix(ASCENT)
        own |= {name: record.certificate.get(name) for name in _CERTIFICATES if name not in own}
        last = steps.row(-1, named=True)
        said.append({**own, "reward": last["reward"], "text": last["text"]})
    return pl.DataFrame(said, schema=_CERTIFICATES).sort(*_KEYS)


def sequence_transfer(run: Run, best: pl.DataFrame) -> pl.DataFrame:
    """Rewards that other models give to a model's sequences, where an item list holds their texts.

    Args:
      run: the run.
      best: what `sequences_table` returns.

    Returns:
      source (the model searched), target, prompt, direction, method, seed, text, reward and
      percentile (the target's, as in `sequences_table`).
    """
    frames = [pl.DataFrame(schema=_TRANSFER)]
    for items, target, prompt in run.items:
        own = best.filter(pl.col("prompt") == prompt).drop("reward", "percentile")
        scores = run.item_scores(items, prompt, [target]).unique("item", keep="first")
        joined = own.join(
            scores.select(text="item", reward=target), on="text", how="inner", validate="m:1"
        )
        if joined.height == 0:
            continue
        cell = (target, prompt)
        singles = np.sort(run.rewards(*cell)[1]) if cell in run.results else None
        shares = [_percentile(singles, reward) for reward in joined["reward"]]
        joined = joined.with_columns(
            target=pl.lit(target), percentile=pl.Series(shares, dtype=pl.Float64)
        )
        frames.append(joined.rename({"model": "source"}).select(list(_TRANSFER)))
    keys = ("source", "prompt", "direction", "method", "seed", "target", "text")
    return pl.concat(frames).unique(maintain_order=True).sort(*keys)


def _last_counts(method: str) -> bool:
    return rule_of(method) is not None or method.endswith(ASCENT)


def _percentile(singles: Array | None, reward: float) -> float | None:
    return None if singles is None or not len(singles) else percentile_among(singles, reward)


def _searches(study: Study) -> pl.DataFrame:
    return required(sequences_table(study.run), "No search for sequences was run.")


def _traces(study: Study) -> pl.DataFrame:
    return required(sequence_traces(study.run), "No search for sequences was run.")


def _certificates(study: Study) -> pl.DataFrame:
    made = sequence_certificates(study.run)
    return required(made, "No sequence that a search found was certified.")


def _transfer(study: Study) -> pl.DataFrame:
    transfer = sequence_transfer(study.run, study.tables["searches"])
    return required(transfer, "No other model scored a sequence that a search found.")


def _matrix(study: Study) -> pl.DataFrame:
    matrix = transfer_matrix(study.run, study.tables["searches"])
    return required(matrix, "No model scored the text of a sequence that a search found.")


_STROKES = {"max": "-", "min": "--"}


@style.styled
def courses(traces: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """The best reward so far against the step of the search, one panel per model.

    Solid lines seek the highest reward, dashed ones the lowest; one line per seed.

    Args:
      traces: what `sequence_traces` returns.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    models = [model for model in names if model in traces["model"]]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    looks = style.looks(traces["method"].unique().sort())
    keys = ["prompt", "direction", "method", "seed"]
    for model, ax in axes.items():
        parts = traces.filter(model=model).partition_by(keys, as_dict=True)
        for (_, direction, method, _), part in sorted(parts.items(), key=lambda pair: str(pair[0])):
            part, colour = part.sort("step"), looks[str(method)][0]
            ax.plot(part["step"], part["best"], _STROKES[str(direction)], color=colour, lw=1.1)
    figure.supxlabel("step of the search", fontsize=9)
    figure.supylabel("best reward so far", fontsize=9)
    style.legend(figure, {_shown(m): (c, "") for m, (c, _) in looks.items()}, lines=True)
    return figure


@style.styled
def costs(searches: pl.DataFrame, names: Mapping[str, str]) -> style.Figure:
    """The best reward of each search against its cost, one panel per model.

    Args:
      searches: what `sequences_table` returns.
      names: slug -> nickname, in the order of the panels; models without rows are left out.
    """
    searches = searches.filter(pl.col("flops") > 0)
    models = [model for model in names if model in searches["model"]]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    looks = style.looks(searches["method"].unique().sort())
    for model, ax in axes.items():
        for direction, filled in (("max", True), ("min", False)):
            for method, (colour, marker) in looks.items():
                part = searches.filter(model=model, method=method, direction=direction)
                face = colour if filled else "white"
                ax.plot(
                    part["flops"], part["reward"], marker, color=colour, markerfacecolor=face, ms=5
                )
        style.log_axis(ax, 4)
    figure.supxlabel("floating-point operations of the search", fontsize=9)
    figure.supylabel("final reward", fontsize=9)
    style.legend(figure, {_shown(method): look for method, look in looks.items()})
    return figure


def _shown(method: str) -> str:
    """A method's name in a legend: that of a universal search ends in a hash in the run."""
    if rule := rule_of(method):
        return f"one reply for all ({rule})"
    return f"{method.removesuffix(ASCENT)}, then swaps" if method.endswith(ASCENT) else method


def section(study: Study) -> Section:
    """The courses and costs of the searches, their best sequences, and other models' rewards."""
    made = study.tables
    searches = made.get("searches")
    blocks: list[Block] = notes([made.reason("searches")])
    traces = made.get("sequence_traces")
    if searches is not None and traces is not None:
        text = "Solid lines sought the highest reward, dashed ones the lowest; one line per seed."
        blocks.append(Picture("sequence_traces", text, partial(courses, traces, study.names)))
        if searches.filter(pl.col("flops") > 0).height:
            text = (
                "Filled: highest sought; hollow: lowest. A good search reaches an extreme reward "
                "at low cost."
            )
            blocks.append(Picture("sequences", text, partial(costs, searches, study.names)))
        blocks += rows(searches, _SEARCHES, "sequences.csv", "What the searches found")
        blocks += certificate_blocks(study)
        title = "The same text under other models"
        transfer = made.get("sequence_transfer")
        blocks += rows(transfer, _TRANSFERS, "sequence_transfer.csv", title)
        blocks += notes([made.reason("sequence_transfer")])
        blocks += matrix_blocks(study)
    return Section(
        id="sequences",
        title="Longer replies",
        label="Sequences",
        lead="Which replies of several tokens does a model reward most and least? A search follows "
        "the gradient of the reward, or tries replies in another way.",
        blocks=blocks,
        findings=[
            *certified_findings(study),
            *universal_findings(study.run, made.get("sequence_matrix")),
        ],
        caveats=(
            "A search finds a local extreme: another seed or method may find better, also where "
            "no swap of one token does.",
            "A text that does not round-trip is scored as ids that no writer could type.",
        ),
    )


_SEARCHES: tuple[Column, ...] = (
    MODEL,
    PROMPT,
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("seed", "seed", "count"),
    ("length", "tokens", "count"),
    ("reward", "reward", "number"),
    ("percentile", "percentile", "share"),
    ("text", "text", "token"),
    ("round_trips", "round-trips", "bool"),
    ("reward_from_text", "reward of the text", "number"),
    ("rejected", "texts rejected", "count"),
    ("flops", "operations", "number"),
)
_TRANSFERS: tuple[Column, ...] = (
    ("source", "found on", "model"),
    ("target", "scored by", "model"),
    PROMPT,
    ("direction", "direction", "text"),
    ("method", "method", "text"),
    ("text", "text", "token"),
    ("reward", "reward", "number"),
    ("percentile", "percentile", "share"),
)
