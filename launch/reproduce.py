"""The paper again in one command, and a verdict on each published value. See configs/reproduce.py.

Fetches and converts the paper's models, computes their rewards in the paper's conventions and in
ours, and writes <root>/paper.html: every table and figure in the paper's order, the published
value, that of the run, the difference, and whether it is the same. Finished work is kept: a second
call goes on. One model that fails does not stop the others; the exit status is then 1.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence

import jax
from absl import flags
from absl.flags import FlagValues

from analysis.published import verdicts
from analysis.published.comparison import totals, uncounted
from engine.errors import AssayError
from engine.planning import machines
from launch.common import command, locking
from launch.common.durations import in_hours
from launch.reproduction import begun, paper, plan_table, planning, results, trials
from launch.reproduction.asked import (
    CONVERT,
    DIFFERING,
    ITEMS,
    KEEP,
    PAGE,
    STAGES,
    SWEEP,
    TRIED,
    Asked,
    asked,
)
from launch.reproduction.readings import Reading, check_second_dtype, readings
from launch.reproduction.work import State, work


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
    only = f"Stages to run: {', '.join(STAGES)}. All by default."
    flags.DEFINE_list("only", [], only, flag_values=given)
    flags.DEFINE_bool("plan", False, "Print what would be done, and do nothing.", flag_values=given)


def reproduce(given: command.Given) -> str:
    """Flags -> settings -> plan, or work and page."""
    wanted = asked(given)
    both = readings(wanted.config)
    trials.check(wanted.config)
    begun.check(wanted, both, weights=not given.plan)
    if given.plan:
        devices = machines.parse(given.devices) if given.devices else planning.at_hand()
        return plan_table.text(wanted, both, planning.steps(wanted, both, devices))
    if given.devices is not None:
        raise AssayError("--devices without --plan; allowed: --plan, which computes nothing")
    if wanted.config.second_dtype and (wanted.runs(SWEEP) or wanted.runs(ITEMS)):
        check_second_dtype(wanted.config, jax.devices()[0].platform)
    published, compared_with = paper.read_published(given.published)
    planned = planning.steps(wanted, both, [])
    planning.check_sources(wanted, planned)
    planning.check_disk(wanted, planned)
    wanted.root.mkdir(parents=True, exist_ok=True)
    with _locked(given, wanted, both):
        states = work(wanted, both, published)
        print(_table(wanted, states, both), file=sys.stderr, flush=True)
        if not wanted.runs(PAGE):
            _check(states)
            return f"{wanted.root}: {len(states)} models, no page was asked for"
        path, compared = paper.write(wanted, both, states, published, compared_with)
    counts = totals(compared)
    said = ", ".join(f"{counts[kind]} {kind}" for kind in verdicts.KINDS)
    said += f"; {uncounted(compared)} not counted"
    _check(states, f"; {path} is about the others")
    return f"page: {path.resolve()} ({said})"


def _check(states: Sequence[State], more: str = "") -> None:
    failed = [state.spec.nickname for state in states if state.failure]
    if failed:
        raise ModelsFailed(
            f"{len(failed)} of {len(states)} models failed: {', '.join(failed)}{more}"
        )


def _table(wanted: Asked, states: Sequence[State], both: Sequence[Reading]) -> str:
    """One line per model: results of each stage, seconds, and why it failed."""
    there = results.complete(wanted)
    stages = [s for s in STAGES if any(s in wanted.stages_of(one.spec) for one in states)]
    rows = [("model", *stages, "time", "state")]
    for state in states:
        cells = []
        for stage in stages:
            asked_for = stage in wanted.stages_of(state.spec)
            places = results.wanted(wanted, state.spec, stage, both) if asked_for else []
            done = sum(place in there for place in places)
            cells.append(f"{done}/{len(places)}" if places else "–")
        end = "complete" if any(cell != "–" for cell in cells) else "nothing to compute"
        if wanted.runs(CONVERT) and not wanted.stages_of(state.spec):
            end = "converted"
        end = f"failed: {state.failure}" if state.failure else end
        rows.append((state.spec.nickname, *cells, in_hours(state.seconds), end))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@contextlib.contextmanager
def _locked(given: command.Given, wanted: Asked, both: Sequence[Reading]) -> Iterator[None]:
    """Holds the runs of all readings."""
    with contextlib.ExitStack() as stack:
        for reading in both:
            stack.enter_context(locking.held(given, wanted.run(reading.id), "reproduce"))
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
