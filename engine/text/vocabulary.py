"""The vocabulary table of a tokenizer: text of each token, and whether it survives as text."""

from collections.abc import Mapping

import polars as pl
from transformers import PreTrainedTokenizerBase

from engine.runs import schema
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds


def candidate_ids(tokenizer: PreTrainedTokenizerBase, rows: int) -> list[int]:
    """The ids of the tokenizer that the embedding's `rows` hold, ascending; there may be gaps."""
    return [i for i in sorted({*tokenizer.get_vocab().values()}) if i < rows]


def left_out(tokenizer: PreTrainedTokenizerBase, rows: int) -> str:
    """What of either side is no candidate, in words; "" where tokenizer and embedding agree."""
    ids = {*tokenizer.get_vocab().values()}
    extra, empty = sum(i >= rows for i in ids), rows - sum(i < rows for i in ids)
    said = []
    if extra:
        said.append(f"{extra:,} of {len(ids):,} token ids have no row in the embedding")
    if empty:
        said.append(f"{empty:,} of {rows:,} rows of the embedding have no token")
    return " and ".join(said)


def vocabulary(
    tokenizer: PreTrainedTokenizerBase, tokens: Mapping[int, str], template: ChatTemplate | None
) -> pl.DataFrame:
    """One row per candidate, ascending by id, with columns `schema.VOCAB_COLUMNS`.

    The column `round_trip` tells how the token's text is tokenised as a reply in the template; it
    is null without one.
    """
    special = set(tokenizer.all_special_ids)
    special |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return pl.DataFrame(
        {
            "token_id": list(tokens),
            "token": list(tokens.values()),
            "is_special": [i in special for i in tokens],
            "round_trip": _round_trips(template, tokens) if template else None,
        },
        schema=schema.VOCAB_COLUMNS,
    )


def _round_trips(template: ChatTemplate, tokens: Mapping[int, str]) -> list[str]:
    prompt = template.split("What?")  # the result does not depend on the prompt
    texts = list(dict.fromkeys(tokens.values()))
    sequences = template.sequences(prompt.prompt, texts)
    whole = dict(zip(texts, map(tuple, sequences), strict=True))
    return [_round_trip(prompt, i, token, whole[token]) for i, token in tokens.items()]


def _round_trip(prompt: PromptIds, token_id: int, token: str, whole: tuple[int, ...]) -> str:
    """How a token survives as text; `whole` are ids of the conversation with its text as the reply.

    `same` id, `empty` (nothing left of the text), `replacement` (no whole character), `other_id`
    (one other token), or `split` (several tokens, or merged with the template's text).
    """
    if whole == (*prompt.prefix, token_id, *prompt.suffix):
        return "same"
    if whole == (*prompt.prefix, *prompt.suffix):
        return "empty"
    if "�" in token:
        return "replacement"
    single = len(whole) == len(prompt.prefix) + 1 + len(prompt.suffix)
    apart = whole[: len(prompt.prefix)] == prompt.prefix
    return "other_id" if single and apart else "split"
