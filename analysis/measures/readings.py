"""Rewards under other readings of a model beside those under its default reading."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from etils import epath

from analysis.run import Run, load
from analysis.statistics import Array, ranks
from analysis.statistics.kendall import tau_b
from analysis.statistics.ranks import end_overlap
from engine.runs import convention_index, schema, storage
from engine.runs.convention_index import DEFAULT, Entry, Index
from engine.runs.reader import read_contents
from engine.runs.schema import Columns

_ONE_DEVICE = "1x1"
_READING: Columns = dict.fromkeys(("model", "reading", "prompt"), pl.String)
AGREEMENT: Columns = {
    **_READING,
    "noise": pl.Boolean,
    "tokens": pl.Int64,
    "kendall": pl.Float64,
    **dict.fromkeys(("ends", "top", "bottom"), pl.Int64),
    **dict.fromkeys(("mean_jump", "largest_jump"), pl.Float64),
}
JUMPS: Columns = {
    **_READING,
    "rank": pl.Int64,
    "token_id": pl.UInt32,
    "token": pl.String,
    **dict.fromkeys(("percentile", "default_percentile", "jump"), pl.Float64),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readings:
    """The readings of a run.

    Attributes:
      index: which there are: slug -> reading -> entry, the default one first.
      runs: reading -> the run of its finished results; the default one is among them.
    """

    index: Index
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
    names = dict.fromkeys(name for own in index.values() for name in own)
    runs = {}
    for name in names:
        folders = [convention_index.folder_of(home, name) for home in homes]
        found = _finished(folders)
        if found is not None:
            runs[name] = found
    return Readings(index=index, runs=runs) if DEFAULT in runs else None


def label(entry: Entry, default: Entry) -> str:
    """What of a reading differs from the default one: `bos none`."""
    own = entry.settings
    differ = [f"{k} {v}" for k, v in own.items() if default.settings.get(k) not in (None, v)]
    if entry.noise:
        mesh = own.get("mesh", _ONE_DEVICE)
        return f"noise: step {own.get('step', '?')}" + f", mesh {mesh}" * (mesh != _ONE_DEVICE)
    return ", ".join(differ) or DEFAULT


def agreement(found: Readings, count: int) -> pl.DataFrame:
    """The table `conventions_readings.csv`: each reading's ranking beside the default one's.

    Args:
      found: the readings.
      count: tokens at each end that are compared.

    Returns:
      model, reading, prompt, noise (whether it is the noise floor's), tokens (compared), kendall
      (tau-b with the default), ends (tokens at each end), top and bottom (of them in common),
      mean_jump and largest_jump (of a token's percentile, 0 to 1, absolute).
    """
    rows = []
    for model, name, entry, prompt, (_, default, own) in _pairs(found):
        ends = min(count, len(own))
        far = np.abs(ranks.percentiles(own) - ranks.percentiles(default))
        overlap = [end_overlap(default, own, ends, highest) for highest in (True, False)]
        numbers = (tau_b(default, own), ends, *overlap, far.mean(), far.max())
        rows.append((model, name, prompt, entry.noise, len(own), *numbers))
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def jumps(found: Readings, count: int) -> pl.DataFrame:
    """The table `conventions_jumps.csv`: the tokens whose percentile changes most.

    Args:
      found: the readings; those of the noise floor are left out.
      count: tokens of each reading, model and prompt.

    Returns:
      model, reading, prompt, rank (1 jumps furthest), token_id, token, percentile and
      default_percentile (0 to 1, among the tokens that were scored), jump (their difference).
    """
    frames = [pl.DataFrame(schema=JUMPS)]
    for model, name, entry, prompt, (ids, default, own) in _pairs(found):
        if entry.noise:
            continue
        places = [ranks.percentiles(each) for each in (own, default)]
        jump = places[0] - places[1]
        first = np.lexsort((ids, -np.abs(jump)))[: min(count, np.count_nonzero(jump))]
        if not len(first):  # the same order
            continue
        frame = pl.DataFrame(
            {
                **{"model": model, "reading": name, "prompt": prompt},
                "rank": np.arange(1, len(first) + 1),
                "token_id": ids[first],
                "percentile": places[0][first],
                "default_percentile": places[1][first],
                "jump": jump[first],
            }
        )
        tokens = found.runs[DEFAULT].vocabulary(model).select("token_id", "token").collect()
        frames.append(
            frame.join(tokens, on="token_id", how="left", validate="m:1", maintain_order="left")
            .select(list(JUMPS))
            .cast(pl.Schema(JUMPS))
        )
    return pl.concat(frames)


def _pairs(
    found: Readings,
) -> Iterator[tuple[str, str, Entry, str, tuple[Array, Array, Array]]]:
    """Model, reading, its entry, prompt; common token ids, default and own rewards (float32)."""
    for model in found.models():
        for name, entry in found.computed(model).items():
            default, own = found.runs[DEFAULT], found.runs[name]
            for prompt in own.vocabulary_prompts:
                if (model, prompt) in own.results and (model, prompt) in default.results:
                    both = (each.rewards(model, prompt) for each in (default, own))
                    yield model, name, entry, prompt, _common(*both)


def _common(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    ids, at_a, at_b = np.intersect1d(a[0], b[0], assume_unique=True, return_indices=True)
    return ids, a[1][at_a], b[1][at_b]


def _finished(folders: Sequence[epath.Path]) -> Run | None:
    """The finished results in some run folders; None where there are none."""
    begun = [folder for folder in folders if storage.exists(folder / schema.MANIFEST)]
    any_finished = any(
        result.complete for folder in begun for result in read_contents(folder).results.values()
    )
    return load(begun, finished_only=True) if any_finished else None
