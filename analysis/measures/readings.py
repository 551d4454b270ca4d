"""Rewards under other readings of a model beside those under its default reading."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from etils import epath

from analysis.columns import KENDALL, MODEL, PROMPT, Column, Spec
from analysis.run import Run, load
from analysis.statistics import Array, ranks
from analysis.statistics.kendall import tau_b
from analysis.statistics.ranks import end_overlap
from engine.runs import convention_index, schema, storage
from engine.runs.convention_index import DEFAULT, Entry, Index
from engine.runs.reader import read_contents

_ONE_DEVICE = "1x1"
READING = Column("reading")
AGREEMENT = Spec(
    "conventions_readings",
    (
        *(MODEL, READING, PROMPT),
        Column("noise", "bool", help="the default reading in other steps or on another mesh"),
        Column("tokens", "count", help="compared"),
        KENDALL.but(help="τ-b with the default reading"),
        Column("ends", "count", help="tokens at each end"),
        Column("top", "count"),
        Column("bottom", "count", help="of them in common"),
        Column("mean_jump", "share"),
        Column("largest_jump", "share", help="of a token's percentile, absolute"),
    ),
)
JUMPS = Spec(
    "conventions_jumps",
    (
        *(MODEL, READING, PROMPT, Column("rank", "count")),
        Column("token_id", "count", dtype=pl.UInt32),
        Column("token", "token"),
        Column("percentile", "share", "then"),
        Column("default_percentile", "share", "percentile by default"),
        Column("jump", "share", help="five tokens of each reading, model and prompt"),
    ),
    page="model reading prompt rank token default_percentile percentile jump",
    title="Tokens that jump furthest",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readings:
    """The readings of a run."""

    index: Index  # which there are: slug -> reading -> entry, the default one first
    # Reading -> the run of its finished results; the default one is among them.
    runs: Mapping[str, Run]

    def models(self) -> list[str]:
        """Slugs of the models whose default reading is finished, sorted."""
        return [model for model in sorted(self.index) if model in self.runs[DEFAULT].models]

    def computed(self, model: str) -> dict[str, Entry]:
        """The other readings of a model that are finished, the noise floor's included."""
        return {
            name: entry
            for name, entry in self.index[model].items()
            if name != DEFAULT and name in self.runs and model in self.runs[name].models
        }

    def run_of(self, reading: str, model: str) -> Run:
        """The run of a reading with the results of one model alone."""
        run = self.runs[reading]
        return dataclasses.replace(
            run,
            models={model: run.models[model]},
            results={key: r for key, r in run.results.items() if key[0] == model},
            items={key: r for key, r in run.items.items() if key[1] == model},
        )


def readings_of(run: Run) -> Readings | None:
    """The readings of a run, every finished result checked; None where it has none.

    Raises:
      RunError: as `analysis.load`.
    """
    homes = [convention_index.home_of(folder) for folder in run.folders]
    index: Index = {}
    for home in homes:
        index |= convention_index.read_index(home)
    runs = {}
    for name in dict.fromkeys(name for entries in index.values() for name in entries):
        finished = _finished([convention_index.folder_of(home, name) for home in homes])
        if finished is not None:
            runs[name] = finished
    return Readings(index=index, runs=runs) if DEFAULT in runs else None


def label(entry: Entry, default: Entry) -> str:
    """What of a reading differs from the default one: `bos none`."""
    settings, usual = entry.settings, default.settings
    differ = [f"{k} {v}" for k, v in settings.items() if usual.get(k) not in (None, v)]
    if entry.noise:
        mesh = settings.get("mesh", _ONE_DEVICE)
        return f"noise: step {settings.get('step', '?')}" + f", mesh {mesh}" * (mesh != _ONE_DEVICE)
    return ", ".join(differ) or DEFAULT


def agreement(readings: Readings, count: int) -> pl.DataFrame:
    """The table `AGREEMENT`: each reading's ranking, and ends of `count`, beside the default's."""
    rows = []
    for model, name, entry, prompt, (_, default, rewards) in _pairs(readings):
        ends = min(count, len(rewards))
        far = np.abs(ranks.percentiles(rewards) - ranks.percentiles(default))
        overlap = [end_overlap(default, rewards, ends, highest) for highest in (True, False)]
        numbers = (tau_b(default, rewards), ends, *overlap, far.mean(), far.max())
        rows.append((model, name, prompt, entry.noise, len(rewards), *numbers))
    return AGREEMENT.frame(rows)


def jumps(readings: Readings, count: int) -> pl.DataFrame:
    """The table `JUMPS`: the `count` tokens that jump furthest, without the noise floor."""
    frames = []
    for model, name, entry, prompt, (ids, default, rewards) in _pairs(readings):
        if entry.noise:
            continue
        now, before = (ranks.percentiles(each) for each in (rewards, default))
        jump = now - before
        first = np.lexsort((ids, -np.abs(jump)))[: min(count, np.count_nonzero(jump))]
        if not len(first):  # the same order
            continue
        numbers = {"token_id": ids, "percentile": now, "default_percentile": before, "jump": jump}
        frame = pl.DataFrame({name: values[first] for name, values in numbers.items()})
        frame = frame.with_row_index("rank", 1)
        tokens = readings.runs[DEFAULT].vocabulary(model).select("token_id", "token").collect()
        frame = frame.join(tokens, on="token_id", how="left", validate="m:1", maintain_order="left")
        frames.append(JUMPS.frame(frame, model=model, reading=name, prompt=prompt))
    return JUMPS.concat(frames)


def _pairs(
    readings: Readings,
) -> Iterator[tuple[str, str, Entry, str, tuple[Array, Array, Array]]]:
    """Model, reading, its entry, prompt; common token ids, rewards by default and then."""
    default = readings.runs[DEFAULT]
    for model in readings.models():
        for name, entry in readings.computed(model).items():
            other = readings.runs[name]
            for prompt in other.vocabulary_prompts:
                if (model, prompt) in other.results and (model, prompt) in default.results:
                    usual_ids, usual = default.rewards(model, prompt)
                    other_ids, then = other.rewards(model, prompt)
                    ids, *at = np.intersect1d(
                        usual_ids, other_ids, assume_unique=True, return_indices=True
                    )
                    yield model, name, entry, prompt, (ids, usual[at[0]], then[at[1]])


def _finished(folders: Sequence[epath.Path]) -> Run | None:
    """The finished results in some run folders; None where there are none."""
    begun = [folder for folder in folders if storage.exists(folder / schema.MANIFEST)]
    any_finished = any(
        result.complete for folder in begun for result in read_contents(folder).results.values()
    )
    return load(begun, finished_only=True) if any_finished else None
