"""Hugging Face folder or hub id -> Assay checkpoint.

    python -m launch.convert --source=<HF id or folder> --checkpoint=<dir> [--revision=…]

A source that `configs/known_models.py` lists takes its revision, template policy and expected size
from there; every key below that is set overrides the entry.
"""

import ml_collections


def get_config():
    """All keys; `--config.key=value` overrides one."""
    config = ml_collections.ConfigDict()
    config.slug = ""  # the model's name in runs; by default the last part of the source
    config.bos = ""  # template | single | double (the paper's pipeline); by default the entry's
    config.date = ""  # what a template that prints a date prints; by default the entry's
    config.head = ""  # another published reading of the head: urm-helpfulness (the paper's)
    config.softcap = True  # Gemma 2's attention soft-cap; False as in the paper's library version
    return config
