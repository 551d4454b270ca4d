"""Scores that others released: files, checked and written into the formats of a run."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from engine.errors import AssayError
from engine.progress import progress
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest, items_hash
from engine.runs.provenance import library_versions
from engine.runs.reader import Json, check_name
from launch.common.items import list_name
from launch.common.released_layouts import LAYOUTS, Choices, Column, Content
from launch.common.released_names import Prompt, slugged
from launch.common.released_tables import Released, files, read

_PART_SIZE = 65_536
_DELAY_S = 5.0  # until the bar of progress appears


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Result:
    """Numbers of one model under one prompt, and what they come from."""

    frame: pl.DataFrame  # in the columns of the run
    fingerprint: Json


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Import:
    """All that an import adds to a run, by the names it has there."""

    choices: Choices
    models: dict[str, Json] = dataclasses.field(default_factory=dict)
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    lists: dict[str, pl.Series] = dataclasses.field(default_factory=dict)
    tables: dict[str, pl.DataFrame] = dataclasses.field(default_factory=dict)
    results: dict[str, _Result] = dataclasses.field(default_factory=dict)


def import_scores(source: str, run: str, choices: Choices, ignore: Sequence[str] = ()) -> str:
    """Writes the numbers of released files into a run; returns what was written.

    Args:
      source: files and folders, comma-separated.
      run: run folder, new or one to add to.
      choices: what the flags say of the files.
      ignore: columns to leave out.

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
    name = _list_name(source, paths, choices)
    gathered = _Import(choices=choices)
    size = sum(path.stat().st_size for path in paths if path.exists())
    # The bytes count once when they are read and once when their results are written.
    with progress(2 * size, "bytes", what="import", delay_s=_DELAY_S) as bar:
        for path in paths:
            released = read(path, ignore)
            _gather(gathered, released, LAYOUTS[choices.layout](released, choices), name)
            bar.update(path.stat().st_size)
        manifest = _admitted(gathered, run)
        for _ in _written(manifest, gathered):
            bar.update(size / len(gathered.results))
    return _said(gathered, run, len(paths), name)


def import_elo(source: Path, run: str, prompt: str, items: str = "") -> str:
    """`import_scores` of one file in the layout `elo`.

    Args:
      source: the file.
      run: run folder, new or one to add to.
      prompt: text or id of the prompt under which the rewards were computed.
      items: name of the list; "" to make it from the file's name.
    """
    return import_scores(str(source), run, Choices(layout="elo", prompt=prompt, items=items))


def _list_name(source: str, paths: Sequence[Path], choices: Choices) -> str:
    """Name of the list: --items, or that of the folder, or that of the file; "" for tokens.

    Raises:
      AssayError: the files are named after models, or are several, and nothing names the list.
    """
    if choices.layout == "tokens":
        return ""
    name = choices.items
    if not name and Path(source).is_dir():
        name = slugged(Path(source).resolve().name)
    if not name and (len(paths) > 1 or choices.layout == "items"):
        raise AssayError("--items is missing; allowed: a name for the list of these files")
    name = name or list_name(paths[0])
    if name.startswith(schema.FOUND):
        raise AssayError(
            f"--items={name!r}; allowed: names that do not begin with {schema.FOUND!r}, which is "
            "reserved for what searches find"
        )
    return name


def _gather(gathered: _Import, released: Released, content: Content, items: str) -> None:
    """Adds the content of one file, or refuses what contradicts the files before it."""
    vocab = None
    if content.vocabulary is not None:
        vocabulary = content.vocabulary.cast(pl.Schema(schema.VOCAB_COLUMNS)).sort("token_id")
        vocab = _vocabulary_hash(vocabulary)
        gathered.tables[schema.vocab_path(vocab)] = vocabulary
    if content.humans is not None:
        _add_humans(gathered, released, content.humans, items)
    slugs: dict[str, str] = {}
    for column in content.columns:
        slug = slugged(column.model)
        if not slug or slugs.setdefault(slug, column.model) != column.model:
            both = [column.model, slugs.get(slug, "")]
            raise released.error(f"models whose slugs are equal or empty: {', '.join(both)}")
        _add_result(gathered, released, column, slug, vocab, items)


