"""Rewards of a list of replies of any length.

    python -m launch.score --checkpoint=<dir>[,…] --run=<dir> --items=<csv|txt|parquet>
      [--config=configs/score.py:follow_up]

Writes run/items/<list>.
"""

from configs import common, prompts


def get_config(selection=""):
    """Every setting of `launch.score`, for the prompt `greatest` or a set of configs/prompts.py."""
    config = common.scoring()
    config.prompts = (
        prompts.selected(selection) if selection else "greatest"
    )  # ids of configs/prompts.py
    config.mode = "text"  # `text` or `ids`, as in configs/sweep.py
    return config
