"""What is computed for the readings of a model: which of them, in what steps, on what mesh.

A reading that gives the token ids of an earlier one under the same settings is not computed, and
what a sweep has computed already is taken over.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
from etils import epath
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.planning import admission
from engine.runs import provenance, schema, storage
from engine.runs.manifest import Manifest, empty
from engine.runs.reader import Json
from engine.runs.readings import DEFAULT, NOISE_MESH, NOISE_STEP, folder_of
from engine.scoring.reward_passes import rows_of_step
from engine.settings import SweepSettings
from engine.sweep.rewards import pooling_of
from engine.sweep.step_size import recorded_step
from launch.common.readings import Reading, reread

_NOISE_STEP = 4  # the noise floor's steps are smaller by this factor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """A list of replies whose ranks by people are known: scored under every reading too.

    Attributes:
      name: of the list.
      replies: the texts.
      humans: bytes of its table of people's ranks.
      prompts: prompt id -> text, under which it was scored in the run.
    """

    name: str
    replies: Sequence[str]
    humans: bytes
    prompts: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is scored under each reading.

    Attributes:
      run: the folder that holds the readings.
      prompts: prompt id -> text, of vocabularies.
      lists: of replies.
      settings: of the default reading; a reading changes mode, pooling and dtype.
      mesh: the devices.
    """

    run: epath.Path
    prompts: Mapping[str, str]
    lists: Sequence[Listed]
    settings: SweepSettings
    mesh: Mesh


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A reading to compute.

    Attributes:
      name: of the reading.
      reading: its values.
      step: candidates per step; None: the default reading's.
      mesh: the devices.
    """

    name: str
    reading: Reading
    step: int | None
    mesh: Mesh

    @property
    def key(self) -> tuple[object, ...]:
        """Tasks of equal keys need the same parameters on the same devices."""
        return self.reading.weights, id(self.mesh)


def coincidences(
    checkpoint: Checkpoint, readings: Mapping[str, Reading], plan: Plan
) -> tuple[dict[str, str], dict[str, str]]:
    """Readings that need not be computed, or cannot be.

    Returns:
      Name -> the earlier reading that gives the same token ids under the same settings; and name ->
      why its template cannot be used.

    Raises:
      AssayError: the default reading's template cannot be used.
    """
    first: dict[tuple[object, ...], str] = {}
    same, failures = {}, {}
    texts = dict(plan.prompts) | {k: v for one in plan.lists for k, v in one.prompts.items()}
    for name, reading in readings.items():
        template = reread(checkpoint, reading).template
        cut = template.split if reading.mode == "ids" else template.around
        try:
            splits = tuple((s.prefix, s.suffix) for s in map(cut, texts.values()))
        except AssayError as error:
            if name == DEFAULT:
                raise
            failures[name] = str(error)
            continue
        key = (*reading.weights, reading.mode, reading.pooling, splits)
        if first.setdefault(key, name) != name:
            same[name] = first[key]
    return same, failures


def noise_tasks(checkpoint: Checkpoint, reading: Reading, plan: Plan, step: int) -> list[Task]:
    """The default reading again, in other steps and, on several devices, on another mesh.

    Steps are smaller; they are of 2 where the default reading takes 1.

    Args:
      checkpoint: the model.
      reading: the default one.
      plan: what is scored.
      step: candidates per step of the default reading.
    """
    size = len(checkpoint.token_ids)
    # A short list of tokens takes smaller steps than it may: its own size counts.
    taken = rows_of_step(min(plan.settings.tokens or size, size), 1, step)
    # A step of 1 has no smaller one; the same step would be the same computation, no noise.
    again = max(1, taken // _NOISE_STEP) if taken > 1 else 2
    found = [Task(name=f"{NOISE_STEP}{again}", reading=reading, step=again, mesh=plan.mesh)]
    axis, devices = plan.mesh.shape["model"], plan.mesh.devices.size
    other = 2 * axis if devices % (2 * axis) == 0 else axis // 2
    if devices == 1:
        return found
    mesh = build_mesh(other)
    try:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    except AssayError:  # the model cannot be split so
        return found
    name = f"{NOISE_MESH}{mesh.shape['data']}x{other}"
    return [*found, Task(name=name, reading=reading, step=None, mesh=mesh)]


def adopt(checkpoint: Checkpoint, reading: Reading, plan: Plan) -> int | None:
    """Takes over what a sweep has computed in the run itself, where it is the default reading.

    Its parts say what computed them, and are checked like those of any run.

    Returns:
      The step of the default reading; None where it was not begun and nothing was taken over.
    """
    target = folder_of(plan.run, DEFAULT)
    model = reread(checkpoint, reading)
    begun = begun_step(target, model.card.slug)
    if plan.settings.tokens is not None or not storage.exists(plan.run / schema.MANIFEST):
        return begun
    done = Manifest.open(str(plan.run)).content["results"]
    there = Manifest.open(str(target)).content["results"]
    every = {prompt: schema.scores_path(model.card.slug, prompt) for prompt in plan.prompts}
    paths = {prompt: path for prompt, path in every.items() if path not in there}
    found = {prompt: done[path] for prompt, path in paths.items() if path in done}
    steps = {entry["fingerprint"].get("step_size") for entry in found.values()}
    if not paths or len(found) < len(paths) or len(steps | ({begun} if begun else set())) > 1:
        return begun
    for prompt, entry in found.items():
        wanted = _fingerprint(model, reading, plan, plan.prompts[prompt])
        if not entry["complete"] or entry["fingerprint"] | wanted != entry["fingerprint"]:
            return begun
        if {"objectives", "pooling", "tokens"} & (set(entry["fingerprint"]) - set(wanted)):
            return begun
    if not storage.exists(target / schema.MANIFEST):
        Manifest(target, empty()).save()
    for prompt, entry in found.items():
        for part in entry["parts"]:
            data = storage.read(plan.run / paths[prompt] / part)
            storage.write_atomic(target / paths[prompt] / part, data)
    return steps.pop()


def _fingerprint(model: Checkpoint, reading: Reading, plan: Plan, prompt: str) -> Json:
    """What the fingerprint of the default reading will hold, the step aside."""
    split = model.template.around(prompt)
    return {
        **model.card.identity,
        "mode": reading.mode,
        "dtype": reading.dtype,
        "rows": len(model.token_ids),
        "part_size": plan.settings.part_size,
        "prefix_ids": list(split.prefix),
        "suffix_ids": list(split.suffix),
        "numerics": provenance.numerics(jax.default_backend()),
        **pooling_of(model, reading.pooling).choice,
        **({} if plan.settings.step_size is None else {"step_size": plan.settings.step_size}),
        **meshes.identity(plan.mesh),
    }


def fitting_step(model: Checkpoint, task: Task, plan: Plan, step: int) -> int:
    """The default reading's step, or a smaller one if the model does not fit with it.

    A reading in float32 takes more memory than a default one in bfloat16.

    Args:
      model: under the task's reading.
      task: the reading, and its mesh.
      plan: what is scored.
      step: of the default reading.
    """
    settings = plan.settings
    if settings.step_size is not None or not settings.check_memory:
        return step
    prompts = [*plan.prompts.values(), *(t for one in plan.lists for t in one.prompts.values())]
    splits = [model.template.around(text) for text in prompts]
    prefix, suffixes = max(len(s.prefix) for s in splits), [len(s.suffix) for s in splits]
    where = (
        admission.subject_of([model]),
        admission.Place.of(task.mesh),
        task.reading.dtype,
        prefix,
    )
    if not admission.refusal(*where, 1 + min(suffixes), step, settings.self_check):
        return step
    own = None if plan.lists or task.reading.mode == "text" else 1 + max(suffixes)
    return min(step, admission.step_for(*where, own, settings.self_check))


def begun_step(run: epath.Path, slug: str) -> int | None:
    """The step of a model's results in a run; None where it has none."""
    manifest = Manifest.open(str(run))
    paths = (path for path in manifest.content["results"] if f"/model={slug}/" in path)
    return next((step for path in paths if (step := recorded_step(manifest, path))), None)
