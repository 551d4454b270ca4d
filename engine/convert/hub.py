"""A Hugging Face repository as a local folder: weights, configs and tokenizer, never code."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from engine.convert import adapter, downloads, safetensors
from engine.convert.hf_config import text_model
from engine.convert.hf_values import Json
from engine.convert.safetensors import read_json
from engine.errors import AssayError, prefixed
from engine.text.tokenizer import load_tokenizer

# The files that are fetched first; no code and no pickled weights.
SMALL = ("*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A folder in Hugging Face format and where it came from; of an adapter, its base too."""

    folder: Path
    name: str  # hub id, or the folder as the user gave it
    revision: str | None
    names: frozenset[str]  # of the files in it, or in the repository that it is filled from
    base: "Source | None" = None  # of an adapter

    @property
    def place(self) -> str:
        """What an error calls it."""
        return f"{self.name} at {self.revision[:12]}" if self.revision else self.name

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer lies: that of an adapter's base, if the adapter has none."""
        has_one = any(
            (self.folder / f"tokenizer{end}").is_file() for end in (".json", "_config.json")
        )
        if self.base is None or has_one:
            return self.folder
        if (self.folder / "chat_template.jinja").is_file():
            raise AssayError(
                f"{self.place}: chat_template.jinja without a tokenizer; allowed: the tokenizer "
                "that it belongs to beside it (save it with save_pretrained)"
            )
        return self.base.folder

    def config_json(self) -> Json:
        """The model's config.json; that of an adapter's base as the adapter changes it."""
        whole = self.base or self
        with prefixed(whole.name):
            hf = text_model(read_json(whole.folder / "config.json"))
            if self.base is None:
                return hf
            adapter.check_base(hf)
        pad = load_tokenizer(self.tokenizer_folder).pad_token_id
        return adapter.config_json(hf, self.folder, pad)


def fetch(
    source: str,
    revision: str | None,
    before: Callable[[Source], object] = lambda source: None,
    *,
    base: str = "",
) -> Source:
    """Opens a local folder, or downloads the weights, configs and tokenizer of a hub id.

    Of an adapter the base is fetched too.

    Args:
      source: a folder, or a hub id `owner/name`.
      revision: commit, tag or branch of a hub id; None: the main branch.
      before: called with the source before weights are downloaded.
      base: folder or hub id of an adapter's base, also as `owner/name@revision`, in place of the
        one that its config names.

    Raises:
      AssayError: no such folder and no repository that the hub serves, weights that are not the
        whole model, or the download fails; or what `before` raises.
    """
    model = identify(source, revision, base=base)
    whole = model.base or model
    with prefixed(whole.place):
        weights = {whole: safetensors.weight_files(whole.folder, whole.names)}
    if model.base:
        weights[model] = adapter.weight_names(model.names)
    before(model)
    for part, names in weights.items():
        if lacks := [name for name in names if not (part.folder / name).is_file()]:
            downloads.download(part.name, str(part.revision), lacks)
    return model


def identify(source: str, revision: str | None, *, base: str = "") -> Source:
    """What `fetch` opens, with the commits of hub ids and without their weights."""
    opened = _open(source, revision)
    if safetensors.is_adapter(opened.names):
        return dataclasses.replace(opened, base=_base_of(opened, base))
    if base:
        raise AssayError(f"base={base!r}; allowed: none for {source}, which is no adapter of peft")
    return opened


def is_adapter(source: str, revision: str | None) -> bool:
    """Whether a folder or hub id is an adapter of peft; of a hub id small files are fetched."""
    return safetensors.is_adapter(_open(source, revision).names)


def _open(source: str, revision: str | None) -> Source:
    """A folder, or the small files of a hub id."""
    if os.path.isdir(source):
        if revision:
            raise AssayError(f"revision={revision!r}; allowed: none for the local folder {source}")
        names = frozenset(safetensors.file_names(Path(source)))
        return Source(folder=Path(source), name=source, revision=None, names=names)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise AssayError(f"source={source!r}; allowed: an existing folder or a hub id owner/name")
    folder = downloads.snapshot(source, revision, SMALL)
    names = frozenset(downloads.file_names(source, folder))
    # Snapshots lie in a folder named after their commit.
    return Source(folder=folder, name=source, revision=folder.name, names=names)


def _base_of(opened: Source, base: str) -> Source:
    """The base of an adapter; a path in its config may be relative to it, or stand beside it."""
    with prefixed(opened.place):
        config = adapter.read_config(opened.folder, opened.names)
    own = str(config.get("base_model_name_or_path") or "")
    if opened.revision is None and own and not os.path.isdir(own):
        places = [os.path.normpath(opened.folder / up / own) for up in ("", "..")]
        own = next(filter(os.path.isdir, places), own)
    name, revision = base or own, None
    if not os.path.isdir(name):
        name, _, revision = name.partition("@")
        if name == own.partition("@")[0]:
            revision = revision or config.get("revision")
    with prefixed(f"{opened.name}: its base (--base or --config.base names another)"):
        of_base = _open(name, revision or None)
    if safetensors.is_adapter(of_base.names):
        raise AssayError(f"{opened.name}: its base {name} is an adapter too; merge that one first")
    return of_base


def fetch_config(source: str, revision: str | None = None) -> Json:
    """The config.json of a hub id, which alone is downloaded."""
    folder = downloads.snapshot(source, revision, ["config.json"])
    with prefixed(source):
        return text_model(read_json(folder / "config.json"))
