"""A run: `run.json` says what stands behind the names in it, and each result says the rest.

`RunFolder.read` is for readers, `RunFolder.open` for a command that adds to a run; `merge` makes
one of several runs.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import lock, schema, storage
from engine.runs.identity import Identity, Json, changes, from_json, sealed, to_json, unsealed
from engine.runs.result import AGAIN, Result, RunError, from_parquet, to_parquet

_KINDS = ("models", "prompts", "lists")  # what results refer to by name
_TABLE = re.compile(r"(vocab|(items|conversations)/[\w.-]+)/[\w.-]+\.parquet")  # inside the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """What run.json says of a model (docs/run-format.md)."""

    source: str
    checkpoint_hash: str
    vocab: str | None = None
    revision: str | None = None
    base: dict[str, str | None] = dataclasses.field(default_factory=dict)
    head: str = ""
    conversion: int | None = None
    decoder_hash: str | None = None
    layers: tuple[str, ...] = ()  # the first digits of the hash of each
    template: dict[str, Any] = dataclasses.field(default_factory=dict)  # Any: what JSON holds
    mixture: bool = False
    reward_of: "PairEntry | None" = None
    slug: str = ""  # of one of a pair


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairEntry:
    """The two language models of implicit rewards."""

    policy: ModelEntry
    reference: ModelEntry
    form: str
    beta: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListEntry:
    """What run.json says of a list."""

    rows: int
    items_hash: str
    file_sha256: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What run.json holds."""

    models: dict[str, ModelEntry]
    prompts: dict[str, str]
    lists: dict[str, ListEntry]
    tables: dict[str, str]


