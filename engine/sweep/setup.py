"""Opening a run: models, prompts and results are entered in its manifest before any is computed."""

import contextlib
import dataclasses
import datetime
import hashlib
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import polars as pl
from etils import epath
from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import OTHER_READING, REWARD, VERSION, Checkpoint
from engine.errors import AssayError
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.provenance import library_versions
from engine.runs.reader import Json
from engine.scoring.rows import Rows
from engine.sweep.loop import Settings
from engine.sweep.results import Result, check_present
from engine.sweep.steps import begun_with
from engine.text.chat_template import ChatTemplate
from engine.text.vocabulary import vocabulary

_SHARED_S = 20.0  # for a file of process 0 to appear on every process


# Any: dataclasses of settings have no common type.
def open_run(
    run: str,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    settings: Any,
    mesh: Mesh,
    kind: str = REWARD,
) -> Manifest:
    """Enters models and prompts in the manifest of a run; nothing is written yet.

    Args:
      run: run folder, new or to be continued.
      checkpoints: models.
      prompts: prompt id -> text.
      settings: a dataclass, which all processes must agree on.
      mesh: from `engine.mesh.build_mesh`.
      kind: `card.REWARD` or `card.LANGUAGE`.

    Raises:
      AssayError: nothing to score, a model of the other kind, a slug or prompt id that cannot be
        part of a path, that is given twice, or that stands for something else in this run;
        processes that do not agree.
    """
    _agree(checkpoints, prompts, settings, mesh)
    content = processes.from_first("manifest", lambda: Manifest.open(run).content)
    manifest = Manifest(epath.Path(run), content)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    _check_release(manifest)
    for checkpoint in checkpoints:
        checkpoint.expect(kind)
        _admit_model(manifest, checkpoint)
    for prompt, text in prompts.items():
        admit(manifest, "prompts", prompt, text)
    manifest.environment, manifest.computed_by = _environment(), _computed_by()
    return manifest


# Any: what JSON holds.
def admit(manifest: Manifest, kind: str, name: str, entry: Any) -> None:
    """`Manifest.admit` on process 0, which reads the run, after all have agreed on the entry."""
    processes.agree(kind, [name, entry])
    if processes.writes():
        manifest.admit(kind, name, entry)


def admit_fingerprint(manifest: Manifest, path: str, fingerprint: Json) -> None:
    """`Manifest.admit_result` on process 0, after all have agreed on the fingerprint."""
    processes.agree(f"inputs of {path}", fingerprint)
    if processes.writes():
        manifest.admit_result(path, fingerprint)


def numerics(manifest: Manifest, path: str, *, whole: bool) -> dict[str, int]:
    """What of the code decides the last bits of numbers, for a result's fingerprint.

    Args:
      manifest: of the run; all processes hold the same.
      path: of the result, relative to the run.
      whole: whether nothing of it is missing. Then it keeps what its fingerprint has, since
        nothing is added to it.
    """
    present = manifest.content["results"].get(path)
    if whole and present is not None:
        kept = present["fingerprint"]
        return {"numerics": kept["numerics"]} if "numerics" in kept else {}
    return {"numerics": provenance.numerics(jax.default_backend())}


