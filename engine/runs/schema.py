"""Names, columns and dtypes of a run folder: the contract between `engine` and `analysis`.

    run/run.json
    run/vocab/<tokenizer-hash>.parquet
    run/scores/model=<slug>/prompt=<id>/
    run/items/<list>/model=<slug>/prompt=<id>/
    run/items/<list>/humans.parquet     what people think of the items, where that is known
    run/sequences/model=<slug>/prompt=<id>/direction=<max|min>/<method>-seed<k>/
    run/logprobs/model=<slug>/prompt=<id>/
    run/item_logprobs/<list>/model=<slug>/prompt=<id>/
    run/conversations/<list>/list.parquet   conversations that have prompts of their own
    run/conversations/<list>/model=<slug>/
    run/conversations/<list>.probes/        the list's replies, edited, as a list of its own
    run/conversations/<list>.<slug>.running/   replies of the pairs that a model judges worst, each
                                            cut behind some of its words, as a list of its own
    run/conversation_logprobs/<list>/model=<slug>/
    run/conversations/<list>/model=<slug>-rendered.txt   the first row as the model reads it

The folder of a result holds `result.json` and `part-<start>-<stop>.parquet`, or of a search
`trace.parquet`.

A language model reads a prompt in a form: `greatest` is the prompt as plain text, `greatest.chat`
the same prompt in the chat template (`prompt_in_form`); both have the text under `prompts`.

docs/run-format.md explains every column, and every key of `run.json` and `result.json`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from engine.errors import AssayError

RUN, RESULT, TRACE = "run.json", "result.json", "trace.parquet"
VERSION = 2  # of both JSON files
# Of model.json, and in a run's entry of each model: raised when conversion reads a model in another
# way. 3: tokenizer.json as it is, a fixed date, the place of the reward.
CONVERSION = 3

VOCAB_DIR = "vocab"
SCORES_DIR = "scores"
ITEMS_DIR = "items"
SEQUENCES_DIR = "sequences"
LOGPROBS_DIR = "logprobs"
ITEM_LOGPROBS_DIR = "item_logprobs"
CONVERSATIONS_DIR = "conversations"
CONVERSATION_LOGPROBS_DIR = "conversation_logprobs"
HUMANS = "humans.parquet"
LIST = "list.parquet"
CHAT = ".chat"  # ends the id of a prompt in a language model's chat template
PROBES = ".probes"  # ends the name of the list of a list's edited replies
RUNNING = ".running"  # and that of a list's worst replies, cut behind some of their words
# In a prompt's text, before its reply start: a reply that is begun, behind which rows are scored.
REPLY_START = "␟"
# Of a model's entry in run.json: the two language models, form and beta of implicit rewards.
PAIR = "reward_of"
# Largest allowed difference between a written number and the plain pass's, relative to
# max(1, |number|): the difference between two orders of summation in that dtype, with a margin.
SELF_CHECK_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
# Of a mixture of experts, in every dtype. Where two experts are nearly as probable, the last bits
# decide which one the router takes, and the reward may jump; so the median of the rows is compared.
# A single row has ten times as much as of other models, or this (docs/decisions/networks.md).
OF_MIXTURE = 6e-2
# What a self-check compares: the row with the largest difference; that with the median (of a
# mixture); one row (of a search in a mixture); log-probabilities of two language models.
LARGEST, MEDIAN, SINGLE, PAIR_OF = "largest", "median", "single", "pair"


def tolerance(dtype: str, compared: str) -> float:
    """Largest allowed difference of a self-check, relative to max(1, |number|)."""
    plain = SELF_CHECK_TOLERANCE[dtype]
    of_mixture = {MEDIAN: OF_MIXTURE, SINGLE: max(OF_MIXTURE, 10 * plain)}
    return of_mixture.get(compared, plain)


Columns = dict[str, pl.DataType | type[pl.DataType]]

VOCAB_COLUMNS: Columns = {
    "token_id": pl.UInt32,
    "token": pl.String,
    "is_special": pl.Boolean,
    "round_trip": pl.String,
}
# How decode -> tokenise maps a token back: to itself, to another single id, to several ids; the
# text holds U+FFFD (bytes that are no character on their own); the text is empty. Null where it
# is not known: in vocabularies that came with imported scores.

SCORE_COLUMNS: Columns = {"token_id": pl.UInt32, "reward": pl.Float32}
ITEM_COLUMNS: Columns = {"item_id": pl.UInt32, "item": pl.String, "reward": pl.Float32}
# A higher elo_score is a better item; elo_rank 1 is the best.
HUMAN_COLUMNS: Columns = {
    "item_id": pl.UInt32,
    "item": pl.String,
    "elo_rank": pl.UInt32,
    "elo_score": pl.Float64,
    "elo_matches": pl.UInt32,
}
# Natural logarithms.
LOGPROB_COLUMNS: Columns = {"token_id": pl.UInt32, "logprob": pl.Float32}
# `tokens` is how many tokens of the reply `logprob` sums over.
ITEM_LOGPROB_COLUMNS: Columns = {
    "item_id": pl.UInt32,
    "item": pl.String,
    "tokens": pl.UInt32,
    "logprob": pl.Float32,
}
CONVERSATION_COLUMNS: Columns = {"conversation_id": pl.UInt32, "reward": pl.Float32}
CONVERSATION_LOGPROB_COLUMNS: Columns = {
    "conversation_id": pl.UInt32,
    "tokens": pl.UInt32,
    "logprob": pl.Float32,
}
# Of the file's row `row`, counted from 1, the conversation that ends with its reply (`side` is
# `reply`), or one of those that end with its `chosen` and its `rejected` replies, mostly one of
# each. The last message is what the model judges.
LIST_COLUMNS: Columns = {
    "conversation_id": pl.UInt32,
    "row": pl.UInt32,
    "side": pl.String,
    "id": pl.String,
    "messages": pl.List(pl.Struct({"role": pl.String, "content": pl.String})),
    "labels": pl.List(pl.Struct({"name": pl.String, "value": pl.String})),
}
# A further column of lists whose templates read more than roles and contents, as JSON: `messages`
# (the other keys of each) and `variables` (tools and others); null where a row has neither.
GIVEN = "given"
SEQUENCE_COLUMNS: Columns = {
    "step": pl.UInt32,
    "reward": pl.Float32,
    "token_ids": pl.List(pl.UInt32),
    "text": pl.String,
    "round_trips": pl.Boolean,
    "flops": pl.Float64,
}
# Kind of a result, the first folder of its path -> columns of its parts: the id, the number last.
COLUMNS = {
    SCORES_DIR: SCORE_COLUMNS,
    LOGPROBS_DIR: LOGPROB_COLUMNS,
    ITEMS_DIR: ITEM_COLUMNS,
    ITEM_LOGPROBS_DIR: ITEM_LOGPROB_COLUMNS,
    CONVERSATIONS_DIR: CONVERSATION_COLUMNS,
    CONVERSATION_LOGPROBS_DIR: CONVERSATION_LOGPROB_COLUMNS,
    SEQUENCES_DIR: SEQUENCE_COLUMNS,
}


def objective_columns(names: Sequence[str]) -> Columns:
    """The columns that a part has after the reward: f32, one per name.

    Raises AssayError for a name that is not plain, occurs twice, or is that of another column.
    """
    tables = (VOCAB_COLUMNS, ITEM_COLUMNS, HUMAN_COLUMNS, LOGPROB_COLUMNS, SEQUENCE_COLUMNS)
    taken = {"model", "prompt", "response", "rank", *(name for table in tables for name in table)}
    for name in names:
        if name in taken or not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise AssayError(
                f"objective {name!r}; allowed: lower-case letters, digits, '_', '-', starting with "
                "a letter, each name once and none that another column has"
            )
        taken.add(name)
    return dict.fromkeys(names, pl.Float32)


def lens_columns(layers: int) -> tuple[str, ...]:
    """Columns of a sweep with the reward lens: the reward after each of `layers` layers."""
    return tuple(f"layer_{layer:02}" for layer in range(1, layers + 1))


def scores_path(model: str, prompt: str) -> str:
    """Folder of one model's scores of the vocabulary under one prompt, relative to the run."""
    return f"{SCORES_DIR}/model={model}/prompt={prompt}"


