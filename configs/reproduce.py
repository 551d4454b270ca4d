"""The paper again: its ten reward models, its analyses, and a verdict on each published value.

    assay reproduce --root=<dir> --plan           what would be done: bytes, disk, memory, hours
    assay reproduce --root=<dir> [--models=<slug>,…] [--source-dir=<folder of model folders>]
      [--elo=<csv>] [--only=<stage>,…] [--keep=none]

Writes <root>/paper.html. Every stage keeps finished work: a second call goes on where the first one
was stopped. --plan estimates the time; for the ten models it is hours on one H100.
"""

from ml_collections import ConfigDict

from configs import common, known_models, search
from engine.settings import ReproduceSettings

SETTINGS = (ReproduceSettings, *common.SCORING)


def get_config() -> ConfigDict:
    """Every setting of `launch.reproduce`."""
    # What the two readings differ in is not set here: docs/reproduce-the-paper.md lists it.
    left_out = ["search", "mode", "pooling", "objectives", "tokens", "lens"]
    config = common.config_of(*SETTINGS, without=left_out, prompts="greatest,best,worst")
    config.dates = known_models.DATE
    config.search = search.get_config("paper")
    config.search.wrong_sign = True  # as the paper's code: it minimised by the gradient of max
    return config
