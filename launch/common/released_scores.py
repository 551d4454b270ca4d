"""Scores that others released: files, checked and written into the formats of a run."""

import dataclasses
import hashlib
from pathlib import Path

import polars as pl

from engine.display import progress
from engine.errors import AssayError, prefixed
from engine.runs import parts, provenance, schema
from engine.runs.manifest import Manifest, items_hash
from engine.runs.provenance import library_versions
from engine.runs.reader import Json
from launch.common.inputs import checked_name, has_human_ranks, list_name
from launch.common.released_files import Choices, Column, content_of, files, slugged
from launch.common.text import counted

_PART_SIZE = 65_536
# (is a list, numbers are rewards) -> columns of a result in the run.
_COLUMNS = {
    (False, True): schema.SCORE_COLUMNS,
    (False, False): schema.LOGPROB_COLUMNS,
    (True, True): schema.ITEM_COLUMNS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Import:
    """All that an import adds to a run, by the names it has there."""

    choices: Choices  # what the flags say of the files
    items: str  # name of the list; "" for vocabularies
    models: dict[str, Json] = dataclasses.field(default_factory=dict)  # entries in the manifest
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)  # texts
    # Items, in the order of the list.
    lists: dict[str, pl.Series] = dataclasses.field(default_factory=dict)
    # Vocabularies, and what people think of items.
    tables: dict[str, pl.DataFrame] = dataclasses.field(default_factory=dict)
    # Numbers of one model under one prompt, in the columns of the run, and their fingerprint.
    results: dict[str, tuple[pl.DataFrame, Json]] = dataclasses.field(default_factory=dict)

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
                    f"source={path}: other human scores of the list {self.items!r} than a file "
                    "before it"
                )
        fingerprint = {
            "layout": self.choices.layout,
            "source": path.name,
            "source_sha256": content.sha256,
            "mode": "imported",
        }
        if self.choices.number == "logprob":
            fingerprint |= {"form": self.choices.form, "values": self.choices.values}
        for column in content.columns:
            try:
                self._add_result(column, vocab, fingerprint)
            except AssayError as error:
                raise AssayError(f"source={path}: {error}") from error

    def _add_result(self, column: Column, vocab: str | None, fingerprint: Json) -> None:
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
            before = self.results[path][1]["source"]
            raise AssayError(f"{column.model} under {prompt!r} is in {before} already")
        entry = {
            "source": column.model,
            "revision": None,
            "checkpoint_hash": f"imported:{column.model}",
            "decoder_hash": None,
            "vocab": vocab,
        }
        if self.models.setdefault(slug, entry) != entry:
            raise AssayError(f"another model or vocabulary of the name {slug!r} than before")
        self.prompts[prompt] = column.prompt.text
        frame = column.rows.with_columns(column.values.alias(self.choices.number))
        frame = self._numbered(frame) if self.items else frame
        columns = _COLUMNS[bool(self.items), rewards]
        frame = frame.cast(pl.Schema(columns)).select(list(columns)).sort(next(iter(columns)))
        self.results[path] = frame, fingerprint

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with their item_id; raises AssayError for other items than the list has."""
        listed = self.lists.setdefault(self.items, frame["item"])
        if not frame["item"].equals(listed):
            raise AssayError(
                f"other items, or another order, than in the rest of the list {self.items!r}"
            )
        return frame.with_row_index("item_id")

    def write(self, run: str) -> None:
        """Writes everything that was added, after the run's manifest has accepted all of it."""
        manifest = Manifest.open(run)
        manifest.environment = manifest.computed_by = library_versions()
        with prefixed(manifest.run):
            schema.check_names([*self.lists, *self.prompts, *self.models])
        for name, listed in self.lists.items():
            entry = {"rows": len(listed), "items_hash": items_hash(list(listed))}
            manifest.admit("lists", name, entry)
        for prompt, text in self.prompts.items():
            manifest.admit("prompts", prompt, text)
        for slug, entry in self.models.items():
            _admit_model(manifest, slug, entry)
        humans = self.tables.get(schema.humans_path(self.items))
        if humans is not None:
            has_human_ranks(manifest.run, self.items, humans, "another list (--items)")
        for path, (_, fingerprint) in self.results.items():
            # The same bytes under another name are the same file.
            has = manifest.content["results"].get(path, {}).get("fingerprint")
            same = has is not None and has | {"source": fingerprint["source"]} == fingerprint
            manifest.admit_result(path, has if same else fingerprint)
        for path, table in self.tables.items():
            parts.write_frame(manifest.run / path, table, {"path": path})
        for path, (frame, _) in self.results.items():
            for start, stop in parts.ranges(len(frame), _PART_SIZE):
                part = frame.slice(start, stop - start)
                rows = provenance.part_rows(start, stop, len(frame))
                about = {"rows": rows, "computed_by": manifest.computed_by}
                about = {**manifest.about(path), **about}
                digest = parts.write_part(manifest.run / path, start, stop, part, about)
                name = schema.part_name(start, stop)
                manifest.record_part(path, name, len(part), digest, 0.0)
            manifest.finish(path, None)
        manifest.save()


def import_scores(source: str, run: str, choices: Choices) -> str:
    """Writes the numbers of released files into a run; returns what was written.

    `source` is a file, or a folder of files.

    Raises:
      AssayError: a file that is not in the layout, a number that is missing or not finite, a prompt
        that neither file nor flag says, two files that hold the same result, or other numbers of
        the same name in the run. Nothing is written.
    """
    paths = files(source)
    if choices.model and len(paths) > 1:
        raise AssayError(
            f"--model={choices.model!r} with {len(paths)} files; allowed with one: of several, "
            "each is named after its model"
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
    said = ", ".join(counted(n, what) for what, n in counts.items())
    numbers = "rewards" if choices.number == "reward" else "log-probabilities"
    humans = ", with humans" if schema.humans_path(gathered.items) in gathered.tables else ""
    return f"{run}/{folder}: {said}, {rows:,} {numbers}{humans}"


def _list_name(source: str, choices: Choices) -> str:
    """Name of the list: --items, or that of the file or folder; "" for tokens."""
    if choices.layout == "tokens":
        return ""
    return checked_name("items", choices.items or list_name(Path(source).resolve()))


def _admit_model(manifest: Manifest, slug: str, entry: Json) -> None:
    """Adds a model, or the vocabulary of one that an item list brought without it."""
    present = manifest.content["models"].get(slug)
    if present is not None and present["checkpoint_hash"] == entry["checkpoint_hash"]:
        if entry["vocab"] is None:
            return
        if present["vocab"] is None:
            manifest.content["models"][slug] = entry
    manifest.admit("models", slug, entry)
