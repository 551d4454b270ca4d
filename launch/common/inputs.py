"""Lists of replies, of files or of a run."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from absl import flags
from absl.flags import FlagValues
from etils import epath

from engine.csv_files import read_csv
from engine.errors import AssayError, prefixed
from engine.runs import parts, provenance, schema, storage
from engine.runs.reader import read_contents
from launch.common.command import Given, paths
from launch.common.text import lines_of, nearest, pieces


def define_flags(given: FlagValues) -> None:
    """Defines --items, --column and --name."""
    flags.DEFINE_string(
        "items", None, "The replies: a .txt (one a line), .csv or .parquet.", flag_values=given
    )
    flags.DEFINE_string(
        "column", "name", "Column of a .csv or .parquet that holds them.", flag_values=given
    )
    flags.DEFINE_string(
        "name", None, "Name of the list in the run; by default the file's.", flag_values=given
    )


def list_given(given: Given) -> tuple[str, list[str]]:
    """Name of the list on the command line, and its replies."""
    path = Path(paths(given, "items")[0])
    name = list_name(path) if given.name is None else given.name
    return checked_name("name", name), read_items(path, given.column)


def checked_name(flag: str, name: str) -> str:
    """Refuses a name that is kept for the lists of what searches find."""
    if name.startswith(schema.FOUND):
        raise AssayError(
            f"{flag}={name!r}; allowed: names that do not begin with {schema.FOUND!r}, which is "
            "reserved for what searches find"
        )
    return name


def list_name(path: Path) -> str:
    """Name of a list, made of its file's name."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._") or "items"


def read_items(path: Path, column: str) -> list[str]:
    """The replies of a file, in the file's order.

    Raises:
      AssayError: no such file or column, another file type, malformed CSV, or an empty reply, whose
        line or row (counted from 1) the message names.
    """
    if path.suffix == ".txt":
        replies, unit = lines_of("items", path), "line"
    else:
        replies, unit = _column(path, column), f"column {column!r}, row"
    for number, reply in enumerate(replies, 1):
        if not reply:
            raise AssayError(f"items={path}: {unit} {number} is empty; allowed: a reply in each")
    return replies


def read_table(path: Path, flag: str) -> tuple[pl.DataFrame, bytes]:
    """The columns of a .csv or .parquet file, those of CSV as text, and the bytes of the file.

    Raises:
      AssayError: another file type, no such file, or no table; the line begins with the flag.
    """
    if path.suffix not in (".csv", ".parquet"):
        lists = ".txt, " if flag == "items" else ""
        raise AssayError(f"{flag}={path}; allowed: a {lists}.csv or .parquet file")
    try:
        data = path.read_bytes()
        with prefixed(f"{flag}={path}"):
            return pl.read_parquet(data) if path.suffix == ".parquet" else read_csv(data), data
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"{flag}={path}: {reason}") from error


def _column(path: Path, column: str) -> list[str]:
    frame, _ = read_table(path, "items")
    if column not in frame.columns:
        raise AssayError(f"items={path}: no column {column!r}; it has {', '.join(frame.columns)}")
    values = frame[column]
    if not isinstance(values.dtype, pl.String | pl.Categorical | pl.Enum):
        raise AssayError(f"items={path}: column {column!r} is {values.dtype}; allowed: text")
    return values.cast(pl.String).to_list()


class RankedList(NamedTuple):
    """A list of replies whose ranks by people are known: scored under every convention too."""

    name: str
    replies: Sequence[str]
    humans: bytes  # of its table of people's ranks
    prompts: Mapping[str, str]  # prompt id -> text, under which it was scored in the run


def ranked_lists(run: epath.Path, names: str) -> list[RankedList]:
    """The lists of a run, with people's ranks and the prompts under which they were scored.

    `names` are comma-separated; `auto` stands for all whose ranks by people the run holds.

    Raises:
      AssayError: a list that the run does not hold, or of which it holds no ranks by people.
    """
    if not storage.exists(run / schema.MANIFEST):
        if names not in ("auto", ""):
            raise AssayError(f"lists={names!r}: run {run} holds no lists; allowed: 'auto'")
        return []
    contents = read_contents(run)
    scored = [result for result in contents.results.values() if result.items]
    items = {str(result.items) for result in scored if result.kind == schema.ITEMS_DIR}
    ranked = sorted(name for name in items if storage.exists(run / schema.humans_path(name)))
    lists = []
    for name in ranked if names == "auto" else pieces(names):
        if name not in ranked:
            raise AssayError(
                f"lists={name!r}{nearest(name, ranked)}; allowed: lists of the run with ranks by "
                f"people ({', '.join(ranked) or 'it has none'})"
            )
        place = schema.humans_path(name)
        table = parts.read_frame(run / place, None, provenance.of_table(place))
        replies = table.frame.sort("item_id")["item"].to_list()
        prompts = {r.prompt: contents.prompts[r.prompt] for r in scored if r.items == name}
        lists.append(RankedList(name, replies, storage.read(run / place), prompts))
    return lists
