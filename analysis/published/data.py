"""The published values: three CSV files beside this module, each row with its source.

models.csv   rewardbench_rank, nickname, developer, name, base, size_b, source: Table 1
numbers.csv  exhibit, quantity, prompt, model, other, value, within, source
tokens.csv   exhibit, prompt, model, end, rank, token_id, token, score, source

`model` is a nickname; `other` is what a number is of beside it: a second model, `human`, a valence,
a trait of the models, or an item. `value` has the digits that are printed, and `within` is how far
another number may be from it and still be the same: half a unit of the last digit, what reading a
figure allows, or the chance error of a p-value. `rank` 1 is the extreme of its end. `token_id` and
`score` are empty where only the token is printed.
"""

import dataclasses
from pathlib import Path

import polars as pl

from analysis.published.exhibits import BY_ID
from engine.csv_files import read_csv
from engine.errors import AssayError, prefixed
from engine.runs import storage
from engine.runs.schema import Columns

_TEXT = pl.String
MODELS: Columns = {
    "rewardbench_rank": pl.Int64,
    **dict.fromkeys(("nickname", "developer", "name", "base"), _TEXT),
    **{"size_b": pl.Float64, "source": _TEXT},
}
NUMBERS: Columns = {
    **dict.fromkeys(("exhibit", "quantity", "prompt", "model", "other", "value"), _TEXT),
    **{"within": pl.Float64, "source": _TEXT},
}
TOKENS: Columns = {
    **dict.fromkeys(("exhibit", "prompt", "model", "end"), _TEXT),
    **dict.fromkeys(("rank", "token_id"), pl.Int64),
    **{"token": _TEXT, "score": pl.Float64, "source": _TEXT},
}
_FILES: dict[str, Columns] = {"models": MODELS, "numbers": NUMBERS, "tokens": TOKENS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """Values to compare with: those of the paper, or of an earlier reproduction."""

    models: pl.DataFrame  # columns `MODELS`
    numbers: pl.DataFrame  # columns `NUMBERS`
    tokens: pl.DataFrame  # columns `TOKENS`, by list and rank

    def write(self, folder: Path) -> None:
        """Writes the three files, which `read` gives back."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            # Quoted, because a token may end in a carriage return.
            text = getattr(self, name).write_csv(quote_style="non_numeric")
            storage.write_atomic(storage.path_of(folder / f"{name}.csv"), text.encode())


def read(folder: Path | None = None) -> Published:
    """The values of a folder; those of the paper by default.

    Raises:
      AssayError: a file is missing, has other columns, a cell that is no number, or a value of no
        exhibit of the paper.
    """
    folder = folder or Path(__file__).parent
    published = Published(**{k: _read(folder / f"{k}.csv", schema) for k, schema in _FILES.items()})
    strange = {*published.numbers["exhibit"], *published.tokens["exhibit"]} - BY_ID.keys()
    if strange:
        raise AssayError(f"{folder}: exhibit={min(strange)!r}; allowed: {', '.join(BY_ID)}")
    return published


def _read(path: Path, schema: Columns) -> pl.DataFrame:
    try:
        with prefixed(path):
            text = read_csv(path.read_bytes())
        if text.columns != list(schema):
            raise AssayError(
                f"{path}: columns {', '.join(text.columns[:4])}, …; allowed: {', '.join(schema)}"
            )
        numbers = [name for name, kind in schema.items() if kind != _TEXT]
        texts = pl.exclude(numbers).fill_null("")
        return text.with_columns(texts, pl.col(numbers).replace("", None)).cast(pl.Schema(schema))
    except OSError as error:
        raise AssayError(f"{path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise AssayError(f"{path}: {str(error).splitlines()[0]}") from error