@dataclasses.dataclass(kw_only=True)
class RunFolder:
    """What one run holds.

    Attributes:
      run: the folder.
      models: slug -> its entry, in the order in which commands were first given them.
      prompts: prompt id -> text.
      lists: list -> its entry.
      tables: path of a vocabulary or list -> sha256 of its bytes.
      results: path -> result.
      files: what lay in the folder when it was opened.
      damaged: a line for each result that cannot be read.
    """

    run: epath.Path
    models: dict[str, Json] = dataclasses.field(default_factory=dict)
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    lists: dict[str, Json] = dataclasses.field(default_factory=dict)
    tables: dict[str, str] = dataclasses.field(default_factory=dict)
    results: dict[str, Result] = dataclasses.field(default_factory=dict)
    files: frozenset[str] = frozenset()
    damaged: list[str] = dataclasses.field(default_factory=list)
    environment: Json = dataclasses.field(default_factory=dict)  # of the command, for new parts
    way: Json = dataclasses.field(default_factory=dict)  # in which it computes them

    @classmethod
    def open(cls, run: str) -> "RunFolder":
        """A run to be added to, which may be new; nothing is written.

        Parts that are gone are missing. Raises AssayError for a folder that holds something else,
        or a result that cannot be read.
        """
        path = storage.path_of(run)
        if storage.is_file(path):
            raise AssayError(f"run {path}: a file; allowed: a folder")
        folder = cls(run=path, files=frozenset(storage.tree(path)))
        if schema.RUN in folder.files:
            folder._read_record()
        else:
            tops = {name.partition("/")[0] for name in folder.files} - {lock.NAME}
            known = {*schema.COLUMNS, schema.VOCAB_DIR}
            if not all(name in known or storage.is_temporary(path / name) for name in tops):
                raise AssayError(f"run {path}: not empty and holds no {schema.RUN}")
        folder._read_results()
        for line in folder.damaged:
            raise RunError(line)
        for result in folder.results.values():
            gone = [name for name in result.parts if f"{result.path}/{name}" not in folder.files]
            result.forget(gone)
        return folder

    @classmethod
    def read(cls, run: epath.Path) -> "RunFolder":
        """What a run holds; its parts are not read.

        Raises RunError: not a run folder, or a `run.json` that is damaged. Results that cannot be
        read, or that disagree with it, are `damaged`.
        """
        folder = cls(run=run, files=frozenset(storage.tree(run)))
        if schema.RUN not in folder.files:
            inside = f"it holds no {schema.RUN}" if storage.is_folder(run) else "no such folder"
            if any(name.endswith(f"/{schema.RESULT}") for name in folder.files):
                inside += ", but results; run their commands again, which find them"
            why = "a file" if storage.is_file(run) else inside
            raise RunError(f"{run}: not a run folder ({why})")
        folder._read_record()
        folder._read_results()
        for path, result in [*folder.results.items()]:
            if why := folder._disagreement(result):
                folder.damaged.append(f"{result.folder}: {why}; run its command again")
                del folder.results[path]
        return folder

    def _read_record(self) -> None:
        file = self.run / schema.RUN
        try:
            content = unsealed(storage.read(file), schema.VERSION)
            from_json(RunRecord, content)
        except (TypeError, ValueError) as error:
            if isinstance(error, AssayError):
                raise
            raise RunError(
                f"{file}: damaged ({error}); remove it and run the commands again, which find "
                "their results"
            ) from error
        for name in (*_KINDS, "tables"):
            setattr(self, name, content[name])
        names = [entry["vocab"] or "v" for entry in self.models.values()]
        if strays := [name for name in names if not re.fullmatch(r"[\w.-]*\w", name)]:
            raise RunError(f"{file}: vocab {strays[0]!r:.60} is no name of a file")
        if strays := [path for path in self.tables if not _TABLE.fullmatch(path)]:
            raise RunError(f"{file}: {strays[0]!r:.60} is no table of a run")
        try:
            schema.check_names([*self.models, *self.prompts, *self.lists])
        except AssayError as error:
            raise RunError(f"{self.run}: {error}") from error

    def _read_results(self) -> None:
        """Opens every result; those that cannot be read are `damaged`."""
        paths = [
            name.rpartition("/")[0]
            for name in sorted(self.files)
            if name.endswith(f"/{schema.RESULT}") and name.partition("/")[0] in schema.COLUMNS
        ]
        files = [self.run / path / schema.RESULT for path in paths]
        for path, data in zip(paths, storage.read_ahead(files), strict=True):
            try:
                self.results[path] = Result.open(self.run, path, data)
            except AssayError as error:
                self.damaged.append(str(error))

    def _disagreement(self, result: Result) -> str:
        """How the inputs of a result differ from what `run.json` says; "" if they do not."""
        for kind in _KINDS:
            for name, recorded in result.inputs.get(kind, {}).items():
                entry = getattr(self, kind).get(name)
                here = _hash_of(kind, entry) if entry is not None else None
                if here != recorded:
                    return f"{kind[:-1]} {name!r} with {changes(recorded, here)} as in {schema.RUN}"
        names = {"models": result.model, "prompts": result.prompt, "lists": result.items or ""}
        for kind, name in names.items():
            if name and name not in result.inputs.get(kind, {}):
                return f"its {kind[:-1]} {name!r} is not among its inputs"
        return ""

    # Any: what JSON holds.
    def admit(self, kind: str, name: str, entry: Any) -> None:
        """Adds a model, prompt or list; refuses it if its name stands for something else."""
        present, now = getattr(self, kind).get(name), _hash_of(kind, entry)
        for result in self.results.values():
            was = result.inputs.get(kind, {}).get(name, now)
            if result.parts and was != now:
                known = kind == "lists" and present is not None
                what = changes(present, entry) if known else changes(was, now)
                if kind == "models":
                    what = self._other_model(present, entry)
                raise AssayError(f"run {self.run}: {kind[:-1]} {name!r} already exists with {what}")
        getattr(self, kind)[name] = entry

    def _other_model(self, present: Json | None, entry: Json) -> str:
        """What differs in words, without hashes."""
        fields = {k for k in {**(present or {}), **entry} if not k.endswith("_hash")} - {"vocab"}
        before, now = ({k: e[k] for k in e if k in fields} for e in (present or entry, entry))
        difference = changes(before, now)
        changed = "other weights" if not difference or "_hash=" in difference else difference
        return f"{changed}; name another run folder, or remove or rename this one"

    def begin(self, path: str, identity: Identity, part_size: int) -> Result:
        """The result at a path: new, or to be continued with the parts that it has.

        Raises AssayError for one that has parts of another identity.
        """
        identity = from_json(Identity, to_json(identity))  # as it is read back
        new = Result(run=self.run, path=path, identity=identity, inputs={}, part_size=part_size)
        inputs = {
            "models": [new.model],
            "prompts": [new.prompt] * bool(new.prompt),
            "lists": [new.items] * bool(new.items),
        }
        new.inputs = {
            kind: {name: _hash_of(kind, getattr(self, kind)[name]) for name in names}
            for kind, names in inputs.items()
            if names
        }
        present = self.results.get(path)
        if present is None or not present.parts:
            self.results[path] = new
        elif why := present.identity.changes(identity) or (
            changes(present.inputs, new.inputs) if present.inputs != new.inputs else ""
        ):
            raise AssayError(f"run {self.run}: {path} was begun with {why}; use another run folder")
        return self.results[path]

    def table(self, path: str) -> pl.DataFrame | None:
        """A vocabulary or list of the run; None where there is none that `run.json` vouches for.

        Raises RunError for a damaged one.
        """
        if path not in self.tables or path not in self.files:
            return None
        return read_table(self, path)

    def save(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Writes `run.json`, which makes the folder a run, and then the tables that it lacks."""
        lacking = {p: to_parquet(t) for p, t in tables.items() if self.table(p) is None}
        hashes = {path: hashlib.sha256(data).hexdigest() for path, data in lacking.items()}
        self.tables |= hashes
        contents = {name: getattr(self, name) for name in (*_KINDS, "tables")}
        data = sealed(contents, schema.VERSION)
        if storage.read_if_there(self.run / schema.RUN) != data:
            storage.write_atomic(self.run / schema.RUN, data)
        for path, data in lacking.items():
            storage.write_atomic(self.run / path, data)
        self.files |= frozenset(lacking)


def read_table(folder: RunFolder, path: str) -> pl.DataFrame:
    """A vocabulary or list of a run, checked.

    Raises RunError for a file that is missing, or other bytes than `run.json` names.
    """
    file, digest = folder.run / path, folder.tables.get(path)
    data = storage.read_if_there(file) if digest else None
    if data is None:
        raise RunError(f"{file}: no such table; run the command again that wrote it")
    if hashlib.sha256(data).hexdigest() != digest:
        raise RunError(f"{file}: damaged; {AGAIN}")
    columns_of = {schema.HUMANS: schema.HUMAN_COLUMNS, schema.LIST: schema.LIST_COLUMNS}
    types = columns_of.get(path.rpartition("/")[2], schema.VOCAB_COLUMNS)
    return from_parquet(file, data, types, {schema.GIVEN: pl.String})


# Any: what JSON holds.
def _hash_of(kind: str, entry: Any) -> str:
    """What stands behind a name: the hash of a model or list, the text of a prompt."""
    key = {"models": "checkpoint_hash", "lists": "items_hash"}.get(kind)
    return str(entry[key] if key else entry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContents:
    """What one run, or several merged, hold.

    Attributes:
      models: slug -> its entry.
      vocabularies: slug -> the run and the path of its vocabulary; a model without one is absent.
      prompts: prompt id -> text.
      results: path -> result, of all kinds but searches.
      searches: path -> result, of searches.
    """

    models: Mapping[str, Mapping[str, Any]]  # Any: JSON of run.json
    vocabularies: Mapping[str, tuple[RunFolder, str]]
    prompts: Mapping[str, str]
    results: Mapping[str, Result]
    searches: Mapping[str, Result]


def natural(text: str) -> list[str | int]:
    """Sorts names by the numbers in them: `step-50` before `step-100`."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", text))]