def _add_humans(gathered: _Import, released: Released, humans: pl.DataFrame, items: str) -> None:
    path = schema.humans_path(items)
    if not gathered.tables.setdefault(path, humans).equals(humans):
        raise released.error(f"other human scores of the list {items!r} than a file before it")


def _add_result(
    gathered: _Import,
    released: Released,
    column: Column,
    slug: str,
    vocab: str | None,
    items: str,
) -> None:
    """Adds the numbers of one model under one prompt."""
    choices = gathered.choices
    prompt = column.prompt
    if choices.number == "logprob":
        prompt = Prompt(schema.prompt_in_form(prompt.id, choices.form), prompt.text)
    path = _path(choices, slug, prompt.id, items)
    if path in gathered.results:
        before = gathered.results[path].fingerprint["source"]
        raise released.error(f"{column.model} under {prompt.id!r} is in {before} already")
    entry = _model(column.model, vocab)
    if gathered.models.setdefault(slug, entry) != entry:
        raise released.error(f"another model or vocabulary of the name {slug!r} than before")
    gathered.prompts[prompt.id] = prompt.text
    frame = column.rows.with_columns(column.values.alias(choices.number))
    if items:
        frame = _in_order(gathered, released, frame, items)
    columns = _columns(choices)
    gathered.results[path] = _Result(
        frame=frame.cast(pl.Schema(columns)).select(list(columns)).sort(next(iter(columns))),
        fingerprint=_fingerprint(choices, released),
    )


def _path(choices: Choices, slug: str, prompt: str, items: str) -> str:
    """Path of a result in the run."""
    if choices.number == "reward":
        of_list, of_vocabulary = schema.items_path, schema.scores_path
    else:
        of_list, of_vocabulary = schema.item_logprobs_path, schema.logprobs_path
    return of_list(items, slug, prompt) if items else of_vocabulary(slug, prompt)


def _columns(choices: Choices) -> schema.Columns:
    """Columns of the results."""
    whole = choices.layout == "tokens"
    if choices.number == "reward":
        return schema.SCORE_COLUMNS if whole else schema.ITEM_COLUMNS
    return schema.LOGPROB_COLUMNS if whole else schema.ITEM_LOGPROB_COLUMNS


def _fingerprint(choices: Choices, released: Released) -> Json:
    about = {
        "layout": choices.layout,
        "source": released.path.name,
        "source_sha256": released.sha256,
        "mode": "imported",
    }
    if choices.number == "logprob":
        about |= {"form": choices.form, "values": choices.values}
    return about


def _in_order(
    gathered: _Import, released: Released, frame: pl.DataFrame, items: str
) -> pl.DataFrame:
    """The rows in the order of the list, with item_id.

    Raises:
      AssayError: the file has other items, or repeated ones in another order.
    """
    own = frame["item"]
    listed = gathered.lists.setdefault(items, own)
    if own.equals(listed):
        return frame.with_row_index("item_id")
    differ = set(own) ^ set(listed)
    if differ:
        item = min(differ)
        where = "only here" if item in set(own) else "not here"
        raise released.error(
            f"other items than the rest of the list {items!r}: {item!r} is {where} "
            f"({len(differ)} such items)"
        )
    if len(own) != len(listed) or own.is_duplicated().any():
        raise released.error(f"repeated items in another order than the rest of the list {items!r}")
    order = listed.to_frame("item").with_row_index("item_id")
    return frame.join(order, on="item", how="inner", validate="1:1").sort("item_id")


def _model(model: str, vocab: str | None) -> Json:
    """Entry of a model in the manifest."""
    return {
        "source": model,
        "revision": None,
        "checkpoint_hash": f"imported:{model}",
        "decoder_hash": None,
        "vocab": vocab,
    }


