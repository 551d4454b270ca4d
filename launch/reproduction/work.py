"""The work on each model: fetch, convert, score, search. A failure does not stop the others."""

import dataclasses
import functools
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

from analysis.published.data import Published
from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs.lock import LockError
from engine.runs.reader import RunError
from engine.sweep.logprobs import LogprobSettings, next_tokens
from engine.sweep.rewards import sweep_replies, sweep_vocabulary
from launch.common import searching
from launch.reproduction import results, sources, trials
from launch.reproduction.asked import CONVERT, ITEMS, LOGPROBS, READINGS, SEARCH, SWEEP, Asked
from launch.reproduction.elo import EloList, write_people
from launch.reproduction.readings import NOISE, PAPER, Reading


@dataclasses.dataclass
class State:
    """What became of a model in one call.

    Attributes:
      spec: the model.
      failure: why it failed, or its noise, one line; "" where neither did.
      seconds: wall time.
    """

    spec: ModelSpec
    failure: str = ""
    seconds: float = 0.0


def work(asked: Asked, readings: Sequence[Reading], published: Published) -> list[State]:
    """Computes what is missing, model by model.

    Args:
      asked: the call.
      readings: of the runs.
      published: the values that decide for which models single conventions are changed.

    Raises:
      LockError: another command writes a run.
    """
    states = [State(spec) for spec in asked.models]
    for number, state in enumerate(states, 1):
        began = time.monotonic()
        _say(f"[{number}/{len(states)}] {state.spec.nickname} ({state.spec.hub_id})")
        try:
            _model(asked, state, readings, published)
        except LockError:
            raise
        except Exception as error:  # whatever it is, the other models need not wait for it
            state.failure = "; ".join(filter(None, [state.failure, _reason(error)]))
            _say(f"{state.spec.nickname}: {state.failure}; going on with the other models")
        state.seconds = time.monotonic() - began
    return states


def _reason(error: Exception) -> str:
    """An error in one line; an unexpected one with its type. `python -X dev` prints its place."""
    if isinstance(error, AssayError):
        return " ".join(str(error).split())
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"[:500]


def _model(asked: Asked, state: State, readings: Sequence[Reading], published: Published) -> None:
    spec = state.spec
    lacks = results.incomplete(asked, spec, readings)
    todo = [stage for stage in lacks if asked.runs(stage) and stage != READINGS]
    convert = asked.runs(CONVERT) and not asked.stages_of(spec)  # --only=convert
    checkpoint = functools.cache(lambda: sources.converted(asked, spec))
    if todo or convert:
        checkpoint()
    first = [reading for reading in readings if reading.id != NOISE]
    noise = [reading for reading in readings if reading.id == NOISE]
    for stage in todo:
        if lacking := _lacking(asked, spec, stage, first):
            _say(f"{spec.nickname}: {stage}")
            _RUN[stage](asked, checkpoint(), lacking)
    try:
        for stage in todo:
            if stage in (SWEEP, ITEMS) and (lacking := _lacking(asked, spec, stage, noise)):
                _say(f"{spec.nickname}: {stage} in {asked.config.second_dtype}")
                _RUN[stage](asked, checkpoint(), lacking)
    except (LockError, RunError):
        raise
    except AssayError as error:  # in float32 a model may be too large: the rest needs no noise
        state.failure = _reason(error)
        _say(f"{spec.nickname}: {state.failure}; going on without the noise")
    if todo:
        sources.note(asked, checkpoint())
    if asked.elo is not None and asked.runs(ITEMS):
        _people(asked, spec, readings, asked.elo)
    needed = first if state.failure else readings
    tried = READINGS in asked.stages_of(spec) and _try(asked, spec, needed, published, checkpoint)
    if state.failure:
        return
    if asked.stages_of(spec) and not todo and not tried:
        _say(f"{spec.nickname}: complete already")
    if asked.keep == "none" and not convert:
        _free(asked, spec, readings)


def _lacking(
    asked: Asked, spec: ModelSpec, stage: str, readings: Sequence[Reading]
) -> Sequence[Reading]:
    """The readings that lack a result of a stage; of stages of one reading, all."""
    if stage not in (SWEEP, ITEMS):
        return readings
    there = results.complete(asked)
    return [r for r in readings if {*results.wanted(asked, spec, stage, [r])} - there]


