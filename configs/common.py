"""Settings shared by every command that scores rows."""

import ml_collections
from ml_collections import config_dict


def scoring() -> ml_collections.ConfigDict:
    """Settings of precision, device steps, parts, self-check and devices."""
    config = ml_collections.ConfigDict()
    # float32, bfloat16, float16, or `auto`: float32 on a CPU; on an accelerator bfloat16, or
    # float16 for models that are stored in it (bfloat16 would round their weights again).
    config.dtype = "auto"
    # Position at which the reward is read: `last`, the last id; `last_non_pad`, the last one that
    # is no pad token, as in transformers from 4.50 on; `first_pad`, the id before the first pad
    # token, as in the library version that the paper used; `auto`, what the conversion found.
    config.pooling = "auto"
    # Candidates per step on each device, or `auto`: what the run has already for the model, else
    # 2048 on a GPU and 1024 elsewhere, or fewer where memory is short.
    config.step_size = config_dict.FieldReference("auto", field_type=object)
    # Whether a model that is larger than the free memory is refused before it is loaded.
    config.check_memory = True
    config.part_size = 16384  # rows per part; a killed run computes at most two parts again
    config.self_check = 16  # rows per result that a plain full pass scores again
    # Whether a checkpoint's parameters and tokenizer files are compared with the hashes in its
    # model.json: `true`, `false`, or `auto`: tokenizer files, and parameters of less than 20 GB.
    config.verify = "auto"
    config.seed = 0  # of the sample of rows that the self-check takes
    # Columns beside the reward: `none`; `values`, one per objective (ArmoRM, URM, QRM; other models
    # have none); `quantiles`, also one per quantile of each objective (QRM).
    config.objectives = "none"
    config.mesh = ml_collections.ConfigDict({"model": 1})  # the axis `data` takes the other devices
    return config
