"""Token sequences that a reward model rates highest and lowest.

    python -m launch.gcg --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/gcg.py:paper]

Writes run/sequences. A step of 64 candidates of 8 tokens takes about a second of CPU time with a
135M-parameter model of 12 layers; `--config.direction=both` takes twice as long.
"""

import math

from ml_collections import ConfigDict, config_dict

# Settings that `--config=configs/gcg.py:<selection>` changes.
SELECTIONS = {
    "": {},
    # The paper's search: Faster-GCG, greedy over all pairs of position and token. The released code
    # also used the gradient of maximising when it minimised: --config.wrong_sign=True.
    "paper": {
        "method": "paper",
        "steps": 1000,
        "candidates": 512,
        "distance": 4.5,
        "target": 30.0,
        "buffer": 256,
        "spread": 0.0,
        "replace_first": 1,
        "round_trip": False,
    },
}


def get_config(selection: str = "") -> ConfigDict:
    """Every setting of `launch.gcg`, for a selection."""
    # The values of the empty selection are also the defaults of `RewardModel.search`. configs/ may
    # not import the engine and the engine may not import configs/, so engine/search/settings.py
    # states them too: a test compares the two.
    config = ConfigDict()
    # gcg-merged (the default, but of a universal search), gcg (the default there), gcg-original,
    # paper, mutate, random, repeat, coordinate, beam.
    config.method = config_dict.placeholder(str)
    config.direction = "both"  # max, min, both
    config.prompts = "greatest"  # ids of configs/prompts.py
    config.joint = False  # one search for all prompts, by the mean reward
    # One sequence for all models and prompts together, by the "mean" or the "minimum" of their
    # standardised rewards; "": a search for each. Models that do not share the first one's
    # tokenizer read the texts.
    config.universal = ""
    config.judges = ""  # checkpoints that only score what is found, comma-separated
    config.length = 8  # tokens of the reply
    config.steps = 500  # repeat, coordinate and beam score `candidates` tokens per step
    config.flops = 0.0  # budget of each direction; 0: no budget, `steps` decides
    config.candidates = 64  # candidates scored per step and restart
    config.topk = 256  # tokens that may be proposed per position
    config.restarts = 1  # searches per direction, run side by side
    # Settings without a value take their method's default. Of two numbers below, the first is that
    # of gcg-merged and gcg-original, which does not merge, the second that of the others.
    config.buffer = config_dict.placeholder(int)  # sequences that each restart keeps: 1; 8
    config.beam = 8  # width of the beam (method=beam)
    # Tokens that a candidate changes at most, in the first step: 1; 4 …
    config.replace_first = config_dict.placeholder(int)
    config.replace_last = 1  # … and in the last
    # Of drawing proposals, in standard deviations of the gain: inf, which is uniform; 1.
    config.temperature = config_dict.placeholder(float)
    # Of drawing the parent from the buffer, in ranks: 0, which is always the best; 2.
    config.spread = config_dict.placeholder(float)
    config.distance = 0.0  # weight of the distance between embeddings (Faster-GCG)
    config.momentum = 0.0  # weight of the earlier gradients in their running mean (MAC: 0.4)
    # Candidates of a step that are scored: those that the head rates highest after half of the
    # layers (probe sampling); 0: all.
    config.screen = 0
    # Best candidates whose changes are also tried together: 7 (I-GCG); 0, which is none.
    config.merge = config_dict.placeholder(int)
    config.target = 0.0  # reduce the squared distance to ±target, and stop there; 0: no target
    config.wrong_sign = False  # reproduces the mistake of the released code
    config.ascii_only = True  # printable ASCII tokens alone
    config.specials = False  # special tokens may be used
    config.allow = ""  # file of the tokens that alone may be used, one text per line
    config.deny = ""  # file of the tokens that may not be used, one text per line
    config.fixed = ""  # positions of `initial` that do not change, comma-separated, from 0
    config.initial = ""  # text at which the search begins; "": random tokens
    config.round_trip = True  # keep only sequences whose text tokenises back to them
    config.patience = 0  # end after this many steps without a better reward; 0: never
    config.threshold = math.inf  # end at reward >= threshold (max) or <= -threshold (min)
    # Budget of sweeps of the vocabulary, one per position, which show whether a swap of a single
    # token improves what was found, and go on from the best one until none does; 0: none.
    config.certify = 0
    config.certify_step = 0  # swaps per step on each device; 0: as memory and device allow
    config.transfer = True  # score what was found under all other checkpoints too
    config.every = 10  # steps between two saves
    config.dtype = "auto"  # as in configs/common.py
    config.verify = "auto"  # as in configs/common.py
    config.check_memory = True  # as in configs/common.py
    config.seed = 0
    config.mesh = ConfigDict({"model": 1})  # the axis `data` takes the other devices
    if selection not in SELECTIONS:
        allowed = ", ".join(map(repr, SELECTIONS))
        raise ValueError(f"no selection {selection!r}; allowed: {allowed}")
    config.update(SELECTIONS[selection])
    return config
