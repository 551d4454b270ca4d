"""Which searches and certificates a run lacks: jobs, entered in the manifest and checked.

A universal search writes a file for each judge that takes token ids: the same sequences, each with
the rewards of one model under one prompt. They are filed as searches of the method
`<method>-<rule>-<hash of the judges>`.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import admission
from engine.planning.work import SearchWork
from engine.runs import parts, provenance, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.scoring.reward_passes import RewardScorer
from engine.search import gcg, judges
from engine.search.certificate import Sweep
from engine.search.judges import Reading
from engine.search.loop import planned_steps, step_flops
from engine.search.objective import SearchObjective
from engine.search.trace import Trace
from engine.settings import AUTO, DIRECTIONS, ENUMERATIONS, SearchSettings
from engine.sweep import setup
from engine.sweep.reward_jobs import pooling_of
from engine.sweep.self_check import SELF_CHECK_TOLERANCE
from engine.types import PromptIds

_LONGEST_PROMPT_ID = 100  # characters; an id is the name of a folder

Files = Mapping[tuple[str, str], str]  # slug, prompt id -> file, relative to the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One search, or the certificate of what one found in one direction.

    Attributes:
      models: by slug; several in a universal search.
      prompts: ids of the prompts, which are judged together.
      objective: what is maximised, in the directions that are missing.
      each: slug -> a model's objective under all prompts; without `readers`.
      readers: slug -> how a model of another tokenizer reads, in a universal search.
      files: direction -> (slug, prompt id) -> file; a joint search has one id for all prompts.
      fingerprints: file -> of its result.
      missing: directions that are not complete.
      rule: of a universal search; "" for others.
      group: hash of the judges of a universal search.
      searched: of a certificate, the file of the search.
      step_size: of a certificate, swaps per step on each device.
      known: of a certificate, the sweeps that its file holds.
    """

    models: Mapping[str, Checkpoint]
    prompts: Sequence[str]
    objective: SearchObjective
    each: Mapping[str, SearchObjective]
    readers: Mapping[str, Reading] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Files]
    fingerprints: Mapping[str, Json]
    missing: Sequence[str]
    rule: str = ""
    group: str = ""
    searched: str = ""
    step_size: int = 0
    known: Sequence[Sweep] = ()

    @property
    def about_prompts(self) -> Sequence[str]:
        """Prompts that a file names beside the one in its path."""
        return () if self.rule else self.prompts

    @property
    def steps(self) -> int:
        """Planned steps (`planned_steps`), without the operations of `readers`."""
        return planned_steps(self.objective.settings, sum(map(step_flops, self.each.values())))

    @property
    def swaps(self) -> int:
        """Rewards that the budget of a certificate allows, of those that are not known yet."""
        sweeps = max(0, self.objective.settings.certify - len(self.known))
        return sweeps * int(self.objective.allowed.sum()) * len(self.objective.prompts)

    def spent(self, steps: int, trace: Trace) -> float:
        """The share of its budget of steps or FLOPs that a search has used, 0 to 1."""
        settings = self.objective.settings
        flops = settings.flops and trace.flops_per_direction(settings)[-1] / settings.flops
        return min(1.0, max(steps / settings.steps, flops))


def searches_of(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    joint: bool,
) -> list[Job]:
    """One search per model and prompt; with `joint` one per model. Nothing is written.

    Args:
      manifest: of the run.
      checkpoints: the models.
      prompts: prompt id -> text.
      frames: tokenizer hash -> vocabulary.
      settings: of every search.
      mesh: the devices.
      joint: whether all prompts are judged together.

    Raises:
      AssayError: bad input; a result that the run holds with another fingerprint; a damaged file.
    """
    judged = {prompt_id: {prompt_id: text} for prompt_id, text in prompts.items()}
    if joint:
        judged = {_joint_id(list(prompts)): dict(prompts)}
    gcg.spread_changes(settings)
    every = []
    for checkpoint, (prompt_id, texts) in itertools.product(checkpoints, judged.items()):
        slug, ids = checkpoint.card.slug, list(texts)
        splits = [checkpoint.template.split(text) for text in texts.values()]
        models, named = {slug: checkpoint}, {(slug, prompt_id): splits}
        entered = _entered(manifest, models, named, settings, mesh, settings.method, ids, {})
        narrowed = _narrowed(settings, entered["missing"])
        frame = frames[checkpoint.card.tokenizer_hash]
        objective = SearchObjective.build(checkpoint, splits, frame, narrowed)
        each = {slug: objective}
        every.append(Job(models=models, prompts=ids, objective=objective, each=each, **entered))
    return every


