"""Searches of several models and prompts into a run folder: resumable, self-checked, certified."""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
import safetensors.numpy
from etils import epath
from jax.sharding import Mesh
from safetensors import SafetensorError
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.display import progress
from engine.errors import AssayError
from engine.planning import DeviceRoom, Model, SweepWork, refusal
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import Json, from_json, numerics, to_json
from engine.runs.result import Certificate, SelfCheck
from engine.scoring import reward_passes
from engine.scoring.batches import whole_length
from engine.scoring.reward_passes import RewardScorer
from engine.search import gcg, proposals
from engine.search.gcg import Trace
from engine.search.objective import BLOCK_ROWS, SearchObjective
from engine.search.swaps import certificate
from engine.settings import DIRECTIONS, SearchSettings, settings_identity
from engine.sweep import setup
from engine.sweep.jobs import Job, identity_of
from engine.sweep.outcomes import free_models, memory_errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best sequence of one model under one prompt in one direction."""

    model: str  # slug
    prompt_id: str
    direction: str  # max or min
    reward: float
    text: str
    rejected: int  # candidates rejected because their text does not round-trip
    certificate: Certificate | None  # None: no swap was scored
    new: bool  # whether this call searched or certified it; False: read from the run


def search_sequences(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    *,
    certify: bool = False,
    check_memory: bool = True,
) -> list[SearchResult]:
    """Searches every model under every prompt and writes the traces to `run/sequences`.

    Args:
      checkpoints: the models.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of every search.
      mesh: from `engine.mesh.build_mesh`.
      certify: whether every swap of one token of what was found is scored.
      check_memory: whether a model that is larger than the free memory is refused.

    Returns:
      One result per model, prompt and direction: first those that were complete before.

    Raises:
      AssayError: bad input; a result that the run holds with another identity; a reward that is
        not finite; a self-check beyond tolerance.
    """
    proposals.first_changes(settings)
    folder = setup.open_run(run, checkpoints, prompts, settings, mesh)
    vocabularies = setup.vocabularies(folder, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    searches = [
        _Search.entered(folder, checkpoint, name, text, vocabularies, settings)
        for checkpoint in checkpoints
        for name, text in prompts.items()
    ]
    missing = [search for search in searches if search.missing]
    for search in missing if check_memory else ():
        search.check_memory(mesh, certify)
    if missing and processes.writes():
        folder.save(vocabularies)
    held: dict[str, RewardScorer] = {}  # the model of the last search, by its slug
    with progress(settings.steps * len(missing), "steps") as bar:
        for search in missing:
            bar.set_description(f"loading {search.slug}")
            with memory_errors([search.slug], mesh, "candidates", settings.candidates):
                _search(folder, search, _scorer(search, held, mesh), bar)
    new = {job.path for search in missing for job in search.missing}
    uncertified = [
        (search, job)
        for search in (searches if certify else ())
        for job in search.jobs
        if _result(folder, job, new).certificate is None
    ]
    swaps = sum(settings.length * (search.objective.allowed.sum() + 1) for search, _ in uncertified)
    with progress(int(swaps), "swaps") as bar:
        for search, job in uncertified:
            bar.set_description(" · ".join([search.slug, search.prompt, job.direction]))
            with memory_errors([search.slug], mesh, "candidates", settings.candidates):
                _certify(folder, search, job, _scorer(search, held, mesh), bar)
            new.add(job.path)
    results = [_result(folder, job, new) for search in searches for job in search.jobs]
    return sorted(results, key=lambda result: result.new)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Search:
    """A search: its objective in the directions that are missing, and a job for each direction."""

    checkpoint: Checkpoint
    objective: SearchObjective
    prompt: str  # its id
    jobs: Sequence[Job]

    @classmethod
    def entered(
        cls,
        folder: RunFolder,
        model: Checkpoint,
        name: str,
        prompt: str,
        vocabularies: Mapping[str, pl.DataFrame],
        settings: SearchSettings,
    ) -> "_Search":
        """The search under the prompt id `name`, its results entered in the run.

        Raises:
          AssayError: a damaged trace, or a result of another identity.
        """
        split = model.template.split(prompt)
        vocabulary = vocabularies[schema.vocab_path(model.card.tokenizer_hash)]
        objective, jobs = SearchObjective.build(model, split, vocabulary, settings), []
        for direction in settings.directions:
            path = schema.sequences_path(
                model.card.slug, name, direction, settings.method, settings.seed
            )
            identity = identity_of(
                model,
                split,
                objective.settings,
                search=settings_identity(objective.settings) | {"direction": direction},
                pooling=objective.pooling.kind,
            )
            setup.enter_result(folder, path, identity)
            read = functools.partial(_is_missing, folder, path, settings)
            missing = [(0, 1)] * processes.from_first(f"trace of {path}", read)
            jobs.append(Job(checkpoint=model, path=path, identity=identity, missing=missing))
        search = cls(checkpoint=model, objective=objective, prompt=name, jobs=jobs)
        if len(search.missing) == 1:
            narrowed = objective.narrowed(search.missing[0].direction)
            return dataclasses.replace(search, objective=narrowed)
        return search

    @property
    def missing(self) -> list[Job]:
        """Jobs whose files are not complete."""
        return [job for job in self.jobs if job.missing]

    @property
    def slug(self) -> str:
        """The model."""
        return self.checkpoint.card.slug

    def check_memory(self, mesh: Mesh, certify: bool) -> None:
        """Raises AssayError if this machine cannot hold the model and a step, or one of swaps."""
        prefix, length = self.objective.prompt.prefix, self.objective.settings.length
        work = SweepWork(
            prefix=whole_length(len(prefix) + length),
            own=2 * length + len(self.objective.suffix),  # two candidates in a row
            step_size=max(BLOCK_ROWS, self.objective.settings.candidates * certify),
            self_check=2,
        )
        model = Model.of([self.checkpoint])
        placed = model.on(DeviceRoom.of(mesh), self.objective.settings.dtype)
        if reason := refusal(placed, work, searches=True):
            raise AssayError(reason)


def _is_missing(folder: RunFolder, path: str, settings: SearchSettings) -> bool:
    """Whether a search has no trace, or its state is still there, of both directions.

    A process that ends between the records of two directions leaves the state: both are then
    written again. Raises AssayError for a damaged trace.
    """
    folder.results[path].frames()
    state = _state_file(folder, path, dataclasses.replace(settings, direction="both"))
    return bool(folder.results[path].missing) or storage.exists(state)


def _state_file(folder: RunFolder, path: str, settings: SearchSettings) -> epath.Path:
    """Where an unfinished search lies, of which `path` is one result."""
    name = f"{settings.method}-seed{settings.seed}-{settings.direction}.safetensors"
    return (folder.run / path).parent.parent / name


def _search(folder: RunFolder, search: _Search, scorer: RewardScorer, bar: tqdm) -> None:
    """Runs a search to its end, or resumes it, and writes its files."""
    objective, settings = search.objective, search.objective.settings
    began, done = time.perf_counter(), bar.n
    bar.set_description(f"{search.slug} · {search.prompt} · {settings.method}")

    def show(steps: int, trace: Trace) -> None:
        best = [
            f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
            for d, name in enumerate(settings.directions)
        ]
        bar.set_postfix_str(", ".join(best), refresh=False)
        bar.update(done + steps - bar.n)

    file = _state_file(folder, search.missing[0].path, settings)
    trace, rejected = resumable(objective, scorer, file, show)
    seconds = (time.perf_counter() - began) / len(search.missing)
    for job in search.missing:
        frame = gcg.trace_frame(objective, trace, job.direction)
        check = check_last_step(objective, scorer, frame, job.path)
        if processes.writes():
            result = folder.results[job.path]
            result.self_check, result.environment = check, folder.environment
            result.rejected = rejected[job.direction]
            result.write(schema.TRACE, frame, folder.way, seconds)
    if processes.writes():
        storage.remove(file)


def resumable(
    objective: SearchObjective,
    scorer: RewardScorer,
    file: epath.Path,
    show: Callable[[int, Trace], object] = lambda steps, trace: None,
) -> tuple[Trace, dict[str, int]]:
    """`run_search` whose trace and state lie in `file` meanwhile, from which it goes on.

    Raises:
      AssayError: as `run_search`; `file` is damaged, or belongs to another search.
    """
    identity = _identity(objective, scorer.mesh)
    saved = processes.bytes_from_first(f"state {file.name}", lambda: storage.read_if_there(file))

    def save(trace: Trace, state: gcg.Arrays) -> None:
        if processes.writes():
            # safetensors wants C order; `ascontiguousarray` would turn scalars into vectors.
            arrays = {f"engine/{name}": np.array(a, order="C") for name, a in state.items()}
            arrays |= {f"trace/{name}": np.array(a, order="C") for name, a in vars(trace).items()}
            metadata = {"search": json.dumps(identity)}
            storage.write_atomic(file, safetensors.numpy.save(arrays, metadata))

    try:
        loaded = None if saved is None else _loaded(saved, file, identity)
        return gcg.run_search(objective, scorer, loaded, save, show)
    except gcg.NothingFound:
        if processes.writes():
            storage.remove(file)  # resuming it would end here again
        raise


def _loaded(data: bytes, file: epath.Path, identity: Json) -> tuple[Trace, gcg.Arrays]:
    """What `resumable` saved; raises AssayError for other bytes, or those of another search."""
    try:
        length = int.from_bytes(data[:8], "little")
        saved = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["search"])
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise AssayError(f"{file}: damaged; remove it and run again") from error
    wanted = json.loads(json.dumps(identity))
    if names := ", ".join(k for k in saved | wanted if saved.get(k) != wanted.get(k)):
        raise AssayError(f"{file}: an unfinished search with another {names}; remove it to begin")
    trace = Trace(**{name: arrays[f"trace/{name}"] for name in ("rewards", "ids", "flops")})
    state = {k: v for k, v in arrays.items() if k.startswith("engine/")}
    return trace, {k.removeprefix("engine/"): v for k, v in state.items()}


def _identity(objective: SearchObjective, mesh: Mesh) -> Json:
    """Everything that must agree for a search to be resumed.

    The size of the mesh's axis `model` changes the last bits of rewards.
    """
    return settings_identity(objective.settings) | {
        "checkpoint": objective.checkpoint_hash,
        "prompts": [[list(objective.prompt.prefix), list(objective.suffix)]],
        "tokens": int(objective.allowed.sum()),
        "model_axis": mesh.shape["model"],
        "numerics": numerics(jax.default_backend()),
    }


def check_last_step(
    objective: SearchObjective, scorer: RewardScorer, steps: pl.DataFrame, path: str
) -> SelfCheck:
    """Scores the last sequence of a trace again by the plain pass, and its text as a chat would.

    Raises:
      AssayError: the difference exceeds the tolerance; it names `path`.
    """
    last = steps.row(-1, named=True)
    ids = [*objective.prompt.prefix, *last["token_ids"], *objective.suffix]
    [text] = objective.template.sequences(objective.prompt.prompt, [last["text"]])
    read_at = [len(ids) - 1, objective.pooling.position(text)]
    plain = scorer.plain_rewards([ids, text], read_at)[0]
    written, step = np.array([[last["reward"]]], np.float32), np.array([last["step"]])
    dtype, what = objective.settings.dtype, f"self-check of {path}"
    compared = schema.SINGLE if objective.config.experts else schema.LARGEST
    check = reward_passes.self_check(
        what, ["reward"], step, written, plain[:1, None], dtype, compared=compared
    )
    return dataclasses.replace(check, reward_from_text=float(plain[1]))


# Any: values of the columns.
def _last_row(folder: RunFolder, job: Job) -> dict[str, Any]:
    """The last row of a search's trace."""
    return folder.results[job.path].frame(schema.TRACE).row(-1, named=True)


