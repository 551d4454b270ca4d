"""manifest.json: the results of a run and their fingerprints; refuses what does not belong."""

import hashlib
import json
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, provenance, schema, storage
from engine.runs.reader import REBUILD, Json, content_hash, read_json

# A save is due when 50 times its own duration has passed: it then takes 2 % of the time at most,
# and the number of saves of a long run does not depend on its number of parts.
_REST = 50


class Manifest:
    """The manifest of a run folder, to be added to; `save` writes it, atomically.

    It is an index: parts on disk that it does not know are adopted by what they say about
    themselves (`engine.runs.provenance`), and `engine.runs.verify.rebuild` makes it from them.

    Attributes:
      run: the folder.
      content: what is written.
      environment: what computes new parts, for the entries of their results.
      computed_by: the share of it that is in every part (`provenance`).
    """

    def __init__(self, run: epath.Path, content: Json):
        self.run, self.content = run, content
        self.environment: Json = {}
        self.computed_by: Json = {}
        self._saved_at, self._cost_s = -float("inf"), 0.0  # by time.monotonic
        self._names: dict[str, dict[str, list[str]]] = {}  # top folder -> folder -> its files

    @classmethod
    def open(cls, run: str) -> "Manifest":
        """Reads the manifest of a run, or starts that of a new one without writing it yet.

        Raises AssayError for a folder that holds something else.
        """
        folder = storage.path_of(run)
        path = folder / schema.MANIFEST
        if not storage.exists(path):
            if storage.is_file(folder):
                raise AssayError(f"run {folder}: a file; allowed: a folder")
            names = set(storage.names(folder)) - {lock.NAME}
            if names & set(schema.FOLDERS):
                raise AssayError(f"run {folder}: {schema.MANIFEST} is gone; {REBUILD}")
            if not all(storage.is_temporary(folder / name) for name in names):
                raise AssayError(f"run {folder}: not empty and holds no {schema.MANIFEST}")
            return cls(folder, empty())
        return cls(folder, read_json(path))

    # Any: what JSON holds.
    def admit(self, kind: str, name: str, entry: Any) -> None:
        """Adds a model, prompt or list; refuses it if its name stands for something else."""
        present = self.content[kind].get(name)
        if present is not None and present != entry and self._used(kind, name):
            said = provenance.changes(present, entry)
            if kind == "models":
                said = self._other_model(name, present, entry)
            raise AssayError(f"run {self.run}: {kind[:-1]} {name!r} is there already with {said}")
        self.content[kind][name] = entry

    def _other_model(self, name: str, present: Json, entry: Json) -> str:
        """What differs in words, without hashes, and how to keep the numbers of both models."""
        fields = {k for k in {**present, **entry} if not k.endswith("_hash")} - {"vocab"}
        before, now = ({k: e[k] for k in e if k in fields} for e in (present, entry))
        said = provenance.changes(before, now)
        results = [r for p, r in self.content["results"].items() if f"/model={name}/" in f"{p}/"]
        began = max((r.get("environment", {}).get("began", "") for r in results), default="")
        kept = f"{self.run}-{began[:10] or 'before'}"
        changed = "other weights" if not said or "_hash=" in said else said
        if storage.is_remote(self.run):
            return f"{changed}; name another run folder, or remove this one"
        run, kept, name = map(shlex.quote, (str(self.run), kept, name))
        return (
            f"{changed}; `mv {run} {kept}` "
            f"keeps those numbers: run this again, and `assay diff --before={kept} --before_model="
            f"{name} --after={run} --after_model={name} --report=<folder>` says what changed; "
            "or name another run folder, or remove this one"
        )

    def admit_result(self, path: str, fingerprint: Json) -> None:
        """Adds a result, or refuses to continue one that has files of another fingerprint."""
        fingerprint = json.loads(json.dumps(fingerprint))  # as it is read back
        fresh = new_result(fingerprint)
        present = self.content["results"].setdefault(path, fresh)["fingerprint"]
        if present != fingerprint and not self._has_files(path):
            self.content["results"][path] = fresh
        elif present != fingerprint:
            changes = provenance.changes(present, fingerprint)
            raise AssayError(
                f"run {self.run}: {path} was begun with {changes}; use another run folder"
            )

    def _used(self, kind: str, name: str) -> bool:
        """Whether a result of the model, prompt or list is on disk; until then it may change."""
        mark = {"models": f"/model={name}/", "prompts": f"/prompt={name}/", "lists": f"/{name}/"}
        paths = [path for path in self.content["results"] if mark[kind] in f"{path}/"]
        return any(self._has_files(path) for path in paths)

    def _has_files(self, path: str) -> bool:
        folder = self.run / path
        if storage.is_file(folder):  # of a search
            return True
        return any(not storage.is_temporary(folder / name) for name in storage.names(folder))

    def names(self, path: str) -> list[str]:
        """Names of the files in a result's folder, as they were at the first call.

        `scores/` and the like are listed once each: a store takes a request for each listing.
        """
        top = path.split("/", 1)[0]
        if top not in self._names:
            listed: dict[str, list[str]] = {}
            for file in storage.tree(self.run / top):
                folder, _, name = f"{top}/{file}".rpartition("/")
                listed.setdefault(folder, []).append(name)
            self._names[top] = listed
        return self._names[top].get(path, [])

    def result(self, path: str) -> Json:
        """The entry of one result, to read."""
        return self.content["results"][path]

    def about(self, path: str, prompts: Sequence[str] = ()) -> Json:
        """What every file of a result says about itself (`provenance.of_result`)."""
        return provenance.of_result(self.content, path, prompts)

    def recorded(self, path: str, name: str) -> str | None:
        """The sha256 of a part, if the manifest knows it."""
        part = self.result(path)["parts"].get(name)
        return None if part is None else part["sha256"]

    def record_part(self, path: str, name: str, rows: int, sha256: str, seconds: float) -> None:
        """Records a part that was written, its number of rows, its hash and its computing time."""
        self.adopt_part(path, name, rows, sha256)
        result = self.result(path)
        result["seconds"] = round(result["seconds"] + seconds, 3)
        result["environment"] = self.environment

    def adopt_part(self, path: str, name: str, rows: int, sha256: str) -> None:
        """Records a part that is on disk."""
        result = self.result(path)
        result["parts"][name] = {"rows": rows, "sha256": sha256}
        result["complete"] = False  # until `finish` has looked at the whole again

    def forget_parts(self, path: str, names: Iterable[str]) -> None:
        """Drops parts that are not on disk."""
        result = self.result(path)
        gone = [name for name in names if result["parts"].pop(name, None) is not None]
        result["complete"] = result["complete"] and not gone

    def finish(self, path: str, self_check: Json | None, coefficients: Json | None = None) -> None:
        """Records that a result is complete, with its self-check."""
        self.result(path).update(complete=True, self_check=self_check, coefficients=coefficients)

    def save_if_due(self) -> None:
        """Saves unless that would take more than 2 % of the time since the last save."""
        if time.monotonic() - self._saved_at > _REST * self._cost_s:
            self.save()

    def save_if_changed(self) -> None:
        """Saves unless manifest.json holds the same."""
        if self.content.get("sha256") != content_hash(self.content):
            self.save()

    def save(self) -> None:
        """Writes manifest.json."""
        began = time.monotonic()
        for result in self.content["results"].values():
            result["parts"] = dict(sorted(result["parts"].items()))
        self.content["sha256"] = content_hash(self.content)
        data = json.dumps(self.content, indent=1) + "\n"
        storage.write_atomic(self.run / schema.MANIFEST, data.encode())
        self._saved_at = time.monotonic()
        self._cost_s = self._saved_at - began


def empty() -> Json:
    """The content of the manifest of a run without results."""
    return {"version": schema.MANIFEST_VERSION, **{key: {} for key in schema.MANIFEST_KEYS}}


def new_result(fingerprint: Json) -> Json:
    """The entry of a result of which nothing was computed yet."""
    return {
        "fingerprint": fingerprint,
        "parts": {},
        "complete": False,
        "self_check": None,
        "coefficients": None,
        "seconds": 0.0,
        "environment": {},
    }


def items_hash(items: Sequence[str]) -> str:
    """Identity of a list of replies: sha256 of its items in their order."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()


def conversations_hash(table: pl.DataFrame) -> str:
    """Identity of a list of conversations (`schema.LIST_COLUMNS`), as `items_hash` of its rows."""
    return items_hash([json.dumps(row) for row in table.iter_rows()])
