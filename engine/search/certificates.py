"""Certificates of the searches of a run: which are missing, entered in its manifest, and written.

A certificate is filed like a search of the method `<method>-ascent`: one row per sweep. Its file
holds the sweeps too, from which a larger budget goes on.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from etils import epath
from jax.sharding import Mesh

from engine import processes
from engine.errors import AssayError
from engine.planning import admission
from engine.planning.admission import Place
from engine.runs import schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer
from engine.search import certificate, jobs
from engine.search.certificate import Ascent, Sweep
from engine.search.jobs import Job
from engine.search.objective import SearchObjective
from engine.settings import DIRECTIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.jobs import recorded_step

_SAVE_S = 2.0  # between two saves of an unfinished certificate


def jobs_of(
    manifest: Manifest, searches: Sequence[Job], settings: SearchSettings, mesh: Mesh
) -> list[Job]:
    """One certificate per search and direction; none without a budget. Nothing is written.

    Args:
      manifest: of the run, with the searches entered.
      searches: of one model each, whose results are certified.
      settings: of the searches; `certify` and `certify_step` are read.
      mesh: the devices.

    Raises:
      AssayError: a certificate with another fingerprint; a damaged file.
    """
    if not settings.certify:
        return []
    place = Place.of(mesh)
    return [
        _certificate(manifest, search, direction, settings, place)
        for search in searches
        for direction in sorted(search.files, key=lambda d: d in search.missing)
    ]


def check_memory(job: Job, place: Place) -> None:
    """Raises AssayError for a certificate whose sweeps this machine cannot hold."""
    subject = admission.subject_of(list(job.models.values()))
    longest, whole = _positions(job.objective)
    dtype = job.objective.settings.dtype
    reason = admission.refusal(subject, place, dtype, longest, whole, job.step_size, self_check=1)
    if reason:
        raise AssayError(reason.replace("--config.step_size", "--config.certify_step"))


def certify(
    manifest: Manifest,
    job: Job,
    scorer: RewardScorer,
    advance: Callable[[int], object],
) -> None:
    """Runs a certificate to its end, or resumes it, and writes its file.

    Args:
      manifest: of the run.
      job: from `jobs_of`.
      scorer: the model.
      advance: called with a number of swaps that were scored.

    Raises:
      AssayError: a damaged state, a reward that is not finite, a self-check beyond tolerance.
    """
    began, objective = time.perf_counter(), job.objective
    [(direction, of)] = job.files.items()
    [path] = of.values()
    found, _ = processes.from_first(
        f"found in {job.searched}", lambda: jobs.last_row(manifest, job.searched, job.prompts)
    )
    file, sign = manifest.run / path, DIRECTIONS[direction]
    identity = {
        "fingerprint": manifest.result(path)["fingerprint"],
        "searched_ids": list(found["token_ids"]),
    }
    state = _State(file, identity)
    kept = list(state.load())
    ascent = certificate.run_certificate(
        objective,
        dataclasses.replace(scorer, step_size=job.step_size),
        np.array(found["token_ids"]),
        sign * found["reward"],
        kept if len(kept) > len(job.known) else job.known,
        save=state.save,
        advance=advance,
    )
    frame = ascent_frame(objective, scorer, ascent, found["flops"])
    check = jobs.self_check(objective, scorer, frame, path)
    if processes.writes():
        state.save(ascent.sweeps, now=True)
        # A file of a smaller budget is replaced: until then the manifest does not vouch for it.
        manifest.forget_parts(path, [file.name])
        manifest.save()
        said = {
            "rejected": ascent.rejected,
            "certificate": summary(objective, ascent, found),
            "sweeps": [sweep.to_json() for sweep in ascent.sweeps],
        }
        seconds = time.perf_counter() - began
        jobs.write(manifest, path, job.prompts, frame, check, said, seconds)
        manifest.save()
        state.remove()


def ascent_frame(
    objective: SearchObjective, scorer: RewardScorer, ascent: Ascent, spent: float
) -> pl.DataFrame:
    """The sequence after each sweep: `schema.SEQUENCE_COLUMNS`; a step is a sweep.

    Args:
      objective: of the search, in one direction.
      scorer: the model.
      ascent: with at least one sweep.
      spent: operations of the search before.
    """
    sign = DIRECTIONS[objective.settings.direction]
    ids = [list(map(int, each)) for each, _ in ascent.history]
    return pl.DataFrame(
        {
            "step": range(1, len(ids) + 1),
            "reward": np.array([sign * reward for _, reward in ascent.history], np.float32),
            "token_ids": ids,
            "text": [objective.round_trip.text(each) for each in ids],
            "round_trips": [objective.round_trip.passes(each) for each in ids],
            "flops": spent + certificate.sweep_flops(objective, scorer, ascent.sweeps),
        },
        schema=schema.SEQUENCE_COLUMNS,
    )


def summary(objective: SearchObjective, ascent: Ascent, found: Mapping[str, Any]) -> Json:
    """What a certificate says, as JSON values (docs/run-format.md).

    Args:
      objective: of the search, in one direction.
      ascent: as it ended.
      found: `token_ids` and `reward` of what the search found; the reward is not signed.
    """
    tokens, settings = int(objective.allowed.sum()), objective.settings
    return {
        "certified": ascent.certified,
        "sweeps": len(ascent.sweeps),
        "swaps": len(ascent.sweeps) * (tokens - 1),
        "ascent_steps": ascent.steps,
        "best_gain": ascent.best_gain if np.isfinite(ascent.best_gain) else None,
        "margin": ascent.margin,
        "noise": ascent.noise,
        "target": DIRECTIONS[settings.direction] * settings.target if settings.target else None,
        "searched_reward": found["reward"],
        "searched_ids": list(found["token_ids"]),
    }


def _certificate(
    manifest: Manifest, search: Job, direction: str, settings: SearchSettings, place: Place
) -> Job:
    """The certificate of one search in one direction, entered in the manifest."""
    [checkpoint], [(of, searched)] = search.models.values(), search.files[direction].items()
    method = f"{settings.method}{schema.ASCENT}"
    path = schema.sequences_path(*of, direction, method, settings.seed)
    step = settings.certify_step or recorded_step(manifest, path)
    if not step:
        subject = admission.subject_of([checkpoint])
        longest, whole = _positions(search.objective)
        step = admission.step_for(subject, place, settings.dtype, longest, whole, self_check=1)
    said = manifest.content["results"].get(path, {}).get("certificate", {})
    whole_file = jobs.is_whole(manifest, path) and _suffices(said, settings.certify)
    # The search may be complete, and keep its numerics: the certificate has others.
    fingerprint = {k: v for k, v in search.fingerprints[searched].items() if k != "numerics"}
    fingerprint |= setup.numerics(manifest, path, whole=whole_file)
    fingerprint |= {"ascent": 1, "step_size": step}
    setup.admit_fingerprint(manifest, path, fingerprint)
    known, complete = processes.from_first(
        f"certificate {path}", lambda: _present(manifest, search, path, searched, settings.certify)
    )
    narrowed = dataclasses.replace(search.objective.settings, direction=direction)
    objective = dataclasses.replace(search.objective, settings=narrowed)
    return dataclasses.replace(
        search,
        objective=objective,
        files={direction: {of: path}},
        fingerprints={path: fingerprint},
        missing=() if complete else (direction,),
        searched=searched,
        step_size=step,
        known=tuple(map(Sweep.from_json, known)),
    )


def _positions(objective: SearchObjective) -> tuple[int, int]:
    """Positions of the longest prompt with its reply, and of a whole reply with its suffix."""
    length = objective.settings.length
    longest = max(len(prompt.prefix) for prompt in objective.prompts)
    return longest + length, length + len(objective.suffix)


def _suffices(said: Mapping[str, Any], budget: int) -> bool:
    """Whether a certificate (`summary`) is certified, or has used the budget of sweeps."""
    return bool(said.get("certified")) or said.get("sweeps", 0) >= budget


def _present(
    manifest: Manifest, search: Job, path: str, searched: str, budget: int
) -> tuple[list[list[Any]], bool]:
    """Sweeps of a certificate that the run holds, and whether a budget allows no more.

    Raises:
      AssayError: it is damaged, or certifies another sequence than the search's file holds.
    """
    file = manifest.run / path
    if not storage.exists(file):
        return [], False
    table = jobs.read_table(manifest, path, search.prompts)
    about = table.about
    said, known = about.get("certificate", {}), about.get("sweeps", [])
    if storage.exists(manifest.run / searched):
        found = jobs.read_table(manifest, searched, search.prompts).frame["token_ids"][-1].to_list()
        if said.get("searched_ids") != found:
            raise AssayError(
                f"{file}: certifies another sequence than {searched} holds; remove it and run again"
            )
    if not manifest.result(path)["complete"]:
        manifest.adopt_part(path, file.name, len(table.frame), table.sha256)
        jobs.finish(manifest, path, about)
    complete = _suffices(said, budget)
    if complete:
        _remove_leftover(file, known)
    return known, complete


def _remove_leftover(file: epath.Path, known: Sequence[object]) -> None:
    """Removes the state beside a certificate's file if it knows no more sweeps than the file.

    A command that was stopped between file and manifest leaves one; that of a larger budget stays.
    """
    data = storage.read_if_there(_state_file(file))
    with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: said when it is loaded
        if data is not None and len(json.loads(data)["sweeps"]) <= len(known):
            storage.remove(_state_file(file))


def _state_file(file: epath.Path) -> epath.Path:
    """Where the sweeps of an unfinished certificate lie."""
    direction = file.parent.name.removeprefix("direction=")
    return file.parent.parent / f"{file.stem}-{direction}.json"


class _State:
    """The sweeps of an unfinished certificate, beside the folders of the directions."""

    def __init__(self, file: epath.Path, identity: Json):
        self._file = _state_file(file)
        self._identity, self._saved_at = identity, time.monotonic()

    def load(self) -> tuple[Sweep, ...]:
        """The saved sweeps, on every process; none where there is no file.

        Raises:
          AssayError: the file is damaged, or belongs to another certificate.
        """
        data = processes.bytes_from_first(
            f"state {self._file.name}", lambda: storage.read_if_there(self._file)
        )
        if data is None:
            return ()
        try:
            saved = json.loads(data)
            same = saved["certificate"] == json.loads(json.dumps(self._identity))
            sweeps = tuple(map(Sweep.from_json, saved["sweeps"]))
        except (ValueError, KeyError, TypeError) as error:
            raise AssayError(f"{self._file}: damaged; remove it and run again") from error
        if not same:
            raise AssayError(
                f"{self._file}: an unfinished certificate of another search; remove it to begin"
            )
        return sweeps

    def save(self, sweeps: Sequence[Sweep], *, now: bool = False) -> None:
        """Writes the sweeps if some time has passed, or `now`; only on the first process."""
        if not processes.writes() or not (now or time.monotonic() - self._saved_at > _SAVE_S):
            return
        saved = {"certificate": self._identity, "sweeps": [sweep.to_json() for sweep in sweeps]}
        storage.write_atomic(self._file, json.dumps(saved).encode())
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Removes the file."""
        storage.remove(self._file)
