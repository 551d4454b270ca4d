"""Scores a list of replies of any length, or pairs of replies.

Replies without prompts are scored under each prompt of --prompt or --config.prompts, into
<run>/items/<list>. Rows with their own prompts (docs/pairs.md) are scored only under these, into
<run>/conversations/<list>.
"""

import sys

from engine.settings import ImplicitSettings, PromptSettings, SweepSettings
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import command, inputs, scoring, sharding
from launch.common.config import SCORING_ANY, CommandSettings


def score(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    listed = inputs.given_list(given)
    probes = inputs.probes_of(given, listed)
    if given["reward-of"].value:
        from launch.common import implicit  # not at the top: few lists are of language models

        return implicit.computed(given, "score", listed or inputs.list_given(given), probes)
    run, models, prompts = scoring.inputs(given)
    items = listed[:3] if listed else inputs.list_given(given)
    shared = {listed.name: ""} if listed else prompts  # all rows with prompts are one share
    run, models, prompts = sharding.share(given, run, models, shared, vocab=False)
    settings, mesh = scoring.settings(SweepSettings, given.config, models)
    slugs = [model.card.slug for model in models]
    if listed:
        inputs.check_rendering(models, listed)
    with command.run_lock("score", run, wait=given.wait):
        arguments = (None if listed else prompts, run, settings, mesh)
        show = scoring.show_models
        rewards = sweep_rewards(models, *arguments, on_outcomes=show, items=items)
        if listed:
            inputs.record(listed, run, slugs)
            if probes:
                rewards += sweep_rewards(models, *arguments, items=probes[:3])
                inputs.record(probes, run, slugs)
            return scoring.judged(run, listed.name, listed.size_in_words, slugs, rewards)
    return scoring.computed(run, f"items/{items[0]}", models, prompts, rewards)


COMMAND = command.Command(
    "score",
    score,
    __doc__,
    (*scoring.FLAGS, scoring.REWARD_OF, sharding.SHARD, inputs.FLAGS, inputs.PROBES),
    "checkpoint",
    CommandSettings(
        PromptSettings,
        *SCORING_ANY,
        ImplicitSettings,
        without=["lens"],
        prompts="greatest",
        mode="text",
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
