"""Opening a run: models, prompts and results are entered before any is computed."""

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import REWARD, VERSION, Card, Checkpoint
from engine.errors import AssayError
from engine.planning import DeviceRoom
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import (
    Identity,
    Json,
    conversations_hash,
    items_hash,
    library_versions,
    numerics,
    to_json,
)
from engine.runs.result import Span
from engine.settings import Settings
from engine.sweep.jobs import (
    RowsJob,
    choose_step,
    grouped,
    models_of,
    read_parts,
    recorded_step,
    refusals,
)
from engine.text.tokenizer import vocabulary

# A list's name, and its replies; or its table (`schema.LIST_COLUMNS`) of conversations with prompts
# of their own, and the hash of the file that it was read from.
Items = tuple[str, Sequence[str]] | tuple[str, pl.DataFrame, str]


# Any: dataclasses of settings have no common type.
def open_run(
    run: str,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str] | None,
    settings: Any,
    mesh: Mesh,
    kind: str = REWARD,
) -> RunFolder:
    """Opens a run and enters models and prompts; nothing is written yet.

    Process 0 alone reads it; on others it is empty. All must agree on `settings`, a dataclass.
    `kind` is `card.REWARD` or `card.LANGUAGE`. `prompts` are texts by id; None where rows have
    prompts of their own.

    Raises:
      AssayError: nothing to score, a model of the other kind, a slug or prompt id that cannot be
        part of a path, that is given twice, or that stands for something else in this run;
        processes that do not agree.
    """
    prompts, has_prompts = prompts or {}, prompts is None or bool(prompts)
    _agree(checkpoints, prompts, settings, mesh)
    folder = RunFolder(run=storage.path_of(run))
    if processes.writes():
        folder = RunFolder.open(run)
    processes.from_first("run", lambda: True)
    schema.check_names(prompts)
    slugs = [c.card.slug for c in checkpoints]
    schema.check_names(slugs)
    if repeated := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise AssayError(f"model {min(repeated)!r} was given twice; slugs must differ")
    if not checkpoints or not has_prompts:
        raise AssayError("nothing to score; give at least one checkpoint and one prompt")
    for checkpoint in checkpoints:
        checkpoint.expect(kind)
        admit_model(folder, checkpoint.card.slug, model_entry(checkpoint.card))
    for prompt, text in prompts.items():
        admit(folder, "prompts", prompt, text)
    folder.environment, folder.way = _environment(), _way(mesh)
    return folder


# Any: what JSON holds.
def admit(folder: RunFolder, kind: str, name: str, entry: Any) -> None:
    """Checks that all processes have the same entry; process 0 calls `RunFolder.admit`."""
    processes.agree(kind, [name, entry])
    if processes.writes():
        folder.admit(kind, name, entry)


def admit_list(
    folder: RunFolder, name: str, listed: Sequence[str] | pl.DataFrame, file_sha256: str = ""
) -> dict[str, pl.DataFrame]:
    """Enters a list in the run; returns the table of one of conversations, by path.

    `listed` are replies, or conversations (`schema.LIST_COLUMNS`) from a file of this hash. Raises
    AssayError for an empty list, or a damaged table in the run.
    """
    if not len(listed):
        raise AssayError(f"list {name!r}: empty; allowed: at least one row")
    schema.check_names([name])
    if not isinstance(listed, pl.DataFrame):
        admit(folder, "lists", name, {"rows": len(listed), "items_hash": items_hash(listed)})
        return {}
    entry = {"rows": len(listed), "items_hash": conversations_hash(listed)}
    admit(folder, "lists", name, {**entry, "file_sha256": file_sha256})
    path = schema.list_path(name)
    folder.table(path)  # refuses a damaged one
    return {path: listed}


def say_unread(slug: str, keys: Sequence[str]) -> None:
    """Prints the keys that the template of a model does not write, if there are any."""
    if keys and processes.writes():
        tqdm.write(f"note: {unread_note(slug, keys)}", file=sys.stderr)


def unread_note(slug: str, keys: Sequence[str]) -> str:
    """What a user is told of keys that the template of a model does not write."""
    names = ", ".join(keys)
    return f"{slug}: its chat template does not write {names}, so no reward depends on it"


def enter_result(folder: RunFolder, path: str, identity: Identity, part_size: int = 1) -> None:
    """`RunFolder.begin` on process 0, after all have agreed on the identity."""
    processes.agree(f"inputs of {path}", to_json(identity))
    if processes.writes():
        folder.begin(path, identity, part_size)


