"""Log-probabilities of a language model's next token, or of a list of replies (`--items`).

See configs/logprobs.py.
"""

import sys

from engine.settings import LogprobSettings
from engine.sweep.logprob_jobs import sweep_logprobs
from launch.common import command, inputs, locking, scoring, sharding


def logprobs(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    items = inputs.list_given(given) if inputs.has_list(given) else None
    run, models, prompts = scoring.inputs(given)
    run, models, prompts = sharding.share(given, run, models, prompts, vocab=items is None)
    common, mesh = scoring.shared_settings(given.config, models)
    settings = LogprobSettings(form=given.config.form, **common)
    on_outcomes = sharding.show_models(given)
    with locking.run_lock(given, run, "logprobs"):
        new = sweep_logprobs(
            models, prompts, run, settings, mesh, items=items, on_outcomes=on_outcomes
        )
    place = f"item_logprobs/{items[0]}" if items else "logprobs"
    return scoring.computed(run, place, models, prompts, new, "log-probabilities")


COMMAND = command.Command(
    "logprobs", logprobs, __doc__, (*scoring.FLAGS, sharding.SHARD, inputs.FLAGS), "checkpoint"
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
