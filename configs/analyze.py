"""Tables, figures and one report from the scores of a run.

    python -m launch.analyze --run=out/run --report=out/report

Ten models (six of 128,256 tokens, four of 256,000) under three prompts take about a minute on
two cores. Result: out/report/index.html, which opens from disk, with figures/ and tables/.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Every setting of `launch.analyze`."""
    config = ConfigDict()
    config.top = 20  # Tokens an end in the tables.
    config.figure_top = 10  # Tokens an end in the charts; at most `top`.
    config.summary_tokens = 8  # Tokens a list in the summary.
    # Two prompts whose rewards are drawn against each other, where the run has both.
    config.contrast = ("greatest", "worst")
    config.allow_incomplete = False  # Report on a sweep that has not finished.
    return config
