"""Which searches a run lacks: the jobs of a command, entered in the manifest and checked."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.planning import admission
from engine.planning.work import SearchWork
from engine.runs import parts, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.search.drivers import planned_steps
from engine.search.objective import SearchObjective
from engine.search.step import first_changes, proposed_changes, takes_gradient
from engine.search.trace import Trace
from engine.settings import AUTO, DIRECTIONS, ENUMERATIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.rewards import pooling_of

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchJob:
    """The search of one model under one prompt, or under several that are judged together."""

    checkpoint: Checkpoint
    prompt_id: str
    objective: SearchObjective  # of the directions that are missing in the run
    missing: Mapping[str, str]  # direction -> file to write, relative to the run
    complete: Mapping[str, str]  # direction -> file that exists, relative to the run
    prompts: Sequence[str]  # ids of the prompts that are judged together
    fingerprints: Mapping[str, Json]  # direction -> of its result

    @property
    def steps(self) -> int:
        """Planned steps (`planned_steps`)."""
        return planned_steps(self.objective)

    def spent(self, steps: int, trace: Trace) -> float:
        """The share of its budget of steps or FLOPs that a search has used, 0 to 1."""
        settings = self.objective.settings
        flops = settings.flops and trace.flops_per_direction(settings)[-1] / settings.flops
        return min(1.0, max(steps / settings.steps, flops))


def jobs_of(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool,
) -> list[SearchJob]:
    """One job per model and prompt; with `joint` one per model. Nothing is written.

    Args:
      manifest: of the run.
      checkpoints: the models.
      prompts: prompt id -> text.
      frames: tokenizer hash -> vocabulary.
      settings: of every search.
      mesh: the devices.
      joint: whether all prompts are judged together.

    Raises:
      AssayError: bad input; a result begun under another fingerprint; a damaged file.
    """
    judged = {prompt_id: {prompt_id: text} for prompt_id, text in prompts.items()}
    if joint:
        judged = {_joint_id(list(prompts)): dict(prompts)}
    return [
        _job(manifest, checkpoint, prompt_id, together, frames, settings, mesh)
        for checkpoint in checkpoints
        for prompt_id, together in judged.items()
    ]


def check_memory(
    checkpoint: Checkpoint, objective: SearchObjective, mesh: Mesh, beside: float = 0.0
) -> float:
    """Raises AssayError for a search that this machine cannot hold.

    Args:
      checkpoint: the model.
      objective: of the search.
      mesh: the devices.
      beside: bytes on each device that other models are going to take.

    Returns:
      Bytes of the model's weights on each device.
    """
    settings = objective.settings
    first = first_changes(settings)
    work = SearchWork(
        prefix=max(len(prompt.prefix) for prompt in objective.prompts),
        suffix=len(objective.suffix),
        length=settings.length,
        candidates=settings.candidates,
        attempts=len(objective.signs),
        together=len(objective.prompts),
        gradient=takes_gradient(settings),
        momentum=settings.momentum > 0,
        merged=max(0, settings.merge - 1),
        packed=first[0] < first[-1],
        enumerates=settings.method in ENUMERATIONS,
    )
    return admission.check_search(checkpoint, mesh, settings.dtype, work, beside)


def read_table(manifest: Manifest, path: str, prompts: Sequence[str]) -> parts.Table:
    """A search's file, checked; raises AssayError for one that is damaged, or another search's.

    Args:
      manifest: of the run.
      path: of the file, relative to the run.
      prompts: ids of the prompts that are judged together.
    """
    file = manifest.run / path
    recorded = manifest.recorded(path, file.name)
    return parts.read_frame(file, recorded, manifest.about(path, prompts))


# Any: values of the columns.
def last_row(
    manifest: Manifest, path: str, prompts: Sequence[str]
) -> tuple[dict[str, list[Any]], Json]:
    """The last row of a search's file, and the search's entry of the manifest."""
    last = read_table(manifest, path, prompts).frame.tail(1)
    return last.to_dict(as_series=False), manifest.result(path)


def _job(
    manifest: Manifest,
    checkpoint: Checkpoint,
    prompt_id: str,
    together: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
) -> SearchJob:
    """The search of one model under prompts that are judged together; nothing is written.

    Args:
      manifest: of the run.
      checkpoint: the model.
      prompt_id: under which the results are filed.
      together: prompt id -> text.
      frames: tokenizer hash -> vocabulary.
      settings: of the search.
      mesh: the devices.
    """
    prompts = [checkpoint.template.split(text) for text in together.values()]
    paths, fingerprints = {}, {}
    for direction in settings.directions:
        path = schema.sequences_path(
            checkpoint.card.slug, prompt_id, direction, settings.method, settings.seed
        )
        fingerprint = settings.fingerprint(direction) | {
            **checkpoint.card.identity,
            **pooling_of(checkpoint, AUTO).choice,
            "prefix_ids": [list(p.prefix) for p in prompts],
            "suffix_ids": list(prompts[0].suffix),
            **meshes.identity(mesh),
            **setup.numerics(manifest, path, whole=is_whole(manifest, path)),
        }
        setup.admit_fingerprint(manifest, path, fingerprint)
        paths[direction], fingerprints[direction] = path, fingerprint
    complete = processes.from_first(
        f"searches of {prompt_id}", lambda: _complete(manifest, paths, list(together))
    )
    missing = {d: path for d, path in paths.items() if d not in complete}
    directions = tuple(missing) or settings.directions
    direction = "both" if len(directions) == len(DIRECTIONS) else directions[0]
    own = dataclasses.replace(settings, direction=direction)
    frame = frames[checkpoint.card.tokenizer_hash]
    objective = SearchObjective.build(checkpoint, prompts, frame, own)
    proposed_changes(own)
    return SearchJob(
        checkpoint=checkpoint,
        prompt_id=prompt_id,
        objective=objective,
        missing=missing,
        complete=complete,
        prompts=list(together),
        fingerprints=fingerprints,
    )


def is_whole(manifest: Manifest, path: str) -> bool:
    """Whether a search is complete and its file is there; all processes say the same."""
    complete = manifest.content["results"].get(path, {}).get("complete", False)
    return complete and processes.from_first(
        f"file of {path}", lambda: storage.exists(manifest.run / path)
    )


def _complete(
    manifest: Manifest, paths: Mapping[str, str], prompts: Sequence[str]
) -> dict[str, str]:
    """Direction -> file, of the searches of a job that need not be run again.

    Searches that the manifest lacks are adopted if all directions are on disk: those of a command
    that was stopped between two directions are searched again, together.

    Args:
      manifest: with every search entered.
      paths: direction -> file, relative to the run.
      prompts: ids of the prompts that are judged together.

    Raises:
      AssayError: a file is damaged, or is another search.
    """
    on_disk = {d: path for d, path in paths.items() if storage.exists(manifest.run / path)}
    known = {d: path for d, path in on_disk.items() if manifest.result(path)["complete"]}
    tables = {d: read_table(manifest, path, prompts) for d, path in on_disk.items()}
    if known or len(on_disk) < len(paths):
        return known
    for direction, path in on_disk.items():
        table = tables[direction]
        if table.about is not None:  # else the manifest vouches for it, but the search is not over
            file = manifest.run / path
            manifest.adopt_part(path, file.name, len(table.frame), table.sha256)
            manifest.finish(path, table.about["self_check"])
            manifest.result(path)["rejected"] = table.about["rejected"]
            known[direction] = path
    return known


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
