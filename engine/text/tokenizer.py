"""Loading a tokenizer from a folder; its code is never run."""

import os
import warnings
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.errors import AssayError


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """A folder's tokenizer; never its code.

    Raises:
      AssayError: no tokenizer that loads.
    """
    try:
        with warnings.catch_warnings():  # about a model's config.json, which is not read here
            warnings.simplefilter("ignore", FutureWarning)
            return AutoTokenizer.from_pretrained(
                os.fspath(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # for a damaged file `tokenizers` raises Exception itself
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise AssayError(f"{folder}: no tokenizer that loads ({reason})") from error