def admit_result(
    manifest: Manifest,
    checkpoint: Checkpoint,
    path: str,
    rows: Rows,
    settings: Settings,
    mesh: Mesh,
    *,
    step_size: int,
    objectives: Sequence[str] = (),
    lens: int = 0,
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
      step_size: what `steps.choose_step` gave for the model; a result that was begun with
        another one keeps it, unless `settings` name one.
      objectives: columns of a part behind those of the rows.
      lens: number of layers after each of which the reward is a column too.
      **choices: further settings that all parts of a result must agree on.

    Raises:
      AssayError: a result that was begun under another fingerprint, a conversation that is too
        long for the model.
    """
    if objectives:
        choices["objectives"] = list(objectives)
    if lens:
        choices["lens"] = lens
    beside = schema.columns_beside(choices)
    schema.objective_columns(beside)
    if settings.step_size is None:
        step_size = begun_with(manifest, path) or step_size
    spans = processes.from_first(
        f"missing parts of {path}",
        lambda: parts.missing(manifest.names(path), len(rows), settings.part_size),
    )
    spans = [(start, stop) for start, stop in spans]  # other processes receive lists
    fingerprint = {
        **checkpoint.card.identity,
        **choices,
        "dtype": settings.dtype,
        "rows": len(rows),
        "part_size": settings.part_size,
        "step_size": step_size,
        **meshes.identity(mesh),
        **numerics(manifest, path, whole=not spans),
        "prefix_ids": list(rows.prompt.prefix),
        "suffix_ids": list(rows.prompt.suffix),
    }
    admit_fingerprint(manifest, path, fingerprint)
    if processes.writes():
        manifest.forget_parts(path, [schema.part_name(*span) for span in spans])
    if spans:  # a complete result need not be tokenised again
        rows.check(checkpoint.card.decoder)
    columns = (list(rows.part_columns)[-1], *beside)
    return Result(
        checkpoint=checkpoint,
        path=path,
        rows=rows,
        columns=columns,
        spans=spans,
        step_size=step_size,
    )


def check_meshes(mesh: Mesh, checkpoints: Sequence[Checkpoint]) -> None:
    """Refuses a mesh that fits no model; if it fits some, the others fail when they are loaded.

    Raises:
      AssayError: of the last model.
    """
    for number, checkpoint in enumerate(checkpoints, 1):
        try:
            meshes.check_mesh(mesh, checkpoint.card.decoder)
        except AssayError:
            if number == len(checkpoints):
                raise
        else:
            return


def begin(
    manifest: Manifest,
    vocabularies: Mapping[str, pl.DataFrame],
    results: Sequence[Result] = (),
    part_size: int = 1,
) -> None:
    """Writes the manifest, which marks the folder as a run, and then vocabulary tables.

    Args:
      manifest: with all results entered.
      vocabularies: tables to write, by path.
      results: whose parts on disk are read and checked before anything is written.
      part_size: rows per part.

    Raises:
      AssayError: a part is damaged or belongs to something else, the run cannot be written,
        or processes do not share its folder.
    """
    if processes.writes():
        check_present(manifest, results, part_size)
    manifest.content = processes.from_first("plan", lambda: manifest.content)
    _check_shared(manifest.run)
    if not processes.writes():
        return
    for folder in (manifest.run, manifest.run / schema.VOCAB_DIR):
        storage.sweep_temporaries(folder)
    manifest.save()
    for path, frame in vocabularies.items():
        parts.write_frame(manifest.run / path, frame, provenance.of_table(path))


def missing_vocabularies(
    manifest: Manifest, checkpoints: Sequence[Checkpoint]
) -> dict[str, pl.DataFrame]:
    """Vocabulary tables that the run does not hold yet, by path; process 0 writes them.

    Raises:
      AssayError: one that it holds is damaged.
    """
    if not processes.writes():
        return {}
    by_path = {schema.vocab_path(c.card.tokenizer_hash): c for c in checkpoints}
    return {
        path: vocabulary_of(c)
        for path, c in by_path.items()
        if read_vocabulary(manifest, path) is None
    }


def read_vocabulary(manifest: Manifest, path: str) -> pl.DataFrame | None:
    """A vocabulary table of the run; None where the run does not hold it.

    Raises:
      AssayError: it is damaged.
    """
    file = manifest.run / path
    if not storage.exists(file):
        return None
    return parts.read_frame(file, None, provenance.of_table(path), may_be_old=True).frame


def _environment() -> Json:
    """What computes now: of a result's entry in the manifest."""
    return {
        **library_versions(),
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "host": socket.gethostname(),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _computed_by() -> Json:
    """What computes now, as far as equal runs have it in common: for the parts."""
    device = jax.devices()[0]
    return {
        **library_versions(),
        "platform": device.platform,
        "device_kind": device.device_kind,
    }


def vocabulary_of(checkpoint: Checkpoint) -> pl.DataFrame:
    """Every candidate of the checkpoint: `schema.VOCAB_COLUMNS`."""
    return vocabulary(checkpoint.tokenizer, checkpoint.tokens, _conversational(checkpoint))


def _agree(
    checkpoints: Sequence[Checkpoint], prompts: Mapping[str, str], settings: Any, mesh: Mesh
) -> None:
    """Checks that all processes were started with the same code and inputs."""
    if jax.process_count() != processes.count():
        raise AssayError(
            f"jax runs {jax.process_count()} processes, of which Assay was not told; allowed: "
            "processes that engine.processes.join has joined"
        )
    if processes.count() == 1:
        return
    processes.agree("source files", _code_hash())
    processes.agree("versions of Python and libraries", library_versions())
    processes.agree("checkpoints", [[c.card.slug, c.card.checkpoint_hash] for c in checkpoints])
    processes.agree("prompts", list(prompts.items()))
    processes.agree("settings", dataclasses.asdict(settings))
    processes.agree("mesh axes", list(mesh.shape.items()))


def _check_shared(run: epath.Path) -> None:
    """Refuses a run folder in which the processes see different files.

    Process 0 alone needs it, but another process may be process 0 next time.
    """
    if processes.count() == 1:
        return
    # Named like a temporary file, which the next command removes if this one is killed.
    name = processes.from_first("mark", lambda: f".shared.{uuid.uuid4().hex[:8]}.tmp")
    if not processes.writes():
        _find(run, name)
        processes.agree("run folders", None)
        return
    forget = processes.at_exit(lambda: storage.remove(run / name))
    storage.write_atomic(run / name, b"")
    processes.agree("run folders", None)
    storage.remove(run / name)
    forget()


def _find(run: epath.Path, name: str) -> None:
    """Waits for the file of process 0; a network file system may show it late."""
    deadline = time.monotonic() + _SHARED_S
    while True:
        with contextlib.suppress(AssayError):
            if name in storage.names(run):  # a listing is asked for afresh
                return
        if time.monotonic() > deadline:
            raise AssayError(
                f"run {run}: not the folder that process 0 sees under this path "
                f"(its file did not appear in {_SHARED_S:.0f} s); allowed: a folder that all share"
            )
        time.sleep(0.2)


def _code_hash() -> str:
    """Hash of the source files that decide about numbers."""
    digest, root = hashlib.sha256(), Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _check_release(manifest: Manifest) -> None:
    """Refuses a run whose models another release has converted: it is not added to.

    Raises:
      AssayError: it has such a model.
    """
    for slug, entry in manifest.content["models"].items():
        if entry.get("decoder_hash") and entry.get("conversion") != VERSION:  # else imported
            raise AssayError(
                f"run {manifest.run}: of model {slug!r} {OTHER_READING}, and use another run folder"
            )


def _admit_model(manifest: Manifest, checkpoint: Checkpoint) -> None:
    card = checkpoint.card
    present = manifest.content["models"].get(card.slug, {})
    if present.get("checkpoint_hash") == card.checkpoint_hash:
        return  # the same model, wherever it was converted from
    entry: Json = {
        "source": card.source,
        "revision": card.revision,
        "conversion": VERSION,
        "checkpoint_hash": card.checkpoint_hash,
        "decoder_hash": card.decoder_hash,
        "vocab": card.tokenizer_hash,
        "template": card.policy.to_json(),
    }
    admit(manifest, "models", card.slug, entry)


def _conversational(checkpoint: Checkpoint) -> ChatTemplate | None:
    """The template in which tokens stand as replies by their ids, if there is one."""
    try:
        checkpoint.template.split("What?")
    except AssayError:
        return None
    return checkpoint.template
