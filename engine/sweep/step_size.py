"""The step that jobs are computed with, and which models fit with it."""

import sys
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from engine import processes
from engine.errors import OutOfMemory
from engine.planning import admission
from engine.planning.admission import Place
from engine.runs.manifest import Manifest
from engine.settings import Settings
from engine.sweep.jobs import Job, Pass, models_of, passes, step_of

_SMALL = 1024  # rows of a part; who names fewer wants small parts


def choose_step(
    manifest: Manifest, same_models: Sequence[Pass], settings: Settings, place: Place
) -> int:
    """Candidates per step on each device, for all passes of models that share a decoder.

    It is the step that the settings name; else the step that the run records for these models, so
    that one run has one step; else what memory and the kind of device allow. A recorded step may no
    longer fit: `refusals` says so.
    """
    if settings.step_size is not None:
        return settings.step_size
    folders = {job.path.rpartition("/")[0] for one in same_models for job in one}
    for path in sorted(manifest.content["results"]):
        recorded = recorded_step(manifest, path)
        if recorded and path.rpartition("/")[0] in folders:
            return recorded
    rows = [one[0].rows for one in same_models]
    longest = max(len(each.prompt.prefix) for each in rows)
    # Positions of a candidate; None for replies of any length.
    positions = 1 + max(len(each.prompt.suffix) for each in rows)
    any_length = any(each.any_length for each in rows)
    return admission.step_for(
        admission.subject_of([job.checkpoint for job in same_models[0]]),
        place,
        settings.dtype,
        longest,
        None if any_length else positions,
        settings.self_check,
    )


def recorded_step(manifest: Manifest, path: str) -> int | None:
    """The step of a result that the run holds already."""
    entry = manifest.content["results"].get(path, {})
    step: int | None = entry.get("fingerprint", {}).get("step_size")
    return step


def refusals(
    jobs: Sequence[Job], settings: Settings, place: Place
) -> Mapping[tuple[str, ...], str]:
    """Why models cannot be loaded, by the slugs of models that share a pass; empty if all can.

    Only models with missing parts count.

    Raises:
      OutOfMemory: none of them can.
      AssayError: jobs of one pass were begun with different steps.
    """
    reasons: dict[tuple[str, ...], str] = {}
    groups: dict[tuple[str, ...], list[Pass]] = {}
    for one in passes(jobs):
        if any(job.missing for job in one):
            groups.setdefault(models_of(one), []).append(one)
    for models, same_models in groups.items():
        step = max(step_of(one) for one in same_models)
        if not settings.check_memory:
            continue
        rows = [one[0].rows for one in same_models]
        reason = admission.refusal(
            admission.subject_of([job.checkpoint for job in same_models[0]]),
            place,
            settings.dtype,
            max(len(each.prompt.prefix) for each in rows),
            1 + min(len(each.prompt.suffix) for each in rows),
            step,
            min(settings.self_check, max(map(len, rows))),
        )
        if reason:
            reasons[models] = reason
    if reasons and len(reasons) == len(groups):
        raise OutOfMemory(next(iter(reasons.values())))
    return reasons


def advise(jobs: Sequence[Job], part_size: int, devices: int) -> None:
    """Says on standard error where parts are too small to fill many devices.

    Args:
      jobs: only those with missing parts and more rows than a part are considered.
      part_size: rows per part.
      devices: along the mesh axis `data`.
    """
    sizes = [job.step_size for job in jobs if job.missing and len(job.rows) > part_size]
    step = max(sizes, default=0) * devices
    if processes.writes() and _SMALL <= part_size < step:
        tqdm.write(
            f"note: the devices take {step:,} candidates a step, but a part has {part_size:,} "
            f"rows, so {1 - part_size / step:.0%} of a step is padding; for a new run, "
            f"--config.part_size={step} fills it",
            file=sys.stderr,
        )