def universal_search(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
    settings: SearchSettings,
    mesh: Mesh,
    *,
    rule: str,
) -> Job:
    """One search for all models under all prompts; nothing is written. See `searches_of`.

    The order of the models behind the first, and of the prompts, changes nothing.
    """
    judges.check_settings(settings)
    tokens = checkpoints[0].tokens
    prompts = dict(sorted(prompts.items(), key=lambda one: one[::-1]))
    models = {c.card.slug: c for c in judges.in_order(checkpoints)}
    differs = {slug: judges.difference(tokens, c.tokens) for slug, c in models.items()}
    each = {}
    for slug, c in models.items():
        if not differs[slug]:
            splits = [c.template.split(text) for text in prompts.values()]
            judges.check_lengths(c.card, splits, settings.length, f"{settings.length} tokens")
            frame = frames[c.card.tokenizer_hash]
            each[slug] = SearchObjective.build(c, splits, frame, settings)
    whole = judges.shared_objective(list(each.values()))
    readers = {s: Reading.of(models[s], how, prompts, whole) for s, how in differs.items() if how}
    group = _group(rule, each, [models[slug] for slug in readers], prompts)
    method = f"{settings.method}-{rule}-{group}"
    named = {
        (slug, prompt): [split]
        for slug, objective in each.items()
        for prompt, split in zip(prompts, objective.round_trip.prompts, strict=True)
    }
    said = {"universal": {"rule": rule, "judges": group, "sample": judges.SAMPLE}}
    entered = _entered(manifest, models, named, settings, mesh, method, (), said)
    narrowed = _narrowed(settings, entered["missing"])
    each = {slug: dataclasses.replace(o, settings=narrowed) for slug, o in each.items()}
    return Job(
        models=models,
        prompts=list(prompts),
        objective=judges.shared_objective(list(each.values())),
        each=each,
        readers=readers,
        rule=rule,
        group=group,
        **entered,
    )


def check_memory(job: Job, mesh: Mesh) -> None:
    """Raises AssayError for a search that this machine cannot hold."""
    settings = job.objective.settings

    def check(slug: str, beside: float = 0.0) -> float:
        """Bytes of a model's weights on each device; it is refused `beside` those of others."""
        reader, attempts = job.readers.get(slug), len(job.objective.signs)
        work = reader.work(settings.candidates, attempts) if reader else _work_of(job.each[slug])
        return admission.check_search(job.models[slug], mesh, settings.dtype, work, beside)

    weights = {slug: check(slug) for slug in job.models}
    for slug, mine in weights.items() if len(weights) > 1 else ():
        try:
            check(slug, sum(weights.values()) - mine)
        except AssayError as error:
            raise AssayError(f"beside the other models of the universal search: {error}") from error


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
def last_row(manifest: Manifest, path: str, prompts: Sequence[str]) -> tuple[dict[str, Any], Json]:
    """The last row of a search's file, and the search's entry of the manifest."""
    row = read_table(manifest, path, prompts).frame.row(-1, named=True)
    return row, manifest.result(path)


def self_check(
    objective: SearchObjective,
    scorer: RewardScorer,
    steps: pl.DataFrame,
    path: str,
) -> dict[str, int | float]:
    """Scores the last sequence of a trace again by the plain pass.

    Args:
      objective: of the search.
      scorer: the model, in the dtype of the search.
      steps: from `trace_frame`.
      path: of the result, for the message.

    Returns:
      The entry of the manifest: the difference between the two rewards, its tolerance, and the
      reward of the conversation that is tokenised from the sequence's text.

    Raises:
      AssayError: the difference exceeds the tolerance.
    """
    last = steps.row(-1, named=True)
    ids = [[*p.prefix, *last["token_ids"], *p.suffix] for p in objective.prompts]
    texts = [objective.template.sequences(p.prompt, [last["text"]])[0] for p in objective.prompts]
    read_at = [len(one) - 1 for one in ids] + [objective.pooling.position(one) for one in texts]
    plain = scorer.plain_rewards([*ids, *texts], read_at)[0].reshape(2, -1).mean(1)
    tolerance = SELF_CHECK_TOLERANCE[objective.settings.dtype]
    difference, allowed = abs(plain[0] - last["reward"]), tolerance * max(1.0, abs(plain[0]))
    if not difference <= allowed:
        raise AssayError(
            f"self-check of {path}: reward {last['reward']:.6g}, the plain pass gives "
            f"{plain[0]:.6g}; allowed difference {allowed:.2g}"
        )
    return {
        "candidates": 1,
        "max_abs_difference": float(difference),
        "tolerance": tolerance,
        "reward_from_text": float(plain[1]),
    }


def write(
    manifest: Manifest,
    path: str,
    prompts: Sequence[str],
    frame: pl.DataFrame,
    check: Json,
    said: Json,
    seconds: float,
) -> None:
    """Writes a search's file on process 0, and enters it in the manifest, which is not saved.

    Args:
      manifest: of the run.
      path: of the file, relative to the run.
      prompts: ids of the prompts that are judged together.
      frame: `schema.SEQUENCE_COLUMNS`.
      check: from `self_check`.
      said: what the file says beside it: `rejected`, and what its kind has.
      seconds: that the search took.
    """
    if not processes.writes():
        return
    about = {
        **manifest.about(path, prompts),
        "rows": provenance.part_rows(0, len(frame), len(frame)),
        "self_check": check,
        **said,
        "computed_by": manifest.computed_by,
    }
    file = manifest.run / path
    digest = parts.write_frame(file, frame, about)
    manifest.record_part(path, file.name, len(frame), digest, seconds)
    finish(manifest, path, about)


