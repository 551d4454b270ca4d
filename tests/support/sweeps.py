"""Sweeps of tiny models: how tests start them and read what they wrote."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
from etils import epath

from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.runs.folder import RunFolder
from engine.runs.identity import sealed
from engine.runs.result import Result
from engine.scoring.reward_passes import RewardScorer
from engine.settings import SweepSettings
from engine.sweep.reward_jobs import sweep_rewards

PROMPTS = {"greatest": "What is the greatest thing?", "worst": "What is the worst thing?"}
ONE = {"greatest": PROMPTS["greatest"]}
SIZE = 288  # tokens of the tiny models
SETTINGS = SweepSettings(
    mode="ids",
    pooling="last",
    dtype="float32",
    step_size=16,
    part_size=100,
    self_check=8,
    seed=0,
    objectives="none",
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder, new or continued."""

    folder: Path

    def sweep(self, checkpoints, prompts, tell=lambda *result: None, mesh=None, **changes) -> int:
        settings, mesh = dataclasses.replace(SETTINGS, **changes), mesh or build_mesh()
        return sweep_rewards(checkpoints, prompts, str(self.folder), settings, mesh, tell)

    def score(self, checkpoints, prompts, name, replies, mesh=None, **changes) -> int:
        settings = dataclasses.replace(SETTINGS, **{"mode": "text", **changes})
        run, mesh, items = str(self.folder), mesh or build_mesh(), (name, replies)
        return sweep_rewards(checkpoints, prompts, run, settings, mesh, items=items)

    def parts(self) -> dict[str, tuple[str, int]]:
        """Path of every part -> sha256, and when it was written."""
        found = sorted(self.folder.glob("*/**/part-*.parquet"))
        return {
            str(path.relative_to(self.folder)): (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                path.stat().st_mtime_ns,
            )
            for path in found
        }

    def hashes(self) -> dict[str, str]:
        return {path: digest for path, (digest, _) in self.parts().items()}

    def frame(self, result) -> pl.DataFrame:
        """All parts of a result, by name."""
        parts = sorted((self.folder / result).glob("part-*"))
        return pl.concat([pl.read_parquet(p) for p in parts])

    def rewards(self, model, prompt):
        return self.frame(f"scores/model={model}/prompt={prompt}")["reward"].to_numpy()

    def record(self) -> dict:
        """The content of run.json."""
        return json.loads((self.folder / "run.json").read_text())

    def results(self) -> dict[str, Result]:
        """Every result by its path."""
        folder = RunFolder.read(epath.Path(self.folder))
        assert not folder.damaged
        return folder.results

    def edit(self, change, path="") -> None:
        """Lets `change` alter run.json, or a result's record, as somebody would who means it."""
        file = self.folder / (f"{path}/result.json" if path else "run.json")
        content = json.loads(file.read_text())
        content.pop("sha256")
        change(content)
        file.write_bytes(sealed(content, content["version"]))

    def leftovers(self) -> list[str]:
        return [p.name for p in self.folder.rglob("*") if p.name.endswith(".tmp")]


def plain_rewards(checkpoint, sequences) -> np.ndarray:
    """Rewards of whole conversations by the plain forward pass."""
    mesh, rows = build_mesh(), [list(sequence) for sequence in sequences]
    restored = restore([checkpoint], mesh, np.dtype("float32"))
    scorer = RewardScorer.build(*restored, mesh, step_size=SETTINGS.step_size)
    size = SETTINGS.self_check  # for which the pass is compiled already
    rows += [rows[0]] * (-len(rows) % size)
    parts = [scorer.plain_rewards(rows[i : i + size])[0] for i in range(0, len(rows), size)]
    return np.concatenate(parts)[: len(sequences)]


def result(slug="tiny", prompt="greatest") -> str:
    """The path of a sweep's result."""
    return f"scores/model={slug}/prompt={prompt}"
