"""Folders of a run that several commands compute side by side: `<run>/shard-<k>-of-<n>`.

Each shard is a whole run; readers take the folder of all shards as one run.
"""

import dataclasses
import re
from collections.abc import Iterable

from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.result import RunError

_FOLDER = re.compile(r"shard-(\d+)-of-(\d+)")


@dataclasses.dataclass(frozen=True)
class Shard:
    """Number `index` of `count` shards, counted from 1."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard that `--shard=2/8` names."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise AssayError(f"shard={text!r}; allowed: k/n with 1 <= k <= n, as 2/8")
        return cls(int(match[1]), int(match[2]))

    def folder(self, run: str) -> str:
        """The shard's run folder inside the folder of all shards.

        Raises AssayError for a run that is not sharded, or shards of another number.
        """
        parent = storage.path_of(run)
        if storage.exists(parent / schema.RUN):
            raise AssayError(f"run {run}: is not sharded; use another run folder for --shard")
        counts = {shard.count for shard in _present(parent)} - {self.count}
        if counts:
            raise AssayError(
                f"run {run}: was begun as {min(counts)} shards; allowed: --shard=k/{min(counts)}, "
                "or another run folder"
            )
        return f"{run.rstrip('/')}/shard-{self.index}-of-{self.count}"


def is_shard(folder: epath.Path) -> bool:
    """Whether a folder has the name of a shard."""
    return _FOLDER.fullmatch(folder.name) is not None


def expanded(runs: Iterable[epath.Path], *, allow_incomplete: bool) -> list[epath.Path]:
    """Run folders, with the folder of all shards replaced by its shards.

    Raises RunError for a missing shard, unless `allow_incomplete`.
    """
    folders: list[epath.Path] = []
    for run in runs:
        shards = [] if storage.exists(run / schema.RUN) else _present(run)
        missing = {i for shard in shards for i in range(1, shard.count + 1)}
        missing -= {shard.index for shard in shards}
        if missing and not allow_incomplete:
            count = max(shard.count for shard in shards)
            raise RunError(f"{run}: shard {min(missing)} of {count} is missing; compute it first")
        folders += [run / f"shard-{s.index}-of-{s.count}" for s in shards] or [run]
    return folders


def _present(parent: epath.Path) -> list[Shard]:
    """The shards in a folder, in order."""
    matches = [_FOLDER.fullmatch(name) for name in storage.names(parent)]
    shards = [Shard(int(match[1]), int(match[2])) for match in matches if match]
    return sorted(shards, key=lambda shard: (shard.count, shard.index))
