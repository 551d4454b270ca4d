"""The paper again in one command, and a verdict on each published value. See configs/reproduce.py.

Fetches and converts the paper's models, computes their rewards in the paper's conventions and in
ours, and writes <root>/paper.html: every table and figure in the paper's order, the published
value, that of the run, the difference, and whether it is the same. Finished work is kept: a second
call goes on. One model that fails does not stop the others; the exit status is then 1.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence

from absl import flags
from absl.flags import FlagValues

from analysis.published import verdicts
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
from engine.sweep.reward_jobs import sweep_replies, sweep_vocabulary
from launch import pipeline
from launch.common import command, locking, searching
from launch.common.text import aligned, in_hours, say
from launch.pipeline import State
from launch.reproduction import page, plan, runs, singles, sources
from launch.reproduction.call import DIFFERING, KEEP, NOISE, PAPER, TRIED, Call, Stage, read_call
from launch.reproduction.conventions import (
    check_second_dtype,
    checkpoint_of,
    settings_of,
    shared_settings,
)
from launch.reproduction.elo import write_people


class ModelsFailed(AssayError):
    """Some models failed; the page is about the others."""

    exit_status = 1


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags, locking.define_wait]
    return command.run("reproduce", argv, reproduce, doc=__doc__, define=define, config="reproduce")


def define_flags(given: FlagValues) -> None:
    """Defines --root, --models, --only, --source-dir, --elo, --column, --keep and the others."""
    texts = {
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
    }
    for name, (default, text) in texts.items():
        flags.DEFINE_string(name, default, text, flag_values=given)
    models = "Models: paper (the ten and their language models), or slugs of `assay models`."
    flags.DEFINE_list("models", ["paper"], models, flag_values=given)
    only = f"Stages to run: {', '.join(Stage)}. All by default."
    flags.DEFINE_list("only", [], only, flag_values=given)
    flags.DEFINE_bool("plan", False, "Print what would be done, and do nothing.", flag_values=given)


def reproduce(given: command.Given) -> str:
    """Flags -> settings -> plan, or work and page."""
    call = read_call(given)
    runs.check_settings(call, weights=not given.plan)
    if given.plan:
        devices = machines.parse(given.devices) if given.devices else plan.at_hand()
        return plan.table(call, plan.needs(call, devices))
    if given.devices is not None:
        raise AssayError("--devices without --plan; allowed: --plan, which computes nothing")
    if {Stage.SWEEP, Stage.ITEMS} & {*call.stages}:
        check_second_dtype(call.config)
    published, compared_with = page.read_published(given.published)
    plan.check(call, plan.needs(call, []))
    call.root.mkdir(parents=True, exist_ok=True)
    names = [spec.nickname for spec in call.models]
    with contextlib.ExitStack() as locks:
        for name in call.runs:
            locks.enter_context(locking.held(given, call.run(name), "reproduce"))
        do = functools.partial(_model, call, published)
        states = pipeline.for_each(call.models, names, do)
        say(_table(call, states))
        failed = [state.name for state in states if state.failure]
        said = f"{len(failed)} of {len(states)} models failed: {', '.join(failed)}"
        if Stage.PAGE not in call.stages:
            if failed:
                raise ModelsFailed(said)
            return f"{call.root}: {len(states)} models, no page was asked for"
        path, compared = page.write(call, states, published, compared_with)
    if failed:
        raise ModelsFailed(f"{said}; {path} is about the others")
    counts = totals(compared)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in verdicts.KINDS)
    return f"page: {path.resolve()} ({kinds}; {uncounted(compared)} not counted)"


def _model(call: Call, published: Published, spec: ModelSpec, state: State) -> None:
    """The stages of one model: what is missing is fetched, converted and computed."""
    say(f"[{call.models.index(spec) + 1}/{len(call.models)}] {spec.nickname} ({spec.hub_id})")
    lacks = runs.incomplete(call, spec)
    todo = [stage for stage in lacks if stage in STEPS and stage in call.stages]
    convert = Stage.CONVERT in call.stages and not call.stages_of(spec)  # --only=convert
    checkpoint = functools.cache(lambda: sources.converted(call, spec))
    if todo or convert:
        checkpoint()
    _compute(call, spec, state, todo, checkpoint)
    if todo:
        sources.note(call, checkpoint())
    if call.elo is not None and Stage.ITEMS in call.stages:  # --elo may not have had ranks before
        there = runs.complete(call)
        for name in call.runs:
            if there.issuperset(runs.wanted(call, spec, Stage.ITEMS, [name])):
                write_people(call.run(name), call.elo)
    tried = Stage.READINGS in call.stages_of(spec) and _try(
        call, spec, published, state, checkpoint
    )
    if state.failure:
        return
    if call.stages_of(spec) and not todo and not tried:
        say(f"{spec.nickname}: complete already")
    if call.keep == "none" and not convert:
        _free(call, spec)


def _compute(
    call: Call,
    spec: ModelSpec,
    state: State,
    stages: Sequence[str],
    checkpoint: Callable[[], Checkpoint],
) -> None:
    """Computes what stages lack; a model that is too large for the noise has all else."""
    for stage in stages:
        names = [name for name in _lacking(call, spec, stage) if name != NOISE]
        if names:
            say(f"{spec.nickname}: {stage}")
            STEPS[stage](call, checkpoint(), names)
    try:
        for stage in stages:
            if stage in (Stage.SWEEP, Stage.ITEMS) and NOISE in _lacking(call, spec, stage):
                say(f"{spec.nickname}: {stage} in {call.config.second_dtype}")
                STEPS[stage](call, checkpoint(), [NOISE])
    except (LockError, RunError):
        raise
    except AssayError as error:  # in float32 a model may be too large: the rest needs no noise
        state.failure = pipeline.one_line(error)
        say(f"{spec.nickname}: {state.failure}; going on without the noise")


def _lacking(call: Call, spec: ModelSpec, stage: str) -> list[str]:
    """The runs that lack a result of a stage."""
    there = runs.complete(call)
    return list(dict.fromkeys(p[0] for p in runs.wanted(call, spec, stage) if p not in there))


def _try(
    call: Call,
    spec: ModelSpec,
    published: Published,
    state: State,
    checkpoint: Callable[[], Checkpoint],
) -> bool:
    """The stage `readings`, which needs the rewards in the paper's conventions.

    Returns:
      Whether there was something to do.
    """
    needed = [name for name in call.runs if name != NOISE or not state.failure]
    there = runs.complete(call)
    stages = [stage for stage in (Stage.SWEEP, Stage.ITEMS) if stage in call.all_stages_of(spec)]
    missing = [s for s in stages if not there.issuperset(runs.wanted(call, spec, s, needed))]
    if missing:
        raise AssayError(
            f"the stage {Stage.READINGS} needs the results of {' and '.join(missing)}, which are "
            "not complete; allowed: these stages too, or --readings=none"
        )
    scope = singles.scope_of(call, spec, published, noise=NOISE in needed)
    done = singles.done(call, spec)
    again = [*call.stages] == [Stage.READINGS] and singles.failures(call, spec)
    if Stage.READINGS not in runs.incomplete(call, spec) and scope.within(done) and not again:
        return False
    say(f"{spec.nickname}: {Stage.READINGS}")
    scope = scope.joined(done)  # so that every prompt has every reading, whatever earlier calls had
    now = scope.of_call(call)
    if now.prompts:
        singles.compute(call, checkpoint(), now)
    else:
        say(f"{spec.nickname}: no published value of it differs")
    singles.note(call, spec, scope)
    return True


def _free(call: Call, spec: ModelSpec) -> None:
    """Removes a model's files once no stage needs them, whatever --only says."""
    left = runs.incomplete(call, spec)
    if left:
        if call.checkpoint(spec).exists():
            say(f"{spec.nickname}: checkpoint kept, {', '.join(left)} not complete")
        return
    if there := sources.present(call, spec):
        sources.note(call, there)  # also of results that an earlier version computed
    if freed := sources.remove(call, spec):
        say(f"{spec.nickname}: {freed / 2**30:,.1f} GiB removed (--keep=none)")


