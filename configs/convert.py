"""Hugging Face folder or hub id -> Assay checkpoint.

    python -m launch.convert --source=<HF id or folder> --checkpoint=<dir> [--revision=…]

A source that `configs/known_models.py` lists takes its revision, template policy and expected size
from there; every key below that is set overrides the entry.
"""

import ml_collections


def get_config():
    """Every setting of `launch.convert`."""
    config = ml_collections.ConfigDict()
    config.slug = ""  # the model's name in runs; by default the last part of the source
    config.bos = ""  # template | none | single | double (as in the paper); default: the entry's
    # The date that some templates print, as 2024-07-26: by default that of the entry, and of a
    # template that asks for today's 26 Jul 2024 for Llama, else the day of conversion (UTC).
    config.date = ""
    config.newlines = ""  # keep | trim the line ends that the rendered text begins with; keep
    config.head = ""  # another published reading of the head: urm-helpfulness (as in the paper)
    config.softcap = True  # Gemma 2's attention soft-cap; the paper's library version had none
    config.check_memory = True  # refuse to begin where host memory or disk do not suffice
    return config
