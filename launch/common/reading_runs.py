"""Scores a model under many readings, each into a run folder of its own; resumable.

Weights are restored once for all readings that need the same ones.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from etils import epath
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError, OutOfMemory
from engine.runs import schema, storage
from engine.runs.lock import LockError
from engine.runs.reader import RunError
from engine.runs.readings import DEFAULT, Entry, folder_of, merged, write_index
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.sweep.rewards import sweep_replies, sweep_vocabulary
from launch.common.reading_tasks import (
    Plan,
    Task,
    adopt,
    begun_step,
    coincidences,
    fitting_step,
    noise_tasks,
)
from launch.common.readings import Reading, reread


class Interrupted(AssayError):
    """Memory was short for some readings, which can be tried again; the others were tried."""

    exit_status = 1


class Failed(AssayError):
    """Some readings could not be computed; the others are complete."""

    exit_status = 1


def compute(checkpoint: Checkpoint, readings: Mapping[str, Reading], plan: Plan) -> int:
    """Scores a model under its readings.

    Args:
      checkpoint: the model.
      readings: name -> reading, the default one first.
      plan: what is scored.

    Returns:
      The number of new rewards.

    Raises:
      AssayError: as `sweep_vocabulary`; a reading of the same name that means something else.
      Failed: some readings could not be computed, such as one that overflows in float16.
      Interrupted: the host's memory was short for some; they are not noted as failed.
    """
    same, failures = coincidences(checkpoint, readings, plan)
    entries = {
        name: Entry(settings=dataclasses.asdict(reading), same_as=same.get(name))
        for name, reading in readings.items()
    }
    index = _Index(plan.run, checkpoint.card.slug, entries)
    tasks = [
        Task(name=name, reading=reading, step=None, mesh=plan.mesh)
        for name, reading in readings.items()
        if name not in same and name not in failures
    ]
    worker = _Worker(checkpoint, plan, adopt(checkpoint, readings[DEFAULT], plan))
    new = worker.run(tasks[:1], len(tasks))  # the default one, which gives the size of a step
    noise = noise_tasks(checkpoint, readings[DEFAULT], plan, worker.step)
    for task in noise:
        index.add(task.name, Entry(settings=_described(task, worker.step), noise=True))
    index.write(failures)
    new += worker.run(_by_weights([*tasks[1:], *noise], tasks[0]), len(tasks) + len(noise))
    failures |= worker.failures
    index.write(failures)
    if worker.short:
        raise Interrupted(f"{checkpoint.card.slug}: memory was short for {_named(worker.short)}")
    if failures:
        said = f"readings that could not be computed: {_named(failures)}"
        raise Failed(f"{checkpoint.card.slug}: {said}")
    return new


def _named(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in reasons.items())


def of_the_reading(error: AssayError) -> bool:
    """Whether an error would be the same another time: of a template, of numbers, of a dtype.

    Errors of a disk or a store would not, nor those of a damaged run.
    """
    if isinstance(error, LockError | RunError):
        return False
    causes, one = [], error.__cause__
    while one is not None:
        causes.append(one)
        one = one.__cause__
    return all(isinstance(cause, ValueError) for cause in causes)  # as AssayError is


def _by_weights(tasks: Sequence[Task], first: Task) -> list[Task]:
    """Tasks of equal weights and mesh after one another; those of `first` lead."""
    keys = list(dict.fromkeys(task.key for task in (first, *tasks)))
    return sorted(tasks, key=lambda task: keys.index(task.key))


class _Index:
    """The entries of one model in the index of a run."""

    def __init__(self, run: epath.Path, slug: str, entries: Mapping[str, Entry]):
        self._run, self._slug, self._entries = run, slug, dict(entries)
        merged(run, slug, entries)  # raises where a name stands for something else

    def add(self, name: str, entry: Entry) -> None:
        """Adds an entry, to be written."""
        self._entries[name] = entry

    def write(self, failures: Mapping[str, str]) -> None:
        """Writes all entries, with the failures so far (name -> reason)."""
        own = {
            name: dataclasses.replace(entry, failure=failures.get(name, ""))
            for name, entry in self._entries.items()
        }
        write_index(self._run, merged(self._run, self._slug, own))


class _Worker:
    """Computes readings of one model, those that share weights after one another."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, step: int | None):
        self.failures: dict[str, str] = {}
        self.short: dict[str, str] = {}  # not computed, for lack of the host's memory
        self._checkpoint, self._plan = checkpoint, plan
        self._step = step if plan.settings.step_size is None else plan.settings.step_size
        self._weights: Weights | None = None
        self._begun = 0

    @property
    def step(self) -> int:
        """Candidates per step of the default reading, once it was computed."""
        assert self._step is not None
        return self._step

    def run(self, tasks: Sequence[Task], of: int) -> int:
        """Computes some of `of` readings; returns the number of new rewards."""
        new, slug = 0, self._checkpoint.card.slug
        for task in tasks:
            self._begun += 1
            print(f"{slug}: reading {self._begun}/{of}: {task.name}", file=sys.stderr, flush=True)
            if self._weights is None or not self._weights.fits(task):
                self._weights = None  # released before others are loaded
                self._weights = Weights(task.reading, task.mesh)
            try:
                new += self._compute(task, self._weights)
            except AssayError as error:
                if task.name == DEFAULT or not of_the_reading(error):
                    raise
                # An accelerator's memory is ours alone; the host's may be free another time.
                shared = task.mesh.devices.flat[0].platform == "cpu"
                found = self.short if shared and isinstance(error, OutOfMemory) else self.failures
                found[task.name] = str(error)
        return new

    def _compute(self, task: Task, weights: "Weights") -> int:
        plan, reading = self._plan, task.reading
        run, model = folder_of(plan.run, task.name), reread(self._checkpoint, reading)
        step = self._step_of(task, model, weights)
        settings = dataclasses.replace(
            plan.settings,
            mode=reading.mode,
            pooling=reading.pooling,
            dtype=reading.dtype,
            step_size=step,
            check_memory=plan.settings.check_memory and not weights.loaded,
        )
        new = sweep_vocabulary([model], plan.prompts, str(run), settings, task.mesh, load=weights)
        if task.name == DEFAULT:
            self._step = step = begun_step(run, model.card.slug)
        settings = dataclasses.replace(settings, step_size=step)
        for one in plan.lists:
            listed = (one.prompts, one.name, one.replies)
            new += sweep_replies([model], *listed, str(run), settings, task.mesh, load=weights)
            if not storage.exists(humans := run / schema.humans_path(one.name)):
                storage.write_atomic(humans, one.humans)
        return new

    def _step_of(self, task: Task, model: Checkpoint, weights: "Weights") -> int | None:
        """Candidates per step of a task; None for a default reading that is to choose it."""
        named = self._plan.settings.step_size is not None
        if task.step or task.name == DEFAULT or self._step is None or named:
            return task.step or self._step
        step = begun_step(folder_of(self._plan.run, task.name), model.card.slug) or weights.step
        if step is None and weights.loaded:  # by the default reading; their memory is not free
            step = self._step
        elif step is None:
            step = fitting_step(model, task, self._plan, self._step)
        if step < self._step:
            said = f"steps of {step}, not {self._step}, as memory allows"
            print(f"{model.card.slug}: {task.name}: {said}", file=sys.stderr, flush=True)
        weights.step = step
        return step


