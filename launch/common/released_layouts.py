"""Layouts of released files: each turns a file into the results that it holds."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.runs import schema
from launch.common.released_names import (
    PROMPT_ALLOWED,
    Prompt,
    flag_prompt,
    known_prompt,
    model_id,
    named_prompt,
)
from launch.common.released_tables import Released

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What the flags of an import say of its files; "" where they say nothing.

    Attributes:
      layout: one of `LAYOUTS`.
      prompt: a prompt's text or id, for files that do not say it.
      items: name of the list.
      model: id of the model, for a single file that does not say it.
      column: column of the replies.
      values: one of `VALUES`.
      form: how a language model read the prompts, one of `FORMS`.
    """

    layout: str
    prompt: str = ""
    items: str = ""
    model: str = ""
    column: str = ""
    values: str = "rewards"
    form: str = "pretrained"

    def __post_init__(self) -> None:
        for key, allowed in {"layout": LAYOUTS, "values": VALUES, "form": FORMS}.items():
            value = getattr(self, key)
            if value not in allowed:
                raise AssayError(f"--{key}={value!r}; allowed: {', '.join(map(repr, allowed))}")
        if self.values == "logits" and self.layout != "tokens":
            raise AssayError(f"--values='logits' with layout {self.layout!r}; allowed: 'tokens'")
        if self.values != "rewards" and self.layout == "elo":
            raise AssayError(f"--values={self.values!r} with layout 'elo'; allowed: 'rewards'")
        if self.form != FORMS[0] and self.values == "rewards":
            raise AssayError(f"--form={self.form!r} with rewards; allowed with --values=logprobs")
        for key, layouts in _FLAGS.items():
            if getattr(self, key) and self.layout not in layouts:
                raise AssayError(
                    f"--{key}={getattr(self, key)!r} with layout {self.layout!r}; "
                    f"allowed with {', '.join(map(repr, layouts))}"
                )

    @property
    def number(self) -> str:
        """Column of the numbers in the run."""
        return "reward" if self.values == "rewards" else "logprob"


class Column(NamedTuple):
    """The numbers of one model under one prompt, as a file holds them."""

    model: str
    prompt: Prompt
    values: pl.Series  # float32, one per row
    rows: pl.DataFrame  # key columns of the rows: token_id, or item and, for log-probabilities,
    # tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """What one file holds.

    Attributes:
      columns: its numbers.
      vocabulary: of its model (`schema.VOCAB_COLUMNS`); None for a list.
      humans: what people think of its items, in the order of its rows; None where it is not said.
    """

    columns: Sequence[Column]
    vocabulary: pl.DataFrame | None = None
    humans: pl.DataFrame | None = None


def elo(released: Released, choices: Choices) -> Content:
    """elo_rank, elo_score, name, elo_matches, then one column per model."""
    models = _after(released, ("elo_rank", "elo_score", "name", "elo_matches"), "model")
    prompt = _prompt_of_file(released, choices)
    humans = people(released)
    rows = humans.select("item")
    columns = [
        Column(model_id(name), prompt, _single(released.numbers(name)), rows) for name in models
    ]
    return Content(columns=columns, humans=humans)


def people(released: Released) -> pl.DataFrame:
    """What people think of the items of a file in the layout `elo`: `schema.HUMAN_COLUMNS`.

    Raises:
      AssayError: an item is empty or stands there twice, or a number is none.
    """
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


def tokens(released: Released, choices: Choices) -> Content:
    """token_id, token_name, token_decoded, then one column per prompt; one file per model.

    The file does not say which tokens round-trip, so `round_trip` is null; `is_special` is set
    where the decoded string looks like a special token.
    """
    named = _after(released, ("token_id", "token_name", "token_decoded"), "prompt")
    prompts = _prompts_of_columns(released, named, choices)
    ids = released.whole("token_id")
    released.once(ids.to_frame("token_id"))
    vocabulary = pl.DataFrame(
        {"token_id": ids, "token": released.any_text("token_decoded")}
    ).with_columns(
        is_special=pl.col("token").str.contains(_SPECIAL),
        round_trip=pl.lit(None, dtype=pl.String),
    )
    rows = vocabulary.select("token_id")
    model = model_id(choices.model or released.path.stem)
    columns = [
        Column(model, prompt, _checked(released, name, choices), rows)
        for name, prompt in prompts.items()
    ]
    return Content(columns=columns, vocabulary=vocabulary)


def items(released: Released, choices: Choices) -> Content:
    """A column of replies (the first, or --column), then one column per prompt; a file per model.

    Of log-probabilities, the column `tokens` says how many tokens each reply has. A reply may stand
    in the list twice, as in a list that is scored: each row is one.
    """
    column = choices.column or released.frame.columns[0]
    rows = _replies(released, column, choices)
    others = [name for name in released.frame.columns if name not in (column, *rows.columns)]
    if not others:
        raise released.error(f"no column after {column!r}; layout 'items' has one per prompt")
    model = model_id(choices.model or released.path.stem)
    columns = [
        Column(model, prompt, _checked(released, name, choices), rows)
        for name, prompt in _prompts_of_columns(released, others, choices).items()
    ]
    return Content(columns=columns)


def long(released: Released, choices: Choices) -> Content:
    """One row per number: model, prompt, item, reward (or tokens and logprob), in any order.

    --model and --prompt stand for columns that the file lacks, --column names another than `item`.
    A second number of an item under the same model and prompt is refused.
    """
    column, number = choices.column or "item", choices.number
    known = (column, number, "model", "prompt", *([_TOKENS] if number == "logprob" else []))
    present = released.frame.columns
    unknown = [name for name in present if name not in known]
    if unknown or not {column, number} <= set(present):
        raise released.error(
            f"columns {', '.join(present[:6])}; layout 'long' is {', '.join(known)}; "
            "--ignore leaves columns out"
        )
    prompts = _prompts_of_rows(released, choices)
    rows = _replies(released, column, choices).with_columns(
        value=_checked(released, number, choices),
        model=_models_of_rows(released, choices),
        prompt=released.text("prompt") if "prompt" in present else pl.lit(""),
    )
    said = [name for name in ("model", "prompt") if name in present]
    released.once(rows.select(*said, "item"))
    columns = []
    for (model, prompt), own in rows.group_by("model", "prompt", maintain_order=True):
        keys = own.drop("value", "model", "prompt")
        columns.append(Column(model_id(str(model)), prompts[str(prompt)], own["value"], keys))
    return Content(columns=columns)


LAYOUTS: Mapping[str, Callable[[Released, Choices], Content]] = {
    "elo": elo,
    "tokens": tokens,
    "items": items,
    "long": long,
}
_FLAGS = {  # flag -> layouts that take it
    "items": ("elo", "items", "long"),
    "column": ("items", "long"),
    "model": ("tokens", "items", "long"),
}


def _after(released: Released, wanted: tuple[str, ...], what: str) -> list[str]:
    """The columns after the wanted ones, with which the file must begin."""
    present = released.frame.columns
    if tuple(present[: len(wanted)]) != wanted or len(present) == len(wanted):
        layout = "elo" if what == "model" else "tokens"
        raise released.error(
            f"columns {', '.join(present[:6])}; layout {layout!r} is {', '.join(wanted)}, "
            f"then one column per {what}"
        )
    return present[len(wanted) :]


def _replies(released: Released, column: str, choices: Choices) -> pl.DataFrame:
    """Key columns of a list's rows: item and, for log-probabilities, tokens."""
    if column not in released.frame.columns:
        present = ", ".join(released.frame.columns[:6])
        raise released.error(f"no column {column!r}; it has {present}")
    rows = pl.DataFrame({"item": released.text(column)})
    if choices.values == "rewards":
        return rows
    if _TOKENS not in released.frame.columns:
        raise released.error(
            f"no column {_TOKENS!r}; log-probabilities of a list need it: how many tokens each "
            "reply has"
        )
    return rows.with_columns(released.whole(_TOKENS).alias(_TOKENS))