def items_path(items: str, model: str, prompt: str) -> str:
    """Folder of one model's scores of the item list `items`, relative to the run."""
    return f"{ITEMS_DIR}/{items}/model={model}/prompt={prompt}"


def sequences_path(model: str, prompt: str, direction: str, method: str, seed: int) -> str:
    """Folder of one search, relative to the run."""
    folder = f"{SEQUENCES_DIR}/model={model}/prompt={prompt}/direction={direction}"
    return f"{folder}/{method}-seed{seed}"


def humans_path(items: str) -> str:
    """Table of what people think of the item list `items`, relative to the run."""
    return f"{ITEMS_DIR}/{items}/{HUMANS}"


def logprobs_path(model: str, prompt: str) -> str:
    """Folder of a language model's next-token log-probabilities, relative to the run."""
    return f"{LOGPROBS_DIR}/model={model}/prompt={prompt}"


def item_logprobs_path(items: str, model: str, prompt: str) -> str:
    """Folder of a language model's log-probabilities of the item list, relative to the run."""
    return f"{ITEM_LOGPROBS_DIR}/{items}/model={model}/prompt={prompt}"


def conversations_path(name: str, model: str) -> str:
    """Folder of one model's scores of a list of conversations, relative to the run."""
    return f"{CONVERSATIONS_DIR}/{name}/model={model}"


