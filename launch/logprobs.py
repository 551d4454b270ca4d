r"""Computes a language model's log-probabilities of every next token, or of a list of replies.

Writes <run>/logprobs, or with --items <run>/item_logprobs/<list>. Natural logarithms. The whole
vocabulary takes one pass over the prompt: seconds.

A prompt has one of two forms. `pretrained`: the plain text `User: <prompt>\nAssistant:`, with the
special tokens that the tokenizer adds to any text; a reply follows after a space. `chat`: the chat
template with its generation prompt; a reply follows directly. No end-of-turn token is counted. In
chat form the prompt `greatest` is called `greatest.chat`, so that a run can hold both forms.
"""

import sys

from engine.settings import LoadingSettings, LogprobSettings, PromptSettings, SourceSettings
from engine.sweep.logprob_jobs import sweep_logprobs
from launch.common import command, inputs, scoring, sharding
from launch.common.config import CommandSettings


def logprobs(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    items = inputs.list_given(given) if inputs.has_list(given) else None
    run, models, prompts = scoring.inputs(given)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=items is None)
    settings, mesh = scoring.settings(LogprobSettings, given.config, models)
    with command.run_lock("logprobs", run, wait=given.wait):
        arguments, show = (models, prompts, run, settings, mesh), scoring.show_models
        new = sweep_logprobs(*arguments, items=items, on_outcomes=show)
    place = f"item_logprobs/{items[0]}" if items else "logprobs"
    return scoring.computed(run, place, models, prompts, new, "log-probabilities")


COMMAND = command.Command(
    "logprobs",
    logprobs,
    __doc__,
    (*scoring.FLAGS, sharding.SHARD, inputs.FLAGS),
    "checkpoint",
    CommandSettings(PromptSettings, LogprobSettings, LoadingSettings, SourceSettings),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
