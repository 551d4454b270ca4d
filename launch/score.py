"""Scores a list of replies of any length. See configs/score.py."""

from absl import flags

from engine.sweep.rewards import sweep_replies
from launch import cli, items, scoring

_CONFIG = cli.config_file("score")
for module in (scoring, items):
    flags.adopt_module_key_flags(module)  # for --help


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    name, replies = items.listed()
    settings, mesh = scoring.settings(config, models)
    rewards = sweep_replies(models, prompts, name, replies, run, settings, mesh)
    what = f"{rewards:,} new rewards" if rewards else "complete already"
    return f"{run}/items/{name}: {len(models)} models × {len(prompts)} prompts, {what}"


if __name__ == "__main__":
    cli.run(main)
