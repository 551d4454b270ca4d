"""What changed between two reward models, token by token, with a verdict.

    python -m launch.diff --before=<run or checkpoint> --after=<run or checkpoint> --report=<dir>
                          [--run=<dir>] [--noise=<run>[,…]]

Exit status 0: every limit holds; 1: some do not; 2: an input is refused, or a sweep failed. All
inputs are checked before the first sweep. Settings of sweeps, such as `prompts`, `lens` and
`dtype`, are refused where both sides are runs. Checkpoints are swept into --run first; on two CPU
cores a 135M-parameter model takes about a minute per prompt.
"""

from configs import common, prompts
from engine.settings import DiffSettings, PromptSettings

SETTINGS = (DiffSettings, PromptSettings, *common.SCORING_ANY)


def get_config(selection="paper"):
    """Every setting of `launch.diff`: those of a sweep and of a report, and the limits."""
    return common.config_of(*SETTINGS, prompts=prompts.selected(selection))