def is_whole(manifest: Manifest, path: str) -> bool:
    """Whether a search is complete and its file is there; all processes say the same."""
    complete = manifest.content["results"].get(path, {}).get("complete", False)
    return complete and processes.from_first(
        f"file of {path}", lambda: storage.exists(manifest.run / path)
    )


def finish(manifest: Manifest, path: str, about: Json) -> None:
    """Notes in the manifest that a search is complete, with what its file says of it."""
    manifest.finish(path, about["self_check"])
    for key in ("rejected", "certificate", "universal"):
        if key in about:
            manifest.result(path)[key] = about[key]


# Any: fields of `Job`.
def _entered(
    manifest: Manifest,
    models: Mapping[str, Checkpoint],
    splits: Mapping[tuple[str, str], Sequence[PromptIds]],
    settings: SearchSettings,
    mesh: Mesh,
    method: str,
    together: Sequence[str],
    said: Json,
) -> dict[str, Any]:
    """The files of a search, their fingerprints, and which directions are missing.

    Args:
      manifest: of the run, in which the fingerprints are entered.
      models: by slug.
      splits: slug, prompt id -> the prompts that a file's rewards are of, split.
      settings: of the search.
      mesh: the devices.
      method: under which it is filed.
      together: ids of the prompts that are judged together.
      said: what its kind adds to the fingerprints.
    """
    files = {
        direction: {
            name: schema.sequences_path(*name, direction, method, settings.seed) for name in splits
        }
        for direction in settings.directions
    }
    fingerprints = {}
    for direction, of in files.items():
        for name, path in of.items():
            checkpoint = models[name[0]]
            fingerprints[path] = settings.fingerprint(direction) | {
                **checkpoint.card.identity,
                **pooling_of(checkpoint, AUTO).choice,
                "prefix_ids": [list(split.prefix) for split in splits[name]],
                "suffix_ids": list(splits[name][0].suffix),
                **said,
                **meshes.identity(mesh),
                **setup.numerics(manifest, path, whole=is_whole(manifest, path)),
            }
            setup.admit_fingerprint(manifest, path, fingerprints[path])
    complete = processes.from_first(
        f"searches by {method} of {', '.join(dict.fromkeys(prompt for _, prompt in splits))}",
        lambda: _complete(manifest, files, together),
    )
    missing = [direction for direction in files if direction not in complete]
    return {"files": files, "fingerprints": fingerprints, "missing": missing}


def _narrowed(settings: SearchSettings, missing: Sequence[str]) -> SearchSettings:
    """Settings of the missing directions; of all where none is missing."""
    directions = tuple(missing) or settings.directions
    direction = "both" if len(directions) == len(DIRECTIONS) else directions[0]
    return dataclasses.replace(settings, direction=direction)


def _work_of(objective: SearchObjective) -> SearchWork:
    settings, first = objective.settings, gcg.first_changes(objective.settings)
    return SearchWork(
        prefix=max(len(prompt.prefix) for prompt in objective.prompts),
        suffix=len(objective.suffix),
        length=settings.length,
        candidates=settings.candidates,
        attempts=len(objective.signs),
        together=len(objective.prompts),
        gradient=settings.takes_gradient,
        merged=len(gcg.whole_replies(settings)),
        packed=first[0] < first[-1],
        enumerates=settings.method in ENUMERATIONS,
    )


def _complete(manifest: Manifest, files: Mapping[str, Files], prompts: Sequence[str]) -> list[str]:
    """The directions that need not be searched again.

    Files that the manifest lacks are adopted only if every direction is on disk. If a command was
    stopped between two directions, both are searched again.

    Args:
      manifest: with every search entered.
      files: direction -> files, relative to the run.
      prompts: ids of the prompts that are judged together.

    Raises:
      AssayError: a file is damaged, or is another search.
    """
    on_disk = {
        direction: list(of.values())
        for direction, of in files.items()
        if all(storage.exists(manifest.run / path) for path in of.values())
    }
    tables = {p: read_table(manifest, p, prompts) for paths in on_disk.values() for p in paths}
    complete = {path: manifest.result(path)["complete"] for path in tables}
    known = [d for d, paths in on_disk.items() if all(complete[path] for path in paths)]
    if known or len(on_disk) < len(files):
        return known
    for path in (p for paths in on_disk.values() for p in paths if not complete[p]):
        table, name = tables[path], (manifest.run / path).name
        manifest.adopt_part(path, name, len(table.frame), table.sha256)
        finish(manifest, path, table.about)
    return list(on_disk)


def _joint_id(prompt_ids: Sequence[str]) -> str:
    name = ".".join(["mean", *prompt_ids])
    if len(name) <= _LONGEST_PROMPT_ID:
        return name
    return f"mean.of-{len(prompt_ids)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


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
    kinds = [sorted([h, sorted(p)] for h, p in kind) for kind in (ids, texts)]
    said = [rule, *(kinds if readers else kinds[:1])]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:8]
