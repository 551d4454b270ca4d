"""Log-probabilities of a language model's next token, or of a list of replies (`--items`).

See configs/logprobs.py.
"""

import functools

from absl import flags

from engine.sweep import logprobs
from engine.sweep.logprobs import LogprobSettings
from launch import cli, items, scoring

_CONFIG = cli.config_file("logprobs")
for module in (scoring, items):
    flags.adopt_module_key_flags(module)  # for --help


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    if items.ITEMS.value is None:
        place, what = f"{run}/logprobs", logprobs.next_tokens
    else:
        name, replies = items.listed()
        place = f"{run}/item_logprobs/{name}"
        what = functools.partial(logprobs.replies, name=name, texts=replies)
    common, mesh = scoring.shared_settings(config, models)
    settings = LogprobSettings(form=config.form, **common)
    computed = what(models, prompts, run=run, settings=settings, mesh=mesh)
    new = f"{computed:,} new log-probabilities" if computed else "complete already"
    return f"{place}: {len(models)} models × {len(prompts)} prompts, {new}"


if __name__ == "__main__":
    cli.run(main)
