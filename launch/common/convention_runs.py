"""Scores a model under many conventions, each into a run folder; resumable.

Weights are restored once for all conventions that need the same ones. A convention that renders the
same token ids as an earlier one, under the same settings, is not computed again. Results that a
sweep left in the run are copied.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from etils import epath
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.convention_index import (
    DEFAULT,
    NOISE_MESH,
    NOISE_STEP,
    Entry,
    folder_of,
    merged,
    write_index,
)
from engine.runs.manifest import Manifest, empty
from engine.runs.reader import RunError
from engine.scoring.batches import rows_of_step
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.settings import SweepSettings
from engine.sweep.jobs import recorded_step
from engine.sweep.reward_jobs import check_vocabulary, sweep_rewards
from launch.common.conventions import Convention
from launch.common.inputs import RankedList
from launch.common.text import say

_NOISE_STEP = 4  # the noise floor's steps are smaller by this factor


class Failed(AssayError):
    """Some models or conventions could not be computed; the rest are complete."""

    exit_status = 1


class ConventionJob(NamedTuple):
    """One convention to compute, in steps of a size on a mesh."""

    name: str
    convention: Convention
    step: int | None  # candidates per step; None: the default convention's
    mesh: Mesh


class Weights:
    """Loads a model once, for conventions of the same weights on a mesh that follow one another."""

    def __init__(self) -> None:
        self._key: object = None
        self._scorer: RewardScorer | None = None

    def turn_to(self, convention: Convention, mesh: Mesh) -> bool:
        """Whether the weights of a convention are loaded on a mesh; others are released."""
        if self._key != (convention.weights, mesh):
            self._key, self._scorer = (convention.weights, mesh), None
            self._dtype, self._mesh = dtype_named(convention.dtype), mesh
        return self._scorer is not None

    def __call__(self, group: Sequence[Checkpoint], step_size: int) -> RewardScorer:
        """The model, for steps of a size."""
        if self._scorer is None:
            meshes.check_mesh(self._mesh, group[0].card.decoder)
            restored = restore(group, self._mesh, self._dtype)
            self._scorer = RewardScorer.build(*restored, self._mesh, step_size=step_size)
        return dataclasses.replace(self._scorer, step_size=step_size)


@dataclasses.dataclass
class ConventionRuns:
    """The runs of one model under its conventions, below one folder."""

    checkpoint: Checkpoint
    run: epath.Path  # the folder that holds the runs
    prompts: Mapping[str, str]  # prompt id -> text, of vocabularies
    lists: Sequence[RankedList]  # lists that are scored too
    settings: SweepSettings  # of the default convention; the others change mode, pooling and dtype
    mesh: Mesh
    _failures: dict[str, str] = dataclasses.field(default_factory=dict)
    _weights: Weights = dataclasses.field(default_factory=Weights)
    _started: int = 0

    def __post_init__(self) -> None:
        self._slug = self.checkpoint.card.slug
        self._step = self.settings.step_size  # of the default convention

    def compute(self, conventions: Mapping[str, Convention]) -> int:
        """Scores the model under its conventions, of which the first is the default one.

        Returns:
          The number of new rewards.

        Raises:
          AssayError: as `sweep_rewards`; a convention of the same name means something else.
          Failed: some conventions could not be computed, such as one that overflows in float16.
        """
        same = self._same_ids(conventions)
        entries = {
            name: Entry(settings=dataclasses.asdict(convention), same_as=same.get(name))
            for name, convention in conventions.items()
        }
        merged(self.run, self._slug, entries)  # raises where a name stands for something else
        first, *rest = [
            ConventionJob(name, convention, None, self.mesh)
            for name, convention in conventions.items()
            if name not in same and name not in self._failures
        ]
        taken = self._take_over(first.convention)
        self._step = taken if self._step is None else self._step
        new = self._compute_all([first], 1 + len(rest))
        assert self._step is not None
        noise = self.noise_floor(first.convention, self._step)
        for one in noise:
            shape = "x".join(str(size) for size in one.mesh.shape.values())
            settings = {"step": str(one.step or self._step), "mesh": shape}
            settings = dataclasses.asdict(one.convention) | settings
            entries[one.name] = Entry(settings=settings, noise=True)
        self._write_index(entries)
        # Those of equal weights and mesh follow one another; those of the default one lead.
        every = [first, *rest, *noise]
        keys = list(dict.fromkeys((one.convention.weights, id(one.mesh)) for one in every))
        every.sort(key=lambda one: keys.index((one.convention.weights, id(one.mesh))))
        new += self._compute_all([one for one in every if one is not first], len(every))
        self._write_index(entries)
        if self._failures:
            said = "; ".join(f"{name} ({why})" for name, why in self._failures.items())
            raise Failed(f"{self._slug}: readings that could not be computed: {said}")
        return new

    def noise_floor(self, default: Convention, step: int) -> list[ConventionJob]:
        """The default convention in other steps and, on several devices, on another mesh.

        Steps are smaller; they are of 2 where the default convention takes 1.
        """
        size = len(self.checkpoint.token_ids)
        # A short list of tokens takes smaller steps than it may: its own size counts.
        taken = rows_of_step(min(self.settings.tokens or size, size), 1, step)
        # A step of 1 has no smaller one; the same step would be the same computation, no noise.
        again = max(1, taken // _NOISE_STEP) if taken > 1 else 2
        jobs = [ConventionJob(f"{NOISE_STEP}{again}", default, again, self.mesh)]
        axis, devices = self.mesh.shape["model"], self.mesh.devices.size
        other = 2 * axis if devices % (2 * axis) == 0 else axis // 2
        if devices == 1:
            return jobs
        mesh = meshes.build_mesh(other)
        try:
            meshes.check_mesh(mesh, self.checkpoint.card.decoder)
        except AssayError:  # the model cannot be split so
            return jobs
        name = f"{NOISE_MESH}{mesh.shape['data']}x{other}"
        return [*jobs, ConventionJob(name, default, None, mesh)]

    def _same_ids(self, conventions: Mapping[str, Convention]) -> dict[str, str]:
        """Name -> the earlier convention that gives the same token ids under the same settings.

        Conventions whose template cannot be used are noted as failed; the default one raises.
        """
        texts = [*self.prompts.values(), *(t for one in self.lists for t in one.prompts.values())]
        first: dict[tuple[object, ...], str] = {}
        same = {}
        for name, one in conventions.items():
            template = one.applied(self.checkpoint).template
            cut = template.split if one.mode == "ids" else template.around
            try:
                splits = tuple((s.prefix, s.suffix) for s in map(cut, texts))
            except AssayError as error:
                if name == DEFAULT:
                    raise
                self._failures[name] = str(error)
                continue
            key = (*one.weights, one.mode, one.pooling, splits)
            if first.setdefault(key, name) != name:
                same[name] = first[key]
        return same

    def _take_over(self, default: Convention) -> int | None:
        """Copies what a sweep has computed in the run itself, where it is the default convention.

        Returns the step of the default convention; None where it has no result yet.
        """
        target = folder_of(self.run, DEFAULT)
        recorded = _recorded_step(target, self._slug)
        done, there = (Manifest.open(str(run)).content["results"] for run in (self.run, target))
        paths = {prompt: schema.scores_path(self._slug, prompt) for prompt in self.prompts}
        wanted = {prompt: path for prompt, path in paths.items() if path not in there}
        swept = [done.get(path, {}) for path in wanted.values()]
        complete = all(one.get("complete") for one in swept) and self.settings.tokens is None
        steps = {one["fingerprint"].get("step_size") for one in swept} if complete else set()
        if len(steps) != 1 or None in steps:  # imported results have none
            return recorded
        model, settings = default.applied(self.checkpoint), self._settings_of(default, recorded)
        prompts = {prompt: self.prompts[prompt] for prompt in wanted}
        try:  # as if the sweep were to go on under the settings of the default convention
            check_vocabulary([model], prompts, str(self.run), settings, self.mesh)
        except AssayError:
            return recorded
        if not storage.exists(target / schema.MANIFEST):
            Manifest(target, empty()).save()
        for path in wanted.values():
            for part in done[path]["parts"]:
                data = storage.read(self.run / path / part)
                storage.write_atomic(target / path / part, data)
        return steps.pop()

    def _settings_of(self, convention: Convention, step: int | None) -> SweepSettings:
        """The settings of a convention; a step of None is the command's."""
        step = step or self.settings.step_size
        return dataclasses.replace(convention.settings(self.settings), step_size=step)

    def _compute_all(self, jobs: Sequence[ConventionJob], of: int) -> int:
        """Computes jobs; `of` is their total in progress lines. Returns new rewards."""
        new = 0
        for one in jobs:
            self._started += 1
            say(f"{self._slug}: reading {self._started}/{of}: {one.name}")
            try:
                new += self._compute(one)
            except AssayError as error:
                if one.name == DEFAULT or not _is_of_the_convention(error):
                    raise
                self._failures[one.name] = str(error)
        return new

    def _compute(self, one: ConventionJob) -> int:
        run, model = folder_of(self.run, one.name), one.convention.applied(self.checkpoint)
        step = one.step or _recorded_step(run, self._slug) or self._step
        settings = self._settings_of(one.convention, step)
        load = self._weights
        if load.turn_to(one.convention, one.mesh):  # the memory of what is loaded is not free
            settings = dataclasses.replace(settings, check_memory=False)
        new = sweep_rewards([model], self.prompts, str(run), settings, one.mesh, load=load)
        if one.name == DEFAULT:
            self._step = _recorded_step(run, self._slug)
            settings = dataclasses.replace(settings, step_size=self._step)
        for each in self.lists:
            where, items = (str(run), settings, one.mesh), (each.name, each.replies)
            new += sweep_rewards([model], each.prompts, *where, load=load, items=items)
            if not storage.exists(humans := run / schema.humans_path(each.name)):
                storage.write_atomic(humans, each.humans)
        return new

    def _write_index(self, entries: Mapping[str, Entry]) -> None:
        """Writes the entries of the model, with the failures so far."""
        noted = {
            name: dataclasses.replace(entry, failure=self._failures.get(name, ""))
            for name, entry in entries.items()
        }
        write_index(self.run, merged(self.run, self._slug, noted))


def _recorded_step(run: epath.Path, slug: str) -> int | None:
    """The step of a model's results in a run; None where it has none."""
    manifest = Manifest.open(str(run))
    paths = (path for path in manifest.content["results"] if f"/model={slug}/" in path)
    return next((step for path in paths if (step := recorded_step(manifest, path))), None)


def _is_of_the_convention(error: AssayError) -> bool:
    """Whether an error would be the same another time: of a template, of numbers, of a dtype.

    Errors of a disk or a store would not, nor those of a damaged run.
    """
    one: BaseException | None = error
    while isinstance(one, ValueError) and not isinstance(one, RunError):
        one = one.__cause__
    return one is None
