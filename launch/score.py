"""Scores a list of replies of any length. See configs/score.py."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
from absl import flags

from engine.errors import AssayError
from engine.sweep import sweep_replies
from launch import cli, scoring

_ITEMS = flags.DEFINE_string("items", None, "The replies: a .txt (one a line), .csv or .parquet.")
_COLUMN = flags.DEFINE_string("column", "name", "Column of a .csv or .parquet that holds them.")
_NAME = flags.DEFINE_string("name", None, "Name of the list in the run; by default the file's.")
_CONFIG = cli.config_file("score")
flags.adopt_module_key_flags(scoring)  # for --help


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    path = cli.paths([_ITEMS.value], "items")[0]
    replies = read_items(Path(path), _COLUMN.value)
    name = _NAME.value or list_name(Path(path))
    settings, mesh = scoring.settings(config)
    rewards = sweep_replies(models, prompts, name, replies, run, settings, mesh)
    what = f"{rewards:,} new rewards" if rewards else "complete already"
    return f"{run}/items/{name}: {len(models)} models × {len(prompts)} prompts, {what}"


def list_name(path: Path) -> str:
    """What a list is called after its file."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._") or "items"


def read_items(path: Path, column: str) -> list[str]:
    """The replies of a file, in its order.

    Raises:
      AssayError: no such file or column, another file type, a missing value; by row.
    """
    # Text as it is written: `007` is no number here.
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".csv": functools.partial(pl.read_csv, infer_schema=False),
        ".parquet": pl.read_parquet,
    }
    if path.suffix not in (".txt", *readers):
        raise AssayError(f"items={path}; allowed: a .txt, .csv or .parquet file")
    try:
        if path.suffix == ".txt":
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            return lines[: -1 if lines[-1] == "" else None]
        frame = readers[path.suffix](path)
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"items={path}: {reason}") from error
    if column not in frame.columns:
        raise AssayError(f"items={path}: no column {column!r}; it has {', '.join(frame.columns)}")
    values = frame[column]
    if not isinstance(values.dtype, pl.String | pl.Categorical | pl.Enum):
        raise AssayError(f"items={path}: column {column!r} is {values.dtype}; allowed: text")
    if values.null_count():
        row = values.is_null().arg_true()[0]
        raise AssayError(f"items={path}: column {column!r} is empty in row {row}")
    return values.cast(pl.String).to_list()


if __name__ == "__main__":
    cli.run(main)
