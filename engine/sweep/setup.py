"""Opening a run: models, prompts and results are entered in its manifest before any is computed."""

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import jax
import polars as pl
from etils import epath
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import OTHER_READING, REWARD, VERSION, Card, Checkpoint
from engine.errors import AssayError
from engine.planning.machines import DeviceRoom
from engine.runs import lock, parts, provenance, schema, storage
from engine.runs.manifest import Manifest, conversations_hash, items_hash
from engine.runs.parts import Span
from engine.runs.provenance import library_versions
from engine.runs.reader import Json
from engine.settings import Settings
from engine.sweep.jobs import (
    Job,
    RowsJob,
    check_parts,
    choose_step,
    grouped,
    models_of,
    recorded_step,
    refusals,
)
from engine.text.tokenizer import vocabulary

AnyJob = TypeVar("AnyJob", bound=Job)

# A list's name, and its replies; or its table (`schema.LIST_COLUMNS`) of conversations with prompts
# of their own, and the hash of the file that it was read from.
Items = tuple[str, Sequence[str]] | tuple[str, pl.DataFrame, str]

_SHARED_S = 20.0  # for the lock of process 0 to appear on every process


# Any: dataclasses of settings have no common type.
def open_run(
    run: str,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str] | None,
    settings: Any,
    mesh: Mesh,
    kind: str = REWARD,
) -> Manifest:
    """Enters models and prompts in the manifest of a run; nothing is written yet.

    All processes must agree on `settings`, a dataclass. `kind` is `card.REWARD` or `card.LANGUAGE`.
    `prompts` are texts by id; None where rows have prompts of their own.

    Raises:
      AssayError: nothing to score, a model of the other kind, a slug or prompt id that cannot be
        part of a path, that is given twice, or that stands for something else in this run;
        processes that do not agree.
    """
    prompts, has_prompts = prompts or {}, prompts is None or bool(prompts)
    _agree(checkpoints, prompts, settings, mesh)
    content = processes.from_first("manifest", lambda: Manifest.open(run).content)
    manifest = Manifest(epath.Path(run), content)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not has_prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    _check_release(manifest)
    for checkpoint in checkpoints:
        checkpoint.expect(kind)
        admit_model(manifest, checkpoint.card.slug, model_entry(checkpoint.card))
    for prompt, text in prompts.items():
        admit(manifest, "prompts", prompt, text)
    manifest.environment, manifest.computed_by = _environment(), _computed_by()
    return manifest


# Any: what JSON holds.
def admit(manifest: Manifest, kind: str, name: str, entry: Any) -> None:
    """Checks that all processes have the same entry; process 0 calls `Manifest.admit`."""
    processes.agree(kind, [name, entry])
    if processes.writes():
        manifest.admit(kind, name, entry)


def admit_list(
    manifest: Manifest, name: str, listed: Sequence[str] | pl.DataFrame, file_sha256: str = ""
) -> dict[str, pl.DataFrame]:
    """Enters a list in the manifest; returns the table of one of conversations, by path.

    `listed` are replies, or conversations (`schema.LIST_COLUMNS`) from a file of this hash. Raises
    AssayError for an empty list, or a damaged table in the run.
    """
    if not len(listed):
        raise AssayError(f"list {name!r}: empty; allowed: at least one row")
    schema.check_names([name])
    if not isinstance(listed, pl.DataFrame):
        entry = {"rows": len(listed), "items_hash": items_hash(listed)}
        admit(manifest, "lists", name, entry)
        return {}
    entry = {"rows": len(listed), "items_hash": conversations_hash(listed)}
    admit(manifest, "lists", name, {**entry, "file_sha256": file_sha256})
    path = schema.list_path(name)
    read_table(manifest, path)  # refuses a damaged one
    return {path: listed}


def say_unread(slug: str, keys: Sequence[str]) -> None:
    """Prints the keys that the template of a model does not write, if there are any."""
    if keys and processes.writes():
        tqdm.write(f"note: {unread_note(slug, keys)}", file=sys.stderr)


def unread_note(slug: str, keys: Sequence[str]) -> str:
    """What a user is told of keys that the template of a model does not write."""
    names = ", ".join(keys)
    return f"{slug}: its chat template does not write {names}, so no reward depends on it"


