"""Scores that others released: CSV files, checked and written into the formats of a run."""

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from configs import prompts
from engine.errors import AssayError
from engine.runs import parts, provenance, schema
from engine.runs.environment import library_versions
from engine.runs.manifest import Manifest, items_hash
from launch.common.prompts import prompt_id

LAYOUTS = {
    "elo": ("elo_rank", "elo_score", "name", "elo_matches"),
    "tokens": ("token_id", "token_name", "token_decoded"),
}
_PART_SIZE = 65_536
# What the tokenizers of the supported families call their special tokens.
_SPECIAL = (
    r"^<\|.*\|>$|^</?s>$"
    r"|^<(bos|eos|pad|unk|mask|2mass|unused\d+|start_of_turn|end_of_turn|start_of_image)>$"
)


def import_elo(source: Path, run: str, prompt: str, items: str = "") -> str:
    """Writes run/items/<list> and its humans.parquet; returns what was written.

    Args:
      source: the CSV file.
      run: run folder, new or one to add to.
      prompt: text of the prompt under which the rewards were computed.
      items: name of the list; "" to make it from the file's name.

    Raises:
      AssayError: the columns are not those of the layout, a number is missing or not finite, a
        name occurs twice, or the run holds other scores of the same name. Nothing is written.
    """
    frame, digest = read(source, "elo")
    names = _text(source, frame, "name")
    _once(source, names, "name")
    humans = pl.DataFrame({"item_id": range(len(names)), "item": names}).with_columns(
        _whole(source, frame, "elo_rank"),
        _numbers(source, frame, "elo_score"),
        _whole(source, frame, "elo_matches"),
    )
    humans = humans.cast(pl.Schema(schema.HUMAN_COLUMNS)).select(list(schema.HUMAN_COLUMNS))
    listed = humans.select("item_id", "item")
    models = _by_slug(source, frame.columns[len(LAYOUTS["elo"]) :])
    results = {
        slug: listed.with_columns(_numbers(source, frame, column).alias("reward"))
        for slug, column in models.items()
    }
    items, key = items or slugged(source.stem), prompt_id(prompt)
    schema.check_names([items])
    manifest = _open(run)
    rows = {"rows": len(names), "items_hash": items_hash(names.to_list())}
    manifest.admit("lists", items, rows)
    manifest.admit("prompts", key, prompt)
    frames = {}
    for slug, column in models.items():
        _admit_model(manifest, slug, column, None)
        frames[schema.items_path(items, slug, key)] = results[slug].cast(
            pl.Schema(schema.ITEM_COLUMNS)
        )
    _admit_results(manifest, frames, "elo", digest)
    people = schema.humans_path(items)
    parts.write_frame(manifest.run / people, humans, provenance.of_table(people))
    _write(manifest, frames)
    return f"{run}/items/{items}: {len(models)} models × {len(names):,} items, with humans"


def import_tokens(source: Path, run: str, model: str = "") -> str:
    """Writes run/scores of one model; returns what was written.

    The file does not say which tokens round-trip, so `round_trip` is null; `is_special` is set
    where the decoded string looks like a special token.

    Args:
      source: the CSV file. A column is named after a prompt's id in configs/prompts.py, or by the
        prompt's text.
      run: run folder, new or one to add to.
      model: id of the model; "" for the file's name.

    Raises:
      AssayError: as `import_elo`.
    """
    frame, digest = read(source, "tokens")
    ids = _whole(source, frame, "token_id")
    _once(source, ids, "token_id")
    tokens = frame["token_decoded"].fill_null("")
    vocabulary = pl.DataFrame({"token_id": ids, "token": tokens}).with_columns(
        is_special=pl.col("token").str.contains(_SPECIAL),
        round_trip=pl.lit(None, dtype=pl.String),
    )
    vocabulary = vocabulary.cast(pl.Schema(schema.VOCAB_COLUMNS)).sort("token_id")
    columns = {_prompt(name): name for name in frame.columns[len(LAYOUTS["tokens"]) :]}
    rewards = {
        key: pl.DataFrame({"token_id": ids, "reward": _numbers(source, frame, name)})
        for key, name in columns.items()
    }
    model = model or source.stem
    (slug,) = _by_slug(source, [model])
    vocab = _vocabulary_hash(vocabulary)
    manifest = _open(run)
    _admit_model(manifest, slug, model, vocab)
    frames = {}
    for key, scores in rewards.items():
        manifest.admit("prompts", key, prompts.PROMPTS.get(key, columns[key]))
        scores = scores.cast(pl.Schema(schema.SCORE_COLUMNS)).sort("token_id")
        frames[schema.scores_path(slug, key)] = scores
    _admit_results(manifest, frames, "tokens", digest)
    table = schema.vocab_path(vocab)
    parts.write_frame(manifest.run / table, vocabulary, provenance.of_table(table))
    _write(manifest, frames)
    return f"{run}/scores/model={slug}: {len(ids):,} tokens × {len(columns)} prompts"


