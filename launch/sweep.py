"""Scores every token of the vocabulary as the reply to each prompt. See configs/sweep.py."""

import sys

from engine.sweep.reward_jobs import sweep_rewards
from launch.common import command, locking, scoring, sharding


def sweep(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    if given["reward-of"].value:
        from launch.common import implicit  # not at the top: few sweeps are of language models

        return implicit.computed(given, "sweep")
    run, models, prompts = scoring.inputs(given)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=True)
    settings, mesh = scoring.settings(given.config, models)
    show = scoring.show_extremes, sharding.show_models(given)
    with locking.run_lock(given, run, "sweep"):
        rewards = sweep_rewards(models, prompts, run, settings, mesh, *show)
    return scoring.computed(run, "scores", models, prompts, rewards)


COMMAND = command.Command(
    "sweep", sweep, __doc__, (*scoring.FLAGS, scoring.REWARD_OF, sharding.SHARD), "checkpoint"
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
