"""Which findings depend on how a model is read: every token under many readings of one model.

    assay conventions --checkpoint=<dir>[,<dir>…] --run=<dir> [--config.tokens=4000]
    assay analyze --run=<dir> --report=<dir>

Each reading (BOS, date, mode, dtype, …) is a run of its own below <dir>/readings, and takes as long
as a sweep: about 50 s per prompt for 49,152 tokens of a 135M-parameter model of 16 layers on two
CPU cores.
"""

from configs import common, known_models, prompts
from engine.settings import ConventionSettings

SETTINGS = (ConventionSettings, *common.SCORING_ANY)


def get_config(selection="paper"):
    """Every setting of `launch.conventions`, for a set of prompts of configs/prompts.py."""
    chosen = {"prompts": prompts.selected(selection), "dates": known_models.DATE}
    return common.config_of(*SETTINGS, without=["objectives", "lens"], **chosen)
