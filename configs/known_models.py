"""Published models: identity, revision, template policy, expected size and shapes.

known_models.csv lists them. Its table `paper` (`MODELS`) holds the paper's ten reward models by
RewardBench rank, `next` (`NEXT`) other reward models of the same architectures, `language`
(`LANGUAGE_MODELS`) the ten language models of the paper's Tables A1-A5. A model that is not listed
can be converted too: its own config.json says what is needed.

known_shapes.json has, of each base, the attributes of config.json that all its sizes share, and
those of each size in 10⁹ parameters. `assay plan` reads them for a model that is named but not at
hand, and benchmarks make models of full size from them. Conversion reads the model's own file, and
refuses one that says of a listed model something else.
"""

import csv
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.settings import Published


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec(Published):
    """One published reward or language model."""

    nickname: str
    developer: str
    base: str
    size_b: float
    architecture: str  # the class of its config.json, or another one of that decoder and kind
    rewardbench_rank: int | None = None
    # Hub id of the reward model from whose weights it was trained, if any. Such models agree partly
    # for that reason.
    weights: str = ""
    # Whether the main branch holds pickled weights alone, as far as known: one of the hub's
    # conversions is needed (`--revision=refs/pr/<number>`).
    pickled: bool = False

    def config_json(self) -> dict[str, Any]:  # Any: what JSON holds
        """As in `Published`."""
        base = _bases()[self.base]
        of_size = base["sizes"][f"{self.size_b:g}"]
        return {**base["config"], **of_size, "architectures": [self.architecture]}


@functools.cache
def _bases() -> dict[str, Any]:  # Any: what JSON holds
    shapes: dict[str, Any] = json.loads(Path(__file__).with_name("known_shapes.json").read_text())
    return shapes


# Columns that hold no text.
_CELLS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("rewardbench_rank", "tensor_bytes", "rows"), int),
    "size_b": float,
    "pickled": bool,
}


def _read() -> dict[str, dict[str, ModelSpec]]:
    """The entries of known_models.csv: table -> slug -> model."""
    tables: dict[str, dict[str, ModelSpec]] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            entries = tables.setdefault(row.pop("table"), {})
            # Any: fields of several types.
            cells: dict[str, Any] = {n: _CELLS.get(n, str)(cell) for n, cell in row.items() if cell}
            spec = ModelSpec(**cells)
            entries[spec.slug] = spec
    return tables


_TABLES = _read()
MODELS, NEXT, LANGUAGE_MODELS = (_TABLES[name] for name in ("paper", "next", "language"))
KNOWN = MODELS | NEXT | LANGUAGE_MODELS


def find(source: str) -> ModelSpec | None:
    """The entry of a hub id, or of a folder named after one; None if it is not listed.

    A folder has the name alone, or `owner--name`.
    """
    *owner, name = source.rstrip("/").split("/")
    spec = KNOWN.get(name.rpartition("--")[2].lower())
    if spec and "--" in name and name.lower() != spec.hub_id.replace("/", "--").lower():
        return None
    is_hub_id = len(owner) == 1 and not Path(source).is_dir()
    if spec and is_hub_id and source.lower() != spec.hub_id.lower():
        return None  # another owner's model of the same name
    return spec
