"""From the name of a model to its report.

    assay report <hub id, folder or checkpoint> [more …] [--prompt=…] [--items=…]
                 [--language_model=…] [--out=…]

Writes run/ and report/ into --out. On two CPU cores a model of 135M parameters takes about a minute
per prompt; `assay plan` says how much memory a larger one needs.
"""

from configs import common, prompts
from engine.settings import LogprobSettings, PromptSettings, ReportSettings

SETTINGS = (ReportSettings, PromptSettings, LogprobSettings, *common.SCORING_ANY)


def get_config(selection="paper"):
    """Every setting of `launch.report`, for a set of prompts of configs/prompts.py."""
    return common.config_of(*SETTINGS, prompts=prompts.selected(selection))
