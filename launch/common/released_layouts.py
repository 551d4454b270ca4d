"""Layouts of released files, as data, and the reader that turns a file into numbers of models."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.runs import schema
from launch.common.released_files import (
    PROMPT_ALLOWED,
    Prompt,
    Released,
    model_id,
    prompt_named,
    read,
)

VALUES = ("rewards", "logprobs", "logits")
FORMS = ("pretrained", "chat")
_TOKENS = "tokens"  # column of a list's log-probabilities: how many tokens each reply has
_ROUNDING = 1e-5  # by which it may lift a log-probability above 0,
_EXCESS = 1e-3  # and a sum of probabilities above 1
# What the tokenizers of the supported families call their special tokens.
_SPECIAL = (
    r"^<\|.*\|>$|^</?s>$"
    r"|^<(bos|eos|pad|unk|mask|2mass|unused\d+|start_of_turn|end_of_turn|start_of_image)>$"
)


class Layout(NamedTuple):
    """A layout of released files."""

    begins: Sequence[str]  # columns with which a file begins
    # What each further column is named after; "" where every row names a model and a prompt.
    each: str
    values: Sequence[str]  # what its numbers may be


LAYOUTS = {
    "elo": Layout(("elo_rank", "elo_score", "name", "elo_matches"), "model", VALUES[:1]),
    "tokens": Layout(("token_id", "token_name", "token_decoded"), "prompt", VALUES),
    "items": Layout((), "prompt", VALUES[:2]),
    "long": Layout((), "", VALUES[:2]),
}
_NO_USE = {"elo": ("column", "model"), "tokens": ("items", "column")}  # flags of other layouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What the flags of an import say of its files; "" where they say nothing."""

    layout: str  # one of `LAYOUTS`
    prompt: str = ""  # a prompt's text or id, for files that do not say it
    items: str = ""  # name of the list
    model: str = ""  # id of the model, for a single file that does not say it
    column: str = ""  # column of the replies
    values: str = "rewards"  # one of `VALUES`
    form: str = "pretrained"  # how a language model read the prompts, one of `FORMS`

    def __post_init__(self) -> None:
        _check("layout", self.layout, tuple(LAYOUTS))
        of_layout = f" with layout {self.layout!r}"
        _check("values", self.values, LAYOUTS[self.layout].values, of_layout)
        for flag in _NO_USE.get(self.layout, ()):
            if value := getattr(self, flag):
                raise AssayError(f"--{flag}={value!r}{of_layout}, which has no use for it")
        _check("form", self.form, FORMS if self.values != "rewards" else FORMS[:1], " of rewards")

    @property
    def number(self) -> str:
        """Column of the numbers in the run."""
        return "reward" if self.values == "rewards" else "logprob"


class Column(NamedTuple):
    """The numbers of one model under one prompt, as a file holds them."""

    model: str
    prompt: Prompt
    values: pl.Series  # float32, one per row
    rows: pl.DataFrame  # their keys: token_id, or item and, for log-probabilities, tokens


class Content(NamedTuple):
    """What one file holds."""

    columns: Sequence[Column]
    vocabulary: pl.DataFrame | None  # of its model, `schema.VOCAB_COLUMNS`; None for a list
    humans: pl.DataFrame | None  # what people think of its items; None where it is not said
    sha256: str


def content_of(path: Path, choices: Choices, ignore: Sequence[str] = ()) -> Content:
    """Reads a file, without the columns that are ignored.

    Raises:
      AssayError: it is not in the layout, a cell is not what its column holds, or nothing says
        under which prompt a number was computed.
    """
    released, layout = read(path, ignore), LAYOUTS[choices.layout]
    present, vocabulary, humans = released.frame.columns, None, None
    keys = list(layout.begins) or [choices.column or (present[0] if layout.each else "item")]
    if layout.begins and tuple(present[: len(keys)]) != layout.begins:
        raise _not_in_layout(released, choices, keys)
    if choices.layout == "elo":
        humans = people(released)
        rows = humans.select("item")
    elif choices.layout == "tokens":
        vocabulary = _vocabulary(released)
        rows = vocabulary.select("token_id")
    else:
        keys += [_TOKENS] if choices.number == "logprob" else []
        rows = _replies(released, keys)
    if layout.each:
        columns = _of_columns(released, choices, rows, keys)
    else:
        columns = _of_rows(released, choices, rows, keys)
    return Content(columns, vocabulary, humans, released.sha256)


def people(released: Released) -> pl.DataFrame:
    """What people think of the items of a file in the layout `elo`: `schema.HUMAN_COLUMNS`."""
    names = released.text("name")
    released.once(names.to_frame("name"))
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


def _vocabulary(released: Released) -> pl.DataFrame:
    """The vocabulary of a file in the layout `tokens`.

    The file does not say which tokens round-trip, so `round_trip` is null; `is_special` is set
    where the decoded string looks like a special token.
    """
    ids = released.whole("token_id")
    released.once(ids.to_frame("token_id"))
    tokens = released.text("token_decoded", empty=True)
    return pl.DataFrame({"token_id": ids, "token": tokens}).with_columns(
        is_special=pl.col("token").str.contains(_SPECIAL), round_trip=pl.lit(None, dtype=pl.String)
    )


def _replies(released: Released, columns: Sequence[str]) -> pl.DataFrame:
    """Key columns of a list's rows: item and, for log-probabilities, tokens.

    A reply may stand in a list twice, as in a list that is scored: each row is one.
    """
    for column in columns:
        if column not in released.frame.columns:
            present = ", ".join(released.frame.columns[:6]) or "none"
            counted = ": how many tokens each reply has" if column == _TOKENS else ""
            raise released.error(f"no column {column!r}{counted}; it has {present}")
    rows = pl.DataFrame({"item": released.text(columns[0])})
    return rows.with_columns(released.whole(name).alias(name) for name in columns[1:])