def _people(asked: Asked, spec: ModelSpec, readings: Sequence[Reading], elo: EloList) -> None:
    """Writes the human ranks of the items; --elo may not have had them when they were scored."""
    there = results.complete(asked)
    for reading in readings:
        if {*results.wanted(asked, spec, ITEMS, [reading])} <= there:
            write_people(asked.run(reading.id), elo)


def _try(
    asked: Asked,
    spec: ModelSpec,
    readings: Sequence[Reading],
    published: Published,
    checkpoint: Callable[[], Checkpoint],
) -> bool:
    """The stage `readings`, which needs the rewards in the paper's conventions.

    Returns:
      Whether there was something to do.
    """
    lacks = results.incomplete(asked, spec, readings)
    if missing := [stage for stage in (SWEEP, ITEMS) if stage in lacks]:
        raise AssayError(
            f"the stage {READINGS} needs the results of {' and '.join(missing)}, which are not "
            "complete; allowed: these stages too, or --readings=none"
        )
    scope, done = trials.scope_of(asked, spec, published, readings), trials.done(asked, spec)
    again = [*asked.stages] == [READINGS] and trials.failures(asked, spec)
    if READINGS not in lacks and scope.within(done) and not again:
        return False
    _say(f"{spec.nickname}: {READINGS}")
    scope = scope.joined(done)  # so that every prompt has every reading, whatever earlier calls had
    now = trials.asked_of(asked, scope)
    if now.prompts:
        trials.run(asked, checkpoint(), now, next(r for r in readings if r.id == PAPER))
    else:
        _say(f"{spec.nickname}: no published value of it differs")
    trials.note(asked, spec, scope)
    return True


def _free(asked: Asked, spec: ModelSpec, readings: Sequence[Reading]) -> None:
    """Removes a model's files once no stage needs them, whatever --only says."""
    left = results.incomplete(asked, spec, readings)
    if left and asked.checkpoint(spec).exists():
        _say(f"{spec.nickname}: checkpoint kept, {', '.join(left)} not complete")
    if not left and (there := sources.present(asked, spec)):
        sources.note(asked, there)  # also of results that an earlier version computed
    if not left and (freed := sources.remove(asked, spec)):
        _say(f"{spec.nickname}: {freed / 2**30:,.1f} GiB removed (--keep=none)")


def _sweep(asked: Asked, converted: Checkpoint, readings: Sequence[Reading]) -> None:
    for reading in readings:
        checkpoint = reading.checkpoint(converted)
        settings, mesh = reading.settings(asked.config, checkpoint, listed=False)
        sweep_vocabulary([checkpoint], asked.prompts, asked.run(reading.id), settings, mesh)


def _items(asked: Asked, converted: Checkpoint, readings: Sequence[Reading]) -> None:
    assert asked.elo is not None
    prompt = dict([asked.item_prompt])
    for reading in readings:
        checkpoint, run = reading.checkpoint(converted), asked.run(reading.id)
        settings, mesh = reading.settings(asked.config, checkpoint, listed=True)
        named = (asked.elo.name, asked.elo.replies)
        sweep_replies([checkpoint], prompt, *named, run, settings, mesh)
        write_people(run, asked.elo)


def _search(asked: Asked, converted: Checkpoint, readings: Sequence[Reading]) -> None:
    """Searches in the paper's conventions."""
    checkpoint = next(r for r in readings if r.id == PAPER).checkpoint(converted)
    config = asked.config.search
    own, mesh = searching.settings(config, [checkpoint])
    searching.search(
        [checkpoint], results.search_prompts(asked), asked.run(PAPER), own, mesh, config
    )


def _logprobs(asked: Asked, converted: Checkpoint, readings: Sequence[Reading]) -> None:
    reading = next(r for r in readings if r.id == PAPER)
    common, mesh = reading.common(asked.config, converted)
    spec = next(s for s in asked.languages if s.slug == converted.card.slug)
    settings = LogprobSettings(form=results.form_of(spec), **common)
    next_tokens([converted], asked.prompts, asked.run(PAPER), settings, mesh)


_RUN: Mapping[str, Callable[[Asked, Checkpoint, Sequence[Reading]], None]] = {
    SWEEP: _sweep,
    ITEMS: _items,
    SEARCH: _search,
    LOGPROBS: _logprobs,
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
