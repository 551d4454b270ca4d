"""Scores a list of replies of any length. See configs/score.py."""

import sys
from collections.abc import Sequence

from engine.sweep.reward_jobs import sweep_replies
from launch.common import command, inputs, locking, scoring, sharding


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [scoring.define_flags, scoring.define_reward_of]
    define += [sharding.define_flags, inputs.define_flags]
    return command.run("score", argv, score, doc=__doc__, define=define, config="score")


def score(given: command.Given) -> str:
    """Flags -> settings -> one call."""
    if given["reward-of"].value:
        from launch.common import implicit  # not at the top: few lists are of language models

        return implicit.computed(given, "score", inputs.list_given(given))
    run, models, prompts = scoring.inputs(given)
    name, replies = inputs.list_given(given)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=False)
    settings, mesh = scoring.settings(given.config, models)
    with locking.held(given, run, "score"):
        rewards = sweep_replies(
            models, prompts, name, replies, run, settings, mesh, sharding.show_models(given)
        )
    what = scoring.outcome(rewards, "rewards")
    return f"{run}/items/{name}: {len(models)} models × {len(prompts)} prompts, {what}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
