"""Files of released scores in two layouts, cells checked; names of models and prompts."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from configs import known_models, prompts
from engine.errors import AssayError
from engine.lists.files import read_table
from engine.runs import schema
from launch.common.scoring import prompt_id

LAYOUTS = {
    "items": "item (or name), then one column per model",
    "tokens": "token_id, token_decoded, then one column per prompt",
}
VALUES = ("rewards", "logprobs", "logits")
FORMS = ("pretrained", "chat")
_PEOPLE = ("elo_rank", "elo_score", "elo_matches")  # of a list that people rated
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_ROUNDING = 1e-5  # by which it may lift a log-probability above 0,
_EXCESS = 1e-3  # and a sum of probabilities above 1
# What the tokenizers of the supported families call their special tokens.
_SPECIAL = (
    r"^<\|.*\|>$|^</?s>$"
    r"|^<(bos|eos|pad|unk|mask|2mass|unused\d+|start_of_turn|end_of_turn|start_of_image)>$"
)
_PROMPT_ALLOWED = (
    f"a prompt's text, which ends in '.', '?', '!' or ':', or an id: "
    f"{', '.join([*prompts.PAPER, *prompts.ELO])}, {next(iter(prompts.FOLLOW_UP))}, … "
    "(configs/prompts.py)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What the flags of an import say of its files; "" where they say nothing."""

    layout: str  # one of `LAYOUTS`
    prompt: str = ""  # a prompt's text or id, for files that do not say it
    items: str = ""  # name of the list
    model: str = ""  # id of the model, for a single file that does not say it
    values: str = "rewards"  # one of `VALUES`
    form: str = "pretrained"  # how a language model read the prompts, one of `FORMS`

    def __post_init__(self) -> None:
        _check("layout", self.layout, tuple(LAYOUTS))
        of_layout = f" with layout {self.layout!r}"
        _check("values", self.values, VALUES[: 3 if self.layout == "tokens" else 1], of_layout)
        _check("form", self.form, FORMS if self.values != "rewards" else FORMS[:1], " of rewards")
        if self.items and self.layout == "tokens":
            raise AssayError(f"--items={self.items!r}{of_layout}, which has no list")

    @property
    def number(self) -> str:
        """Column of the numbers in the run."""
        return "reward" if self.values == "rewards" else "logprob"


def _check(flag: str, value: str, allowed: Sequence[str], context: str = "") -> None:
    if value not in allowed:
        raise AssayError(f"--{flag}={value!r}{context}; allowed: {', '.join(map(repr, allowed))}")


@dataclasses.dataclass(frozen=True)
class Released:
    """One released file."""

    path: Path
    frame: pl.DataFrame  # its columns; those of a CSV file are text
    sha256: str  # of its bytes

    def numbers(self, column: str) -> pl.Series:
        """A column as float64; raises AssayError for a value that is not finite as a float32."""
        cells = self.frame[column]
        if not cells.dtype.is_numeric():
            cells = cells.cast(pl.String).str.strip_chars()
        values = cells.cast(pl.Float64, strict=False)
        single = values.cast(pl.Float32)
        self._refuse(column, single.is_null() | ~single.is_finite(), "finite number")
        return values

    def whole(self, column: str) -> pl.Series:
        """A column as uint32; raises AssayError for a value that is no whole number of 32 bits."""
        values = self.numbers(column)
        outside = (values < 0) | (values >= 2**32)
        self._refuse(column, outside | (values != values.floor()), "whole number")
        return values.cast(pl.UInt32)

    def text(self, column: str) -> pl.Series:
        """A column as text; an empty cell is an empty text."""
        cells = self.frame[column]
        if not isinstance(cells.dtype, _TEXT):
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: text")
        return cells.cast(pl.String).fill_null("")

    def once(self, values: pl.Series) -> None:
        """Refuses a value that two rows have."""
        if values.is_duplicated().any():
            value = values.filter(values.is_duplicated())[0]
            first, second, *_ = ((values == value).arg_true() + 1).to_list()
            raise self.error(f"rows {first} and {second} are both {values.name} {value!r}")

    def error(self, what: str) -> AssayError:
        """An error about this file, to be raised."""
        return AssayError(f"source={self.path}: {what}")

    def _refuse(self, column: str, bad: pl.Series, wanted: str) -> None:
        """Refuses cells that are not what is wanted."""
        rows = bad.arg_true()
        if len(rows):
            raise self.error(
                f"column {column!r}, row {rows[0] + 1}: {self.frame[column][rows[0]]!r} is no "
                f"{wanted} ({len(rows)} such rows)"
            )


