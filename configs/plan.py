"""What a model needs, and how long it takes, on devices that need not be at hand.

    python -m launch.plan --source=<model> --devices=<device>[,<device>…] [--prompts=3]

Nothing is loaded or written. The settings are those of the sweep and the search that are planned.
"""

from configs import common
from engine.settings import PlanSettings, SearchSettings, SweepSettings

SETTINGS = (PlanSettings, SweepSettings, SearchSettings)
_SWEEP = ("dtype", "step_size", "self_check", "part_size")
_SEARCH = ("length", "candidates", "direction", "restarts")


def get_config():
    """Every setting of `launch.plan`."""
    names = ("prefix", "own", "mesh", *_SWEEP, *_SEARCH)
    return common.config_of(*SETTINGS, only=names, mesh={"model": 0})