def _certify(folder: RunFolder, search: _Search, job: Job, scorer: RewardScorer, bar: tqdm) -> None:
    """Scores the swaps of what a search found in one direction, and notes them in its result."""
    last = processes.from_first(job.path, functools.partial(_last_row, folder, job))
    objective = search.objective.narrowed(job.direction)
    certified = certificate(objective, scorer, np.array(last["token_ids"], np.int32), bar.update)
    if processes.writes():
        folder.results[job.path].certificate = certified
        folder.results[job.path].save()


def _result(folder: RunFolder, job: Job, new: Container[str]) -> SearchResult:
    """What a search found in one direction; `new` has the paths of this call."""

    def read() -> dict[str, Any]:  # Any: JSON values
        last, result = _last_row(folder, job), folder.results[job.path]
        certified = result.certificate and to_json(result.certificate)
        kept = {"reward": last["reward"], "text": last["text"], "rejected": result.rejected or 0}
        return {**kept, "certificate": certified}

    fields = processes.from_first(job.path, read)
    noted = fields.pop("certificate")
    return SearchResult(
        model=job.model,
        prompt_id=job.prompt,
        direction=job.direction,
        certificate=noted and from_json(Certificate, noted),
        new=job.path in new,
        **fields,
    )


def _scorer(search: _Search, held: dict[str, RewardScorer], mesh: Mesh) -> RewardScorer:
    """The model of a search: the one that is `held`, or another in place of it."""
    if search.slug not in held:
        held.clear()
        free_models()
        settings = search.objective.settings
        restored = restore([search.checkpoint], mesh, reward_passes.dtype_named(settings.dtype))
        held[search.slug] = RewardScorer.build(*restored, mesh, step_size=settings.candidates)
    return held[search.slug]
