"""A Hugging Face repository as a local folder: weights, configs and tokenizer, never code."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.convert import safetensors
from engine.convert.hf_config import decoder_config, is_language_model
from engine.convert.hf_values import Json
from engine.convert.safetensors import read_json
from engine.errors import AssayError, prefixed
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import load_tokenizer

# The files that are fetched first; no code and no pickled weights.
_SMALL = ("*.json", "*.jinja", "tokenizer.model")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A folder in Hugging Face format and where it came from."""

    folder: Path
    name: str  # hub id, or the folder as the user gave it
    revision: str | None


def fetch(
    source: str,
    revision: str | None,
    before_weights: Callable[[Json, int], object] = lambda hf, cached: None,
) -> Source:
    """Opens a local folder, or downloads the weights, configs and tokenizer of a hub id.

    Weights are downloaded only after config.json and the tokenizer have been understood.

    Args:
      source: a folder, or a hub id `owner/name`.
      revision: commit, tag or branch of a hub id; None: the main branch.
      before_weights: called before the weights of a hub id are downloaded, with its config.json and
        the bytes of weights that the cache holds already.

    Raises:
      AssayError: no such folder and no repository that the hub serves; or conversion would refuse
        its config.json or tokenizer.
    """
    if Path(source).is_dir():
        if revision:
            raise AssayError(f"revision={revision!r}; allowed: none for the local folder {source}")
        return Source(folder=Path(source), name=source, revision=None)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise AssayError(f"source={source!r}; allowed: an existing folder or a hub id owner/name")
    folder = _snapshot(source, revision, _SMALL)
    revision = folder.name  # snapshots lie in a folder named after their commit
    with prefixed(source):
        hf = read_json(folder / "config.json")
        decoder_config(hf)
    tokenizer = load_tokenizer(folder)
    if not is_language_model(hf):  # a base language model may have no chat template
        ChatTemplate(tokenizer, TemplatePolicy(bos="template", date=None))
    indexed = (folder / safetensors.INDEX).is_file()
    weights = safetensors.indexed_names(folder) if indexed else [safetensors.SINGLE]
    files = [folder / name for name in weights]
    before_weights(hf, sum(file.stat().st_size for file in files if file.is_file()))
    return Source(folder=_snapshot(source, revision, weights), name=source, revision=revision)


def fetch_config(source: str) -> Json:
    """The config.json of a hub id, which alone is downloaded.

    Raises:
      AssayError: no repository that the hub serves, or one without a readable config.json.
    """
    with prefixed(source):
        return read_json(_snapshot(source, None, ["config.json"]) / "config.json")


def _snapshot(source: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Downloads the files of a hub id that match the patterns, or finds them in the hub's cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise AssayError(
            f"source={source!r}: no such folder, and the hub says: {reason}"
        ) from error
