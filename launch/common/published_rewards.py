"""Finds the convention under which a model's weights reproduce rewards that somebody published.

The examples of a model's card (configs/known_goldens.py), or a sample of a released file, are
scored under every combination of what the model allows. Conventions that give the same token ids
share a row of the table.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jax.sharding import Mesh

from configs.known_goldens import GOLDENS, RewardSet
from configs.known_models import KNOWN
from engine.checkpoint.card import Checkpoint
from engine.display import progress
from engine.errors import AssayError
from engine.planning import fitting
from engine.planning.machines import DeviceRoom
from engine.planning.memory import Model, SweepWork
from engine.scoring.reward_passes import RewardScorer
from engine.scoring.rows import RewardRows, reply_rows, token_rows
from engine.settings import check_integer
from engine.sweep.outcomes import memory_errors
from launch.common.command import Given
from launch.common.convention_runs import Weights
from launch.common.conventions import DIMENSIONS, Convention, Values, conventions_of
from launch.common.released_files import slugged
from launch.common.released_layouts import Choices, Column, Content, content_of
from launch.common.text import aligned, counted, show

CARD = "card"
STEP_SIZE = 64  # candidates per step and device
NOISES = 5  # standard deviations by which both rewards may differ
LEAST = 1e-3  # smallest tolerance: float32 rewards of two libraries differ by less
_ALIKE = 0.99  # share of tokens whose text must be the model's


# A convention as cells of a table's row: one for each dimension that has several values.
Cells = tuple[str, ...]


def reward_sets(given: Given, model: Checkpoint) -> list[RewardSet]:
    """The published rewards of a model that the flags name.

    Raises:
      AssayError: nothing is known of the model's card; a file that is not in the layout, has no
        rewards of the model, or holds other tokens than the model has.
    """
    sets: list[RewardSet] = []
    slug, tolerance = model.card.slug, _tolerance(given.config.tolerance)
    for name in given.published:
        if name == CARD:
            sets += of_card(slug, tolerance)
            continue
        of_one = given.layout in ("tokens", "items")
        if of_one and len(given.checkpoint) > 1:
            raise AssayError(
                f"--published with layout {given.layout!r} holds one model; allowed: one checkpoint"
            )
        choices = Choices(
            layout=given.layout, prompt=given.published_prompt, model=slug if of_one else ""
        )
        noise = KNOWN[slug].noise if slug in KNOWN else 0.0
        within = tolerance or max(NOISES * noise, LEAST)
        sets += released(Path(name), choices, model, given.config.published_rows, within)
    return sets


def of_card(slug: str, tolerance: float | None) -> list[RewardSet]:
    """The examples of a model's card, each with its tolerance."""
    if slug not in GOLDENS:
        raise AssayError(
            f"published='card': nothing is known of the card of {slug!r}; allowed: a file, or one "
            f"of {', '.join(GOLDENS)}"
        )
    return [
        dataclasses.replace(
            one, name=f"{one.name} ({one.source})", tolerance=tolerance or one.tolerance
        )
        for one in GOLDENS[slug]
    ]


def released(
    path: Path, choices: Choices, model: Checkpoint, rows: int, tolerance: float
) -> list[RewardSet]:
    """Up to `rows` evenly spaced rows of a released file, a set for each prompt."""
    slug = model.card.slug
    check_integer("published_rows", rows, 1)
    try:
        content = content_of(path, choices)
    except AssayError as error:
        said = str(error).replace("source=", "published=", 1)
        raise AssayError(said.replace("--prompt ", "--published_prompt ", 1)) from error
    columns = [column for column in content.columns if slugged(column.model) == slug]
    if not columns:
        known = ", ".join(dict.fromkeys(slugged(column.model) for column in content.columns))
        raise AssayError(f"published={path}: no rewards of {slug!r}; it has {known or 'none'}")
    if content.vocabulary is not None:
        _check_tokens(path, content.vocabulary, model)
    return [_sampled(column, content, path, rows, tolerance) for column in columns]


