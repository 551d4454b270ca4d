"""A Hugging Face repository as a local folder: weights, configs and tokenizer, never code."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from engine.convert import adapter, downloads, safetensors
from engine.convert.hf_config import decoder_config, text_model
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


# The names of a source's files, and their bytes as far as the hub has told them.
Listing = tuple[set[str], Mapping[str, int]]
Weights = dict[Source, list[str]]  # names of the files of weights of a hub id; none of a folder


def fetch(
    source: str,
    revision: str | None,
    before_weights: Callable[[Json, int], object] = lambda hf, cached: None,
    *,
    understood: Callable[[Source], object] | None = None,
    cache: Path | None = None,
    base: str = "",
) -> Source:
    """Opens a local folder, or downloads the weights, configs and tokenizer of a hub id.

    Weights are downloaded only after config.json has been understood, and what `understood` reads.
    What was downloaded is compared with the hashes that the hub states. Of an adapter the base is
    fetched too.

    Args:
      source: a folder, or a hub id `owner/name`.
      revision: commit, tag or branch of a hub id; None: the main branch.
      before_weights: called before the weights of a hub id are downloaded, with its config.json and
        the bytes of weights that the cache holds already.
      understood: called before weights are downloaded, with a source whose missing weights are
        outlines (`_outlined`).
      cache: folder to download into instead of the hub's cache.
      base: folder or hub id of an adapter's base, also as `owner/name@revision`, in place of the
        one that its config names.

    Raises:
      AssayError: no such folder and no repository that the hub serves; conversion would refuse its
        config.json; or the download fails.
    """
    opened, listing = _open(source, revision, cache)
    whole, of_whole, model = opened, listing, opened
    weights: Weights = {}
    if safetensors.is_adapter(listing[0]):
        whole, of_whole = _base_of(opened, listing[0], cache, base)
        model = dataclasses.replace(opened, base=whole)
        weights[opened] = adapter.weight_names(listing[0])
        if opened.revision:
            downloads.snapshot(opened.name, opened.revision, ["README.md"], cache)
    else:
        _refuse_base(source, base)
    with prefixed(whole.place):
        weights[whole] = _weights(whole, of_whole)
    missing = {
        part: [name for name in names if part.revision and not (part.folder / name).is_file()]
        for part, names in weights.items()
    }
    # All files of a source that lacks one: a check may compare tensors of two files.
    outlined = {part: weights[part] for part, names in missing.items() if names}
    outlined = outlined if understood or model.base else {}
    with _outlined(model, outlined) as outline:
        if whole.revision:
            hf = outline.config_json()
            with prefixed(whole.name):
                decoder_config(hf)
            there = [whole.folder / n for n in weights[whole] if n not in missing[whole]]
            before_weights(hf, sum(file.stat().st_size for file in there))
        if outlined and understood:
            understood(outline)
    for part, names in missing.items():
        if names:
            downloads.download(part.name, str(part.revision), names, cache)
    return model


def identify(source: str, revision: str | None, *, base: str = "") -> Source:
    """What `fetch` opens, with the commits of hub ids and without their weights."""
    opened, (names, _) = _open(source, revision, None)
    if not safetensors.is_adapter(names):
        _refuse_base(source, base)
        return opened
    return dataclasses.replace(opened, base=_base_of(opened, names, None, base)[0])


def _refuse_base(source: str, base: str) -> None:
    if base:
        raise AssayError(f"base={base!r}; allowed: none for {source}, which is no adapter of peft")


def _open(source: str, revision: str | None, cache: Path | None) -> tuple[Source, Listing]:
    """A folder, or the small files of a hub id."""
    if Path(source).is_dir():
        if revision:
            raise AssayError(f"revision={revision!r}; allowed: none for the local folder {source}")
        folder = Path(source)
        opened = Source(folder=folder, name=source, revision=None)
        return opened, (safetensors.file_names(folder), {})
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise AssayError(f"source={source!r}; allowed: an existing folder or a hub id owner/name")
    folder = downloads.snapshot(source, revision, SMALL, cache=cache)
    commit = folder.name  # snapshots lie in a folder named after their commit
    sizes = downloads.sizes(source, commit, cache)
    names = {name for name in sizes if "/" not in name} or safetensors.file_names(folder)
    return Source(folder=folder, name=source, revision=commit), (names, sizes)


def _base_of(
    opened: Source, names: set[str], cache: Path | None, base: str
) -> tuple[Source, Listing]:
    """The base of an adapter as `_open` gives it."""
    with prefixed(opened.place):
        config = adapter.read_config(opened.folder, names)
    named, revision = base or config.base or "", None
    is_folder = bool(named) and Path(named).is_dir()
    if not is_folder:
        named, _, revision = named.partition("@")
        if base in ("", config.base):
            revision = revision or config.revision
    if not is_folder and (named.count("/") != 1 or named.startswith((".", "/", "~"))):
        raise AssayError(
            f"{opened.name}: an adapter on base {named!r}, which is no folder here and no hub id; "
            "name its folder or hub id as --base"
        )
    with prefixed(f"{opened.name}: its base (another is named as --base)"):
        of_base, listing = _open(named, revision or None, cache)
    if safetensors.is_adapter(listing[0]):
        raise AssayError(f"{opened.name}: its base {named} is an adapter too; merge that one first")
    return of_base, listing


def _weights(whole: Source, listing: Listing) -> list[str]:
    """Names of the files with the tensors of a hub id, none of a folder; the caller adds a place.

    Raises AssayError for weights that are not the whole model, and for shards that are missing.
    """
    names, sizes = listing
    safetensors.check_whole(whole.folder, names)
    if whole.revision is None:
        return []
    weights = safetensors.weight_names(whole.folder, names)
    if sizes:
        safetensors.check_shards(weights, names)
    return weights


@contextlib.contextmanager
def _outlined(model: Source, weights: Weights) -> Iterator[Source]:
    """The model with outlines of its files of weights: their headers, and then zeros.

    So all that conversion checks before it computes can be checked before a download. A file of
    zeros takes no room on a disk.
    """
    folders: dict[Path, Source] = {}

    def of(source: Source) -> Source:
        names = weights.get(source, ())
        if not names:
            return source
        folder = Path(temporary, str(len(folders)))
        folders[folder] = source
        folder.mkdir()
        for file in source.folder.iterdir():
            if file.name not in names:
                (folder / file.name).symlink_to(file.resolve())
        for name in names:
            downloads.outline(source.name, str(source.revision), name, folder / name)
        return dataclasses.replace(source, folder=folder)

    with tempfile.TemporaryDirectory(prefix="assay-") as temporary:
        try:
            outline = of(dataclasses.replace(model, base=None))
            if model.base is not None:
                outline = dataclasses.replace(outline, base=of(model.base))
            yield outline
        except AssayError as error:
            said = str(error)
            for folder, source in folders.items():
                said = said.replace(str(folder), source.place)
            raise type(error)(said) from error


def fetch_config(source: str, revision: str | None = None) -> Json:
    """The config.json of a hub id, which alone is downloaded."""
    folder = downloads.snapshot(source, revision, ["config.json"])
    with prefixed(source):
        return text_model(read_json(folder / "config.json"))
