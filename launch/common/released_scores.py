"""Scores that others released: files, checked and written into the formats of a run."""

import dataclasses
import hashlib
from pathlib import Path
from typing import NamedTuple

import polars as pl
from etils import epath

from engine.display import counted, progress
from engine.errors import AssayError, prefixed
from engine.lists.files import list_name
from engine.runs import schema
from engine.runs.folder import RunFolder
from engine.runs.identity import Identity, Json, items_hash, library_versions
from launch.common.released_files import Choices, Column, content_of, files, slugged

_PART_SIZE = 65_536
# (is a list, numbers are rewards) -> columns of a result in the run.
_COLUMNS = {
    (False, True): schema.SCORE_COLUMNS,
    (False, False): schema.LOGPROB_COLUMNS,
    (True, True): schema.ITEM_COLUMNS,
}


class _Source(NamedTuple):
    """The file of a result."""

    name: str
    imported: dict[str, str]  # as in the result's identity


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Import:
    """All that an import adds to a run, by the names it has there."""

    choices: Choices  # what the flags say of the files
    items: str  # name of the list; "" for vocabularies
    models: dict[str, Json] = dataclasses.field(default_factory=dict)  # entries in run.json
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)  # texts
    # Items, in the order of the list.
    lists: dict[str, pl.Series] = dataclasses.field(default_factory=dict)
    # Vocabularies, and what people think of items.
    tables: dict[str, pl.DataFrame] = dataclasses.field(default_factory=dict)
    # Numbers of one model under one prompt, in the columns of the run, and what the file says.
    results: dict[str, tuple[pl.DataFrame, _Source]] = dataclasses.field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Adds the content of one file, or refuses what contradicts the files before it."""
        content, vocab = content_of(path, self.choices), None
        if content.vocabulary is not None:
            vocabulary = content.vocabulary.cast(pl.Schema(schema.VOCAB_COLUMNS)).sort("token_id")
            rows = vocabulary.select("token_id", "token").rows()
            text = "\0".join(f"{i}\t{token}" for i, token in rows)
            vocab = hashlib.sha256(text.encode()).hexdigest()[:16]
            self.tables[schema.vocab_path(vocab)] = vocabulary
        if content.humans is not None:
            humans = self.tables.setdefault(schema.humans_path(self.items), content.humans)
            if not humans.equals(content.humans):
                raise AssayError(
                    f"source={path}: its human scores of the list {self.items!r} differ from "
                    "those of an earlier file"
                )
        imported = {"layout": self.choices.layout, "source_sha256": content.sha256}
        if self.choices.number == "logprob":
            imported["values"] = self.choices.values
        source = _Source(path.name, imported)
        for column in content.columns:
            try:
                self._add_result(column, vocab, source)
            except AssayError as error:
                raise AssayError(f"source={path}: {error}") from error

    def _add_result(self, column: Column, vocab: str | None, source: _Source) -> None:
        """Adds the numbers of one model under one prompt."""
        rewards = self.choices.number == "reward"
        slug, prompt = slugged(column.model), column.prompt.id
        if not rewards:
            prompt = schema.prompt_in_form(prompt, self.choices.form)
        if self.items:
            path = schema.items_path(self.items, slug, prompt)
        else:
            path = (schema.scores_path if rewards else schema.logprobs_path)(slug, prompt)
        if path in self.results:
            before = self.results[path][1]
            raise AssayError(f"{column.model} under {prompt!r} is in {before.name} already")
        entry = {
            "source": column.model,
            "revision": None,
            "checkpoint_hash": f"imported:{column.model}",
            "decoder_hash": None,
            "vocab": vocab,
        }
        if self.models.setdefault(slug, entry) != entry:
            raise AssayError(f"an earlier file has another model or vocabulary named {slug!r}")
        self.prompts[prompt] = column.prompt.text
        frame = column.rows.with_columns(column.values.alias(self.choices.number))
        frame = self._numbered(frame) if self.items else frame
        columns = _COLUMNS[bool(self.items), rewards]
        frame = frame.cast(pl.Schema(columns)).select(list(columns)).sort(next(iter(columns)))
        self.results[path] = frame, source

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with their item_id; raises AssayError for other items than the list has."""
        listed = self.lists.setdefault(self.items, frame["item"])
        if not frame["item"].equals(listed):
            raise AssayError(
                f"its items or their order differ from the rest of the list {self.items!r}"
            )
        return frame.with_row_index("item_id")

    def write(self, run: str) -> None:
        """Writes everything that was added, after the run has accepted all of it."""
        folder = RunFolder.open(run)
        with prefixed(folder.run):
            schema.check_names([*self.lists, *self.prompts, *self.models])
        for name, listed in self.lists.items():
            entry = {"rows": len(listed), "items_hash": items_hash(list(listed))}
            folder.admit("lists", name, entry)
        for prompt, text in self.prompts.items():
            folder.admit("prompts", prompt, text)
        for slug, entry in self.models.items():
            _admit_model(folder, slug, entry)
        humans = self.tables.get(schema.humans_path(self.items))
        if humans is not None:
            has_human_ranks(folder.run, self.items, humans, "another list (--items)")
        for path, (frame, source) in self.results.items():
            slug = path.partition("/model=")[2].partition("/")[0]
            identity = Identity(
                checkpoint_hash=self.models[slug]["checkpoint_hash"],
                rows=len(frame),
                mode="imported",
                form=self.choices.form if self.choices.number == "logprob" else "",
                imported=source.imported,
            )
            folder.begin(path, identity, _PART_SIZE)
        folder.save(self.tables)
        for path, (frame, source) in self.results.items():
            result, way = folder.results[path], {**library_versions(), "source": source.name}
            for start, stop in result.missing:
                result.write(schema.part_name(start, stop), frame[start:stop], way, 0.0)