def _vocabulary_hash(vocabulary: pl.DataFrame) -> str:
    rows = vocabulary.select("token_id", "token").rows()
    text = "\0".join(f"{i}\t{token}" for i, token in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _admitted(gathered: _Import, run: str) -> Manifest:
    """The manifest with all that was gathered; nothing is written until all of it is accepted."""
    manifest = Manifest.open(run)
    manifest.environment = manifest.computed_by = library_versions()
    for name in (*gathered.lists, *gathered.prompts, *gathered.models):
        check_name(manifest.run, name)
    for name, listed in gathered.lists.items():
        manifest.admit("lists", name, {"rows": len(listed), "items_hash": items_hash(list(listed))})
    for prompt, text in gathered.prompts.items():
        manifest.admit("prompts", prompt, text)
    for slug, entry in gathered.models.items():
        _admit_model(manifest, slug, entry)
    for name in gathered.lists:
        _admit_humans(manifest, name, gathered.tables.get(schema.humans_path(name)))
    for path, result in gathered.results.items():
        manifest.admit_result(path, _as_before(manifest, path, result.fingerprint))
    return manifest


def _admit_model(manifest: Manifest, slug: str, entry: Json) -> None:
    """Adds a model, or the vocabulary of one that an item list brought without it."""
    present = manifest.content["models"].get(slug)
    if present is not None and present["checkpoint_hash"] == entry["checkpoint_hash"]:
        if entry["vocab"] is None:
            return
        if present["vocab"] is None:
            manifest.content["models"][slug] = entry
    manifest.admit("models", slug, entry)


def _admit_humans(manifest: Manifest, items: str, humans: pl.DataFrame | None) -> None:
    """Refuses human scores of a list for which the run has other ones."""
    path = schema.humans_path(items)
    if humans is None or not storage.exists(manifest.run / path):
        return
    about = provenance.of_table(path)
    present = parts.read_frame(manifest.run / path, None, about, may_be_old=True)
    if not present.frame.equals(humans):
        raise AssayError(
            f"run {manifest.run}: other human scores of the list {items!r} are there already; "
            "allowed: another list (--items)"
        )


def _as_before(manifest: Manifest, path: str, fingerprint: Json) -> Json:
    """The fingerprint that the run has, where only the name of the same file differs.

    Earlier versions did not record the name.
    """
    present = manifest.content["results"].get(path, {}).get("fingerprint")
    named = {"source": fingerprint["source"]}
    return present if present is not None and present | named == fingerprint else fingerprint


def _written(manifest: Manifest, gathered: _Import) -> Iterator[str]:
    """Writes tables and parts, marks each result complete, and gives its path."""
    for path, table in gathered.tables.items():
        parts.write_frame(manifest.run / path, table, provenance.of_table(path))
    for path, result in gathered.results.items():
        _write_result(manifest, path, result.frame)
        yield path
    manifest.save()


def _write_result(manifest: Manifest, path: str, frame: pl.DataFrame) -> None:
    for start, stop in parts.ranges(len(frame), _PART_SIZE):
        part = frame.slice(start, stop - start)
        about = {
            **manifest.about(path),
            "rows": provenance.part_rows(start, stop, len(frame)),
            "computed_by": manifest.computed_by,
        }
        digest = parts.write_part(manifest.run / path, start, stop, part, about)
        manifest.record_part(path, schema.part_name(start, stop), len(part), digest, 0.0)
    manifest.finish(path, None)


def _said(gathered: _Import, run: str, count: int, items: str) -> str:
    """The last line of the command."""
    first = next(iter(gathered.results))
    folder = first.split("/model=")[0]
    rows = sum(len(result.frame) for result in gathered.results.values())
    counts: Mapping[str, int] = {
        "file": count,
        "model": len(gathered.models),
        "prompt": len(gathered.prompts),
    }
    counted = ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts.items())
    numbers = "rewards" if gathered.choices.number == "reward" else "log-probabilities"
    humans = ", with humans" if schema.humans_path(items) in gathered.tables else ""
    return f"{run}/{folder}: {counted}, {rows:,} {numbers}{humans}"