def _of_columns(
    released: Released, choices: Choices, rows: pl.DataFrame, keys: Sequence[str]
) -> list[Column]:
    """The numbers of each column behind the key columns, which is named after a model or a prompt.

    The file or a flag says the other.
    """
    names = [name for name in released.frame.columns if name not in keys]
    if not names:
        raise _not_in_layout(released, choices, keys)
    if LAYOUTS[choices.layout].each == "model":
        prompt = _prompt_of_file(released, choices)
        named = {name: (model_id(name), prompt) for name in names}
    else:
        model, prompts = choices.model or released.path.stem, _prompts(released, names, choices)
        named = {name: (model_id(model), prompt) for name, prompt in prompts.items()}
    return [
        Column(model, prompt, _checked(released, name, choices), rows)
        for name, (model, prompt) in named.items()
    ]


def _of_rows(
    released: Released, choices: Choices, rows: pl.DataFrame, keys: Sequence[str]
) -> list[Column]:
    """The numbers of the layout `long`: one a row, with its model and prompt.

    --model and --prompt stand for columns that the file lacks. A second number of an item under the
    same model and prompt is refused.
    """
    number, present = choices.number, released.frame.columns
    known = [*keys, number, "model", "prompt"]
    if number not in present or not set(present) <= set(known):
        raise _not_in_layout(released, choices, known)
    said = [name for name in ("model", "prompt") if name in present]
    texts = {name: released.text(name) for name in said}
    if "model" in said and choices.model:
        raise released.error(f"--model={choices.model!r}, but its column 'model' says it")
    released.once(rows.select("item").with_columns(**texts).select(*said, "item"))
    if "prompt" in said:
        prompts = _prompts(released, texts["prompt"].unique(maintain_order=True), choices)
    else:
        prompts = {"": _prompt_of_file(released, choices)}
    default = {"model": pl.lit(choices.model or released.path.stem), "prompt": pl.lit("")}
    table = rows.with_columns(value=_checked(released, number, choices), **default | texts)
    return [
        Column(model_id(str(model)), prompts[str(prompt)], part["value"], part.select(rows.columns))
        for (model, prompt), part in table.group_by("model", "prompt", maintain_order=True)
    ]


def _prompts(
    released: Released, names: Sequence[str] | pl.Series, choices: Choices
) -> dict[str, Prompt]:
    """Name of a column, or text of a cell -> its prompt; a single name may leave it to the file."""
    named = {name: prompt_named(name) for name in names}
    if len(named) == 1 and None in named.values() and LAYOUTS[choices.layout].each:
        return dict.fromkeys(named, _prompt_of_file(released, choices))
    if choices.prompt:
        raise released.error(f"--prompt={choices.prompt!r}, but its columns name their prompts")
    for name, prompt in named.items():
        if prompt is None:
            raise released.error(
                f"{name!r} names no prompt; allowed: {PROMPT_ALLOWED}; --ignore leaves columns out"
            )
    return {name: prompt for name, prompt in named.items() if prompt is not None}


def _prompt_of_file(released: Released, choices: Choices) -> Prompt:
    """The prompt of the file's name, or that of --prompt; raises AssayError if they differ."""
    given, said = prompt_named(choices.prompt), prompt_named(released.path.stem)
    if choices.prompt and given is None:
        raise AssayError(f"--prompt={choices.prompt!r}; allowed: {PROMPT_ALLOWED}")
    if given and said and given.text != said.text:
        raise released.error(f"--prompt={choices.prompt!r}, but its name says {said.text!r}")
    prompt = given or said
    if prompt is None:
        raise AssayError(
            f"--prompt is missing: {released.path} does not say under which prompt it was scored; "
            f"allowed: {PROMPT_ALLOWED}"
        )
    return prompt


def _checked(released: Released, column: str, choices: Choices) -> pl.Series:
    """A column of rewards or log-probabilities, float32; raises AssayError if they cannot be that.

    Rewards are refused where they are the log-probabilities of a whole vocabulary.
    """
    values, whole = released.numbers(column), choices.layout == "tokens"
    if choices.values == "logits":
        shifted = values - values.max()
        values = shifted - float(np.log(np.exp(shifted.to_numpy()).sum()))
    highest = float(values.to_numpy().max())
    mass = float(np.exp(values.to_numpy()).sum()) if whole and highest <= _ROUNDING else 0.0
    hint = "; --values=logits normalises logits" if whole else ""
    if choices.values != "rewards" and highest > _ROUNDING:
        raise released.error(
            f"column {column!r} holds {highest:.6g}; allowed: log-probabilities, at most 0{hint}"
        )
    if choices.values != "rewards" and mass > 1 + _EXCESS:
        raise released.error(
            f"column {column!r}: its probabilities sum to {mass:.6g}; allowed: at most 1{hint}"
        )
    if choices.values == "rewards" and abs(mass - 1) < _EXCESS:
        raise released.error(
            f"column {column!r} holds log-probabilities, not rewards; allowed: --values=logprobs"
        )
    return values.cast(pl.Float32)


def _not_in_layout(released: Released, choices: Choices, known: Sequence[str]) -> AssayError:
    layout = LAYOUTS[choices.layout]
    further = f", then one column per {layout.each}" if layout.each else ""
    return released.error(
        f"columns {', '.join(released.frame.columns[:6])}; layout {choices.layout!r} is "
        f"{', '.join(known)}{further}; --ignore leaves columns out"
    )


def _check(flag: str, value: str, allowed: Sequence[str], where: str = "") -> None:
    if value not in allowed:
        said = ", ".join(map(repr, allowed))
        raise AssayError(f"--{flag}={value!r}{where}; allowed: {said}")