def _sweep(call: Call, converted: Checkpoint, names: Sequence[str]) -> None:
    for name in names:
        checkpoint = checkpoint_of(name, converted)
        settings, mesh = settings_of(call, name, checkpoint, listed=False)
        sweep_vocabulary([checkpoint], call.prompts, call.run(name), settings, mesh)


def _score_items(call: Call, converted: Checkpoint, names: Sequence[str]) -> None:
    assert call.elo is not None
    items = (dict([call.item_prompt]), call.elo.name, call.elo.replies)
    for name in names:
        checkpoint, run = checkpoint_of(name, converted), call.run(name)
        settings, mesh = settings_of(call, name, checkpoint, listed=True)
        sweep_replies([checkpoint], *items, run, settings, mesh)
        write_people(run, call.elo)


def _search(call: Call, converted: Checkpoint, names: Sequence[str]) -> None:
    config, [name] = call.config.search, names
    checkpoint = checkpoint_of(name, converted)
    settings, mesh = searching.settings(config, [checkpoint])
    where = (runs.search_prompts(call), call.run(name), settings, mesh, config)
    searching.search([checkpoint], *where)


def _logprobs(call: Call, converted: Checkpoint, names: Sequence[str]) -> None:
    del names  # the paper's run alone
    common, mesh = shared_settings(call, PAPER, converted)
    spec = next(s for s in call.languages if s.slug == converted.card.slug)
    settings = LogprobSettings(form=runs.form_of(spec), **common)
    sweep_logprobs([converted], call.prompts, call.run(PAPER), settings, mesh)


# What each stage computes of a model, in the runs that lack a result of it.
STEPS: Mapping[str, Callable[[Call, Checkpoint, Sequence[str]], None]] = {
    Stage.SWEEP: _sweep,
    Stage.ITEMS: _score_items,
    Stage.SEARCH: _search,
    Stage.LOGPROBS: _logprobs,
}


def _table(call: Call, states: Sequence[State]) -> str:
    """One line per model: results of each stage, seconds, and why it failed."""
    there = runs.complete(call)
    stages = [s for s in Stage if any(s in call.stages_of(spec) for spec in call.models)]
    rows = [("model", *stages, "time", "state")]
    for spec, state in zip(call.models, states, strict=True):
        cells = []
        for stage in stages:
            due = stage in call.stages_of(spec)
            places = runs.wanted(call, spec, stage) if due else []
            done = sum(place in there for place in places)
            cells.append(f"{done}/{len(places)}" if places else "–")
        end = "complete" if any(cell != "–" for cell in cells) else "nothing to compute"
        if Stage.CONVERT in call.stages and not call.stages_of(spec):
            end = "converted"
        end = f"failed: {state.failure}" if state.failure else end
        rows.append((state.name, *cells, in_hours(state.seconds), end))
    return "\n".join(aligned(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