def conversation_logprobs_path(name: str, model: str) -> str:
    """Folder of a language model's log-probabilities of a list of conversations' last replies."""
    return f"{CONVERSATION_LOGPROBS_DIR}/{name}/model={model}"


def rendered_path(path: str) -> str:
    """Text of a list's first conversation as the model of the result at `path` reads it."""
    return f"{path}-rendered.txt"


def list_path(name: str) -> str:
    """Table of the conversations of a list, relative to the run."""
    return f"{CONVERSATIONS_DIR}/{name}/{LIST}"


# Any: JSON values.
def conversations(table: pl.DataFrame) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Messages of a list's conversations, with all their keys, and variables of their templates."""
    messages: list[list[dict[str, Any]]] = table["messages"].to_list()
    if GIVEN not in table.columns:
        return messages, [{} for _ in messages]
    given = [
        json.loads(text) if text else {"messages": [], "variables": {}} for text in table[GIVEN]
    ]
    for conversation, own in zip(messages, given, strict=True):
        for message, others in zip(conversation, own["messages"], strict=False):
            message.update(others)
    return messages, [own["variables"] for own in given]


def parted(prompt: str) -> tuple[str, str]:
    """A prompt's text without its reply start, and the reply start; "" for a prompt without one."""
    plain, _, reply_start = prompt.partition(REPLY_START)
    return plain, reply_start


# How often a token is repeated behind a reply start, in the lists of `repeated_list`.
TIMES = (1, 2, 4, 8, 16, 32)
REPEATED = ("raise", "lower", "random")  # the groups of tokens that are repeated


def repeated_list(group: str, digest: str) -> str:
    """Name of the list of a group's tokens, each `TIMES` times; `digest` is its `items_hash`."""
    return f"repeated-{group}-{digest[:8]}"


def repeated_group(items: str) -> str:
    """The group of such a list; "" for another list."""
    match = re.fullmatch(rf"repeated-({'|'.join(REPEATED)})-[0-9a-f]{{8}}", items)
    return match[1] if match else ""


def running_list(items: str, model: str) -> str:
    """Name of the list of the replies that `model` judges worst, cut behind some of their words."""
    return f"{items}.{model}{RUNNING}"


def prompt_in_form(prompt: str, form: str) -> str:
    """Id of a prompt in a form: `<id>` in the `pretrained` form, `<id>.<form>` in another."""
    return prompt if form == "pretrained" else f"{prompt}.{form}"


def vocab_path(vocab: str) -> str:
    """Vocabulary table of the tokenizer with hash `vocab`, relative to the run."""
    return f"{VOCAB_DIR}/{vocab}.parquet"


def part_name(start: int, stop: int) -> str:
    """File name of the part that holds rows `start <= id < stop`."""
    return f"part-{start:07d}-{stop:07d}.parquet"


def part_span(name: str) -> tuple[int, int] | None:
    """The rows that a part's file name stands for; None for another file."""
    match = re.fullmatch(r"part-(\d{7,})-(\d{7,})\.parquet", name)
    if match is None or part_name(int(match[1]), int(match[2])) != name:
        return None
    return int(match[1]), int(match[2])


# Slugs are columns of the square tables, of the shared vocabulary and of the ranks of items, too.
_COLUMNS = ("model", "token", "token_id", "item", "item_id", "human", "human_rank")


def check_names(names: Iterable[str]) -> None:
    """Raises AssayError for a slug, prompt id or list name that no path or table could have."""
    for name in names:
        if name in _COLUMNS:
            raise AssayError(f"name {name!r}; tables have a column of that name already")
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
            raise AssayError(
                f"name {name!r}; allowed: lower-case letters, digits, '.', '_', '-', "
                "starting with a letter or digit"
            )
