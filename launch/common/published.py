"""Finds the reading under which a model's weights reproduce rewards that somebody published.

The examples of a model's card (configs/known_goldens.py), or a sample of a released file, are
scored under every combination of the readings that the model allows. Readings that give the same
token ids share a row of the table.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jax.sharding import Mesh

from configs.known_goldens import GOLDENS, NOISE
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import admission
from engine.progress import progress
from engine.scoring.reward_passes import RewardScorer, score_buckets
from engine.scoring.rows import RewardRows
from engine.sweep.outcomes import memory_errors
from engine.sweep.rewards import pooling_of, reply_rows, token_rows
from launch.common.command import Given
from launch.common.output import show
from launch.common.reading_runs import Weights
from launch.common.readings import DIMENSIONS, Reading, Values, readings_of, reread
from launch.common.released_layouts import LAYOUTS, Choices, Column, Content
from launch.common.released_names import slugged
from launch.common.released_tables import read

CARD = "card"
STEP_SIZE = 64  # candidates per step and device
NOISES = 5  # standard deviations by which both rewards may differ
LEAST = 1e-3  # smallest tolerance: float32 rewards of two libraries differ by less
_ALIKE = 0.99  # share of tokens whose text must be the model's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """Published rewards of replies to one prompt.

    Attributes:
      name: of the set.
      prompt: the user's turn.
      replies: the assistant's turns; of tokens, their texts.
      token_ids: ids of the tokens that are the replies; None for texts.
      rewards: of the replies.
      tolerance: a smaller difference counts as none.
    """

    name: str
    prompt: str
    replies: Sequence[str]
    token_ids: Sequence[int] | None = None
    rewards: Sequence[float]
    tolerance: float

    def reproduced(self, rewards: np.ndarray) -> bool:
        """Whether every reward is within tolerance."""
        return bool((np.abs(rewards - self.rewards) <= self.tolerance).all())


# A reading as cells of a table's row: one for each dimension that has several values.
Cells = tuple[str, ...]


def sets_of(given: Given, model: Checkpoint) -> list[Published]:
    """What the flags name as published of a model.

    Raises:
      AssayError: nothing is known of the model's card; a file that is not in the layout, has no
        rewards of the model, or holds other tokens than the model has.
    """
    found: list[Published] = []
    for name in given.published:
        if name == CARD:
            found += _of_card(model.card.slug, given.config.tolerance)
            continue
        if not given.layout:
            raise AssayError(f"--layout is missing; allowed: {', '.join(LAYOUTS)}")
        if given.layout in ("tokens", "items") and len(given.checkpoint) > 1:
            raise AssayError(
                f"--published with layout {given.layout!r} holds one model; allowed: one checkpoint"
            )
        found += released(
            Path(name),
            given.layout,
            model,
            prompt=given.published_prompt,
            rows=given.config.published_rows,
            tolerance=_tolerance(given.config.tolerance, model.card.slug),
        )
    return found


def released(
    path: Path, layout: str, model: Checkpoint, *, prompt: str, rows: int, tolerance: float
) -> list[Published]:
    """Evenly spaced rows of a released file, a set for each prompt.

    Args:
      path: .csv or .parquet.
      layout: of `released_layouts.LAYOUTS`.
      model: whose rewards are taken.
      prompt: text or id, where the file does not say it.
      rows: number of rows at most.
      tolerance: of every set.

    Raises:
      AssayError: as `sets_of`.
    """
    slug = model.card.slug
    if type(rows) is not int or rows < 1:
        raise AssayError(f"published_rows={rows!r}; allowed: integers >= 1")
    named = {"model": slug} if layout in ("tokens", "items") else {}
    try:
        choices = Choices(layout=layout, prompt=prompt, **named)
        content = LAYOUTS[layout](read(path), choices)
    except AssayError as error:
        said = str(error).replace("source=", "published=", 1)
        raise AssayError(said.replace("--prompt ", "--published_prompt ", 1)) from error
    own = [column for column in content.columns if slugged(column.model) == slug]
    if not own:
        known = ", ".join(dict.fromkeys(slugged(column.model) for column in content.columns))
        raise AssayError(f"published={path}: no rewards of {slug!r}; it has {known}")
    if content.vocabulary is not None:
        _check_tokens(path, content.vocabulary, model)
    return [_sampled(column, content, path, rows, tolerance) for column in own]


def compared(
    model: Checkpoint, sets: Sequence[Published], values: Values, mesh: Mesh, *, check_memory: bool
) -> list[str]:
    """Prints a table for each set; returns a line for each, which names what reproduces it.

    Raises:
      AssayError: as `compare`.
    """
    outcomes, reasons = compare(model, sets, values, mesh, check_memory=check_memory)
    count = f"{len(reasons)} reading{'s' * (len(reasons) > 1)}"
    unusable = f"; {count} could not be used ({reasons[0]})" if reasons else ""
    lines = []
    for index, one in enumerate(sets):
        own = {cells: rewards[index] for cells, rewards in outcomes.items()}
        show(f"{table(one, own, varied(values))}\n")
        lines.append(f"{model.card.slug}, {verdict(one, own, varied(values))}{unusable}")
    return lines


def compare(
    model: Checkpoint, sets: Sequence[Published], values: Values, mesh: Mesh, *, check_memory: bool
) -> tuple[dict[Cells, list[np.ndarray]], list[str]]:
    """Scores every set under every combination of readings.

    Args:
      model: the model.
      sets: what is scored.
      values: of every dimension.
      mesh: the devices.
      check_memory: whether readings that do not fit the memory are left out.

    Returns:
      Rewards of every set (float32 [replies]) by reading; for each reading that cannot be used,
      why not.

    Raises:
      AssayError: no reading can be used, or memory ran out.
    """
    readings = readings_of(values, all_combinations=True).values()
    ordered = sorted(readings, key=lambda reading: reading.weights)
    outcomes: dict[Cells, list[np.ndarray]] = {}
    reasons: list[str] = []
    with progress(len(ordered), "readings", what="scoring", delay_s=5) as bar:
        for _, same in itertools.groupby(ordered, key=lambda reading: reading.weights):
            for alike, rewards in _scored(model, sets, list(same), mesh, check_memory):
                bar.update(len(alike))
                if isinstance(rewards, str):
                    reasons += [rewards] * len(alike)
                else:
                    outcomes[_cells(alike, varied(values))] = rewards
    if not outcomes:
        raise AssayError(f"published: none of {len(ordered)} readings can be used: {reasons[0]}")
    return outcomes, reasons


def varied(values: Values) -> list[str]:
    """The dimensions that have several values."""
    return [name for name in DIMENSIONS if len(values[name]) > 1]


def table(published: Published, outcomes: Mapping[Cells, np.ndarray], names: Sequence[str]) -> str:
    """Differences to the published rewards by reading; all of them if they are few."""
    few = len(published.rewards) <= 4
    header = [f"to {r:g}" for r in published.rewards] if few else ["rms", "largest"]
    rows = [[*names, *header, "within"]]
    for cells, rewards in outcomes.items():
        off = rewards - published.rewards
        numbers = off if few else (np.sqrt(np.square(off).mean()), off[np.abs(off).argmax()])
        within = "yes" if published.reproduced(rewards) else "no"
        rows.append([*cells, *(f"{n:+.4f}" for n in numbers), within])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([f"{published.name}, allowed {published.tolerance:g}", *lines])


def verdict(
    published: Published, outcomes: Mapping[Cells, np.ndarray], names: Sequence[str]
) -> str:
    """One line: the readings that reproduce the set, or the one that comes nearest."""
    found = [phrase(c, names) for c, rewards in outcomes.items() if published.reproduced(rewards)]
    if found:
        return f"{published.name}: reproduced by {'; by '.join(found)}"
    off = {c: float(np.abs(r - published.rewards).max()) for c, r in outcomes.items()}
    nearest = min(off, key=lambda cells: np.nan_to_num(off[cells], nan=np.inf))
    return (
        f"{published.name}: reproduced by none of {len(off)} readings; nearest (off by "
        f"{off[nearest]:.4g}): {phrase(nearest, names)}"
    )


def phrase(cells: Cells, names: Sequence[str]) -> str:
    """`bos double, date 26 Jul 2024, …`."""
    pairs = zip(names, cells, strict=True)
    return ", ".join(f"{name} {cell}" for name, cell in pairs) or "the only reading"


def _of_card(slug: str, tolerance: object) -> list[Published]:
    if slug not in GOLDENS:
        raise AssayError(
            f"published='card': nothing is known of the card of {slug!r}; allowed: a file, or one "
            f"of {', '.join(GOLDENS)}"
        )
    return [
        Published(
            name=f"{golden.name} ({golden.source})",
            prompt=golden.prompt,
            replies=golden.replies,
            rewards=golden.rewards,
            tolerance=golden.tolerance if tolerance == "auto" else _tolerance(tolerance, slug),
        )
        for golden in GOLDENS[slug]
    ]


def _tolerance(named: object, slug: str) -> float:
    if named == "auto":
        return max(NOISES * NOISE.get(slug, 0.0), LEAST)
    if isinstance(named, bool) or not isinstance(named, int | float) or not named > 0:
        raise AssayError(f"tolerance={named!r}; allowed: 'auto', or numbers above 0")
    return float(named)


def _sampled(
    column: Column, content: Content, path: Path, rows: int, tolerance: float
) -> Published:
    """Evenly spaced rows of a column."""
    count = len(column.values)
    sample = np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(int))
    frame = column.rows[sample]
    ids: list[int] | None = None
    if content.vocabulary is not None:
        ids = frame["token_id"].to_list()
        tokens = content.vocabulary.select("token_id", "token")
        frame = frame.join(tokens, on="token_id", how="left", validate="1:1", maintain_order="left")
    kind = "tokens" if ids else "items"
    return Published(
        name=f"{path.name} under {column.prompt.id!r}, {len(sample)} {kind}",
        prompt=column.prompt.text,
        replies=frame["token" if ids else "item"].to_list(),
        token_ids=ids,
        rewards=column.values[sample].to_list(),
        tolerance=tolerance,
    )


def _check_tokens(path: Path, vocabulary: pl.DataFrame, model: Checkpoint) -> None:
    """Refuses a file whose tokens are not those of the model's tokenizer."""
    tokens = model.tokens
    ids, texts = vocabulary["token_id"].to_list(), vocabulary["token"].to_list()
    if unknown := [i for i in ids if i not in tokens]:
        raise AssayError(
            f"published={path}: token_id {unknown[0]}; allowed: ids of the tokenizer of "
            f"{model.card.slug!r}, which has {len(tokens)}"
        )
    others = [(i, text) for i, text in zip(ids, texts, strict=True) if tokens[i] != text]
    if len(others) > (1 - _ALIKE) * len(ids):
        first, text = others[0]
        raise AssayError(
            f"published={path}: {len(others)} of {len(ids)} tokens are others than those of "
            f"{model.card.slug!r}, first token_id {first}: {text!r}, not {tokens[first]!r}; "
            "allowed: rewards of a model with this tokenizer"
        )


