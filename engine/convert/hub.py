"""A Hugging Face repository as a local folder: weights, configs and tokenizer, never code."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from engine.convert import downloads, safetensors, templates
from engine.convert.hf_config import decoder_config, is_language_model
from engine.convert.hf_values import Json
from engine.convert.safetensors import read_json
from engine.errors import AssayError, prefixed
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import load_tokenizer

# The files that are fetched first; no code and no pickled weights.
_SMALL = ("*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")
_HEADER_BYTES = 2**20  # of a safetensors file, at most: names and places of its tensors


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
    *,
    template: str = "",
    tensor_bytes: int | None = None,
    cache: Path | None = None,
) -> Source:
    """Opens a local folder, or downloads the weights, configs and tokenizer of a hub id.

    Weights are downloaded only after config.json, the tokenizer and the sizes of the files have
    been understood. What was downloaded is compared with the hashes that the hub states.

    Args:
      source: a folder, or a hub id `owner/name`.
      revision: commit, tag or branch of a hub id; None: the main branch.
      before_weights: called before the weights of a hub id are downloaded, with its config.json and
        the bytes of weights that the cache holds already.
      template: the chat template in place of the repository's (`templates.choose`).
      tensor_bytes: bytes of all tensors of a hub id, if known; files of another size are not
        downloaded. Of a folder, `convert_model` compares them.
      cache: folder to download into instead of the hub's cache.

    Raises:
      AssayError: no such folder and no repository that the hub serves; conversion would refuse its
        config.json, tokenizer or sizes; or the download fails.
    """
    if Path(source).is_dir():
        if revision:
            raise AssayError(f"revision={revision!r}; allowed: none for the local folder {source}")
        folder = Path(source)
        with prefixed(source):
            safetensors.check_whole(folder, safetensors.file_names(folder))
        return Source(folder=folder, name=source, revision=None)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise AssayError(f"source={source!r}; allowed: an existing folder or a hub id owner/name")
    folder = downloads.snapshot(source, revision, _SMALL, cache=cache)
    commit = folder.name  # snapshots lie in a folder named after their commit
    place, sizes = f"{source} at {commit[:12]}", downloads.sizes(source, commit, cache)
    names = {name for name in sizes if "/" not in name} or safetensors.file_names(folder)
    with prefixed(place):
        safetensors.check_whole(folder, names)
    with prefixed(source):
        hf = read_json(folder / "config.json")
        decoder_config(hf)
    tokenizer = load_tokenizer(folder)
    # A base language model may have no chat template.
    if not is_language_model(hf) or safetensors.VALUE_HEAD in names:
        templates.choose(tokenizer, template)
        ChatTemplate(tokenizer, TemplatePolicy(bos="template", date=None))
    weights = safetensors.weight_names(folder, names)
    if sizes:
        with prefixed(place):
            safetensors.check_shards(weights, names)
        total = sum(sizes[name] for name in weights)
        if tensor_bytes and not 0 < total - tensor_bytes <= _HEADER_BYTES * len(weights):
            raise AssayError(
                f"{place}: files of {total:,} bytes; published: {tensor_bytes:,} bytes of tensors"
            )
    cached = [folder / name for name in weights if (folder / name).is_file()]
    before_weights(hf, sum(file.stat().st_size for file in cached))
    wanted = [name for name in weights if folder / name not in cached]
    if wanted:
        downloads.download(source, commit, wanted, sizes, cache)
    return Source(folder=folder, name=source, revision=commit)


def fetch_config(source: str) -> Json:
    """The config.json of a hub id, which alone is downloaded."""
    folder = downloads.snapshot(source, None, ["config.json"])
    with prefixed(source):
        return read_json(folder / "config.json")
