r"""Log-probabilities of a language model: every next token, or a list of replies.

    python -m launch.logprobs --checkpoint=<dir>[,…] --run=<dir> [--items=<csv|txt|parquet>]

Writes run/logprobs, or run/item_logprobs/<list>. Natural logarithms. The vocabulary costs one pass
over the prompt: seconds.

A prompt's form is `pretrained`, the plain text `User: <prompt>\nAssistant:` with the special
tokens that the tokenizer adds to any text, or `chat`, the chat template with its generation prompt.
A reply follows a space in the first and nothing in the second; no end-of-turn token is counted. In
chat form the prompt `greatest` is `greatest.chat` in the run, so that a run can hold both.
"""

from configs import common, prompts


def get_config(selection="paper"):
    """All keys, with a set of configs/prompts.py; `--config.key=value` overrides one."""
    config = common.scoring()
    del config.objectives  # a reward model's
    config.prompts = prompts.selected(selection)  # ids of configs/prompts.py
    config.form = "pretrained"  # or chat
    return config
