"""Opening a run: models, prompts and results are entered in its manifest before any is computed."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import polars as pl
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from engine.runs import parts, schema
from engine.runs.environment import library_versions
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import check_length
from engine.scoring.rows import Rows
from engine.sweep.loop import Result, Settings
from engine.text.chat_template import ChatTemplate
from engine.text.vocabulary import vocabulary, vocabulary_size


def open_run(
    run: str, checkpoints: Sequence[Checkpoint], prompts: Mapping[str, str], kind: str = REWARD
) -> Manifest:
    """Enters models and prompts in the manifest of a run; nothing is written yet.

    Args:
      run: run folder, new or to be continued.
      checkpoints: models.
      prompts: prompt id -> text.
      kind: `card.REWARD` or `card.LANGUAGE`.

    Raises:
      AssayError: nothing to score, a model of the other kind, a slug or prompt id that cannot be
        part of a path, that is given twice, or that stands for something else in this run.
    """
    manifest = Manifest.open(run)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    for checkpoint in checkpoints:
        checkpoint.expect(kind)
        _admit_model(manifest, checkpoint)
    for prompt, text in prompts.items():
        manifest.admit("prompts", prompt, text)
    manifest.content["environment"] = {**library_versions(), **_devices()}
    return manifest


def admit_result(
    manifest: Manifest,
    checkpoint: Checkpoint,
    path: str,
    rows: Rows,
    settings: Settings,
    mesh: Mesh,
    *,
    objectives: Sequence[str] = (),
    **choices: object,
) -> Result:
    """Enters one model's result under one prompt in the manifest, and finds its missing parts.

    Args:
      manifest: from `open_run`.
      checkpoint: the model.
      path: the result's folder, relative to the run.
      rows: what is scored; the results of models that share a pass share the object.
      settings: of the run.
      mesh: the devices.
      objectives: columns of a part behind those of the rows.
      **choices: further settings that all parts of a result must agree on.

    Raises:
      AssayError: a result that was begun under another fingerprint, a conversation that is too
        long for the model.
    """
    schema.objective_columns(objectives)
    if objectives:
        choices["objectives"] = list(objectives)
    fingerprint = {
        "checkpoint_hash": checkpoint.card.checkpoint_hash,
        **choices,
        "dtype": settings.dtype,
        "rows": len(rows),
        "part_size": settings.part_size,
        "step_size": settings.step_size,
        **meshes.identity(mesh),
        "prefix_ids": list(rows.prompt.prefix),
        "suffix_ids": list(rows.prompt.suffix),
    }
    manifest.admit_result(path, fingerprint)
    spans = parts.missing(manifest.run / path, len(rows), settings.part_size)
    if spans:  # a complete result need not be tokenised again
        check_length(rows.longest(), checkpoint.card.decoder.max_positions)
    columns = (list(rows.part_columns)[-1], *objectives)
    return Result(checkpoint=checkpoint, path=path, rows=rows, columns=columns, spans=spans)


def begin(manifest: Manifest, vocabularies: Mapping[str, pl.DataFrame]) -> None:
    """Writes the manifest, which marks the folder as a run, and then vocabulary tables."""
    if jax.process_count() > 1:  # every host looks for missing parts before any host writes one
        multihost_utils.sync_global_devices("assay-planned")
    if jax.process_index() != 0:
        return
    for folder in (manifest.run, manifest.run / schema.VOCAB_DIR):
        parts.sweep_temporaries(folder)
    manifest.save()
    for path, frame in vocabularies.items():
        parts.write_frame(manifest.run / path, frame)


def missing_vocabularies(
    manifest: Manifest, checkpoints: Sequence[Checkpoint]
) -> dict[str, pl.DataFrame]:
    """Vocabulary tables that the run does not hold yet, by path."""
    by_path = {schema.vocab_path(c.card.tokenizer_hash): c for c in checkpoints}
    return {
        path: vocabulary_of(c) for path, c in by_path.items() if not (manifest.run / path).exists()
    }


def vocabulary_of(checkpoint: Checkpoint) -> pl.DataFrame:
    """Every token id of the checkpoint's tokenizer: `schema.VOCAB_COLUMNS`."""
    embedded = checkpoint.card.decoder.vocab_size
    return vocabulary(checkpoint.tokenizer, embedded, _conversational(checkpoint))


def tokens_of(checkpoint: Checkpoint) -> int:
    """The number of token ids of the checkpoint's tokenizer."""
    return vocabulary_size(checkpoint.tokenizer, checkpoint.card.decoder.vocab_size)


def _admit_model(manifest: Manifest, checkpoint: Checkpoint) -> None:
    card = checkpoint.card
    present = manifest.content["models"].get(card.slug, {})
    if present.get("checkpoint_hash") == card.checkpoint_hash:
        return  # the same model, wherever it was converted from
    entry: Json = {
        "source": card.source,
        "revision": card.revision,
        "checkpoint_hash": card.checkpoint_hash,
        "decoder_hash": card.decoder_hash,
        "vocab": card.tokenizer_hash,
        "template": dataclasses.asdict(card.policy),
    }
    manifest.admit("models", card.slug, entry)


def _conversational(checkpoint: Checkpoint) -> ChatTemplate | None:
    """The template in which tokens stand as replies; a language model may have none."""
    try:
        checkpoint.template.split("What?")
    except AssayError:
        return None
    return checkpoint.template


def _devices() -> dict[str, str | int]:
    return {
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
    }