def read(source: Path, layout: str) -> tuple[pl.DataFrame, str]:
    """The CSV as text columns, checked against its layout, and the sha256 of its bytes."""
    try:
        data = source.read_bytes()
        # As text: `NaN`, `null` and `007` are tokens. An empty token is read as null.
        frame = pl.read_csv(io.BytesIO(data), infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise AssayError(f"source={source}: {reason}") from error
    wanted = LAYOUTS[layout]
    if tuple(frame.columns[: len(wanted)]) != wanted or frame.width == len(wanted):
        raise AssayError(
            f"source={source}: columns {', '.join(frame.columns[:6])}; layout {layout!r} is "
            f"{', '.join(wanted)}, then one column per {'model' if layout == 'elo' else 'prompt'}"
        )
    if frame.height == 0:
        raise AssayError(f"source={source}: no rows")
    return frame, hashlib.sha256(data).hexdigest()


def slugged(name: str) -> str:
    """Slug of a model id or file name: its last part in lower case, without unsafe characters."""
    last = name.rstrip("/").rsplit("/")[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")


def _by_slug(source: Path, ids: list[str]) -> Mapping[str, str]:
    """Slug -> model id."""
    slugs = {slugged(name): name for name in ids}
    if len(slugs) < len(ids) or "" in slugs:
        raise AssayError(f"source={source}: models whose slugs are equal or empty: {ids}")
    schema.check_names(slugs)
    return slugs


def _numbers(source: Path, frame: pl.DataFrame, column: str) -> pl.Series:
    values = frame[column].str.strip_chars().cast(pl.Float64, strict=False)
    single = values.cast(pl.Float32)
    bad = (single.is_null() | ~single.is_finite()).arg_true()
    if len(bad):
        row = bad[0]
        raise AssayError(
            f"source={source}: column {column!r}, row {row + 1}: {frame[column][row]!r} is no "
            f"finite number ({len(bad)} such rows)"
        )
    return values


def _whole(source: Path, frame: pl.DataFrame, column: str) -> pl.Series:
    values = _numbers(source, frame, column)
    bad = ((values < 0) | (values >= 2**32) | (values != values.floor())).arg_true()
    if len(bad):
        given = frame[column][bad[0]]
        raise AssayError(
            f"source={source}: column {column!r}, row {bad[0] + 1}: {given!r} is no whole number"
        )
    return values.cast(pl.UInt32)


def _text(source: Path, frame: pl.DataFrame, column: str) -> pl.Series:
    empty = (frame[column].str.strip_chars().fill_null("") == "").arg_true()
    if len(empty):
        raise AssayError(f"source={source}: column {column!r} is empty in row {empty[0] + 1}")
    return frame[column]


def _once(source: Path, values: pl.Series, column: str) -> None:
    twice = values.filter(values.is_duplicated())
    if len(twice):
        raise AssayError(f"source={source}: column {column!r} holds {twice[0]!r} twice")


def _prompt(column: str) -> str:
    """Prompt id of a column: an id of configs/prompts.py, or the id of its text."""
    return column if column in prompts.PROMPTS else prompt_id(column)


def _vocabulary_hash(vocabulary: pl.DataFrame) -> str:
    rows = vocabulary.select("token_id", "token").rows()
    return _hash("\0".join(f"{i}\t{token}" for i, token in rows))[:16]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _open(run: str) -> Manifest:
    manifest = Manifest.open(run)
    manifest.environment = manifest.computed_by = library_versions()
    return manifest


def _admit_model(manifest: Manifest, slug: str, model: str, vocab: str | None) -> None:
    """Adds a model, or the vocabulary of one that an item list brought without it."""
    entry = {
        "source": model,
        "revision": None,
        "checkpoint_hash": f"imported:{model}",
        "decoder_hash": None,
        "vocab": vocab,
    }
    present = manifest.content["models"].get(slug)
    if present is not None and present["checkpoint_hash"] == entry["checkpoint_hash"]:
        if vocab is None:
            return
        if present["vocab"] is None:
            manifest.content["models"][slug] = entry
    manifest.admit("models", slug, entry)


def _admit_results(
    manifest: Manifest, frames: Mapping[str, pl.DataFrame], layout: str, digest: str
) -> None:
    """Adds every result to the manifest; nothing is written until all of them are accepted."""
    about = {"layout": layout, "source_sha256": digest, "mode": "imported"}
    for path in frames:
        manifest.admit_result(path, about)


def _write(manifest: Manifest, frames: Mapping[str, pl.DataFrame]) -> None:
    """Writes each result's parts and marks it complete."""
    for path, frame in frames.items():
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
    manifest.save()
