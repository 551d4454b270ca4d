"""Loads a folder's tokenizer.json as it is, without running any code of that folder.

`AutoTokenizer` is not used. It picks a class by `tokenizer_class` and `model_type`, and some
classes of transformers 5 keep only vocabulary and merges of tokenizer.json: they replace
normalizer, pre-tokenizer and decoder.
"""

import os
from pathlib import Path

from transformers import PreTrainedTokenizerBase, TokenizersBackend

from engine.errors import AssayError

FILE = "tokenizer.json"
# Files from which transformers makes a tokenizer.json -> the packages that it needs for that.
_MADE_FROM = {
    "tokenizer.model": "'assay[sentencepiece]'",
    "tiktoken.model": "transformers tiktoken",
    "vocab.json": "transformers",
    "vocab.txt": "transformers",
    "spiece.model": "'assay[sentencepiece]'",
    "tekken.json": "transformers mistral-common",
}


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


def _missing(folder: Path) -> str:
    """What a folder without tokenizer.json holds instead, and how to make the file."""
    there = [name for name in _MADE_FROM if (folder / name).is_file()]
    if not there:
        return f"{folder}: no {FILE}; allowed: a folder with the tokenizer of the model"
    code = (
        "from transformers import AutoTokenizer; "
        f"AutoTokenizer.from_pretrained({os.fspath(folder)!r}).save_pretrained({os.fspath(folder)!r})"
    )
    return (
        f"{folder}: no {FILE}, only {there[0]}; make it with:  pip install {_MADE_FROM[there[0]]}  "
        f'and:  python -c "{code}"'
    )
