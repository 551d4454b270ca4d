"""Scores a list of replies of any length, or pairs of replies. See configs/score.py.

The rows of --items may have prompts of their own (docs/pairs.md): prompt and reply; prompt, chosen
and rejected; messages. Such a file is scored under its prompts alone.
"""

import sys
from collections.abc import Sequence

from engine.checkpoint.card import Checkpoint
from engine.lists.files import ConversationList
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import command, inputs, locking, scoring, sharding


def score(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    listed = inputs.given_list(given)
    if given["reward-of"].value:
        from launch.common import implicit  # not at the top: few lists are of language models

        return implicit.computed(given, "score", listed or inputs.list_given(given))
    run, models, prompts = scoring.inputs(given)
    if listed is not None:
        return _score_conversations(given, listed, run, models)
    name, replies = inputs.list_given(given)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=False)
    settings, mesh = scoring.settings(given.config, models)
    with locking.run_lock(given, run, "score"):
        show, items = sharding.show_models(given), (name, replies)
        rewards = sweep_rewards(models, prompts, run, settings, mesh, on_outcomes=show, items=items)
    return scoring.computed(run, f"items/{name}", models, prompts, rewards)


def _score_conversations(
    given: command.Given, listed: ConversationList, run: str, models: Sequence[Checkpoint]
) -> command.CommandResult:
    own = {listed.name: ""}  # all rows are one share
    run, models, _ = sharding.share(given, run, models, own, vocab=False)
    settings, mesh = scoring.settings(given.config, models)
    with locking.run_lock(given, run, "score"):
        on_outcomes = sharding.show_models(given)
        rewards = inputs.score(models, listed, run, settings, mesh, on_outcomes)
    slugs = [model.card.slug for model in models]
    return scoring.judged(run, listed.name, listed.size_in_words, slugs, rewards)


COMMAND = command.Command(
    "score",
    score,
    __doc__,
    (*scoring.FLAGS, scoring.REWARD_OF, sharding.SHARD, inputs.FLAGS),
    "checkpoint",
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
