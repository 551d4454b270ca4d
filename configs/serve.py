"""A page on which reward models answer: rankings, replies, searches.

    assay serve <model> [<model>] [--run=<dir>] [--port=8431]

The settings are those of a sweep, since what the page keeps is one. The page is ready when the
programs are compiled: half a minute for a 135M-parameter model on two CPU cores, less with those
of an earlier call on disk.
"""

from configs import common

SETTINGS = common.SCORING_ANY


def get_config():
    """Every setting of `launch.serve`."""
    return common.config_of(*SETTINGS, without=["objectives", "lens"])
