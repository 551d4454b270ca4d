"""Hugging Face folder or hub id -> Assay checkpoint.

python -m launch.convert --source=<HF id or folder> --checkpoint=<dir> [--revision=…]
"""

import ml_collections


def get_config():
    """All keys; `--config.key=value` overrides one."""
    config = ml_collections.ConfigDict()
    config.slug = ""  # the model's name in runs; by default the last part of the source
    config.bos = "template"  # template | single | double (the paper's pipeline)
    config.date = "26 Jul 2024"  # for templates that print one; "" leaves it to the template
    return config