def entered(manifest: Manifest, job: AnyJob, fingerprint: Json, missing: Sequence[Span]) -> AnyJob:
    """A job with what all processes have found, entered in the manifest by process 0.

    Raises AssayError if the run holds files of another fingerprint.
    """
    admit_fingerprint(manifest, job.path, fingerprint)
    return dataclasses.replace(job, fingerprint=fingerprint, missing=missing)


def admit_fingerprint(manifest: Manifest, path: str, fingerprint: Json) -> None:
    """`Manifest.admit_result` on process 0, after all have agreed on the fingerprint."""
    processes.agree(f"inputs of {path}", fingerprint)
    if processes.writes():
        manifest.admit_result(path, fingerprint)


def numerics_entry(manifest: Manifest, path: str, *, whole: bool) -> dict[str, int]:
    """The version of the numerical code, which decides last bits, for the fingerprint of a result.

    A result with all its parts (`whole`) keeps the version in its fingerprint, if there is one.
    """
    present = manifest.content["results"].get(path)
    if whole and present is not None:
        kept = present["fingerprint"]
        return {"numerics": kept["numerics"]} if "numerics" in kept else {}
    return {"numerics": provenance.numerics(jax.default_backend())}


def enter(
    manifest: Manifest, jobs: Sequence[RowsJob], settings: Settings, mesh: Mesh
) -> tuple[list[RowsJob], Mapping[tuple[str, ...], str]]:
    """Enters listed jobs in the manifest, and finds their missing parts; nothing is written yet.

    Jobs of one pass are adjacent, and so are passes of the same models.

    Returns:
      The jobs with whole fingerprints and missing parts, and their `refusals`.

    Raises:
      AssayError: a job that the run holds with another fingerprint, a conversation that is too long
        for the model, models of which none fits the mesh and the memory.
    """
    room, known = DeviceRoom.of(mesh), list[RowsJob]()
    for _, group in itertools.groupby(grouped(jobs), key=models_of):
        same_models = list(group)
        step = choose_step(manifest, same_models, settings, room)
        listed = itertools.chain.from_iterable(same_models)
        known += [_enter(manifest, job, settings, mesh, step) for job in listed]
    return known, refusals(known, settings, room)


def _enter(manifest: Manifest, job: RowsJob, settings: Settings, mesh: Mesh, step: int) -> RowsJob:
    """`enter` for one job; it keeps the step that the run records, unless `settings` name one."""
    rows, path = job.rows, job.path
    if settings.step_size is None:
        step = recorded_step(manifest, path) or step
    missing = processes.from_first(
        f"missing parts of {path}",
        lambda: parts.missing(manifest.names(path), len(rows), settings.part_size),
    )
    missing = [(start, stop) for start, stop in missing]  # other processes receive lists
    fingerprint = {
        **job.checkpoint.card.identity,
        **job.fingerprint,
        "dtype": settings.dtype,
        "rows": len(rows),
        "part_size": settings.part_size,
        "step_size": step,
        **meshes.identity(mesh),
        **numerics_entry(manifest, path, whole=not missing),
        "prefix_ids": list(rows.prompt.prefix),
        "suffix_ids": list(rows.prompt.suffix),
    }
    job = entered(manifest, job, fingerprint, missing)
    if processes.writes():
        manifest.forget_parts(path, [schema.part_name(*span) for span in missing])
    if missing:  # a complete job need not be tokenised again
        rows.check(job.checkpoint.card.decoder)
    schema.objective_columns(job.columns[1:])
    return job


def begin(
    manifest: Manifest,
    vocabularies: Mapping[str, pl.DataFrame],
    jobs: Sequence[RowsJob] = (),
    part_size: int = 1,
    tables: Mapping[str, pl.DataFrame] = MappingProxyType({}),
) -> None:
    """Writes the manifest, which marks the folder as a run, and then the tables that it lacks.

    `vocabularies` are by tokenizer hash, other `tables` by path. Parts of `jobs` on disk are read
    and checked before anything is written.

    Raises:
      AssayError: a part is damaged or belongs to something else, the run cannot be written,
        or processes do not share its folder.
    """
    if processes.writes():
        check_parts(manifest, jobs, part_size)
    manifest.content = processes.from_first("plan", lambda: manifest.content)
    _check_shared(manifest.run)
    if not processes.writes():
        return
    manifest.save()
    of_tokenizers = {schema.vocab_path(name): frame for name, frame in vocabularies.items()}
    for path, frame in {**of_tokenizers, **tables}.items():
        if not storage.exists(manifest.run / path):
            parts.write_frame(manifest.run / path, frame, {"path": path})