def files(source: str) -> list[Path]:
    """The file that `source` names, or the .csv and .parquet files of that folder, by name."""
    if not Path(source).is_dir():
        return [Path(source)]
    tables = [path for path in Path(source).iterdir() if path.suffix in (".csv", ".parquet")]
    if not (shown := sorted(path for path in tables if not path.name.startswith("."))):
        raise AssayError(f"source={source}: no .csv or .parquet file in this folder")
    return shown


def read(path: Path) -> Released:
    """Reads a .csv or .parquet file, without the row numbers that pandas writes in front.

    Raises:
      AssayError: no such file, another file type, not a table, or no rows.
    """
    frame, data = read_table(path, "source")  # as text: `NaN`, `null` and `007` are tokens
    if frame.width and frame.columns[0] in ("", "__index_level_0__"):
        frame = frame.drop(frame.columns[0])
    released = Released(path, frame, hashlib.sha256(data).hexdigest())
    if frame.height == 0:
        raise released.error("no rows")
    return released


class Prompt(NamedTuple):
    """A prompt of a run: its id and its text."""

    id: str
    text: str


class Column(NamedTuple):
    """The numbers of one model under one prompt, as a file holds them."""

    model: str
    prompt: Prompt
    values: pl.Series  # float32, one per row
    rows: pl.DataFrame  # their keys: token_id or item


class Content(NamedTuple):
    """What one file holds."""

    columns: Sequence[Column]
    vocabulary: pl.DataFrame | None  # of its model, `schema.VOCAB_COLUMNS`; None for a list
    humans: pl.DataFrame | None  # what people think of its items; None where it is not said
    sha256: str


def content_of(path: Path, choices: Choices) -> Content:
    """Reads a file.

    Raises:
      AssayError: it is not in the layout, a cell is not what its column holds, or nothing says
        under which prompt a number was computed.
    """
    released, is_list = read(path), choices.layout == "items"
    present = released.frame.columns
    item = "item" if "item" in present else "name"
    keys = [item, *_PEOPLE] if is_list else ["token_id", "token_name", "token_decoded"]
    names = [name for name in present if name not in keys]
    needed = {item} if is_list else {"token_id", "token_decoded"}
    if not names or not needed <= set(present):
        raise released.error(
            f"its columns are {', '.join(present)}; layout {choices.layout!r} has "
            f"{LAYOUTS[choices.layout]}"
        )
    vocabulary = humans = None
    if not is_list:
        vocabulary = _vocabulary(released)
        rows = vocabulary.select("token_id")
    else:
        humans = people(released) if set(_PEOPLE) <= set(present) else None
        rows = pl.DataFrame({"item": _items(released, item)})
    columns = [
        Column(*_named(released, name, choices), _checked(released, name, choices), rows)
        for name in names
    ]
    return Content(columns, vocabulary, humans, released.sha256)


def people(released: Released) -> pl.DataFrame:
    """What people think of the items of a file: `schema.HUMAN_COLUMNS`."""
    names = _items(released, "item" if "item" in released.frame.columns else "name")
    released.once(names)
    return pl.DataFrame(
        {
            "item_id": range(len(names)),
            "item": names,
            "elo_rank": released.whole("elo_rank"),
            "elo_score": released.numbers("elo_score"),
            "elo_matches": released.whole("elo_matches"),
        },
        schema=schema.HUMAN_COLUMNS,
    )


def _items(released: Released, column: str) -> pl.Series:
    """The replies of a list; raises AssayError for an empty one."""
    items = released.text(column)
    if len(empty := (items.str.strip_chars() == "").arg_true()):
        raise released.error(f"column {column!r} is empty in row {empty[0] + 1}")
    return items


