"""Scores models under many readings (BOS, date, mode, dtype, …): which findings survive?

    assay conventions --checkpoint=<dir>[,…] --run=<dir>
    assay conventions --checkpoint=<dir> --published=card,scores.csv --layout=elo

Each reading is a run below <run>/readings; `assay analyze --run=<run>` compares them. --published
names the reading that reproduces released rewards: `card` is the example of the model's card, a
file has a layout of `assay import_scores`. See configs/conventions.py and docs/conventions.md.
"""

import sys
from collections.abc import Sequence
from typing import Any

from engine import mesh as meshes
from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.lock import LockError
from launch.common import command, locking, published_rewards, scoring
from launch.common.convention_runs import ConventionRuns, Failed
from launch.common.conventions import Values, conventions_of, dimensions_of, values_of
from launch.common.inputs import ranked_lists
from launch.common.text import counted, pieces, show

_FLAGS = {
    "checkpoint": ([], "As of `assay sweep`."),
    "run": ("", "A run folder, new or to be continued or added to; not needed with --published."),
    "published": (
        [],
        "Released rewards to reproduce: `card`, or .csv and .parquet files; comma-separated.",
    ),
    "layout": (
        "",
        "Layout of the files of --published, as of import_scores: elo, tokens, items or long.",
    ),
    "published_prompt": ("", "Prompt of --published, text or id, where its files do not say it."),
}


def conventions(given: command.Given) -> str:
    """Flags -> settings -> runs of each model, and comparisons with what is published."""
    if not given.run and not given.published:
        raise AssayError("--run is missing; allowed: a run folder, or --published")
    config, models = given.config, scoring.models_given(given)
    for model in models:
        model.expect(REWARD)
    settings, mesh = scoring.settings(config, models)
    chosen = dimensions_of(config.dimensions), pieces(config.dates), pieces(config.dtypes)
    every = [values_of(model, settings, *chosen) for model in models]
    for model in models:
        meshes.check_mesh(mesh, model.card.decoder)
    sets = [published_rewards.reward_sets(given, model) for model in models]
    lines: list[str] = []
    failures: list[str] = []
    if given.run:
        run, prompts = storage.path_of(given.run), scoring.prompts(given)
        scored = (run, prompts, ranked_lists(run, config.lists), settings, mesh)
        new, count, failures = _computed(given, models, scored, every)
        if not failures:  # else what is published is compared all the same
            lines.append(
                f"{run}/readings: {counted(count, 'reading')} of "
                f"{scoring.models_by_prompts(models, prompts)}, {scoring.outcome(new, 'rewards')}"
            )
    for model, values, published in zip(models, every, sets, strict=True):
        check = config.check_memory
        if given.published:
            lines += published_rewards.compare_and_show(
                model, published, values, mesh, check_memory=check
            )
    if failures:
        if lines:
            show("\n".join(lines))
        raise Failed("; ".join([*failures, "the others are complete"]))
    return "\n".join(lines)


def _computed(
    given: command.Given,
    models: Sequence[Checkpoint],
    scored: tuple[Any, ...],  # Any: the other arguments of ConventionRuns
    every: Sequence[Values],
) -> tuple[int, int, list[str]]:
    """Scores the models; returns the numbers of new rewards and of all conventions, and failures.

    A failure is of some conventions, or of one of several models.
    """
    combined = given.config.all_combinations
    named = [conventions_of(values, all_combinations=combined) for values in every]
    new, failures = 0, []
    with locking.run_lock(given, given.run, "conventions"):
        for model, chosen in zip(models, named, strict=True):
            try:
                new += ConventionRuns(model, *scored).compute(chosen)
            except LockError:
                raise
            except Failed as failed:
                failures.append(str(failed))
            except AssayError as error:  # of the default convention: other models do not need it
                if len(models) == 1:
                    raise
                failures.append(f"{model.card.slug}: no reading could be computed: {error}")
    return new, sum(map(len, named)), failures


COMMAND = command.Command(
    "conventions", conventions, __doc__, (_FLAGS, scoring.PROMPT, locking.WAIT)
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
