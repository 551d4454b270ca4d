"""From the name of a model to its report.

    assay report <hub id, folder or checkpoint> [more …] [--prompt=…] [--items=…]
                 [--language_model=…] [--out=…]

Writes run/ and report/ into --out. On two CPU cores a model of 135M parameters takes about a minute
per prompt; on an accelerator, of which only the planner's estimates are known, `assay plan` says
how long a larger one takes.
"""

from configs import common, prompts
from engine.settings import LogprobSettings, PromptSettings, ReportSettings

SETTINGS = (ReportSettings, PromptSettings, LogprobSettings, *common.SCORING_ANY)


def get_config(selection="paper"):
    """Every setting of `launch.report`, for a set of prompts of configs/prompts.py."""
    return common.config_of(*SETTINGS, prompts=prompts.selected(selection))
