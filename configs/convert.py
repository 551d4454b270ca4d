"""Hugging Face folder or hub id -> Assay checkpoint.

    python -m launch.convert --source=<HF id or folder> --checkpoint=<dir> [--revision=…]

A source that `configs/known_models.py` lists takes its revision, template policy and expected size
from there; every key below that is set overrides the entry.
"""

from configs import common
from engine.settings import ConvertSettings

SETTINGS = (ConvertSettings,)


def get_config():
    """Every setting of `launch.convert`."""
    return common.config_of(*SETTINGS)
