"""A list of replies of any length.

    python -m launch.score --checkpoint=<dir>[,…] --run=<dir> --items=<csv|txt|parquet>
      [--config=configs/score.py:follow_up]

Writes run/items/<list>.
"""

from configs import common, prompts


def get_config(selection=""):
    """All keys, `greatest` or a set of configs/prompts.py; `--config.key=value` overrides one."""
    config = common.scoring()
    config.prompts = prompts.selected(selection) if selection else "greatest"  # their ids
    config.mode = "text"  # the rendered conversation as one text; or `ids`
    return config