def _models_of_rows(released: Released, choices: Choices) -> pl.Series | pl.Expr:
    """The column `model`, or the same model in every row where the file lacks it."""
    if "model" not in released.frame.columns:
        return pl.lit(choices.model or released.path.stem)
    if choices.model:
        raise released.error(f"--model={choices.model!r}, but its column 'model' says it")
    return released.text("model")


def _prompts_of_rows(released: Released, choices: Choices) -> dict[str, Prompt]:
    """Name in the column `prompt` -> prompt; "" -> that of all rows where the file lacks it."""
    if "prompt" not in released.frame.columns:
        return {"": _prompt_of_file(released, choices)}
    if choices.prompt:
        raise released.error(f"--prompt={choices.prompt!r}, but its column 'prompt' says it")
    found = {}
    for name in released.text("prompt").unique(maintain_order=True):
        prompt = named_prompt(name)
        if prompt is None:
            raise released.error(f"column 'prompt': {name!r}; allowed: {PROMPT_ALLOWED}")
        found[name] = prompt
    return found


def _prompts_of_columns(
    released: Released, columns: Sequence[str], choices: Choices
) -> dict[str, Prompt]:
    """Column -> its prompt, by the column's name; the prompt of the file if there is only one.

    Raises:
      AssayError: a name says no prompt, two columns have one prompt, or --prompt contradicts.
    """
    named = {name: named_prompt(name) for name in columns}
    if len(columns) == 1 and named[columns[0]] is None:
        return {columns[0]: _prompt_of_file(released, choices)}
    found = {name: prompt for name, prompt in named.items() if prompt is not None}
    unnamed = [name for name in columns if name not in found]
    if unnamed:
        raise released.error(
            f"column {unnamed[0]!r} names no prompt; allowed: {PROMPT_ALLOWED}; --ignore leaves "
            "columns out"
        )
    ids = [prompt.id for prompt in found.values()]
    for name, prompt in found.items():
        if ids.count(prompt.id) > 1:
            raise released.error(f"column {name!r}: another column is the prompt {prompt.id!r} too")
    if choices.prompt:
        raise released.error(f"--prompt={choices.prompt!r}, but its columns name their prompts")
    return found


def _prompt_of_file(released: Released, choices: Choices) -> Prompt:
    """The prompt that the file's name says, or that of --prompt.

    Raises:
      AssayError: neither says one, or they say different ones.
    """
    given, said = flag_prompt(choices.prompt), known_prompt(released.path.stem)
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
    """A column of rewards or log-probabilities, float32.

    Raises:
      AssayError: the numbers cannot be what --values says. Rewards of a vocabulary are refused
        where they are the log-probabilities of a whole vocabulary.
    """
    values = released.numbers(column)
    if choices.values == "logits":
        values = _log_softmax(values)
    highest, whole = float(values.to_numpy().max()), choices.layout == "tokens"
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
    return _single(values)


def _log_softmax(values: pl.Series) -> pl.Series:
    shifted = values - values.max()
    return shifted - float(np.log(np.exp(shifted.to_numpy()).sum()))


def _single(values: pl.Series) -> pl.Series:
    return values.cast(pl.Float32)
