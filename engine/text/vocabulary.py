"""The vocabulary table of a tokenizer, and how each token survives a round trip through text."""

from collections.abc import Sequence

import polars as pl
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.runs import schema
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds


def vocabulary(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, template: ChatTemplate | None
) -> pl.DataFrame:
    """Every id of the tokenizer, in order, with columns `schema.VOCAB_COLUMNS`.

    Args:
      tokenizer: whose ids they are.
      vocab_size: rows of the embedding.
      template: in which round trips are tried; None leaves them unknown.

    Raises:
      AssayError: the tokenizer has ids that the embedding lacks.
    """
    tokens = [tokenizer.decode([i]) for i in range(vocabulary_size(tokenizer, vocab_size))]
    special = set(tokenizer.all_special_ids)
    special |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return pl.DataFrame(
        {
            "token_id": range(len(tokens)),
            "token": tokens,
            "is_special": [i in special for i in range(len(tokens))],
            "round_trip": _round_trips(template, tokens) if template else None,
        },
        schema=schema.VOCAB_COLUMNS,
    )


def vocabulary_size(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> int:
    """How many ids the tokenizer has.

    Raises:
      AssayError: more than `vocab_size`, the rows of the embedding.
    """
    size = len(tokenizer)
    if size > vocab_size:
        raise AssayError(f"tokenizer has {size} ids but the embedding has {vocab_size} rows")
    return size


def _round_trips(template: ChatTemplate, tokens: Sequence[str]) -> list[str]:
    # The class does not depend on the prompt; any will do.
    prompt = template.split("What?")
    texts = list(dict.fromkeys(tokens))
    sequences = template.sequences(prompt.prompt, texts)
    whole = dict(zip(texts, map(tuple, sequences), strict=True))
    return [_round_trip(prompt, i, token, whole[token]) for i, token in enumerate(tokens)]


def _round_trip(prompt: PromptIds, token_id: int, token: str, whole: tuple[int, ...]) -> str:
    """`whole` is the rendered conversation, in which a reply may merge with the template's text."""
    if whole == (*prompt.prefix, token_id, *prompt.suffix):
        return "same"
    if whole == (*prompt.prefix, *prompt.suffix):
        return "empty"
    if "�" in token:
        return "replacement"
    single = len(whole) == len(prompt.prefix) + 1 + len(prompt.suffix)
    apart = whole[: len(prompt.prefix)] == prompt.prefix
    return "other_id" if single and apart else "split"
