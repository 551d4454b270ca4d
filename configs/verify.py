"""Checks a run: hashes, rows, manifest; with --rescore, also random rows by the plain pass.

    python -m launch.verify --run=<dir> [--rebuild] [--rescore=<rows> --checkpoint=<dir>[,…]]

Reads every file of the run once. Prints one line per problem, which says what to remove and what to
run, and one line at the end. Exit status 0: all is well; 1: there are problems; 2: bad input.
"""

import ml_collections


def get_config():
    """Every setting of `launch.verify`."""
    config = ml_collections.ConfigDict()
    config.seed = 0  # of the choice of rows that --rescore computes again
    config.mesh = ml_collections.ConfigDict({"model": 1})  # the axis `data` takes the other devices
    return config
