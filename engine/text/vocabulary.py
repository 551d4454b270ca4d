"""The vocabulary table of a tokenizer: text of each token, and whether it survives as text."""

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
    """One row per id of the tokenizer, in order, with columns `schema.VOCAB_COLUMNS`.

    Args:
      tokenizer: the tokenizer.
      vocab_size: rows of the embedding.
      template: chat template for the column `round_trip`, which tells how the token's text is
        tokenised as a reply; None leaves the column null.

    Raises:
      AssayError: the tokenizer has more ids than the embedding has rows.
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
    """Number of ids of the tokenizer.

    Args:
      tokenizer: the tokenizer.
      vocab_size: rows of the embedding.

    Raises:
      AssayError: the tokenizer has more ids than the embedding has rows.
    """
    size = len(tokenizer)
    if size > vocab_size:
        raise AssayError(f"tokenizer has {size} ids but the embedding has {vocab_size} rows")
    return size


def _round_trips(template: ChatTemplate, tokens: Sequence[str]) -> list[str]:
    prompt = template.split("What?")  # the result does not depend on the prompt
    texts = list(dict.fromkeys(tokens))
    sequences = template.sequences(prompt.prompt, texts)
    whole = dict(zip(texts, map(tuple, sequences), strict=True))
    return [_round_trip(prompt, i, token, whole[token]) for i, token in enumerate(tokens)]


def _round_trip(prompt: PromptIds, token_id: int, token: str, whole: tuple[int, ...]) -> str:
    """How a token survives as text.

    Args:
      prompt: the conversation without the reply.
      token_id: the token.
      token: its decoded text.
      whole: ids of the conversation with that text as the reply.

    Returns:
      `same` id, `empty` (nothing left of the text), `replacement` (no whole character),
      `other_id` (one other token), or `split` (several tokens, or merged with the template's text).
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
