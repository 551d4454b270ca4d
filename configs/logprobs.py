r"""Log-probabilities of a language model: of every next token, or of a list of replies.

    python -m launch.logprobs --checkpoint=<dir>[,…] --run=<dir> [--items=<csv|txt|parquet>]

Writes run/logprobs, or run/item_logprobs/<list>. Natural logarithms. The whole vocabulary takes one
pass over the prompt: seconds.

A prompt has one of two forms. `pretrained`: the plain text `User: <prompt>\nAssistant:`, with the
special tokens that the tokenizer adds to any text; a reply follows after a space. `chat`: the chat
template with its generation prompt; a reply follows directly. No end-of-turn token is counted. In
chat form the prompt `greatest` is called `greatest.chat`, so that a run can hold both forms.
"""

from configs import common, prompts
from engine.settings import LogprobSettings, PromptSettings

SETTINGS = (PromptSettings, LogprobSettings, *common.SCORING_ANY)


def get_config(selection="paper"):
    """Every setting of `launch.logprobs`, for a set of prompts of configs/prompts.py."""
    left_out = ["objectives", "mode", "lens"]  # only reward models have them
    return common.config_of(*SETTINGS, without=left_out, prompts=prompts.selected(selection))
