"""Rewards of every token of the vocabulary as the reply.

    python -m launch.sweep --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/sweep.py:elo]

Writes run/scores. On two CPU cores a 135M-parameter model of 16 layers takes about two minutes per
prompt. On an H200 an 8B model is limited by its matmuls: about 2 · 2 · 7e9 FLOP per token.
"""

from configs import common, prompts


def get_config(selection="paper"):
    """Every setting of `launch.sweep`, for a set of prompts of configs/prompts.py."""
    config = common.scoring()
    config.prompts = prompts.selected(selection)  # ids of configs/prompts.py
    # How a token becomes a reply. `ids`: its id stands between the ids of the template. `text`: its
    # text is put into the template and the whole conversation is tokenised, as in the paper;
    # identical conversations are scored once. `auto`: `ids`, or `text` for a model whose template
    # cannot be cut around a reply.
    config.mode = "auto"
    # Whether parts also hold the reward after every layer: final norm and head read the hidden
    # state after each, in the same pass (docs/lens.md). Parts are as many times as large.
    config.lens = False
    return config
