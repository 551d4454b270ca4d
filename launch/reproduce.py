"""The paper again in one command, and a verdict on each published value. See configs/reproduce.py.

Fetches and converts the paper's models, computes their rewards in the paper's conventions and in
ours, and writes <root>/paper.html: every table and figure in the paper's order, the published
value, that of the run, the difference, and whether it is the same. Finished work is kept: a second
call goes on. One model that fails does not stop the others; the exit status is then 1.
"""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.published import data, verdicts
from analysis.published.comparison import totals, uncounted
from analysis.published.data import Published
from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.planning import machines
from engine.runs.lock import LockError
from engine.runs.reader import RunError
from engine.settings import LogprobSettings
from engine.sweep.logprob_jobs import sweep_logprobs
from engine.sweep.reward_jobs import sweep_rewards
from launch import pipeline
from launch.common import command, locking, searching
from launch.common.convention_runs import Failed
from launch.common.text import aligned, in_hours, say
from launch.pipeline import ModelState, Say
from launch.reproduction import page, plan, readings, runs, sources
from launch.reproduction.call import (
    DIFFERING,
    KEEP,
    NOISE,
    PAPER,
    TRIED,
    Call,
    Stage,
    read_call,
    write_people,
)

_FLAGS = {
    "root": (None, "Folder of everything that is written, new or of an earlier call."),
    "source-dir": (
        None,
        "Folder with a folder for each model, named owner--name or by its slug; nothing is "
        "downloaded then. It is only read.",
    ),
    "elo": (
        None,
        "The EloEverything items: a CSV in the layout of the authors' release, with human "
        "ranks, or any list of items (.txt, .csv, .parquet).",
    ),
    "column": ("name", "Column of --elo that holds the items."),
    "keep": (
        "all",
        f"{' or '.join(KEEP)}: with none, what was downloaded for a model goes below --root, "
        "and is removed with its checkpoint when its results of all stages are complete.",
    ),
    "published": (
        "",
        "Folder of values to compare with instead of the paper's: <root>/own of another call.",
    ),
    "readings": (
        DIFFERING,
        f"{', '.join(TRIED)}: of which models one of the paper's conventions is changed at a "
        "time, to find what explains a difference: those of which a published value differs, "
        "under these prompts, or all.",
    ),
    "devices": (None, "With --plan: other devices than those here, as for `assay plan`."),
    "models": (
        ["paper"],
        "Models: paper (the ten and their language models), or slugs of `assay models`.",
    ),
    "only": ([], f"Stages to run: {', '.join(Stage)}. All by default."),
    "plan": (False, "Print what would be done, and do nothing."),
}


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = (_FLAGS, locking.WAIT)
    return command.run("reproduce", argv, reproduce, doc=__doc__, define=define)


@dataclasses.dataclass
class ModelWork:
    """What the steps of one model take."""

    call: Call
    published: Published  # the values to compare with
    spec: ModelSpec
    computed: bool = False  # whether a step had something to do

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The model; it is fetched and converted where it is not there."""
        self.computed = True
        return sources.converted(self.call, self.spec)

    def lacking(self, stage: Stage, say: Say, *, noise: bool = False) -> list[str]:
        """The runs that lack results of a stage of the call: that of the noise, or all but it."""
        if stage not in self.call.stages_of(self.spec):
            return []
        every = runs.lacking(self.call, self.spec, stage)
        names = [name for name in every if (name == NOISE) == noise]
        if names:
            say(f"{stage} in {self.call.config.second_dtype}" if noise else stage)
        return names


def reproduce(given: command.Given) -> str:
    """Flags -> settings -> plan, or work and page."""
    call = read_call(given)
    runs.check_settings(call)
    if given.plan:
        devices = machines.parse(given.devices or machines.here())
        return plan.table(call, plan.needs(call, devices))
    if given.devices is not None:
        raise AssayError("--devices without --plan; allowed: --plan, which computes nothing")
    if {Stage.SWEEP, Stage.ITEMS} & {*call.stages}:
        readings.check_second_dtype(call.config)
    published = data.read(Path(given.published) if given.published else None)
    plan.check(call, plan.needs(call, []))
    call.root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as locks:
        for name in call.runs:
            locks.enter_context(locking.run_lock(given, call.run(name), "reproduce"))
        make = functools.partial(ModelWork, call, published)
        works = {spec.nickname: functools.partial(make, spec) for spec in call.models}
        states = pipeline.run_each(STEPS, works)
        say(_table(call, states))
        failed = [state.name for state in states if state.failure]
        said = f"{len(failed)} of {len(states)} models failed: {', '.join(failed)}"
        if Stage.PAGE not in call.stages:
            if failed:
                raise Failed(said)
            return f"{call.root}: {len(states)} models, no page was asked for"
        path, compared = page.write(call, states, published, given.published)
    if failed:
        raise Failed(f"{said}; {path} is about the others")
    counts = totals(compared)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in verdicts.KINDS)
    return f"page: {path.resolve()} ({kinds}; {uncounted(compared)} not counted)"


def convert(work: ModelWork, say: Say) -> None:
    """Fetches and converts the model, if --only=convert asks for nothing else of it."""
    if Stage.CONVERT in work.call.stages and not work.call.stages_of(work.spec):
        say(f"{Stage.CONVERT} {work.checkpoint.path}")


def sweep(work: ModelWork, say: Say) -> None:
    """Scores every token in the paper's conventions and in ours."""
    for name in work.lacking(Stage.SWEEP, say):
        _sweep(work, name)


