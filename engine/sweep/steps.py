"""The step that results are computed with, and which models fit with it."""

import itertools
import sys
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import OutOfMemory
from engine.planning import admission
from engine.planning.admission import Place
from engine.runs.manifest import Manifest
from engine.settings import Settings
from engine.sweep.results import Result, step_of
from engine.types import PromptIds

_SMALL = 1024  # rows of a part; who names fewer wants small parts


def choose_step(
    manifest: Manifest,
    group: Sequence[Checkpoint],
    paths: Sequence[str],
    prompts: Sequence[PromptIds],
    settings: Settings,
    place: Place,
    *,
    listed: bool,
) -> int:
    """Candidates per step on each device, for all results of models that share a decoder.

    It is what the settings name; else what a result of these models in the run was begun with, so
    that one run has one step; else what memory and the kind of device allow. One that was begun may
    not fit any more: `refusals` says so.

    Args:
      manifest: from `open_run`; all processes hold the same.
      group: the models.
      paths: the results' folders, relative to the run.
      prompts: under which they are scored.
      settings: of the run.
      place: where the models are loaded.
      listed: whether the replies are of any length; else they are single tokens.
    """
    if settings.step_size is not None:
        return settings.step_size
    folders = {path.rpartition("/")[0] for path in paths}
    for path in sorted(manifest.content["results"]):
        begun = begun_with(manifest, path)
        if begun and path.rpartition("/")[0] in folders:
            return begun
    longest = max(len(prompt.prefix) for prompt in prompts)
    own = None if listed else 1 + max(len(prompt.suffix) for prompt in prompts)
    subject = admission.subject_of(group)
    return admission.step_for(subject, place, settings.dtype, longest, own, settings.self_check)


def begun_with(manifest: Manifest, path: str) -> int | None:
    """The step of a result that the run holds already."""
    step: int | None = (
        manifest.content["results"].get(path, {}).get("fingerprint", {}).get("step_size")
    )
    return step


def refusals(
    results: Sequence[Result], settings: Settings, place: Place
) -> dict[tuple[str, ...], str]:
    """Why models cannot be loaded, by the slugs of models that share a pass; empty if all can.

    Only models with missing parts count.

    Raises:
      OutOfMemory: none of them can.
      AssayError: results of one pass were begun with different steps.
    """
    reasons: dict[tuple[str, ...], str] = {}
    groups: dict[tuple[str, ...], list[list[Result]]] = {}
    for _, same in itertools.groupby(results, key=lambda r: id(r.rows)):
        own = list(same)
        if any(result.spans for result in own):
            groups.setdefault(tuple(result.model for result in own), []).append(own)
    for slugs, passes in groups.items():
        step = max(step_of(own) for own in passes)
        if not settings.check_memory:
            continue
        prompts = [own[0].rows.prompt for own in passes]
        reason = admission.refusal(
            admission.subject_of([result.checkpoint for result in passes[0]]),
            place,
            settings.dtype,
            max(len(prompt.prefix) for prompt in prompts),
            1 + min(len(prompt.suffix) for prompt in prompts),
            step,
            min(settings.self_check, max(len(own[0].rows) for own in passes)),
        )
        if reason:
            reasons[slugs] = reason
    if reasons and len(reasons) == len(groups):
        raise OutOfMemory(next(iter(reasons.values())))
    return reasons


def check_refused(reasons: Mapping[tuple[str, ...], str], group: Sequence[Checkpoint]) -> None:
    """Raises OutOfMemory for models that `refusals` names."""
    if reason := reasons.get(tuple(checkpoint.card.slug for checkpoint in group)):
        raise OutOfMemory(reason)


def advise(results: Sequence[Result], part_size: int, devices: int) -> None:
    """Says so on standard error where parts are too small to fill many devices.

    Args:
      results: those with missing parts count, if they have more rows than a part.
      part_size: rows per part.
      devices: along the mesh axis `data`.
    """
    sizes = [r.step_size for r in results if r.spans and len(r.rows) > part_size]
    step = max(sizes, default=0) * devices
    if processes.writes() and _SMALL <= part_size < step:
        tqdm.write(
            f"note: the devices take {step:,} candidates a step, but a part has {part_size:,} "
            f"rows, so {1 - part_size / step:.0%} of a step is padding; for a new run, "
            f"--config.part_size={step} fills it",
            file=sys.stderr,
        )