def compare_and_show(
    model: Checkpoint, sets: Sequence[RewardSet], values: Values, mesh: Mesh, *, check_memory: bool
) -> list[str]:
    """Prints a table for each set; returns a line for each, which names what reproduces it."""
    outcomes, reasons = compare(model, sets, values, mesh, check_memory=check_memory)
    unusable = (
        f"; {counted(len(reasons), 'reading')} could not be used ({reasons[0]})" if reasons else ""
    )
    lines = []
    for index, one in enumerate(sets):
        rewards = {cells: every[index] for cells, every in outcomes.items()}
        show(f"{table(one, rewards, varied(values))}\n")
        lines.append(f"{model.card.slug}, {verdict(one, rewards, varied(values))}{unusable}")
    return lines


def compare(
    model: Checkpoint, sets: Sequence[RewardSet], values: Values, mesh: Mesh, *, check_memory: bool
) -> tuple[dict[Cells, list[np.ndarray]], list[str]]:
    """Scores every set under every combination of conventions.

    Conventions that do not fit the memory are left out if `check_memory`.

    Returns:
      Rewards of every set (float32 [replies]) by convention; for each convention that cannot be
      used, why not.

    Raises:
      AssayError: no convention can be used, or memory ran out.
    """
    every = conventions_of(values, all_combinations=True).values()
    # Weights and ids up to where rewards are read, which decide them -> conventions, rewards.
    found: dict[tuple[object, ...], tuple[list[Convention], list[np.ndarray]]] = {}
    reasons: list[str] = []
    weights = Weights()
    with progress(len(every), "readings", what="scoring", delay_s=5) as bar:
        for one in sorted(every, key=lambda one: one.weights):
            bar.update()
            applied = one.applied(model)
            try:
                rows = [_rows(applied, published, one) for published in sets]
                key = (one.weights, str([_read_ids(each) for each in rows]))
            except AssayError as error:  # the template cannot be used so
                reasons.append(str(error))
                continue
            if key in found:
                found[key][0].append(one)
                continue
            checked = weights.turn_to(one, mesh) or not check_memory
            if not checked and (reason := _refusal(applied, one.dtype, rows, mesh)):
                reasons.append(reason)
                continue
            with memory_errors([model.card.slug], mesh, "published_rows", max(map(len, rows))):
                found[key] = [one], _rewards(weights([applied], STEP_SIZE), applied, rows)
    if not found:
        raise AssayError(f"published: none of {len(every)} readings can be used: {reasons[0]}")
    return {_cells(alike, varied(values)): rewards for alike, rewards in found.values()}, reasons


def varied(values: Values) -> list[str]:
    """The dimensions that have several values."""
    return [name for name in DIMENSIONS if len(values[name]) > 1]


def table(published: RewardSet, outcomes: Mapping[Cells, np.ndarray], names: Sequence[str]) -> str:
    """Differences to the published rewards by convention; all of them if they are few."""
    few = len(published.rewards) <= 4
    header = [f"to {r:g}" for r in published.rewards] if few else ["rms", "largest"]
    rows = [[*names, *header, "within"]]
    for cells, rewards in outcomes.items():
        off = rewards - published.rewards
        numbers = off if few else (np.sqrt(np.square(off).mean()), off[np.abs(off).argmax()])
        within = "yes" if published.reproduced(rewards) else "no"
        rows.append([*cells, *(f"{n:+.4f}" for n in numbers), within])
    return "\n".join([f"{published.name}, allowed {published.tolerance:g}", *aligned(rows)])


def verdict(
    published: RewardSet, outcomes: Mapping[Cells, np.ndarray], names: Sequence[str]
) -> str:
    """One line: the conventions that reproduce the set, or the one that comes nearest."""
    met = [_phrase(c, names) for c, rewards in outcomes.items() if published.reproduced(rewards)]
    if met:
        return f"{published.name}: reproduced by {'; by '.join(met)}"
    off = {c: float(np.abs(r - published.rewards).max()) for c, r in outcomes.items()}
    nearest = min(off, key=lambda cells: np.nan_to_num(off[cells], nan=np.inf))
    return (
        f"{published.name}: reproduced by none of {len(off)} readings; nearest (off by "
        f"{off[nearest]:.4g}): {_phrase(nearest, names)}"
    )


