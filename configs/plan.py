"""What a model needs, and how long it takes, on devices that need not be at hand.

    python -m launch.plan --source=<model> --devices=<device>[,<device>…] [--prompts=3]

Nothing is loaded or written. The settings are those of the sweep and the search that are planned.
"""

import ml_collections
from ml_collections import config_dict


def get_config():
    """Every setting of `launch.plan`."""
    config = ml_collections.ConfigDict()
    config.dtype = "auto"  # as in configs/common.py
    # Candidates per step on each device, or `auto`, as in configs/common.py.
    config.step_size = config_dict.FieldReference("auto", field_type=object)
    config.self_check = 16  # as in configs/common.py
    config.part_size = 16384  # as in configs/common.py
    # Devices along the mesh axis `model`; 0: the fewest on which the model fits, and for the search
    # as many as keep all devices busy.
    config.mesh = ml_collections.ConfigDict({"model": 0})
    # Positions of a prompt, and of each candidate, template included. 0: those of the checkpoint's
    # template; where there is none at hand 64, and of a candidate a listed model's own, else 3.
    config.prefix = 0
    config.own = 0
    # The search, as in configs/gcg.py.
    config.length = 8
    config.candidates = 64
    config.merge = 7
    config.direction = "both"
    config.restarts = 1
    return config
