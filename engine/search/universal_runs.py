"""Universal searches into a run folder: one sequence, and a file for each judge.

The files of one search hold the same sequences, each with the rewards of its own model under its
own prompt. They are filed as searches of the method `<method>-<rule>-<hash of the judges>`.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.planning import admission
from engine.progress import progress
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import jobs, universal
from engine.search.answers import Answers
from engine.search.drivers import run_search
from engine.search.objective import SearchObjective
from engine.search.run_folder import SearchResult, trace_frame, unwritten, vocabularies
from engine.search.self_check import self_check
from engine.search.trace import Trace
from engine.search.universal import Asked, Judge
from engine.search.universal_readers import Reader, Reading, announce, difference, readers_of
from engine.search.universal_step import UniversalDriver, planned_steps
from engine.settings import AUTO, DIRECTIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.outcomes import memory_errors
from engine.sweep.rewards import pooling_of

_Files = Mapping[tuple[str, str], str]  # slug, prompt id -> file, relative to the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniversalJob:
    """One universal search.

    Attributes:
      each: slug -> the model's objective under all prompts; of the first model's tokenizer.
      readers: slug -> how a model of another tokenizer reads.
      whole: what the models in `each` admit.
      files: direction -> file of each judge.
      missing: directions that are not complete.
      group: hash of the judges.
    """

    each: Mapping[str, SearchObjective]
    readers: Mapping[str, Reading]
    whole: SearchObjective
    files: Mapping[str, _Files]
    missing: tuple[str, ...]
    group: str


def search_universal(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SearchSettings,
    mesh: Mesh,
    rule: str,
    *,
    check_memory: bool = True,
) -> list[SearchResult]:
    """Searches one sequence for all models under all prompts, and writes a file for each judge.

    Args:
      checkpoints: the models, all loaded at once; those that do not share the first one's
        tokenizer read texts, give no gradient and get no file. The order of the others, and of the
        prompts, changes nothing.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of the search, by a method of `STEP_METHODS` that merges nothing.
      mesh: from `engine.mesh.build_mesh`.
      rule: `mean` or `minimum` of the standardised rewards.
      check_memory: whether models that are larger than the free memory are refused.

    Returns:
      One result per direction and judge of the first model's tokenizer.

    Raises:
      AssayError: bad input; a result begun under another
        fingerprint; a reward that is not finite; a self-check beyond tolerance.
    """
    universal.check_judges(rule, len(checkpoints) * len(prompts))
    asked = [(checkpoint.card.slug, prompt) for checkpoint in checkpoints for prompt in prompts]
    tokens = checkpoints[0].tokens
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    frames = vocabularies(manifest, checkpoints)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    checkpoints = universal.in_order(checkpoints)
    prompts = dict(sorted(prompts.items(), key=lambda one: one[::-1]))
    job = _job(manifest, checkpoints, tokens, prompts, frames, settings, mesh, rule)
    done = [d for d in settings.directions if d not in job.missing]
    results = [_read(manifest, *named, d) for d in done for named in _listed(job.files[d])]
    if not job.missing:
        if processes.writes():
            manifest.save_if_changed()  # files that the manifest lacked
        return _as_asked(results, asked)
    if check_memory:
        _check_memory(checkpoints, job, mesh)
    announce(job.readers.values())
    setup.begin(manifest, unwritten(manifest, frames))
    judges: list[Judge] = []
    readers: list[Reader] = []
    for checkpoint in checkpoints:
        slug = checkpoint.card.slug
        with memory_errors([slug], mesh, "candidates", settings.candidates):
            scorer = _scorer(checkpoint, mesh, settings)
            if slug in job.readers:
                readers += readers_of(job.readers[slug], job.whole, scorer)
            else:
                judges += universal.judges_of(slug, list(prompts), job.each[slug], scorer)
    results += _search(manifest, job, judges, readers, rule)
    return _as_asked(results, asked)


def _as_asked(
    results: Sequence[SearchResult], asked: Sequence[tuple[str, str]]
) -> list[SearchResult]:
    """Results by direction, then in the order in which models and prompts were named."""
    directions = list(DIRECTIONS)
    return sorted(
        results,
        key=lambda one: (
            directions.index(one.direction),
            asked.index((one.model, one.prompt_id)),
        ),
    )


def _check_memory(checkpoints: Sequence[Checkpoint], job: UniversalJob, mesh: Mesh) -> None:
    """Raises AssayError for models that this machine cannot hold at once."""

    def check(checkpoint: Checkpoint, beside: float = 0.0) -> float:
        slug, settings = checkpoint.card.slug, job.whole.settings
        if slug in job.each:
            return jobs.check_memory(checkpoint, job.each[slug], mesh, beside)
        work = job.readers[slug].work(settings.candidates, len(job.whole.signs))
        return admission.check_search(checkpoint, mesh, settings.dtype, work, beside)

    weights = [check(checkpoint) for checkpoint in checkpoints]
    for checkpoint, own in zip(checkpoints, weights, strict=True):
        try:
            check(checkpoint, sum(weights) - own)
        except AssayError as error:
            raise AssayError(f"beside the other models of the universal search: {error}") from error


def _job(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    tokens: Mapping[int, str],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    rule: str,
) -> UniversalJob:
    """The search of replies of `tokens`, entered in the manifest; nothing is written."""
    universal.check_settings(settings)
    differs = {c.card.slug: difference(tokens, c.tokens) for c in checkpoints}
    others = [c for c in checkpoints if differs[c.card.slug]]
    each = {}
    for c in (c for c in checkpoints if c not in others):
        split = [c.template.split(text) for text in prompts.values()]
        universal.check_lengths(c.card, split, settings.length, f"{settings.length} tokens")
        vocabulary = frames[c.card.tokenizer_hash]
        each[c.card.slug] = SearchObjective.build(c, split, vocabulary, settings)
    whole = universal.together(list(each.values()))
    readers = {c.card.slug: Reading.of(c, differs[c.card.slug], prompts, whole) for c in others}
    group = _group(rule, each, others, prompts)
    method = f"{settings.method}-{rule}-{group}"
    files: dict[str, _Files] = {
        direction: {
            (slug, prompt): schema.sequences_path(slug, prompt, direction, method, settings.seed)
            for slug in each
            for prompt in prompts
        }
        for direction in settings.directions
    }
    by_slug = {c.card.slug: c for c in checkpoints}
    for direction, own in files.items():
        for (slug, prompt), path in own.items():
            objective = each[slug]
            split = objective.round_trip.prompts[list(prompts).index(prompt)]
            fingerprint = settings.fingerprint(direction) | {
                **by_slug[slug].card.identity,
                **pooling_of(by_slug[slug], AUTO).choice,
                "prefix_ids": [list(split.prefix)],
                "suffix_ids": list(split.suffix),
                "universal": {"rule": rule, "judges": group, "sample": universal.SAMPLE},
                **meshes.identity(mesh),
                **setup.numerics(manifest, path, whole=jobs.is_whole(manifest, path)),
            }
            setup.admit_fingerprint(manifest, path, fingerprint)
    complete = processes.from_first(
        f"universal search {group}",
        lambda: _complete(manifest, {d: list(own.values()) for d, own in files.items()}),
    )
    missing = tuple(d for d in files if d not in complete)
    direction = "both" if len(missing) == len(DIRECTIONS) else (missing or settings.directions)[0]
    narrowed = dataclasses.replace(settings, direction=direction)
    each = {slug: dataclasses.replace(o, settings=narrowed) for slug, o in each.items()}
    whole = universal.together(list(each.values()))
    return UniversalJob(
        each=each, readers=readers, whole=whole, files=files, missing=missing, group=group
    )


def _group(
    rule: str,
    each: Mapping[str, SearchObjective],
    readers: Sequence[Checkpoint],
    prompts: Mapping[str, str],
) -> str:
    """A hash of the judges and their rule, whatever their order."""
    ids = [(o.checkpoint_hash, [list(p.prefix) for p in o.prompts]) for o in each.values()]
    texts = [
        (c.card.checkpoint_hash, [list(c.template.around(t).prefix) for t in prompts.values()])
        for c in readers
    ]
    asked = [sorted([h, sorted(p)] for h, p in own) for own in (ids, texts)]
    said = [rule, *(asked if readers else asked[:1])]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:8]


def _complete(manifest: Manifest, files: Mapping[str, Sequence[str]]) -> list[str]:
    """The directions that need not be searched again, as `jobs` has it for those of one model.

    Files that the manifest lacks are adopted if those of all directions are there. A command that
    was stopped between two directions writes both again, from its state where one was saved.

    Args:
      manifest: with every search entered.
      files: direction -> files of all judges, relative to the run.

    Raises:
      AssayError: a file is damaged, or is another search.
    """
    on_disk = [d for d, own in files.items() if all(storage.exists(manifest.run / p) for p in own)]
    tables = {path: jobs.read_table(manifest, path, ()) for d in on_disk for path in files[d]}
    known = [d for d in on_disk if all(manifest.result(path)["complete"] for path in files[d])]
    if known or len(on_disk) < len(files):
        return known
    for path, table in tables.items():
        if not manifest.result(path)["complete"]:
            name = (manifest.run / path).name
            manifest.adopt_part(path, name, len(table.frame), table.sha256)
            _finish(manifest, path, table.about or {})
    return on_disk


def _search(
    manifest: Manifest,
    job: UniversalJob,
    judges: Sequence[Judge],
    readers: Sequence[Reader],
    rule: str,
) -> list[SearchResult]:
    """Runs the search to its end, or resumes it, and writes its files."""
    whole, began = job.whole, time.perf_counter()
    settings = whole.settings
    asked: list[Asked] = [*judges, *readers]
    driver = UniversalDriver(whole, judges, rule, readers)
    name = f"universal-{job.group}-{settings.method}-seed{settings.seed}-{settings.direction}"
    state = manifest.run / schema.SEQUENCES_DIR / f"{name}.safetensors"
    planned = planned_steps(settings, driver.step_flops)
    with progress(planned, "steps") as bar:
        bar.set_description(f"{len(asked)} judges · {rule} · {settings.method}")

        def show(steps: int, trace: Trace) -> None:
            best = [
                f"{name} {DIRECTIONS[name] * trace.best(d, settings)[0][-1]:.4g}"
                for d, name in enumerate(settings.directions)
            ]
            bar.set_postfix_str(", ".join(best), refresh=False)
            bar.update(min(steps, planned) - bar.n)

        trace, rejected = run_search(whole, judges[0].scorer, state, show, driver)
        bar.update(planned - bar.n)  # the steps that an early end left out
    seconds = (time.perf_counter() - began) / (len(judges) * len(job.missing))
    results = []
    for direction in job.missing:
        frame = trace_frame(whole, trace, direction)
        about = {
            "rule": rule,
            "group": job.group,
            "objective": frame["reward"][-1],
            "judges": [[a.model, a.prompt_id, a.mean, a.sd] for a in asked],
            **({"readers": sorted(job.readers)} if readers else {}),
        }
        for judge in judges:
            path = job.files[direction][judge.model, judge.prompt_id]
            own = own_frame(frame, judge)
            _write(manifest, judge, path, own, about, rejected[direction], seconds)
            results.append(_result(judge.model, judge.prompt_id, direction, own, about, True))
    if processes.writes():
        manifest.save()
        storage.remove(state)
    return results


def own_frame(frame: pl.DataFrame, judge: Judge) -> pl.DataFrame:
    """The sequences of a trace with the rewards of one judge, not standardised."""
    ids, place = np.unique(np.array(frame["token_ids"].to_list()), axis=0, return_inverse=True)
    rewards = Answers(judge.objective, judge.scorer).rewards((), ids.astype(np.int32))
    return frame.with_columns(reward=pl.Series(rewards[place.ravel()], dtype=pl.Float32))


def _write(
    manifest: Manifest,
    judge: Judge,
    path: str,
    frame: pl.DataFrame,
    said: Json,
    rejected: int,
    seconds: float,
) -> None:
    """Checks and writes the file of one judge."""
    check = self_check(judge.objective, judge.scorer, frame, path)
    if not processes.writes():
        return
    about = {
        **manifest.about(path),
        "rows": provenance.part_rows(0, len(frame), len(frame)),
        "self_check": check,
        "rejected": rejected,
        "universal": said,
        "computed_by": manifest.computed_by,
    }
    file = manifest.run / path
    digest = parts.write_frame(file, frame, about)
    manifest.record_part(path, file.name, len(frame), digest, seconds)
    _finish(manifest, path, about)


def _finish(manifest: Manifest, path: str, about: Json) -> None:
    manifest.finish(path, about["self_check"])
    manifest.result(path).update({key: about[key] for key in ("rejected", "universal")})


def _read(manifest: Manifest, model: str, prompt: str, path: str, direction: str) -> SearchResult:
    """The result of one judge of a search that was complete before."""
    steps, said = processes.from_first(path, lambda: jobs.last_row(manifest, path, ()))
    frame = pl.DataFrame(steps, schema=schema.SEQUENCE_COLUMNS)
    return _result(model, prompt, direction, frame, said["universal"], False)


def _result(
    model: str, prompt: str, direction: str, frame: pl.DataFrame, said: Json, new: bool
) -> SearchResult:
    last = frame.row(-1, named=True)
    return SearchResult(
        model=model,
        prompt_id=prompt,
        direction=direction,
        reward=last["reward"],
        text=last["text"],
        rejected=0,
        universal=said,
        new=new,
    )


def _listed(files: _Files) -> list[tuple[str, str, str]]:
    return [(model, prompt, path) for (model, prompt), path in files.items()]


def _scorer(checkpoint: Checkpoint, mesh: Mesh, settings: SearchSettings) -> RewardScorer:
    restored = restore([checkpoint], mesh, dtype_named(settings.dtype))
    return RewardScorer.build(*restored, mesh, step_size=settings.candidates)
