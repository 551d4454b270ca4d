"""Makes a report from the name of a model: converts it, scores every token, writes the page.

The highest and lowest tokens are printed as soon as they are known. On two CPU cores a model of
135M parameters takes about a minute per prompt; `assay plan` says how much memory a larger one
needs. A command that was stopped continues when it is run again. Models that are no checkpoints
are converted into a cache (`assay cache`).
"""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

import analysis
from analysis.report import facts
from analysis.settings import AnalyzeSettings
from configs import known_models
from engine.checkpoint.card import LANGUAGE
from engine.display import counted
from engine.errors import AssayError
from engine.runs import storage
from engine.settings import LogprobSettings, PromptSettings, ReplyStartSettings
from engine.sources.resolve import name_of, with_distinct_names
from launch import pipeline
from launch.common import (
    behind_replies,
    command,
    inputs,
    reporting,
    scoring,
    sources,
)
from launch.common.config import SCORING_ANY, CommandSettings
from launch.common.reporting import ReportSettings
from launch.pipeline import Say

_NAMED = 3  # models whose names the default of --out holds
_FLAGS = {
    "language_model": (
        [],
        "Language models, comma-separated: the page tells what they say, and would say after "
        "training on the reward.",
    ),
    "out": (
        None,
        "Folder to write, with run/ and report/ in it; by default reports/<names of the models>.",
    ),
}


@dataclasses.dataclass(kw_only=True)
class Report(pipeline.Scored):
    """What a report needs, and what its steps have made so far."""

    names: Sequence[str]  # of the reward models, as the command line has them
    languages: Sequence[str]  # of the language models
    analyze: AnalyzeSettings  # settings of the page
    page: epath.Path | None = None  # the page, once it is written


def report(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> the steps."""
    names, prompts = command.paths(given, "checkpoint"), scoring.prompts(given)
    listed = inputs.given_list(given, sweeps=True) if inputs.has_list(given) else None
    alone = given.items is not None and listed is None  # replies without prompts of their own
    behind = (
        behind_replies.prompts(given, prompts, only=False) if scoring.sweeps_behind(given) else {}
    )
    work = Report(
        config=given.config,
        root=storage.path_of(given.out or _default_out(names)),
        prompts=prompts,
        items=inputs.list_given(given) if alone else None,
        word_prompts=prompts,
        behind_prompts=behind,
        conversations_list=listed,
        probes=inputs.probes_of(given, listed),
        names=names,
        languages=given.language_model,
        analyze=reporting.settings_of(given.config.analyze),
    )
    asked: dict[Any, object] = {  # Any: steps
        pipeline.behind: behind,
        pipeline.score: alone,
        pipeline.judge: listed,
        pipeline.logprobs: work.languages,
    }
    with command.run_lock("report", work.run, wait=given.wait):
        pipeline.run(STEPS, work, asked)
        run = analysis.load(work.run)
    slugs = [model.card.slug for model in work.models]
    words = [
        scoring.extremes(model, prompt, run.scores(models=[model], prompts=[prompt]).collect())
        for model, prompt in itertools.product(slugs, prompts)
        if (model, prompt) in run.results
    ]
    all_slugs = [*slugs, *(model.card.slug for model in work.language)]

    def json_facts() -> Mapping[str, Any]:  # Any: what JSON holds
        results = [
            *facts.of_run(work.run, all_slugs, {*prompts.values(), *behind.values()})["results"]
        ]
        if listed is not None:
            results += facts.of_conversations(work.run, listed.name, slugs)
        return {"page": str(work.page), "results": results}

    return command.CommandResult("\n".join([*words, f"report: {work.page}"]), json_facts)


def _default_out(names: Sequence[str]) -> str:
    known = [name_of(name.partition("@")[0], known_models.find) for name in names]
    more = [f"{len(known) - _NAMED}-more"] if len(known) > _NAMED else []
    return str(Path("reports", "-".join([*known[:_NAMED], *more])))


def convert(work: Report, say: Say) -> None:
    """Opens the models; those that are no checkpoints are fetched and converted."""
    names, verify = [*work.names, *work.languages], work.config.verify
    say(f"opening {counted(len(names), 'model')}")
    models = sources.checkpoints(work.names, work.config, verify)
    models += sources.opened(work.languages, work.config, verify, plain=True)
    models = with_distinct_names(names, models, known_models.find)
    work.models, work.language = models[: len(work.names)], models[len(work.names) :]
    for model in work.models:
        if model.card.kind == LANGUAGE:
            raise AssayError(
                f"{model.card.slug}: a language model; allowed: a reward model, beside it "
                "--language_model=<this one>; or, for two language models as a reward model, "
                "`assay sweep --reward-of=<policy>,<reference>`, then `assay analyze`"
            )
    for model in work.language:
        model.expect(LANGUAGE)
    if work.conversations_list is not None:  # before a sweep that may take hours
        inputs.check_rendering(work.models, work.conversations_list)
    work.settle()


def analyze(work: Report, say: Say) -> None:
    """Writes the report."""
    target = work.root / "report"
    say(f"writing {target}")
    work.page = reporting.report_on([storage.path_of(work.run)], target, work.analyze)


STEPS: Sequence[pipeline.Step[Report]] = (
    convert,
    pipeline.sweep,
    pipeline.behind,
    pipeline.score,
    pipeline.judge,
    pipeline.logprobs,
    analyze,
)


COMMAND = command.Command(
    "report",
    report,
    __doc__,
    (
        *(scoring.MODELS, scoring.PROMPT, scoring.AFTER, _FLAGS),
        *(inputs.FLAGS, inputs.PROBES, command.WAIT),
    ),
    "checkpoint",
    CommandSettings(
        ReportSettings, PromptSettings, ReplyStartSettings, LogprobSettings, *SCORING_ANY
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
