"""Token sequences that a reward model rates highest and lowest.

    python -m launch.gcg --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/gcg.py:paper]

Writes run/sequences. A step of 64 candidates of 8 tokens takes about a second of CPU time for a
135M-parameter model of 12 layers; `--config.direction=both` takes twice that.
"""

import math

from ml_collections import ConfigDict

# What `--config=configs/gcg.py:<selection>` changes.
SELECTIONS = {
    "": {},
    # The paper's search: Faster-GCG, greedy over all pairs of position and token. The released code
    # also took the maximising gradient in the minimising direction: --config.wrong_sign=True.
    "paper": {
        "method": "paper", "steps": 1000, "candidates": 512, "distance": 4.5, "target": 30.0,
        "buffer": 256, "spread": 0.0, "replace_first": 1, "round_trip": False,
    },
}  # fmt: skip


def get_config(selection: str = "") -> ConfigDict:
    """All keys of a selection; `--config.key=value` overrides one."""
    config = ConfigDict()
    config.method = "gcg"  # gcg, random, repeat, coordinate, beam, mutate, paper
    config.direction = "both"  # max, min, both
    config.prompts = "greatest"  # ids of configs/prompts.py
    config.joint = False  # one search for all prompts, by the mean reward
    config.length = 8  # tokens of the reply
    config.steps = 500  # a sweep's step (repeat, coordinate, beam) is `candidates` tokens
    config.flops = 0.0  # budget of each direction; 0: `steps` alone
    config.candidates = 64  # scored a step and restart
    config.topk = 256  # tokens a position that may be proposed
    config.restarts = 1  # attempts a direction, side by side
    config.buffer = 8  # sequences that a restart keeps
    config.beam = 8  # of method=beam
    config.replace_first = 4  # most tokens that a candidate changes, in the first step …
    config.replace_last = 1  # … and in the last
    config.temperature = 1.0  # of proposals, in standard deviations of the gain; inf: uniform
    config.spread = 2.0  # of the parent over the buffer, in ranks; 0: always the best
    config.distance = 0.0  # weight of the distance between embeddings (Faster-GCG)
    config.target = 0.0  # climb towards ±target by squared distance and stop there; 0: none
    config.wrong_sign = False  # the released code's slip, to reproduce it
    config.ascii_only = True  # printable ASCII
    config.specials = False  # special tokens may be used
    config.allow = ""  # file of the only texts of tokens that may be used, one a line
    config.deny = ""  # file of texts of tokens that may not be used, one a line
    config.fixed = ""  # positions of `initial` that stay, comma-separated, from 0
    config.initial = ""  # where the search begins; "": random tokens
    config.round_trip = True  # only sequences whose text tokenises back to them
    config.patience = 0  # steps without a better reward after which it ends; 0: never
    config.threshold = math.inf  # ends at reward >= it (max), <= minus it (min)
    config.transfer = True  # several checkpoints: score what one's search found under the others
    config.every = 10  # steps between looks of the host, and between saves
    config.dtype = "auto"  # float32 on CPU; on accelerators bfloat16 or float16, as stored
    config.seed = 0
    config.mesh = ConfigDict({"model": 1})  # `data` takes the other devices
    if selection not in SELECTIONS:
        allowed = ", ".join(map(repr, SELECTIONS))
        raise ValueError(f"no selection {selection!r}; allowed: {allowed}")
    config.update(SELECTIONS[selection])
    return config
