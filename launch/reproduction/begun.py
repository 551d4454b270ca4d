"""Refuses a call whose settings are not those that the results of the root were begun with.

A result that is complete is taken as it is, and the page says that it was computed as the call
asks. A command that computes compares the whole fingerprint; here the settings are compared that a
call names, so that nothing need be loaded.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence

from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import provenance, schema
from engine.runs.manifest import items_hash
from engine.runs.reader import Json
from engine.settings import SearchSettings
from launch.common import scoring, searching
from launch.reproduction import results, sources, trials
from launch.reproduction.asked import ITEMS, LOGPROBS, PAGE, READINGS, SEARCH, SWEEP, Asked
from launch.reproduction.elo import check_people
from launch.reproduction.readings import Reading


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """A complete result of the root that a call takes.

    Attributes:
      spec: its model.
      stage: that it belongs to.
      folder: a reading's id, or the folder of a single change.
      path: in that run.
      fingerprint: that it was begun with.
    """

    spec: ModelSpec
    stage: str
    folder: str
    path: str
    fingerprint: Json


def check(asked: Asked, readings: Sequence[Reading], *, weights: bool) -> None:
    """Compares the complete results that a call takes with what it asks for.

    Args:
      asked: the call.
      readings: of its runs.
      weights: whether the folders of --source-dir are compared too, which may read all their bytes.

    Raises:
      AssayError: a result was begun with other settings, other items or other weights.
      RunError: a manifest that cannot be read.
    """
    manifests = results.manifests(asked)
    found = list(_found(asked, readings, manifests))
    specs = {one.spec.slug: one.spec for one in found}
    there = {slug: sources.present(asked, spec) for slug, spec in specs.items()}
    for one in found:
        _check_settings(asked, readings, one)
        _check_hash(asked, readings, one, there[one.spec.slug])
    own = f"{schema.ITEMS_DIR}/{asked.elo.name}/" if asked.elo else None
    listed = [one for one in found if own and one.path.startswith(own)]
    for folder in dict.fromkeys(one.folder for one in listed):
        _check_items(asked, folder, manifests[folder])
    if weights:
        _check_folders(asked, found)


def _found(
    asked: Asked, readings: Sequence[Reading], manifests: Mapping[str, Json]
) -> Iterator[Found]:
    for spec in asked.models:
        for stage in _stages(asked, spec):
            for folder, path in results.wanted(asked, spec, stage, readings):
                record = manifests.get(folder, {"results": {}})["results"].get(path, {})
                if record.get("complete"):
                    own = record["fingerprint"]
                    yield Found(spec=spec, stage=stage, folder=folder, path=path, fingerprint=own)


def _stages(asked: Asked, spec: ModelSpec) -> list[str]:
    """The stages whose results are taken: of a page all, of single changes those they start from.

    What --keep=none removes depends on all of them too, and on nothing that they hold.
    """
    taken = {*asked.stages, *((SWEEP, ITEMS) if asked.runs(READINGS) else ())}
    every = asked.all_stages_of(spec)
    return every if asked.runs(PAGE) else [stage for stage in every if stage in taken]


def _check_settings(asked: Asked, readings: Sequence[Reading], one: Found) -> None:
    wanted = json.loads(json.dumps(_wanted(asked, readings, one)))  # as it is read back
    names = set(wanted)
    if one.stage == SEARCH:  # settings at their default may be left out of either
        names |= {field.name for field in dataclasses.fields(SearchSettings)} - {"dtype"}
    begun = {name: value for name, value in one.fingerprint.items() if name in names}
    if begun != wanted:
        raise AssayError(
            f"run {asked.run(one.folder)}: {one.path} was begun with "
            f"{provenance.changes(begun, wanted)}; allowed: the settings that it was begun with, "
            "or another --root"
        )


def _wanted(asked: Asked, readings: Sequence[Reading], one: Found) -> Json:
    """What the fingerprint of a result has to hold, as far as the call says.

    `auto` is what the result has: a page of a GPU's results may be made on a CPU.
    """
    config = asked.config
    if one.stage == SEARCH:
        return _of_search(asked, one)
    if one.stage == READINGS:
        return _named("dtype", trials.dtype_in(one.folder) or config.dtype)
    own = next(reading for reading in readings if reading.id == one.folder)
    wanted = _named("dtype", (own.dtype if one.stage != LOGPROBS else "") or config.dtype)
    wanted |= _named("step_size", scoring.step_size(config.step_size) or "auto")
    if one.stage in (SWEEP, ITEMS):
        wanted |= _named("mode", own.mode(listed=one.stage == ITEMS))
    return wanted


def _named(name: str, value: object) -> Json:
    return {} if value == "auto" else {name: value}


def _of_search(asked: Asked, one: Found) -> Json:
    config = asked.config.search
    # Settings without a dtype do not exist; that of `auto` is left out again.
    own = searching.in_dtype(config, "float32" if config.dtype == "auto" else config.dtype)
    wanted = own.fingerprint(str(one.fingerprint["direction"]))
    if config.dtype == "auto":
        del wanted["dtype"]
    return wanted


def _check_items(asked: Asked, folder: str, manifest: Json) -> None:
    assert asked.elo is not None
    run, name = asked.run(folder), asked.elo.name
    begun = manifest["lists"].get(name, {})
    wanted = {"rows": len(asked.elo.replies), "items_hash": items_hash(asked.elo.replies)}
    if begun != wanted:
        raise AssayError(
            f"--elo: run {run} has the list {name!r} with {provenance.changes(begun, wanted)}; "
            "allowed: the items that it was begun with, another file name, or another --root"
        )
    check_people(run, asked.elo)


def _check_hash(
    asked: Asked, readings: Sequence[Reading], one: Found, there: Checkpoint | None
) -> None:
    """Refuses a checkpoint below the root that is not the one that a result was computed with.

    A damaged checkpoint is refused where it is needed.
    """
    own = [reading for reading in readings if reading.id == one.folder]
    if there is None or not own:  # single changes have checkpoint hashes of their own
        return
    wanted = own[0].card(there.card).checkpoint_hash
    begun = one.fingerprint.get("checkpoint_hash")
    if begun != wanted:
        raise AssayError(
            f"run {asked.run(one.folder)}: {one.path} was begun with checkpoint_hash={begun!r}, "
            f"not {wanted!r} of checkpoint {there.path}; allowed: the model that it was begun "
            "with, or another --root"
        )


def _check_folders(asked: Asked, found: Sequence[Found]) -> None:
    """Refuses a folder of --source-dir that is not the model that results were computed with."""
    specs = {one.spec.slug: one.spec for one in found if sources.folder_of(asked, one.spec)}
    with progress(len(specs), "models", what="comparing with --source-dir", delay_s=5) as bar:
        for spec in specs.values():
            sources.check_folder(asked, spec)
            bar.update()
