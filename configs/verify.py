"""Checks a run: results, hashes, rows; with --rescore, also random rows by the plain pass.

    python -m launch.verify --run=<dir> [--rescore=<rows> --checkpoint=<model>[,…]]

Reads every file of the run once. Prints one line per problem, which says what to remove and what to
run, and one line at the end. Exit status 0: all is well; 1: there are problems; 2: bad input.
"""

from configs import common
from engine.settings import SourceSettings, VerifySettings

SETTINGS = (VerifySettings, SourceSettings)


def get_config():
    """Every setting of `launch.verify`."""
    return common.config_of(*SETTINGS)
