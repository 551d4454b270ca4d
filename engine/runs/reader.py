"""Reads the manifests of run folders: checked against `engine.runs.schema`, and merged.

Nothing here opens a part; `analysis.load` does.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage

_LISTS = (schema.ITEMS_DIR, schema.ITEM_LOGPROBS_DIR)  # under prompts of the run
_OWN_PROMPTS = (schema.CONVERSATIONS_DIR, schema.CONVERSATION_LOGPROBS_DIR)
KINDS = (schema.SCORES_DIR, schema.LOGPROBS_DIR, *_LISTS, *_OWN_PROMPTS)
_RESULT = re.compile(
    rf"(?P<kind>{'|'.join(KINDS)})(?:/(?P<items>(?!model=)[^/]+))?"
    r"/model=(?P<model>[^/]+)(?:/prompt=(?P<prompt>[^/]+))?"
)
# Of a result in a run; no name in it begins with a dot.
_PLACE = re.compile(
    rf"(?:{'|'.join((*KINDS, schema.SEQUENCES_DIR))})(?:/[^/.][^/]*)?/model=[^/]+(?:/[^/.][^/]*)*"
)

Json = dict[str, Any]  # Any: what JSON holds
REBUILD = "`assay verify --run=<dir> --rebuild` makes it from the parts"


class RunError(AssayError):
    """A run folder that cannot be analysed as it stands; the message is one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Record of one model's scores of its vocabulary, or of a list of items, under one prompt.

    Attributes:
      run: the run folder it came from.
      path: folder of the parts, relative to the run.
      kind: first folder of the path: one of `KINDS`.
      items: name of the list; None for scores of the vocabulary.
      model: slug of the model.
      prompt: id of the prompt; "" for a list of conversations, which have prompts of their own.
      parts: file name of each part -> sha256 of its bytes.
      complete, fingerprint, self_check, coefficients, seconds: see docs/run-format.md.
    """

    run: epath.Path
    path: str
    kind: str
    items: str | None
    model: str
    prompt: str
    parts: Mapping[str, str]
    complete: bool
    fingerprint: Mapping[str, Any]  # Any: JSON of the manifest
    self_check: Mapping[str, Any] | None  # Any: JSON of the manifest
    coefficients: Mapping[str, float] | None
    seconds: float | None

    @property
    def objectives(self) -> tuple[str, ...]:
        """Columns of the parts beside the reward that are what it is made of."""
        return tuple(self.fingerprint.get("objectives", ()))

    @property
    def layers(self) -> tuple[str, ...]:
        """Columns of the parts that hold the reward after each layer; empty without the lens."""
        return schema.lens_columns(self.fingerprint.get("lens", 0))

    @property
    def folder(self) -> epath.Path:
        """Folder of the parts."""
        return self.run / self.path

    @property
    def where(self) -> str:
        """Name of this result in messages."""
        of = f" of {self.items}" if self.items and self.prompt else ""
        return f"{self.model} × {self.prompt or self.items}{of} in {self.run}"

    @property
    def fingerprint_id(self) -> str:
        """Twelve hex digits that differ when the fingerprint does."""
        text = json.dumps(self.fingerprint, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Record of the file of a search; None where the manifest does not name a value.

    Attributes:
      sha256: of its bytes.
      rejected: candidates whose text tokenises to other ids.
      certificate: what the swaps of one token gave (docs/run-format.md); None if none was scored.
    """

    sha256: str | None = None
    rejected: int | None = None
    certificate: Mapping[str, Any] | None = None  # Any: JSON of the manifest


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContents:
    """What one run, or several merged, hold: by their manifests, and searches by their files.

    Attributes:
      models: slug -> its record.
      vocabularies: slug -> file of its vocabulary; a model without one is absent.
      prompts: prompt id -> text.
      results: path relative to the run -> result, of all kinds but searches.
      searches: file of a search -> its record.
    """

    models: Mapping[str, Mapping[str, Any]]  # Any: JSON of the manifest
    vocabularies: Mapping[str, epath.Path]
    prompts: Mapping[str, str]
    results: Mapping[str, Result]
    searches: Mapping[epath.Path, Search]


def read_contents(run: epath.Path) -> RunContents:
    """What the run folder `run` holds according to its manifest, checked against the schema.

    Raises:
      RunError: not a run folder, an unreadable manifest, an unknown version, a result without its
        model or prompt, or a name that cannot be part of a path.
    """
    raw = read_json(run / schema.MANIFEST)
    models, prompts = raw["models"], raw["prompts"]
    results = {
        path: _result(run, path, record)
        for path, record in sorted(raw["results"].items())
        if not path.startswith(f"{schema.SEQUENCES_DIR}/")
    }
    vocabularies = {
        slug: run / schema.vocab_path(record["vocab"])
        for slug, record in models.items()
        if record["vocab"] is not None
    }
    searches = _searches(run, raw["results"])
    for result in results.values():
        if result.model not in models or result.prompt not in {*prompts, ""}:
            raise RunError(f"{result.where}: its model or its prompt is not in the manifest")
    try:
        schema.check_names([*models, *prompts])
    except AssayError as error:
        raise RunError(f"{run}: {error}") from error
    return RunContents(
        models=models,
        vocabularies=vocabularies,
        prompts=prompts,
        results=results,
        searches=searches,
    )


