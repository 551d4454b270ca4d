"""Which conventions a run's models were scored under beside the default; each has a run.

    run/readings/index.json           which readings there are, of which models
    run/readings/<reading>/           a run folder with a manifest

`index.json` (version `VERSION`) is one object:

    version   int
    models    slug -> reading -> {settings: {dimension: value}, same_as: reading | null,
              noise: bool, failure: str}

`settings` are what the reading is, in words; what computed its rewards stands in the fingerprints
of its run. `same_as` names an earlier reading that gives the same token ids under the same
settings: it has no results. `noise` marks a reading that is the default one computed in
steps of another size, or on another mesh. `failure` says why it could not be computed, else "".
"""

import dataclasses
import json
from collections.abc import Mapping

from etils import epath

from engine.errors import AssayError
from engine.runs import provenance, schema, storage
from engine.runs.reader import RunError

DEFAULT = "default"  # the reading that others are compared with
NOISE_STEP, NOISE_MESH = "noise-step-", "noise-mesh-"  # how readings of the noise floor begin
VERSION = 1
_INDEX = "index.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One reading of one model; see the module."""

    settings: Mapping[str, str]
    same_as: str | None = None
    noise: bool = False
    failure: str = ""


Index = dict[str, dict[str, Entry]]  # slug -> reading -> entry, in the order they were computed


def folder_of(run: epath.Path, reading: str) -> epath.Path:
    """The run folder of a reading."""
    return run / schema.READINGS_DIR / reading


def read_index(run: epath.Path) -> Index:
    """The readings of a run, empty where it has none; raises RunError for a damaged index."""
    path = run / schema.READINGS_DIR / _INDEX
    data = storage.read_if_there(path)
    if data is None:
        return {}
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise RunError(f"{path}: version={content['version']!r}; allowed: {VERSION}")
        return {
            slug: {reading: Entry(**fields) for reading, fields in readings.items()}
            for slug, readings in content["models"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: no index of readings ({error}); remove it and run again"
        ) from error


def write_index(run: epath.Path, index: Index) -> None:
    """Writes the index, atomically."""
    models = {
        slug: {reading: dataclasses.asdict(entry) for reading, entry in entries.items()}
        for slug, entries in index.items()
    }
    data = json.dumps({"version": VERSION, "models": models}, indent=1) + "\n"
    storage.write_atomic(run / schema.READINGS_DIR / _INDEX, data.encode())


def merged(run: epath.Path, slug: str, entries: Mapping[str, Entry]) -> Index:
    """The index of a run with the entries of a model added.

    Raises AssayError if a reading of the same name stands for something else there.
    """
    index = read_index(run)
    before = index.setdefault(slug, {})
    for name, entry in entries.items():
        known = before.get(name, entry)
        if why := provenance.changes(dict(known.settings), dict(entry.settings)):
            raise AssayError(
                f"run {run}: the reading {name!r} of {slug!r} was begun with {why}; use another "
                "run folder"
            )
        before[name] = entry
    return index


def folders_of(run: epath.Path) -> list[epath.Path]:
    """The run folders of all readings of a run that have a manifest, sorted by name."""
    inside = run / schema.READINGS_DIR
    folders = [inside / name for name in storage.names(inside)]
    return [folder for folder in folders if storage.exists(folder / schema.MANIFEST)]


def default_of(run: epath.Path) -> epath.Path:
    """The run folder of the default reading, where a folder holds readings and no run itself."""
    default = folder_of(run, DEFAULT)
    bare = not storage.exists(run / schema.MANIFEST) and storage.exists(default / schema.MANIFEST)
    return default if bare else run


def home_of(run: epath.Path) -> epath.Path:
    """The folder that holds the readings of a run: itself, or where `default_of` found it."""
    inside = run.name == DEFAULT and run.parent.name == schema.READINGS_DIR
    return run.parent.parent if inside else run
