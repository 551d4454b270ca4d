"""manifest.json: the results of a run and their fingerprints; refuses what does not belong."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.reader import Json, read_json

_KEYS = ("models", "prompts", "lists", "results", "environment")


class Manifest:
    """The manifest of a run folder, to be added to; `save` writes it, atomically."""

    def __init__(self, run: epath.Path, content: Json):
        self.run, self.content = run, content

    @classmethod
    def open(cls, run: str) -> "Manifest":
        """Reads the manifest of a run, or starts that of a new one without writing it yet.

        Raises:
          AssayError: the folder holds something other than a run, or a manifest of another
            version.
        """
        folder = storage.path_of(run)
        path = folder / schema.MANIFEST
        if not storage.exists(path):
            if storage.is_file(folder):
                raise AssayError(f"run {folder}: a file; allowed: a folder")
            if not all(storage.is_temporary(folder / name) for name in storage.names(folder)):
                raise AssayError(f"run {folder}: not empty and holds no {schema.MANIFEST}")
            return cls(folder, {"version": schema.MANIFEST_VERSION, **{key: {} for key in _KEYS}})
        content = read_json(path)
        for key in _KEYS:
            if not isinstance(content.get(key), dict):
                raise AssayError(f"{path}: {key!r} is missing or no object")
        return cls(folder, content)

    # Any: what JSON holds.
    def admit(self, kind: str, name: str, entry: Any) -> None:
        """Adds a model, prompt or list; refuses it if its name stands for something else."""
        present = self.content[kind].get(name)
        if present is not None and present != entry and self._used(kind, name):
            what = f"{kind[:-1]} {name!r}"
            raise AssayError(
                f"run {self.run}: {what} is there already with {_difference(present, entry)}"
            )
        self.content[kind][name] = entry

    def admit_result(self, path: str, fingerprint: Json) -> None:
        """Adds a result, or refuses to continue one that was begun under another fingerprint."""
        fresh: Json = {
            "fingerprint": fingerprint,
            "parts": {},
            "complete": False,
            "self_check": None,
            "coefficients": None,
            "seconds": 0.0,
        }
        present = self.content["results"].setdefault(path, fresh)["fingerprint"]
        if present != fingerprint and not self._begun(path):
            self.content["results"][path] = fresh
        elif present != fingerprint:
            raise AssayError(
                f"run {self.run}: {path} was begun with {_difference(present, fingerprint)}; "
                "use another run folder"
            )

    def _used(self, kind: str, name: str) -> bool:
        """Whether a result of the model, prompt or list is on disk; until then it may change."""
        mark = {"models": f"/model={name}/", "prompts": f"/prompt={name}/", "lists": f"/{name}/"}
        return any(
            mark[kind] in f"{path}/" and self._begun(path) for path in self.content["results"]
        )

    def _begun(self, path: str) -> bool:
        folder = self.run / path
        if storage.is_file(folder):  # of a search
            return True
        return any(not storage.is_temporary(folder / name) for name in storage.names(folder))

    def result(self, path: str) -> Json:
        """The entry of one result, to read."""
        return self.content["results"][path]

    def record_part(self, path: str, name: str, rows: int, sha256: str, seconds: float) -> None:
        """Records a part that is on disk, its number of rows, its hash and its computing time."""
        result = self.result(path)
        result["parts"][name] = {"rows": rows, "sha256": sha256}
        result["parts"] = dict(sorted(result["parts"].items()))
        result["complete"] = False  # until `finish` has looked at the whole again
        result["seconds"] = round(result["seconds"] + seconds, 3)

    def finish(self, path: str, self_check: Json | None, coefficients: Json | None = None) -> None:
        """Records that a result is complete, with its self-check."""
        self.result(path).update(complete=True, self_check=self_check, coefficients=coefficients)

    def save(self) -> None:
        """Writes manifest.json."""
        data = json.dumps(self.content, indent=1, sort_keys=False) + "\n"
        storage.write_atomic(self.run / schema.MANIFEST, data.encode())


def items_hash(items: Sequence[str]) -> str:
    """Identity of a list of replies: sha256 of its items in their order."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()


# Any: what JSON holds.
def _difference(present: Any, wanted: Any) -> str:
    if not isinstance(present, Mapping) or not isinstance(wanted, Mapping):
        return f"{present!r}, not {wanted!r}"
    names = [k for k in {**present, **wanted} if present.get(k) != wanted.get(k)]
    # A fingerprint leaves out settings that are younger than it and have their default value.
    begun = (f"{k}={present[k]!r}" if k in present else f"{k} left at its default" for k in names)
    now = (f"{wanted[k]!r}" if k in wanted else "its default" for k in names)
    return ", ".join(f"{a}, not {b}" for a, b in zip(begun, now, strict=True))
