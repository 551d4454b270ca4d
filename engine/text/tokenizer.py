"""Loads a folder's tokenizer.json as it is, without running its code; the vocabulary table.

`AutoTokenizer` is not used. It picks a class by `tokenizer_class` and `model_type`, and some
classes of transformers 5 keep only vocabulary and merges of tokenizer.json: they replace
normalizer, pre-tokenizer and decoder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from engine.errors import AssayError
from engine.runs import schema
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

FILE = "tokenizer.json"
# Files from which transformers makes a tokenizer.json, and the packages that it needs for that.
_MADE_FROM = ("tokenizer.model", "tiktoken.model", "vocab.json", "vocab.txt", "spiece.model")
_PACKAGES = "'assay-rewards[sentencepiece]' tiktoken"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder: tokenizer.json decides how text becomes ids and back.

    Special tokens and chat template come from the folder's other files. Texts are neither cut nor
    padded, and decoded text is not cleaned up, whatever these files say.

    Raises:
      AssayError: no tokenizer.json, with the lines that make one; or one that does not load.
    """
    if not (folder / FILE).is_file():
        raise AssayError(_missing(folder))
    try:
        tokenizer = TokenizersBackend.from_pretrained(
            os.fspath(folder),
            tokenizer_file=os.fspath(folder / FILE),  # not one that tokenizer_config.json names
            fix_mistral_regex=False,  # would replace the file's pre-tokenizer
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:  # `tokenizers` raises Exception itself for a damaged file
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise AssayError(f"{folder}: no tokenizer that loads ({reason})") from error
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def candidate_ids(tokenizer: PreTrainedTokenizerBase, rows: int) -> list[int]:
    """The ids of the tokenizer that the embedding's `rows` hold, ascending; there may be gaps."""
    return [i for i in sorted({*tokenizer.get_vocab().values()}) if i < rows]


def left_out(tokenizer: PreTrainedTokenizerBase, rows: int) -> str:
    """What of either side is no candidate, in words; "" where tokenizer and embedding agree."""
    ids = {*tokenizer.get_vocab().values()}
    extra, empty = sum(i >= rows for i in ids), rows - sum(i < rows for i in ids)
    clauses = []
    if extra:
        clauses.append(f"{extra:,} of {len(ids):,} token ids have no row in the embedding")
    if empty:
        clauses.append(f"{empty:,} of {rows:,} rows of the embedding have no token")
    return " and ".join(clauses)


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
    prompt = template.split(template.probe())  # the result does not depend on the prompt
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


def _missing(folder: Path) -> str:
    """What a folder without tokenizer.json holds instead, and how to make the file."""
    present = [name for name in _MADE_FROM if (folder / name).is_file()]
    if not present:
        return f"{folder}: no {FILE}; allowed: a folder with the tokenizer of the model"
    code = (
        "from transformers import AutoTokenizer; "
        f"AutoTokenizer.from_pretrained({os.fspath(folder)!r}).save_pretrained({os.fspath(folder)!r})"
    )
    return (
        f"{folder}: no {FILE}, only {present[0]}; make it with:  pip install {_PACKAGES}  and:  "
        f'python -c "{code}"'
    )