def find_missing(
    folder: RunFolder, jobs: Sequence[RowsJob], settings: Settings, mesh: Mesh
) -> tuple[list[RowsJob], Mapping[tuple[str, ...], str]]:
    """Enters listed jobs in the run, and finds their missing parts; nothing is written yet.

    Jobs of one pass are adjacent, and so are passes of the same models. Existing parts are
    read and checked, by process 0.

    Returns:
      The jobs with their steps and missing parts, and their `refusals`.

    Raises:
      AssayError: a job that the run holds with another identity, a damaged part, a conversation
        that is too long for the model, models of which none fits the mesh and the memory.
    """
    for job in jobs:
        enter_result(folder, job.path, job.identity, settings.part_size)
        schema.objective_columns(job.columns[1:])

    def state() -> list[tuple[list[Span], bool, int | None]]:
        read_parts(folder, jobs)
        results = [(job, folder.results[job.path]) for job in jobs]
        return [(r.missing, r.complete, recorded_step(folder, job)) for job, r in results]

    states = iter(processes.from_first("missing parts", state))
    room, known = DeviceRoom.of(mesh), list[RowsJob]()
    for _, group in itertools.groupby(grouped(jobs), key=models_of):
        same_models = list(group)
        listed = list(itertools.chain.from_iterable(same_models))
        of_listed = list(itertools.islice(states, len(listed)))
        step = choose_step(same_models, [step for *_, step in of_listed], settings, room)
        for job, (missing, checked, _) in zip(listed, of_listed, strict=True):
            spans = [(start, stop) for start, stop in missing]  # other processes receive lists
            more = dataclasses.replace(job, missing=spans, checked=checked, step_size=step)
            known.append(more)
            if spans:  # a complete job need not be tokenised again
                job.rows.check(job.checkpoint.card.decoder)
    return known, refusals(known, settings, room)


def vocabularies(
    folder: RunFolder,
    checkpoints: Iterable[Checkpoint],
    scored: Mapping[str, Sequence[int] | Sequence[str]] = MappingProxyType({}),
) -> dict[str, pl.DataFrame]:
    """Path of a vocabulary -> it, as the run holds it, or as it is to be written.

    `scored` are the token ids of a sweep, by tokenizer hash; of a panel the vocabulary has these
    alone. Raises AssayError for a run of others.
    """
    frames: dict[str, pl.DataFrame] = {}
    for checkpoint in checkpoints:
        name = checkpoint.card.tokenizer_hash
        path = schema.vocab_path(name)
        if path in frames:
            continue
        read, ids = folder.table(path), scored.get(name)
        frames[path] = vocabulary_of(checkpoint, ids) if read is None else read
        if read is None or ids is None:
            continue
        shared = read["token_id"].is_in(list(ids)).sum()
        if not len(ids) == shared == len(read):
            raise AssayError(
                f"{folder.run}: its vocabulary is of {len(read):,} token ids, of which "
                f"{shared:,} are among the {len(ids):,} to be scored; allowed: another run"
            )
    return frames


def _environment() -> Json:
    """Devices, host and time of this command."""
    return {
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "host": socket.gethostname(),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _way(mesh: Mesh) -> Json:
    """How this command computes numbers, as is recorded with each part; steps come to it."""
    device = jax.devices()[0]
    return {
        **library_versions(),
        "platform": device.platform,
        "device_kind": device.device_kind,
        "devices": mesh.size,
        **meshes.identity(mesh),
        "numerics": numerics(jax.default_backend()),
    }


def vocabulary_of(
    checkpoint: Checkpoint, ids: Sequence[int] | Sequence[str] | None = None
) -> pl.DataFrame:
    """The candidates of the checkpoint, all or those of `ids`: `schema.VOCAB_COLUMNS`."""
    template = None  # in which tokens stand as replies by their ids, if there is one
    with contextlib.suppress(AssayError):
        checkpoint.template.split(checkpoint.template.probe())
        template = checkpoint.template
    kept = None if ids is None else {*ids}
    tokens = {i: token for i, token in checkpoint.tokens.items() if kept is None or i in kept}
    return vocabulary(checkpoint.tokenizer, tokens, template)


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


def _code_hash() -> str:
    """Hash of the source files that decide about numbers."""
    digest, root = hashlib.sha256(), Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def admit_model(folder: RunFolder, slug: str, entry: Json) -> None:
    """Enters a model, unless the run has it already, wherever it was converted from."""
    present = folder.models.get(slug, {})
    processes.agree("models", [slug, entry])
    if processes.writes() and present.get("checkpoint_hash") != entry["checkpoint_hash"]:
        folder.admit("models", slug, entry)


def model_entry(card: Card) -> Json:
    """A model among the models of a run."""
    return {
        "source": card.source,
        "revision": card.revision,
        **({"base": {k: card.base[k] for k in ("source", "revision")}} if card.base else {}),
        "head": card.head.kind,
        "conversion": VERSION,
        "checkpoint_hash": card.checkpoint_hash,
        "decoder_hash": card.decoder_hash,
        "layers": [digest[:8] for digest in card.layer_hashes],
        "vocab": card.tokenizer_hash,
        "template": card.policy.to_json(),
        **({"mixture": True} if card.decoder.experts else {}),
    }
