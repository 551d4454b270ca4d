"""What every scoring job declares."""

import ml_collections


def scoring() -> ml_collections.ConfigDict:
    """Keys of a job that runs a model over rows: where, in which precision, in which steps."""
    config = ml_collections.ConfigDict()
    # float32, bfloat16, float16; or `auto`: float32 on a CPU; on accelerators bfloat16, and float16
    # for models whose decoders are stored in it (their weights would be rounded again).
    config.dtype = "auto"
    # Where the reward is read: `last`, the last id; `first_pad`, before the first pad token,
    # wherever it stands, as the library did that the paper used.
    config.pooling = "last"
    config.step_size = 1024  # candidates a device step
    config.part_size = 16384  # rows a part: what a kill can cost
    config.self_check = 16  # rows a result that the plain pass scores again
    config.seed = 0  # of the self-check's sample
    # Beside the reward: `values`, a column an objective (ArmoRM, URM, QRM; models without any have
    # the reward alone), or `quantiles`, those and a column a quantile of each (QRM).
    config.objectives = "none"
    config.mesh = ml_collections.ConfigDict({"model": 1})  # `data` takes the other devices
    return config
