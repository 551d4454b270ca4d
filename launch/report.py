"""From the name of a model to its report: converts, sweeps, scores, analyses.

Each model is a hub id, a folder in Hugging Face format, or a checkpoint. What is no checkpoint is
converted into the cache (`assay cache`). The tokens that each model likes most and least are
printed as soon as they are known. A call that was stopped goes on when it is made again.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath
from ml_collections import ConfigDict

import analysis
from analysis.report import facts
from configs import known_models
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.display import counted, in_words
from engine.errors import AssayError
from engine.planning import DeviceRoom, Model, SweepWork, account, fitting_step, refusal
from engine.runs import storage
from engine.settings import AUTO, AnalyzeSettings, LogprobSettings
from engine.sources.resolve import name_of, with_distinct_names
from launch import pipeline
from launch.common import (
    command,
    inputs,
    locking,
    reporting,
    scoring,
    sources,
)
from launch.pipeline import Say

_NAMED = 3  # models whose names the default of --out holds
_FLAGS = {
    "language_model": (
        [],
        "Language models, comma-separated: what they would say, and would say after training.",
    ),
    "out": (
        None,
        "Folder to write: run/ and report/ in it; by default reports/<the models' names>.",
    ),
}


@dataclasses.dataclass(kw_only=True)
class Report(pipeline.Scored):
    """What a report needs, and what its steps have made so far."""

    given: command.Given  # the parsed flags, of which the first step reads the models
    analyze: AnalyzeSettings  # settings of the page
    page: epath.Path | None = None  # the page, once it is written


def report(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> the steps."""
    root = storage.path_of(given.out or _default_out(command.paths(given, "checkpoint")))
    listed = inputs.given_list(given, sweeps=True) if inputs.has_list(given) else None
    alone = given.items is not None and listed is None  # replies without prompts of their own
    prompts, chosen = scoring.prompts(given), _settings(given.config, [], [])
    work = Report(
        root=root,
        prompts=prompts,
        items=inputs.list_given(given) if alone else None,
        word_prompts=prompts,
        conversations_list=listed,
        given=given,
        analyze=reporting.settings_of(given.config.analyze),
        **chosen,
    )
    languages = given.language_model
    asked = {pipeline.score: alone, pipeline.judge: listed, pipeline.logprobs: languages}
    with locking.run_lock(given, work.run, "report"):
        pipeline.run(STEPS, work, asked)
        run = analysis.load(work.run)
    slugs = [model.card.slug for model in work.models]
    words = [
        scoring.extremes(model, prompt, run.scores(models=[model], prompts=[prompt]).collect())
        for model, prompt in itertools.product(slugs, prompts)
        if (model, prompt) in run.results
    ]
    every = [*slugs, *(model.card.slug for model in work.language)]

    def json_facts() -> Mapping[str, Any]:  # Any: what JSON holds
        results = [*facts.of_run(work.run, every, prompts.values())["results"]]
        if listed is not None:
            results += facts.of_conversations(work.run, listed.name, slugs)
        return {"page": str(work.page), "results": results}

    return command.CommandResult("\n".join([*words, f"report: {work.page}"]), json_facts)


# Any: settings are of several types.
def _settings(
    config: ConfigDict, models: Sequence[Checkpoint], language: Sequence[Checkpoint]
) -> dict[str, Any]:
    """The settings of each kind of step; `auto`'s dtype depends on the models."""
    settings, mesh = scoring.settings(config, models)
    common, _ = scoring.shared_settings(config, language)
    mode = "text" if settings.mode == AUTO else settings.mode  # as of `assay score`
    return {
        "mesh": mesh,
        "settings": settings,
        "word_settings": dataclasses.replace(settings, mode=mode, lens=False),
        "logprobs": LogprobSettings(form=config.form, **common),
    }


def _default_out(names: Sequence[str]) -> str:
    known = [name_of(name.partition("@")[0], known_models.find) for name in names]
    more = [f"{len(known) - _NAMED}-more"] if len(known) > _NAMED else []
    return str(Path("reports", "-".join([*known[:_NAMED], *more])))


def convert(work: Report, say: Say) -> None:
    """Opens the models; those that are no checkpoints are fetched and converted."""
    given = work.given
    names, languages = command.paths(given, "checkpoint"), given.language_model
    say(f"opening {counted(len(names) + len(languages), 'model')}")
    verify = scoring.verify_setting(given.config)
    models = sources.checkpoints(names, given.config, verify)
    models += sources.opened(languages, given.config, verify, plain=True)
    models = with_distinct_names([*names, *languages], models, known_models.find)
    work.models, work.language = models[: len(names)], models[len(names) :]
    for model in work.models:
        if model.card.kind == LANGUAGE:
            raise AssayError(
                f"{model.card.slug}: a language model; allowed: a reward model, "
                "--language_model=<it> beside one, or two language models as a reward model: "
                "`assay sweep --reward-of=<policy>,<reference>`, and then `assay analyze`"
            )
    for model in work.language:
        model.expect(LANGUAGE)
    if work.conversations_list is not None:  # before a sweep that may take hours
        inputs.check_rendering(work.models, work.conversations_list)
    for name, value in _settings(given.config, work.models, work.language).items():
        setattr(work, name, value)


def check_memory(work: Report, say: Say) -> None:
    """Says what each model takes here; with `check_memory`, refuses one that is too large."""
    room = DeviceRoom.of(work.mesh)
    kinds = ((work.models, work.settings), (work.language, work.logprobs))
    for model, settings in ((model, settings) for models, settings in kinds for model in models):
        placed = Model.of([model]).on(room, settings.dtype)
        sweep = SweepWork(step_size=settings.step_size, self_check=settings.self_check)
        sweep = dataclasses.replace(sweep, step_size=fitting_step(placed, sweep))
        needed, reason = account(placed, sweep), refusal(placed, sweep)
        if reason and settings.check_memory:
            raise AssayError(reason)
        free = f" of {in_words(room.usable)} that are free" if room.usable < math.inf else ""
        say(f"{model.card.slug}: {in_words(needed.total)} of memory in {settings.dtype}{free}")


def write_report(work: Report, say: Say) -> None:
    """Writes the report."""
    target = work.root / "report"
    say(f"writing {target}")
    work.page = reporting.write_report([storage.path_of(work.run)], target, work.analyze)


STEPS: Sequence[pipeline.Step[Report]] = (
    convert,
    check_memory,
    pipeline.sweep,
    pipeline.score,
    pipeline.judge,
    pipeline.logprobs,
    write_report,
)


COMMAND = command.Command(
    "report",
    report,
    __doc__,
    (scoring.MODELS, scoring.PROMPT, _FLAGS, inputs.FLAGS, locking.WAIT),
    "checkpoint",
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
