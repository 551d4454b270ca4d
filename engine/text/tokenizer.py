"""Loads a tokenizer from a folder without running any code of that folder."""

import os
import warnings
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.errors import AssayError


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder.

    Raises:
      AssayError: the folder holds no tokenizer that loads without code of its own.
    """
    try:
        with warnings.catch_warnings():  # about the model's config.json, which is irrelevant here
            warnings.simplefilter("ignore", FutureWarning)
            return AutoTokenizer.from_pretrained(
                os.fspath(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # `tokenizers` raises Exception itself for a damaged file
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise AssayError(f"{folder}: no tokenizer that loads ({reason})") from error