def _scored(
    model: Checkpoint,
    sets: Sequence[Published],
    readings: Sequence[Reading],
    mesh: Mesh,
    check_memory: bool,
) -> Iterator[tuple[list[Reading], list[np.ndarray] | str]]:
    """Readings of the same weights that give the same token ids, and their rewards.

    Of those that cannot be used, why not.
    """
    alike: dict[object, tuple[list[Reading], list[RewardRows]]] = {}
    for reading in readings:
        try:
            rows = [_rows(reread(model, reading), one, reading) for one in sets]
            ids = [_read_ids(each) for each in rows]
        except AssayError as error:
            yield [reading], str(error)  # the template cannot be used so
            continue
        alike.setdefault(str(ids), ([], rows))[0].append(reading)
    usable = [reading for same, _ in alike.values() for reading in same]
    every = [each for _, rows in alike.values() for each in rows]
    if not usable:
        return
    if check_memory and (reason := _refusal(reread(model, usable[0]), every, usable[0], mesh)):
        yield usable, reason
        return
    guarded = functools.partial(
        memory_errors, [model.card.slug], mesh, "published_rows", max(map(len, every))
    )
    weights = Weights(readings[0], mesh)  # released when this generator ends
    for same, rows in alike.values():
        with guarded():
            scorer = weights([reread(model, same[0])], STEP_SIZE)
            for each in rows:
                each.check(model.card.decoder)
            rewards = [_rewards(scorer, each) for each in rows]
        yield same, rewards