def natural(text: str) -> list[str | int]:
    """Sorts names by the numbers in them: `step-50` before `step-100`."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", text))]


def merge(manifests: list[RunContents], *, ordered: bool = True) -> RunContents:
    """The contents of several runs: models and prompts in the order in which they first appear.

    So do results, by kind, list, model and prompt. Where two runs hold the same
    model × prompt with the same fingerprint, the first complete one is kept.

    Args:
      manifests: what `read_contents` returned.
      ordered: whether the manifests hold the order of the models; if not, slugs are sorted by
        `natural`. Shards do not: each names only the models that it scores.

    Raises:
      RunError: the runs disagree on a model's checkpoint or vocabulary, on a prompt's text, or
        on the fingerprint or the bytes of a result; or models were converted by two releases.
    """
    models, vocabularies, prompts, results, searches = {}, {}, {}, {}, {}
    for manifest in manifests:
        for slug, record in manifest.models.items():
            known = models.get(slug, {})
            _check_same(f"the checkpoint_hash of {slug}", known, record, "checkpoint_hash")
            if known.get("vocab") is None:  # its vocabulary was not needed so far
                models[slug] = record
            elif record["vocab"] is not None:
                _check_same(f"the vocab of {slug}", known, record, "vocab")
        vocabularies = {**manifest.vocabularies, **vocabularies}
        for prompt in manifest.prompts:
            _check_same(f"the text of prompt {prompt}", prompts, manifest.prompts, prompt)
        prompts |= {p: t for p, t in manifest.prompts.items() if p not in prompts}
        for path, result in manifest.results.items():
            results[path] = _better(results.get(path), result)
        searches |= manifest.searches
    check_conversions(models)
    # A manifest may list models and prompts that were not scored: these are dropped.
    scored = {result.model for result in results.values()}
    scored |= {searched(path) for path in searches} & set(models)
    slugs = [
        slug for slug in (models if ordered else sorted(models, key=natural)) if slug in scored
    ]
    asked = ["", *prompts]

    def place(result: Result) -> tuple[str, str, int, int]:
        where = slugs.index(result.model), asked.index(result.prompt)
        return result.kind, result.items or "", *where

    used = {result.prompt for result in results.values()}
    used |= {path.parents[1].name.removeprefix("prompt=") for path in searches}
    return RunContents(
        models={slug: models[slug] for slug in slugs},
        vocabularies={slug: vocabularies[slug] for slug in slugs if slug in vocabularies},
        prompts={prompt: text for prompt, text in prompts.items() if prompt in used},
        results={result.path: result for result in sorted(results.values(), key=place)},
        searches=searches,
    )


# Any: JSON of the manifest.
def check_conversions(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises RunError for models that two releases of Assay converted, which read them differently.

    `models` are records of manifests by name; imported ones were not converted.
    """
    kinds = {r.get("conversion"): name for name, r in models.items() if r.get("decoder_hash")}
    if len(kinds) > 1:
        first, second = sorted(kinds.values())[:2]
        raise RunError(
            f"models {first!r} and {second!r} were converted by two releases of Assay, which may "
            "read tokenizers, dates and the place of the reward differently; convert and score the "
            "older one again"
        )


def searched(path: epath.Path) -> str:
    """Slug of the model that was searched, from the path of the search's file."""
    return path.parents[2].name.removeprefix("model=")


