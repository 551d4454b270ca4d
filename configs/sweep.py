"""Rewards of every token of the vocabulary as the reply.

    python -m launch.sweep --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/sweep.py:elo]
    python -m launch.sweep --reward-of=<policy>,<reference> --run=<dir>

Writes run/scores. On two CPU cores a 135M-parameter model of 16 layers takes about two minutes per
prompt. On an H200 an 8B model is limited by its matmuls: about 2 · 2 · 7e9 FLOP per token.
"""

from configs import common, prompts
from engine.settings import ImplicitSettings, PromptSettings

SETTINGS = (PromptSettings, *common.SCORING_ANY, ImplicitSettings)


def get_config(selection="paper"):
    """Every setting of `launch.sweep`, for a set of prompts of configs/prompts.py."""
    return common.config_of(*SETTINGS, prompts=prompts.selected(selection))