def _phrase(cells: Cells, names: Sequence[str]) -> str:
    """`bos double, date 26 Jul 2024, …`."""
    pairs = zip(names, cells, strict=True)
    return ", ".join(f"{name} {cell}" for name, cell in pairs) or "the only reading"


def _tolerance(named: object) -> float | None:
    """The tolerance that a setting names; None for `auto`."""
    if named == "auto":
        return None
    if isinstance(named, bool) or not isinstance(named, int | float) or not named > 0:
        raise AssayError(f"tolerance={named!r}; allowed: 'auto', or numbers above 0")
    return float(named)


def _sampled(
    column: Column, content: Content, path: Path, rows: int, tolerance: float
) -> RewardSet:
    """Evenly spaced rows of a column."""
    count = len(column.values)
    sample = np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(int))
    frame, ids = column.rows[sample], None
    if content.vocabulary is None:
        replies = frame["item"].to_list()
    else:
        ids = frame["token_id"].to_list()
        texts = dict(content.vocabulary.select("token_id", "token").rows())
        replies = [texts[i] for i in ids]
    kind = "tokens" if ids else "items"
    return RewardSet(
        name=f"{path.name} under {column.prompt.id!r}, {len(sample)} {kind}",
        prompt=column.prompt.text,
        replies=replies,
        token_ids=ids,
        rewards=column.values[sample].to_list(),
        tolerance=tolerance,
    )


def _check_tokens(path: Path, vocabulary: pl.DataFrame, model: Checkpoint) -> None:
    """Refuses a file whose tokens are not those of the model's tokenizer."""
    tokens, rows = model.tokens, vocabulary.select("token_id", "token").rows()
    different = [(i, text) for i, text in rows if tokens.get(i) != text]
    if len(different) > (1 - _ALIKE) * len(rows) or any(i not in tokens for i, _ in different):
        first, text = different[0]
        raise AssayError(
            f"published={path}: {len(different)} of {len(rows)} tokens are others than those of "
            f"{model.card.slug!r}, first token_id {first}: {text!r}, not {tokens.get(first)!r}; "
            "allowed: rewards of a model with this tokenizer"
        )


def _read_ids(rows: RewardRows) -> list[Sequence[int]]:
    """Token ids of each row up to where its reward is read."""
    return [ids[: rows.pooling.position(ids) + 1] for ids in rows.sequences(range(len(rows)))]


def _refusal(model: Checkpoint, dtype: str, rows: Sequence[RewardRows], mesh: Mesh) -> str:
    """Why a model does not fit the memory; "" if it does."""
    prefix = max(len(each.prompt.prefix) for each in rows)
    positions = 1 + min(len(each.prompt.suffix) for each in rows)
    work = SweepWork(prefix=prefix, own=positions, step_size=STEP_SIZE, self_check=1)
    placed = Model.of([model]).on(DeviceRoom.of(mesh), dtype)
    return fitting.refusal(placed, work)


def _rows(model: Checkpoint, published: RewardSet, convention: Convention) -> RewardRows:
    """The conversations of a set under a convention."""
    how = convention.mode, convention.pooling
    if published.token_ids is not None:
        return token_rows(model, published.prompt, *how, published.token_ids)
    return reply_rows(model, published.prompt, published.replies, *how)


def _rewards(
    scorer: RewardScorer, model: Checkpoint, sets: Sequence[RewardRows]
) -> list[np.ndarray]:
    """Rewards of every set, float32 [rows]."""
    found = []
    for rows in sets:
        rows.check(model.card.decoder)
        prefix = scorer.prefill(rows.prompt)
        found.append(scorer.score(prefix, rows, 0, len(rows))[0][0])
    return found


def _cells(conventions: Sequence[Convention], names: Sequence[str]) -> Cells:
    """The values of conventions that share a row: `template = single`."""
    return tuple(
        " = ".join(dict.fromkeys(getattr(one, name) for one in conventions)) for name in names
    )