def read_json(path: epath.Path) -> Json:
    """The JSON object in a manifest.json.

    Raises:
      RunError: no such file, not JSON, damaged, a value of another type than readers need, a result
        outside the run, or a version that this code does not know.
    """
    if not storage.is_file(path):
        folder = path.parent
        inside = f"it holds no {path.name}" if storage.is_folder(folder) else "no such folder"
        if {*storage.names(folder)} & {*schema.FOLDERS}:
            raise RunError(f"{folder}: {path.name} is gone; {REBUILD}")
        why = "a file" if storage.is_file(folder) else inside
        raise RunError(f"{folder}: not a run folder ({why})")
    try:
        content: object = json.loads(storage.read(path))
    except ValueError as error:
        raise RunError(f"{path}: not JSON ({error}); {REBUILD}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if not isinstance(content, dict) or version != schema.MANIFEST_VERSION:
        raise RunError(f"{path}: version {version!r}; allowed: {schema.MANIFEST_VERSION}")
    # A damaged name of the entry `sha256` would otherwise pass for a manifest without one.
    known = ("version", *schema.MANIFEST_KEYS, "environment", "sha256")
    unknown = [key for key in content if key not in known]
    if unknown or content.get("sha256") not in (None, content_hash(content)):
        raise RunError(f"{path}: damaged or edited: it does not fit its own sha256; {REBUILD}")
    _check_types(path, content)
    names = [record["vocab"] or "" for record in content["models"].values()]
    names += [name for entry in content["results"].values() for name in entry["parts"]]
    strays = [place for place in content["results"] if not _PLACE.fullmatch(place)]
    if strays := strays + [name for name in names if "/" in name]:
        raise RunError(f"{path}: {strays[0]!r} is no place in a run; {REBUILD}")
    return content


def _check_types(path: epath.Path, content: Json) -> None:
    """Refuses a manifest in which a value that readers need is missing or of another type."""
    where, number = "models", int | float
    try:
        for slug, record in content["models"].items():
            where = slug
            texts = ("checkpoint_hash", "decoder_hash", "source", "head")
            _expect(str | None, record["vocab"], *map(record.get, texts))
            _expect(str, (record.get("base") or record | {"source": ""})["source"])
            if pair := record.get(schema.PAIR):
                _expect(str, pair["policy"]["slug"], pair["reference"]["slug"], pair["form"])
                _expect(number, pair["beta"])
        where = "prompts and lists"
        _expect(str, *content["prompts"].values())
        _expect(str, *(one["items_hash"] for one in content["lists"].values()))
        for place, entry in content["results"].items():
            where = place
            said, check, parts = entry["fingerprint"], entry["self_check"], entry["parts"].values()
            _expect(bool, entry["complete"])
            _expect(str | None, *map(said.get, ("checkpoint_hash", "mode", "dtype", "pooling")))
            _expect(int | None, said.get("rows"), said.get("lens"))
            _expect(str, *said.get("objectives", ()))
            for key in ("candidates", "max_abs_difference", "tolerance") if check else ():
                _expect(number, check[key])
            _expect(number | None, entry["seconds"], *(entry.get("coefficients") or {}).values())
            _expect(int, *(part["rows"] for part in parts))
            _expect(str, *(part["sha256"] for part in parts))
    except (AttributeError, KeyError, TypeError) as error:
        said = f"{where}: a key is missing or malformed ({error})"
        raise RunError(f"{path}: {said}; {REBUILD}") from error


# Any: types and values of several kinds.
def _expect(kind: Any, *values: Any) -> None:
    """Raises TypeError for the first value that is of another type."""
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r:.60} is no {getattr(kind, '__name__', kind)}")


def content_hash(content: Json) -> str:
    """sha256 of the content of a manifest, without its entry `sha256`.

    A manifest without that entry, of an earlier Assay or edited by hand, is read unchecked.
    """
    kept = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _result(run: epath.Path, path: str, record: Json) -> Result:
    match = _RESULT.fullmatch(path)
    own_prompts = match is not None and match["kind"] in _OWN_PROMPTS
    if (
        match is None
        or (match["items"] is None) == (match["kind"] in _LISTS or own_prompts)
        or (match["prompt"] is None) != own_prompts
    ):
        raise RunError(f"{run}: unknown result path {path!r} in {schema.MANIFEST}")
    return Result(
        run=run,
        path=path,
        kind=match["kind"],
        items=match["items"],
        model=match["model"],
        prompt=match["prompt"] or "",
        parts={name: part["sha256"] for name, part in sorted(record["parts"].items())},
        complete=record["complete"],
        fingerprint=record["fingerprint"],
        self_check=record["self_check"],
        coefficients=record.get("coefficients"),  # younger than the other keys
        seconds=record["seconds"],
    )


def _searches(run: epath.Path, results: Json) -> dict[epath.Path, Search]:
    known = {
        run / path: Search(
            sha256=part["sha256"],
            rejected=record.get("rejected"),
            certificate=record.get("certificate"),
        )
        for path, record in results.items()
        if path.startswith(f"{schema.SEQUENCES_DIR}/")
        for part in record["parts"].values()
    }
    folder = run / schema.SEQUENCES_DIR
    names = [name for name in storage.tree(folder) if name.endswith(".parquet")]
    files = [folder / name for name in names if name.count("/") == 3]
    return {path: known.get(path, Search()) for path in files}


def _check_same(what: str, known: Mapping[str, Any], new: Mapping[str, Any], key: str) -> None:
    if key in known and known[key] != new.get(key):
        raise RunError(f"the runs disagree on {what}: {known[key]!r} and {new.get(key)!r}")


def _better(old: Result | None, new: Result) -> Result:
    if old is None:
        return new
    if old.fingerprint != new.fingerprint:
        keys = {*old.fingerprint, *new.fingerprint}
        differ = sorted(k for k in keys if old.fingerprint.get(k) != new.fingerprint.get(k))
        raise RunError(f"mixed fingerprints: {old.where} and {new.run} differ in {differ}")
    clash = [p for p in old.parts if new.parts.get(p, old.parts[p]) != old.parts[p]]
    if clash:
        raise RunError(f"{old.where} and {new.run} hold different bytes for {clash[0]}")
    return new if new.complete and not old.complete else old
