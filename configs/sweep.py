"""Every token of the vocabulary as the reply.

    python -m launch.sweep --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/sweep.py:elo]

Writes run/scores. On two CPU cores a 135M-parameter model of 16 layers takes about two minutes a
prompt; an 8B model on one H200 would be bound by its matmuls: about 2 · 2 · 7e9 FLOP a token.
"""

from configs import common, prompts


def get_config(selection="paper"):
    """All keys, with a set of configs/prompts.py; `--config.key=value` overrides one."""
    config = common.scoring()
    config.prompts = prompts.selected(selection)  # ids of configs/prompts.py
    # `ids`: prefix + [token id] + suffix. `text`: the id is decoded, the conversation rendered and
    # tokenised as one text, as in the paper; identical conversations are scored once.
    config.mode = "ids"
    return config
