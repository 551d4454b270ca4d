"""The paper again: its ten reward models under its prompts, in its conventions, and one report.

    assay reproduce --root=<dir> --plan           which models would be scored, and from where
    assay reproduce --root=<dir> [--source-dir=<folder of model folders>] [--elo=<csv>]
      [--models=<slug>,…]

Writes run/ and report/ below --root; the section "The paper's numbers" compares number by number.
A call that was stopped goes on when it is made again.
"""

from ml_collections import ConfigDict

from configs import common
from engine.settings import PromptSettings, ReportSettings

SETTINGS = (ReportSettings, PromptSettings, *common.SCORING)
# What the paper's analysis counts; docs/reproduce-the-paper.md says what the default is.
OPTIONS = {
    "match_trim": "never",
    "frequency_join": "paper",
    "humans_matches": 0,
    "humans_in_median": True,
    "shared_ends": True,
}


def get_config() -> ConfigDict:
    """Every setting of `launch.reproduce`."""
    return common.config_of(
        *SETTINGS,
        without=["lens"],
        prompts="greatest,best,worst",
        mode="text",
        pooling="first_pad",
        objectives="none",
        analyze={"options": OPTIONS},
    )
