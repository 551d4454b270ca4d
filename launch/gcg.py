"""Searches the sequences that reward models rate highest and lowest. See configs/gcg.py."""

from absl import flags

from engine.search.runs import Found
from launch import cli, scoring, searching

_CONFIG = cli.config_file("gcg")
flags.adopt_module_key_flags(scoring)  # for --help


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    own, mesh = searching.settings(config)
    found = searching.search(models, prompts, run, own, mesh, config)
    what = ", ".join(_said(f) for f in found[:4]) if found else "complete already"
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return f"{run}/sequences: {len(found)} new; {what}{more}"


def _said(found: Found) -> str:
    return f"{found.direction} {found.reward:.4g} {found.text!r}"


if __name__ == "__main__":
    cli.run(main)