def merge(folders: Sequence[RunFolder], *, ordered: bool = True) -> RunContents:
    """The contents of several runs: models and prompts in the order in which they first appear.

    So do results, by kind, list, model and prompt. Of a result that two runs hold with the same
    identity, the first complete one is kept.

    Args:
      folders: what `RunFolder.read` returned.
      ordered: whether the runs hold the order of the models; if not, slugs are sorted by
        `natural`. Shards do not: each names only the models that it scores.

    Raises:
      RunError: a result that cannot be read; the runs disagree on a model's checkpoint or
        vocabulary, on a prompt's text, or on the identity of a result; or models were converted by
        two releases.
    """
    models, vocabularies, prompts, results = {}, {}, {}, dict[str, Result]()
    for folder in folders:
        for line in folder.damaged:
            raise RunError(line)
        for slug, record in folder.models.items():
            known = models.get(slug, {})
            _check_same(f"the checkpoint_hash of {slug}", known, record, "checkpoint_hash")
            if known.get("vocab") is None:  # its vocabulary was not needed so far
                models[slug] = record
            elif record.get("vocab") is not None:
                _check_same(f"the vocab of {slug}", known, record, "vocab")
            if record.get("vocab") is not None:
                path = schema.vocab_path(record["vocab"])
                if path in folder.tables:
                    vocabularies.setdefault(slug, (folder, path))
        for prompt in folder.prompts:
            _check_same(f"the text of prompt {prompt}", prompts, folder.prompts, prompt)
        prompts |= {p: t for p, t in folder.prompts.items() if p not in prompts}
        for path, result in folder.results.items():
            results[path] = _better(results.get(path), result)
    check_conversions(models)
    # A run may list models and prompts that were not scored: these are dropped.
    scored = {result.model for result in results.values()}
    order = models if ordered else sorted(models, key=natural)
    slugs = [slug for slug in order if slug in scored]
    asked = ["", *prompts]

    def place(result: Result) -> tuple[str, str, int, int]:
        indices = slugs.index(result.model), asked.index(result.prompt)
        return result.kind, result.items or "", *indices

    used = {result.prompt for result in results.values()}
    searches = {path: result for path, result in sorted(results.items()) if result.is_search}
    others = [result for result in results.values() if not result.is_search]
    return RunContents(
        models={slug: models[slug] for slug in slugs},
        vocabularies={slug: vocabularies[slug] for slug in slugs if slug in vocabularies},
        prompts={prompt: text for prompt, text in prompts.items() if prompt in used},
        results={result.path: result for result in sorted(others, key=place)},
        searches=searches,
    )


# Any: JSON of run.json.
def check_conversions(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises RunError for models converted by two releases, whose conventions may differ.

    `models` are entries by name; imported ones were not converted.
    """
    kinds = {r.get("conversion"): name for name, r in models.items() if r.get("decoder_hash")}
    if len(kinds) > 1:
        first, second = sorted(kinds.values())[:2]
        raise RunError(
            f"models {first!r} and {second!r} were converted by two releases of Assay, which may "
            "read tokenizers, dates and the place of the reward differently; convert and score the "
            "older one again"
        )


def _check_same(what: str, known: Mapping[str, Any], new: Mapping[str, Any], key: str) -> None:
    if key in known and known[key] != new.get(key):
        raise RunError(f"the runs disagree on {what}: {known[key]!r} and {new.get(key)!r}")


def _better(old: Result | None, new: Result) -> Result:
    if old is None:
        return new
    if why := old.identity.changes(new.identity):
        raise RunError(f"{old.title} and {new.run} hold different results: {why}")
    return new if new.complete and not old.complete else old