def import_scores(source: str, run: str, choices: Choices) -> str:
    """Writes the numbers of released files into a run; returns what was written.

    `source` is a file, or a folder of files.

    Raises:
      AssayError: a file that is not in the layout, a number that is missing or not finite, a prompt
        that neither file nor flag says, two files that hold the same result, or other numbers of
        the same name in the run. Nothing is written then.
    """
    paths = files(source)
    if choices.model and len(paths) > 1:
        raise AssayError(
            f"--model={choices.model!r} with {len(paths)} files; remove it: of several, each "
            "file is named after its model"
        )
    gathered = _Import(choices=choices, items=_list_name(source, choices))
    with progress(len(paths), "files", what="reading", delay_s=5) as bar:
        for path in paths:
            gathered.add(path)
            bar.update()
    gathered.write(run)
    folder = next(iter(gathered.results)).split("/model=")[0]
    rows = sum(len(frame) for frame, _ in gathered.results.values())
    counts = {"file": len(paths), "model": len(gathered.models), "prompt": len(gathered.prompts)}
    sizes = ", ".join(counted(n, what) for what, n in counts.items())
    numbers = "rewards" if choices.number == "reward" else "log-probabilities"
    humans = ", with humans" if schema.humans_path(gathered.items) in gathered.tables else ""
    return f"{run}/{folder}: {sizes}, {rows:,} {numbers}{humans}"


def _list_name(source: str, choices: Choices) -> str:
    """Name of the list: --items, or that of the file or folder; "" for tokens."""
    if choices.layout == "tokens":
        return ""
    return choices.items or list_name(Path(source).resolve())


def _admit_model(folder: RunFolder, slug: str, entry: Json) -> None:
    """Adds a model, or the vocabulary of one that an item list brought without it."""
    present = folder.models.get(slug)
    same = present is not None and present["checkpoint_hash"] == entry["checkpoint_hash"]
    if present is None or not same or present.get("vocab") is None:
        folder.admit("models", slug, entry)
    elif entry["vocab"] not in (None, present["vocab"]):
        raise AssayError(f"run {folder.run}: model {slug!r} already has another vocabulary")


def has_human_ranks(run: epath.Path, name: str, humans: pl.DataFrame | None, allowed: str) -> bool:
    """Whether a run holds people's ranks of a list; raises AssayError for others than `humans`."""
    present = RunFolder.open(str(run)).table(schema.humans_path(name))
    if present is None:
        return False
    if humans is None or not present.equals(humans):
        raise AssayError(
            f"run {run}: other human scores of the list {name!r} already exist; allowed: {allowed}"
        )
    return True