def vocabularies(manifest: Manifest, checkpoints: Iterable[Checkpoint]) -> dict[str, pl.DataFrame]:
    """Tokenizer hash -> vocabulary, as the run holds it, or as it is to be written."""
    frames: dict[str, pl.DataFrame] = {}
    for checkpoint in checkpoints:
        name = checkpoint.card.tokenizer_hash
        if name not in frames:
            read = read_table(manifest, schema.vocab_path(name)) if processes.writes() else None
            frames[name] = vocabulary_of(checkpoint) if read is None else read
    return frames


def read_table(manifest: Manifest, path: str) -> pl.DataFrame | None:
    """A vocabulary or list that the run holds, or None; raises AssayError for a damaged one."""
    file = manifest.run / path
    if not storage.exists(file):
        return None
    return parts.read_frame(file, None, {"path": path}).frame


def _environment() -> Json:
    """Versions, devices, host and time of this command, for the manifest."""
    return {
        **library_versions(),
        "device_kind": jax.devices()[0].device_kind,
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "host": socket.gethostname(),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _computed_by() -> Json:
    """Versions and kind of device, which equal runs share, for the parts."""
    platform, kind = jax.devices()[0].platform, jax.devices()[0].device_kind
    return {**library_versions(), "platform": platform, "device_kind": kind}


def vocabulary_of(checkpoint: Checkpoint) -> pl.DataFrame:
    """Every candidate of the checkpoint: `schema.VOCAB_COLUMNS`."""
    template = None  # in which tokens stand as replies by their ids, if there is one
    with contextlib.suppress(AssayError):
        checkpoint.template.split(checkpoint.template.probe())
        template = checkpoint.template
    return vocabulary(checkpoint.tokenizer, checkpoint.tokens, template)


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
    """Refuses a run folder in which another process does not see the lock of process 0.

    Process 0 alone reads and writes there, but another process may be process 0 next time.
    """
    said = processes.from_first("lock", lambda: lock.said(run))
    deadline = time.monotonic() + _SHARED_S  # a network file system may show it late
    while said and not processes.writes() and lock.said(run) != said:
        if time.monotonic() > deadline:
            raise AssayError(
                f"run {run}: not the folder that process 0 sees under this path "
                f"(its lock did not appear in {_SHARED_S:.0f} s); allowed: a folder that all share"
            )
        time.sleep(0.2)
    processes.agree("run folders", None)


def _code_hash() -> str:
    """Hash of the source files that decide about numbers."""
    digest, root = hashlib.sha256(), Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _check_release(manifest: Manifest) -> None:
    """Raises AssayError for a run with models of another release's conversion."""
    for slug, entry in manifest.content["models"].items():
        if entry.get("decoder_hash") and entry.get("conversion") != VERSION:  # else imported
            raise AssayError(
                f"run {manifest.run}: of model {slug!r} {OTHER_READING}, and use another run folder"
            )


def admit_model(manifest: Manifest, slug: str, entry: Json) -> None:
    """Enters a model, unless the run has it already, wherever it was converted from."""
    present = manifest.content["models"].get(slug, {})
    if present.get("checkpoint_hash") != entry["checkpoint_hash"]:
        admit(manifest, "models", slug, entry)


def model_entry(card: Card) -> Json:
    """A model among the models of a manifest."""
    return {
        "source": card.source,
        "revision": card.revision,
        **({"base": {k: card.base[k] for k in ("source", "revision")}} if card.base else {}),
        "head": card.head.kind,
        "conversion": VERSION,
        "checkpoint_hash": card.checkpoint_hash,
        "decoder_hash": card.decoder_hash,
        "vocab": card.tokenizer_hash,
        "template": card.policy.to_json(),
    }
