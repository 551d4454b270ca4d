"""A list of replies of any length.

    python -m launch.score --checkpoint=<dir>[,…] --run=<dir> --items=<csv|txt|parquet>

Writes run/items/<list>.
"""

from configs import common


def get_config():
    """All keys; `--config.key=value` overrides one."""
    config = common.scoring()
    config.prompts = "greatest"  # ids of configs/prompts.py
    config.mode = "text"  # the rendered conversation as one text; or `ids`
    return config
