"""Tables, figures and one report from the scores of a run.

    python -m launch.analyze --run=out/run --report=out/report

Ten models (six of 128,256 tokens, four of 256,000) under three prompts take about a minute on
two cores. Result: out/report/index.html, which opens from disk, with figures/ and tables/.
"""

from ml_collections import ConfigDict

from configs import common
from engine.settings import AnalyzeSettings

SETTINGS = (AnalyzeSettings,)


def get_config() -> ConfigDict:
    """Every setting of `launch.analyze`."""
    return common.config_of(*SETTINGS)
