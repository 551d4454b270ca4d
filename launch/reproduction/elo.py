"""The EloEverything items: their names and, where a file has them, what people think of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from engine.errors import AssayError
from engine.runs import parts, provenance, schema, storage
from launch.common import inputs
from launch.common.released_files import read
from launch.common.released_layouts import people

_OF_PEOPLE = {"elo_rank", "elo_score", "elo_matches"}


class EloList(NamedTuple):
    """A list of items."""

    name: str  # of the list in a run
    replies: Sequence[str]  # the items, in the file's order
    humans: pl.DataFrame | None  # `schema.HUMAN_COLUMNS`; None where the file does not have them


def read_elo(path: Path, column: str) -> EloList:
    """The items of a file: one of the authors' release, or any list that `assay score` takes.

    A file in the layout `elo` of `assay import_scores` has human ranks. `column` holds the items.

    Raises:
      AssayError: no such file or column, an empty item, or a rank that is no number.
    """
    if not path.is_file():
        raise AssayError(f"--elo={path}: no such file")
    name = inputs.list_name(path)
    if path.suffix != ".txt" and column == "name":
        released = read(path)
        if {*released.frame.columns} >= _OF_PEOPLE:
            humans = people(released)
            return EloList(name, humans["item"].to_list(), humans)
    return EloList(name, list(dict.fromkeys(inputs.read_items(path, column))), None)


def write_people(run: str, elo: EloList) -> None:
    """Writes what people think of the items into a run; nothing where that is not known."""
    if elo.humans is None or check_people(run, elo):
        return
    name = schema.humans_path(elo.name)
    parts.write_frame(storage.path_of(run) / name, elo.humans, provenance.of_table(name))


def check_people(run: str, elo: EloList) -> bool:
    """Whether a run holds what people think of the items; raises AssayError for other scores."""
    allowed = "the same file as before, or another --root"
    return inputs.humans_there(storage.path_of(run), elo.name, elo.humans, allowed)