def score(work: ModelWork, say: Say) -> None:
    """Scores the items, and writes what people think of them."""
    for name in work.lacking(Stage.ITEMS, say):
        _score(work, name)
    call = work.call
    if call.elo is not None and Stage.ITEMS in call.stages_of(work.spec):
        there = runs.complete(call) & {*runs.wanted(call, work.spec, Stage.ITEMS)}
        for name, _ in there:  # --elo may not have had ranks before
            write_people(call.run(name), call.elo)


def search(work: ModelWork, say: Say) -> None:
    """Searches replies in the paper's conventions."""
    for name in work.lacking(Stage.SEARCH, say):
        checkpoint, _, _ = readings.read_as(work.call, name, work.checkpoint, listed=True)
        config = work.call.config.search
        settings, mesh = searching.settings(config, [checkpoint])
        where = (runs.search_prompts(work.call), work.call.run(name), settings, mesh, config)
        searching.search([checkpoint], *where)


def logprobs(work: ModelWork, say: Say) -> None:
    """Log-probabilities of a language model."""
    for name in work.lacking(Stage.LOGPROBS, say):
        common, mesh = readings.shared_settings(work.call, name, work.checkpoint)
        settings = LogprobSettings(form=runs.form_of(work.spec), **common)
        where = (work.call.prompts, work.call.run(name), settings, mesh)
        sweep_logprobs([work.checkpoint], *where)


def measure_noise(work: ModelWork, say: Say) -> None:
    """Sweeps and scores in the second dtype; a model that is too large in it has all else."""
    try:
        for stage, compute in ((Stage.SWEEP, _sweep), (Stage.ITEMS, _score)):
            for name in work.lacking(stage, say, noise=True):
                compute(work, name)
    except (LockError, RunError):
        raise
    except AssayError as error:
        raise pipeline.Dispensable(str(error)) from error


def try_readings(work: ModelWork, say: Say) -> None:
    """Changes one of the paper's conventions at a time, where a published value differs."""
    call, spec = work.call, work.spec
    if Stage.READINGS not in call.stages_of(spec):
        return
    lacks = {s: runs.lacking(call, spec, s) for s in (Stage.SWEEP, Stage.ITEMS)}
    if missing := [stage for stage, names in lacks.items() if PAPER in names]:
        raise AssayError(
            f"the stage {Stage.READINGS} needs the results of {' and '.join(missing)}, which are "
            "not complete; allowed: these stages too, or --readings=none"
        )
    noise = NOISE in call.runs and not any(NOISE in names for names in lacks.values())
    scope = readings.scope_of(call, spec, work.published, noise=noise)
    again = [*call.stages] == [Stage.READINGS] and readings.failures(call, spec)
    complete = Stage.READINGS not in runs.incomplete(call, spec)
    if complete and scope.within(readings.done(call, spec)) and not again:
        return
    say(Stage.READINGS)
    if scope.prompts:
        readings.compute(call, work.checkpoint, scope)
    else:
        say("no published value of it differs")
    readings.note(call, spec, scope, runs.complete(call))
    work.computed = True


def finish(work: ModelWork, say: Say) -> None:
    """Removes a model's files with --keep=none, once no stage needs them, whatever --only says."""
    call, spec = work.call, work.spec
    if not work.computed and call.stages_of(spec):
        say("complete already")
    if call.keep == "all" or (Stage.CONVERT in call.stages and not call.stages_of(spec)):
        return
    if left := runs.incomplete(call, spec):
        if call.checkpoint(spec).exists():
            say(f"checkpoint kept, {', '.join(left)} not complete")
    elif freed := sources.remove(call, spec):
        say(f"{freed / 2**30:,.1f} GiB removed (--keep=none)")


STEPS: Sequence[pipeline.Step[ModelWork]] = (
    convert,
    sweep,
    score,
    search,
    logprobs,
    measure_noise,
    try_readings,
    finish,
)


def _sweep(work: ModelWork, name: str) -> None:
    call = work.call
    checkpoint, settings, mesh = readings.read_as(call, name, work.checkpoint, listed=False)
    sweep_rewards([checkpoint], call.prompts, call.run(name), settings, mesh)


def _score(work: ModelWork, name: str) -> None:
    call = work.call
    assert call.elo is not None
    items, prompts = (call.elo.name, call.elo.replies), dict([call.item_prompt])
    checkpoint, settings, mesh = readings.read_as(call, name, work.checkpoint, listed=True)
    sweep_rewards([checkpoint], prompts, call.run(name), settings, mesh, items=items)
    write_people(call.run(name), call.elo)


def _table(call: Call, states: Sequence[ModelState]) -> str:
    """One line per model: results of each stage, seconds, and why it failed."""
    there = runs.complete(call)
    stages = [s for s in Stage if any(s in call.stages_of(spec) for spec in call.models)]
    rows = [("model", *stages, "time", "state")]
    for spec, state in zip(call.models, states, strict=True):
        due = call.stages_of(spec)
        places = [runs.wanted(call, spec, stage) if stage in due else [] for stage in stages]
        cells = [f"{len(there & {*each})}/{len(each)}" if each else "–" for each in places]
        end = "complete" if due else "nothing to compute"
        if Stage.CONVERT in call.stages and not due:
            end = "converted"
        end = f"failed: {state.failure}" if state.failure else end
        rows.append((state.name, *cells, in_hours(state.seconds), end))
    return "\n".join(aligned(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
