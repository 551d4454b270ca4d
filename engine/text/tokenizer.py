"""Loads a tokenizer from a folder without running any code of that folder."""

import json
import os
import warnings
from pathlib import Path

from transformers import PreTrainedTokenizerBase, TokenizersBackend

from engine.errors import AssayError


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder.

    Raises:
      AssayError: the folder holds no tokenizer that loads without code of its own.
    """
    try:
        with warnings.catch_warnings():  # about the model's config.json, which is irrelevant here
            warnings.simplefilter("ignore", FutureWarning)
            return _class_of(folder).from_pretrained(
                os.fspath(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # `tokenizers` raises Exception itself for a damaged file
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise AssayError(f"{folder}: no tokenizer that loads ({reason})") from error


def _class_of(folder: Path) -> type[PreTrainedTokenizerBase]:
    """The class whose `from_pretrained` loads a folder.

    `AutoTokenizer` takes longer to import than all else, because it imports torch where that is
    installed. A folder that names the plain class needs no search for one; most converted models'
    do.
    """
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_bytes()) if file.is_file() else {}
    plain = config.get("tokenizer_class") == TokenizersBackend.__name__
    if plain and "auto_map" not in config and not (folder / "config.json").exists():
        return TokenizersBackend
    from transformers import AutoTokenizer

    return AutoTokenizer
