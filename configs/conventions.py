"""Which findings depend on how a model is read: every token under many readings of one model.

    assay conventions --checkpoint=<dir>[,<dir>…] --run=<dir> [--config.tokens=4000]
    assay analyze --run=<dir> --report=<dir>

Each reading (BOS, date, mode, dtype, …) is a run of its own below <dir>/readings, and takes as long
as a sweep: about 50 s per prompt for 49,152 tokens of a 135M-parameter model of 16 layers on two
CPU cores.
"""

from ml_collections import config_dict

from configs import common, known_models, prompts


def get_config(selection="paper"):
    """Every setting of `launch.conventions`, for a set of prompts of configs/prompts.py."""
    config = common.scoring()
    del config.objectives
    config.prompts = prompts.selected(selection)  # ids of configs/prompts.py
    config.mode = "auto"  # of the default reading, as in configs/sweep.py
    # What is varied: `all` that the model allows, or some of bos, date, newlines, mode, pooling,
    # head, softcap, dtype; comma-separated.
    config.dimensions = "all"
    config.dtypes = "float32,bfloat16,float16"  # dtypes to try
    config.dates = known_models.DATE  # dates to try, comma-separated, beside the template's own
    # False: one dimension at a time differs from the default reading. True: every combination.
    config.all_combinations = False
    # A fixed random subset of so many tokens, drawn with `seed`; `all` of them by default.
    config.tokens = config_dict.FieldReference("all", field_type=object)
    # Lists of the run, comma-separated, that are scored under every reading too; `auto`: those
    # whose ranks by people the run holds.
    config.lists = "auto"
    # Of --published: how many replies or tokens of a file are compared, evenly spaced; the largest
    # difference that counts as the same, or `auto`: five times the noise in the authors' own
    # rewards, where that is known, and 0.001 at least.
    config.published_rows = 64
    config.tolerance = config_dict.FieldReference("auto", field_type=object)
    return config
