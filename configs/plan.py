"""What a model needs of a device's memory, on devices that need not be at hand.

    python -m launch.plan --source=<model>

Nothing is loaded or written. The settings are those of the sweep that is planned.
"""

from configs import common
from engine.settings import PlanSettings, SweepSettings

SETTINGS = (PlanSettings, SweepSettings)


def get_config():
    """Every setting of `launch.plan`."""
    return common.config_of(*SETTINGS, only=("prefix", "own", "dtype", "step_size", "self_check"))
