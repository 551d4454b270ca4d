"""Rewards of a list of replies of any length.

    python -m launch.score --checkpoint=<dir>[,…] --run=<dir> --items=<csv|txt|jsonl|parquet>
      [--config=configs/score.py:follow_up]
    python -m launch.score --reward-of=<policy>,<reference> --run=<dir> --items=<csv|txt|parquet>

Writes run/items/<list>; run/conversations/<list> where the rows of --items have prompts.
"""

from configs import common, prompts
from engine.settings import ImplicitSettings, PromptSettings

SETTINGS = (PromptSettings, *common.SCORING_ANY, ImplicitSettings)


def get_config(selection=""):
    """Every setting of `launch.score`, for the prompt `greatest` or a set of configs/prompts.py."""
    config = common.config_of(*SETTINGS, without=["lens"], mode="text")
    if selection:
        config.prompts = prompts.selected(selection)
    return config
