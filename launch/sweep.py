"""Scores every token of the vocabulary as the reply to each prompt, or behind a reply (--after).

Writes <run>/scores; `assay analyze` makes a report of it. On two CPU cores a 135M-parameter model
of 16 layers takes about two minutes per prompt. A command that was stopped continues when it is run
again.
"""

import sys

from engine.errors import AssayError
from engine.settings import ImplicitSettings, PromptSettings, ReplyStartSettings, SweepSettings
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import command, scoring, sharding
from launch.common.config import SCORING_ANY, CommandSettings


def sweep(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    behind = scoring.sweeps_behind(given)
    if given["reward-of"].value:
        if behind:
            raise AssayError("--reward-of with --after: allowed with a reward model only")
        from launch.common import implicit  # not at the top: few sweeps are of language models

        return implicit.computed(given, "sweep")
    if behind:
        from launch.common import behind_replies  # not at the top: few sweeps are behind replies

        starts = behind_replies.prompts(given, scoring.prompts(given), only=True)
    run, models, prompts = scoring.inputs(given)
    if behind:
        prompts = behind_replies.fitting(models, starts, given.config.mode, given.config.pooling)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=True)
    settings, mesh = scoring.settings(SweepSettings, given.config, models)
    show = scoring.show_extremes, scoring.show_models
    with command.run_lock("sweep", run, wait=given.wait):
        rewards = sweep_rewards(models, prompts, run, settings, mesh, *show)
        if behind and given.shard is None:
            rewards += behind_replies.repeat(models, prompts, run, settings, mesh)
    return scoring.computed(run, "scores", models, prompts, rewards)


COMMAND = command.Command(
    "sweep",
    sweep,
    __doc__,
    (*scoring.FLAGS, scoring.AFTER, scoring.REWARD_OF, sharding.SHARD),
    "checkpoint",
    CommandSettings(PromptSettings, ReplyStartSettings, *SCORING_ANY, ImplicitSettings),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
