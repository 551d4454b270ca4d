"""What changed between two reward models, token by token, with a verdict.

    python -m launch.diff --before=<run or checkpoint> --after=<run or checkpoint> --report=<dir>
                          [--run=<dir>] [--noise=<run>[,…]]

Exit status 0: every limit holds; 1: some do not; 2: an input is refused, or a sweep failed. All
inputs are checked before the first sweep. Settings of sweeps, such as `prompts`, `lens` and
`dtype`, are refused where both sides are runs. Checkpoints are swept into --run first; on two CPU
cores a 135M-parameter model takes about a minute per prompt.
"""

from configs import analyze, sweep


def get_config(selection="paper"):
    """Every setting of `launch.diff`: those of a sweep and of a report, and the limits."""
    config = sweep.get_config(selection)
    # Prompts that are compared; "" takes all, and both sides must then have the same.
    config.compared = ""
    # One checkpoint, --after where it is one, is also swept in another dtype and in steps of
    # another size, which measures the noise; it takes as long as the sweep itself.
    config.measure_noise = True
    config.limits = {
        "kendall": 0.9,  # least τ-b between the two rankings of the vocabulary
        "ends": 100,  # tokens at each end that are compared
        "kept": 0.8,  # least share of them that is still there
        "words": 0.05,  # largest significant (q < .05) shift of a kind of words; 0.05: five points
    }
    config.analyze = analyze.get_config()
    return config