class Weights:
    """Loads a model once, for all readings of the same weights on a mesh.

    Attributes:
      step: candidates per step of these readings, where it was found already.
    """

    step: int | None = None

    def __init__(self, reading: Reading, mesh: Mesh):
        self._key, self._mesh = reading.weights, mesh
        self._dtype = dtype_named(reading.dtype)
        self._scorer: RewardScorer | None = None

    @property
    def loaded(self) -> bool:
        """Whether the model is on the devices."""
        return self._scorer is not None

    def fits(self, task: Task) -> bool:
        """Whether a task needs these weights on this mesh."""
        return self._key == task.reading.weights and self._mesh is task.mesh

    def __call__(self, group: Sequence[Checkpoint], step_size: int) -> RewardScorer:
        """The model, for steps of a size."""
        if self._scorer is None:
            meshes.check_mesh(self._mesh, group[0].card.decoder)
            restored = restore(group, self._mesh, self._dtype)
            self._scorer = RewardScorer.build(*restored, self._mesh, step_size=step_size)
        return dataclasses.replace(self._scorer, step_size=step_size)


def _described(task: Task, step: int) -> dict[str, str]:
    """The settings of a reading of the noise floor: the default ones, its step and its mesh."""
    shape = "x".join(str(size) for size in task.mesh.shape.values())
    return {**dataclasses.asdict(task.reading), "step": str(task.step or step), "mesh": shape}