def _vocabulary(released: Released) -> pl.DataFrame:
    """The vocabulary of a file.

    The file does not say which tokens round-trip, so `round_trip` is null; `is_special` is set
    where the decoded string looks like a special token.
    """
    ids = released.whole("token_id")
    released.once(ids)
    return pl.DataFrame({"token_id": ids, "token": released.text("token_decoded")}).with_columns(
        is_special=pl.col("token").str.contains(_SPECIAL), round_trip=pl.lit(None, dtype=pl.String)
    )


def _named(released: Released, column: str, choices: Choices) -> tuple[str, Prompt]:
    """Model and prompt of a column: it names one of them, or a step; file and flags the rest."""
    model = model_id(choices.model or released.path.stem)
    is_step = re.fullmatch(r"step-\d+", column)
    if is_step:
        model = f"{model}-{column}"
    elif choices.layout == "items":
        if choices.model:
            raise released.error(f"--model={choices.model!r}, but its columns name their models")
        model = model_id(column)
    elif choices.prompt:
        raise released.error(f"--prompt={choices.prompt!r}, but its columns name their prompts")
    by_file = is_step or choices.layout == "items"
    name = (choices.prompt or released.path.stem) if by_file else column
    prompt = prompt_named(name)
    if prompt is None:
        flag = "" if choices.prompt or not by_file else "--prompt is missing: "
        raise released.error(f"{flag}{name!r} names no prompt; allowed: {_PROMPT_ALLOWED}")
    return model, prompt


def prompt_named(name: str) -> Prompt | None:
    """The prompt that a file, column or flag names; None if it names none.

    A prompt of configs/prompts.py is named by its id, by its name in the authors' release, or by
    its text, with or without the question mark, which the authors' file names lack. Any other text
    is a prompt if it has a space and ends like one.
    """
    stripped = name.strip()
    key = prompts.RELEASED.get(stripped, stripped)
    if key in prompts.PROMPTS:
        return Prompt(key, prompts.PROMPTS[key])
    for text in prompts.PROMPTS.values():
        if stripped in (text, text.removesuffix("?")):
            return Prompt(prompt_id(text), text)
    is_text = re.search(r"\s", stripped) and stripped.endswith((".", "?", "!", ":"))
    return Prompt(prompt_id(name), name) if is_text else None


def model_id(name: str) -> str:
    """Id of a model as a file or column names it: `owner--name` is `owner/name`.

    A listed model (configs/known_models.py) is also found by its nickname and by its name alone.
    """
    name = name.strip().rstrip("/")
    if "/" not in name:
        name = name.replace("--", "/", 1)
    nicknames = {spec.nickname.lower(): spec for spec in known_models.KNOWN.values()}
    spec = nicknames.get(name.lower()) or known_models.find(name)
    return spec.hub_id if spec else name


def slugged(name: str) -> str:
    """Slug of a model id or file name: its last part in lower case, without unsafe characters."""
    last = name.rstrip("/").rsplit("/")[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")


def _checked(released: Released, column: str, choices: Choices) -> pl.Series:
    """A column of rewards or log-probabilities, float32; raises AssayError if they cannot be that.

    Rewards are refused where they are the log-probabilities of a whole vocabulary.
    """
    values = released.numbers(column)
    if choices.layout == "items":
        return values.cast(pl.Float32)
    if choices.values == "logits":
        shifted = values - values.max()
        values = shifted - float(np.log(np.exp(shifted.to_numpy()).sum()))
    highest = float(values.to_numpy().max())
    mass = float(np.exp(values.to_numpy()).sum()) if highest <= _ROUNDING else np.inf
    if choices.values == "rewards" and abs(mass - 1) < _EXCESS:
        raise released.error(
            f"column {column!r} holds log-probabilities, not rewards; allowed: --values=logprobs"
        )
    if choices.values != "rewards" and mass > 1 + _EXCESS:
        raise released.error(
            f"column {column!r} holds up to {highest:.6g}, probabilities that sum to {mass:.6g}; "
            "allowed: natural log-probabilities (--values=logits normalises logits)"
        )
    return values.cast(pl.Float32)
