"""Scores models under many readings (BOS, date, mode, dtype, …): which findings survive?

    assay conventions --checkpoint=<dir>[,…] --run=<dir>
    assay conventions --checkpoint=<dir> --published=card,scores.csv --layout=elo

Each reading is a run below <run>/readings; `assay analyze --run=<run>` compares them. --published
names the reading that reproduces released rewards: `card` is the example of the model's card, a
file has a layout of `assay import_scores`. See configs/conventions.py and docs/conventions.md.
"""

import sys
from collections.abc import Sequence

from absl import flags
from absl.flags import FlagValues
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.lock import LockError
from engine.settings import SweepSettings
from launch.common import command, locking, published, scoring
from launch.common.output import show
from launch.common.reading_lists import lists_of
from launch.common.reading_runs import Failed, compute
from launch.common.reading_tasks import Plan
from launch.common.readings import (
    DIMENSIONS,
    Choices,
    Values,
    check_dimensions,
    listed,
    readings_of,
    values_of,
)


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags]
    return command.run(
        "conventions", argv, conventions, doc=__doc__, define=define, config="conventions"
    )


def define_flags(given: FlagValues) -> None:
    """Defines --checkpoint, --run, --published and what it needs, --prompt and --wait."""
    flags.DEFINE_list("checkpoint", [], "Checkpoints to score, comma-separated.", flag_values=given)
    text = "A run folder, new or to be continued or added to; not needed with --published."
    flags.DEFINE_string("run", "", text, flag_values=given)
    text = "Released rewards to reproduce: `card`, or .csv and .parquet files; comma-separated."
    flags.DEFINE_list("published", [], text, flag_values=given)
    text = "Layout of the files of --published, as of import_scores: elo, tokens, items or long."
    flags.DEFINE_string("layout", "", text, flag_values=given)
    text = "Prompt of --published, text or id, where its files do not say it."
    flags.DEFINE_string("published_prompt", "", text, flag_values=given)
    scoring.define_prompt(given)
    locking.define_wait(given)


def conventions(given: command.Given) -> str:
    """Flags -> settings -> readings of each model, and comparisons with what is published."""
    if not given.run and not given.published:
        raise AssayError("--run is missing; allowed: a run folder, or --published")
    chosen = scoring.verify(given.config)
    models = [Checkpoint.open(path, verify=chosen) for path in command.paths(given, "checkpoint")]
    for model in models:
        model.expect(REWARD)
    settings, mesh = _settings(given, models)
    choices = _choices(given, settings)
    every = [values_of(model, choices) for model in models]
    if given.config.dimensions != "all":
        check_dimensions(choices.dimensions, every)
    for model in models:
        meshes.check_mesh(mesh, model.card.decoder)
    sets = [published.sets_of(given, model) for model in models] if given.published else []
    lines, failed = [], None
    if given.run:
        plan = Plan(
            run=storage.path_of(given.run),
            prompts=scoring.prompts(given),
            lists=lists_of(storage.path_of(given.run), given.config.lists),
            settings=settings,
            mesh=mesh,
        )
        try:
            lines.append(_readings(given, models, every, plan))
        except Failed as error:  # what is published is compared all the same
            failed = error
    for model, own in zip(models, sets, strict=False):
        lines += published.compared(
            model,
            own,
            every[models.index(model)],
            mesh,
            check_memory=given.config.check_memory,
        )
    if failed:
        if lines:
            show("\n".join(lines))
        raise failed
    return "\n".join(lines)


def _settings(given: command.Given, models: Sequence[Checkpoint]) -> tuple[SweepSettings, Mesh]:
    tokens = given.config.tokens
    if tokens != "all" and (type(tokens) is not int or tokens < 1):
        raise AssayError(f"tokens={tokens!r}; allowed: 'all', or integers >= 1")
    return scoring.settings(given.config, models)


def _choices(given: command.Given, settings: SweepSettings) -> Choices:
    config = given.config
    dimensions = DIMENSIONS if config.dimensions == "all" else listed(config.dimensions)
    return Choices(
        dimensions=dimensions,
        mode=settings.mode,
        pooling=settings.pooling,
        dtype=settings.dtype,
        dtypes=listed(config.dtypes),
        dates=listed(config.dates),
    )


def _readings(
    given: command.Given, models: Sequence[Checkpoint], every: Sequence[Values], plan: Plan
) -> str:
    """Scores the models under their readings; says what was written."""
    named = [
        readings_of(values, all_combinations=given.config.all_combinations) for values in every
    ]
    new, count, failures = 0, sum(map(len, named)), []
    with locking.held(given, str(plan.run), "conventions"):
        for model, readings in zip(models, named, strict=True):
            try:
                new += compute(model, readings, plan)
            except LockError:
                raise
            except Failed as failed:
                failures.append(str(failed))
            except AssayError as error:  # the default reading: the other models do not need it
                if len(models) == 1:
                    raise
                failures.append(f"{model.card.slug}: no reading could be computed: {error}")
    if failures:
        raise Failed("; ".join([*failures, "the others are complete"]))
    what = scoring.outcome(new, "rewards")
    return (
        f"{plan.run}/readings: {count} readings of {len(models)} models × {len(plan.prompts)} "
        f"prompts, {what}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