def _refusal(model: Checkpoint, rows: Sequence[RewardRows], reading: Reading, mesh: Mesh) -> str:
    """Why the model does not fit the memory in the reading's dtype; "" if it does."""
    prompts = [each.prompt for each in rows]
    return admission.refusal(
        admission.subject_of([model]),
        admission.Place.of(mesh),
        reading.dtype,
        max(len(prompt.prefix) for prompt in prompts),
        1 + min(len(prompt.suffix) for prompt in prompts),
        STEP_SIZE,
        self_check=1,
    )


def _rows(model: Checkpoint, published: Published, reading: Reading) -> RewardRows:
    """The conversations of a set under a reading."""
    pooling, ids = pooling_of(model, reading.pooling), published.token_ids
    if ids is not None:
        return token_rows(model, published.prompt, reading.mode, pooling, ids)
    return reply_rows(model, published.prompt, published.replies, reading.mode, pooling)


def _read_ids(rows: RewardRows) -> list[list[int]]:
    """Token ids up to where the reward is read: they alone decide it."""
    return [s[: rows.read_at(s) + 1] for s in rows.sequences(range(len(rows)))]


def _rewards(scorer: RewardScorer, rows: RewardRows) -> np.ndarray:
    prefix = scorer.prefill(rows.prompt)
    rewards: np.ndarray = score_buckets(scorer, prefix, rows.buckets(0, len(rows)), len(rows))[0]
    return rewards


def _cells(readings: Sequence[Reading], names: Sequence[str]) -> Cells:
    """The values of readings that share a row: `template = single`."""
    return tuple(
        " = ".join(dict.fromkeys(getattr(reading, name) for reading in readings)) for name in names
    )
