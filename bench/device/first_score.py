"""Time from the start of a process to its first reward.

    python -m bench.device.first_score --model=llama-3.1-8b [--toy] [--began=<Unix time>]

Prints one JSON object: seconds since the start at which each stage ended.
"""

import argparse
import json
import time

from bench.device.worker import end_with_parent


def main(name: str, toy: bool, began: float) -> dict[str, float]:
    """Seconds since `began` at the end of each stage: imports, device, weights, first score.

    Args:
      name: of `models.MODELS`.
      toy: whether at toy sizes.
      began: Unix time at which the process was started.
    """
    stages = {"interpreter_s": time.time() - began}
    import jax
    import numpy

    from bench.device import models
    from engine import compile_cache
    from engine.scoring.batches import token_candidates
    from engine.scoring.reward_passes import RewardScorer

    stages["imports_s"] = time.time() - began
    compile_cache.enable()
    mesh = models.one_device()
    stages["device_s"] = time.time() - began
    model = models.named(name, toy=toy)
    weights = models.random_model(model, mesh, jax.numpy.dtype("bfloat16"))
    jax.block_until_ready(weights[1])
    stages["weights_s"] = time.time() - began
    scorer = RewardScorer.build(*weights, mesh, step_size=1024)
    prompt = model.prompt()
    candidates = token_candidates(prompt, numpy.arange(1))
    [reward] = scorer.rewards(scorer.prefill(prompt), candidates)
    stages["first_score_s"] = time.time() - began
    if not (reward == reward).all():
        raise ValueError("the first reward is not a number")
    return stages


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time to the first score of bench.device.")
    parser.add_argument("--model", required=True, help="one of bench.device's")
    parser.add_argument("--toy", action="store_true", help="at toy sizes")
    parser.add_argument("--began", type=float, default=time.time(), help="Unix time of the start")
    given = parser.parse_args()
    end_with_parent()
    print(json.dumps(main(given.model, given.toy, given.began)))
