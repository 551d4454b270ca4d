"""The published values: three CSV files beside this module, each row with its source.

models.csv   rewardbench_rank, nickname, developer, name, base, size_b, source: Table 1
numbers.csv  exhibit, quantity, prompt, model, other, value, within, source
tokens.csv   exhibit, prompt, model, end, rank, token_id, token, score, source

`model` is a nickname; `other` is what a number is of beside it: a second model, `human`, a valence,
a trait of the models, or an item. `value` has the digits that are printed, and `within` is how far
another number may be from it and still be the same: half a unit of the last digit, or what reading
a figure allows. `rank` 1 is the extreme of its end. `token_id` and `score` are empty where only the
token is printed.
"""

import dataclasses
from pathlib import Path

import polars as pl

from engine.errors import AssayError

_TEXT = pl.String
MODELS = {
    "rewardbench_rank": pl.Int64,
    "nickname": _TEXT,
    "developer": _TEXT,
    "name": _TEXT,
    "base": _TEXT,
    "size_b": pl.Float64,
    "source": _TEXT,
}
NUMBERS = {
    "exhibit": _TEXT,
    "quantity": _TEXT,
    "prompt": _TEXT,
    "model": _TEXT,
    "other": _TEXT,
    "value": _TEXT,
    "within": pl.Float64,
    "source": _TEXT,
}
TOKENS = {
    "exhibit": _TEXT,
    "prompt": _TEXT,
    "model": _TEXT,
    "end": _TEXT,
    "rank": pl.Int64,
    "token_id": pl.Int64,
    "token": _TEXT,
    "score": pl.Float64,
    "source": _TEXT,
}
_FILES = {"models": MODELS, "numbers": NUMBERS, "tokens": TOKENS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """Values to compare with: those of the paper, or of an earlier reproduction.

    Attributes:
      models: columns `MODELS`.
      numbers: columns `NUMBERS`.
      tokens: columns `TOKENS`, by list and rank.
    """

    models: pl.DataFrame
    numbers: pl.DataFrame
    tokens: pl.DataFrame

    def write(self, folder: Path) -> None:
        """Writes the three files, which `read` gives back."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            # Quoted, because a token may end in a carriage return.
            getattr(self, name).write_csv(folder / f"{name}.csv", quote_style="non_numeric")


def read(folder: Path | None = None) -> Published:
    """The values of a folder; those of the paper by default.

    Raises:
      AssayError: a file is missing, has other columns, or a cell that is no number.
    """
    folder = folder or Path(__file__).parent
    frames = {name: _read(folder / f"{name}.csv", schema) for name, schema in _FILES.items()}
    numbers, path = frames["numbers"], folder / "numbers.csv"
    texts = numbers["value"]
    wrong = numbers.filter(texts.cast(pl.Float64, strict=False).is_null())
    if wrong.height:
        raise AssayError(f"{path}: value={wrong['value'][0]!r}; allowed: numbers")
    return Published(**frames)


# Any: polars' names of types.
def _read(path: Path, schema: dict) -> pl.DataFrame:  # type: ignore[type-arg]
    try:
        text = pl.read_csv(path, infer_schema=False)
        if text.columns != list(schema):
            raise AssayError(
                f"{path}: columns {', '.join(text.columns[:4])}, …; allowed: {', '.join(schema)}"
            )
        typed = [
            pl.col(name).fill_null("")
            if kind == _TEXT
            else pl.col(name).replace("", None).cast(kind)
            for name, kind in schema.items()
        ]
        return text.select(typed)
    except OSError as error:
        raise AssayError(f"{path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise AssayError(f"{path}: {str(error).splitlines()[0]}") from error
