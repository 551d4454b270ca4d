"""Scores every token of the vocabulary as the reply to each prompt. See configs/sweep.py."""

from absl import flags

from engine.sweep.rewards import sweep_vocabulary
from launch import cli, scoring

_CONFIG = cli.config_file("sweep")
flags.adopt_module_key_flags(scoring)  # for --help


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    settings, mesh = scoring.settings(config, models)
    rewards = sweep_vocabulary(models, prompts, run, settings, mesh)
    what = f"{rewards:,} new rewards" if rewards else "complete already"
    return f"{run}/scores: {len(models)} models × {len(prompts)} prompts, {what}"


if __name__ == "__main__":
    cli.run(main)
