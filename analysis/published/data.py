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
            text = getattr(self, name).write_csv(quote_style="non_numeric")
            storage.write_atomic(storage.path_of(folder / f"{name}.csv"), text.encode())


def read(folder: Path | None = None) -> Published:
    """The values of a folder; those of the paper by default.

    Raises:
      AssayError: a file is missing or cut, has other columns, a cell that is empty or no number,
        or a row that stands there twice.
    """
    folder = folder or Path(__file__).parent
    frames = {name: _read(folder / f"{name}.csv", schema) for name, schema in _FILES.items()}
    for name, frame in frames.items():
        _check(folder / f"{name}.csv", frame, _FILLED[name], _KEYS[name])
    numbers, path = frames["numbers"], folder / "numbers.csv"
    texts = numbers["value"]
    wrong = numbers.filter(texts.cast(pl.Float64, strict=False).is_null())
    if wrong.height:
        raise AssayError(f"{path}: value={wrong['value'][0]!r}; allowed: numbers")
    negative = numbers.filter(~(pl.col("within") >= 0))
    if negative.height:
        raise AssayError(f"{path}: within={negative['within'][0]}; allowed: numbers >= 0")
    _check_tokens(folder / "tokens.csv", frames["tokens"])
    return Published(**frames)


# What may not be empty in a row, and what tells rows apart.
_FILLED = {
    "models": list(MODELS),
    "numbers": ["exhibit", "quantity", "value", "within", "source"],
    "tokens": ["exhibit", "prompt", "model", "end", "rank", "source"],
}
_KEYS = {
    "models": ["nickname"],
    "numbers": ["exhibit", "quantity", "prompt", "model", "other"],
    "tokens": ["exhibit", "prompt", "model", "end", "rank"],
}


def _check(path: Path, frame: pl.DataFrame, filled: list[str], keys: list[str]) -> None:
    for name in filled:
        column = frame[name]
        empty = (column == "") if column.dtype == pl.String else column.is_null()
        if empty.any():
            row = (empty.arg_max() or 0) + 1
            raise AssayError(f"{path}: row {row}: {name} is empty; allowed: a value")
    twice = frame.filter(frame.select(keys).is_duplicated())
    if twice.height:
        said = ", ".join(str(twice[name][0]) for name in keys if twice[name][0] != "")
        raise AssayError(f"{path}: two rows of {said}; allowed: one")


def _check_tokens(path: Path, tokens: pl.DataFrame) -> None:
    ends = tokens.filter(~pl.col("end").is_in(["top", "bottom"]))
    if ends.height:
        raise AssayError(f"{path}: end={ends['end'][0]!r}; allowed: top, bottom")
    scored = (pl.col("exhibit") == "table_2") | pl.col("score").is_not_null()
    bare = tokens.filter(scored & pl.col("token_id").is_null())
    if bare.height:
        raise AssayError(
            f"{path}: token_id is empty for {bare['token'][0]!r} of {bare['exhibit'][0]}; "
            "allowed: an id, where a reward is printed"
        )


def _read(path: Path, schema: Columns) -> pl.DataFrame:
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            raise AssayError(f"{path}: the last line has no end; allowed: a whole file")
        with prefixed(path):
            text = read_csv(content)
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
