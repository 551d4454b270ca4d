"""Rewards of small models on the device, against those on the CPU."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import models
from bench.device.bench import Bench, Outcome, Skipped, check_rewards
from bench.support.table import aligned
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from tests.support.tolerances import TOLERANCES

# One of each family; larger than the toys, so that products reach the device's matrix units.
FAMILIES = ("llama-3.1-8b", "gemma-2-27b", "qwen3-8b")
_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
_CANDIDATES = 256
_DTYPES = ("float32", "bfloat16")


class Disagreement(ArithmeticError):
    """Rewards of the device and of the CPU differ by more than the dtype explains."""


def agreement(bench: Bench) -> Outcome:
    """Largest difference of rewards, relative to their standard deviation, by family and dtype.

    Raises:
      Skipped: JAX was started without its CPU backend.
      Disagreement: a difference beyond `TOLERANCES`.
    """
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError as error:
        raise Skipped("JAX has no CPU backend here (JAX_PLATFORMS)") from error
    rows = [("model", "dtype", "largest difference", "allowed", "seconds")]
    errors: dict[str, dict[str, float]] = {}
    for name in FAMILIES:
        model = models.named(name, toy=True)
        model = dataclasses.replace(model, hf={**model.hf, **_SIZES})
        errors[name] = {}
        for dtype in _DTYPES:
            began = time.perf_counter()
            error = difference(model, dtype, bench.device, cpu)
            errors[name][dtype] = error
            spent = time.perf_counter() - began
            rows.append((name, dtype, f"{error:.1e}", f"{TOLERANCES[dtype]:.1e}", f"{spent:.1f}"))
    text = f"{aligned(rows)}\nrelative to the rewards' standard deviation, small models"
    check(errors)
    return Outcome(text=text, result={"relative_error": errors})


def check(errors: dict[str, dict[str, float]]) -> None:
    """Raises Disagreement for an error beyond the tolerance of its dtype; NaN is beyond it."""
    for name, by_dtype in errors.items():
        for dtype, error in by_dtype.items():
            if not error <= TOLERANCES[dtype]:
                raise Disagreement(
                    f"{name} in {dtype}: rewards differ from the CPU's by {error:.1e} of their "
                    f"standard deviation; allowed: {TOLERANCES[dtype]:.1e}"
                )


def difference(model: models.Model, dtype: str, device: jax.Device, cpu: jax.Device) -> float:
    """Largest difference of the rewards of one model on both devices, in standard deviations."""
    ours, theirs = (rewards(model, dtype, each, cpu) for each in (device, cpu))
    return float(np.abs(ours - theirs).max() / theirs.std())


def rewards(model: models.Model, dtype: str, device: jax.Device, cpu: jax.Device) -> np.ndarray:
    """Rewards of the first tokens by a model of random weights, the same on every device."""
    weights = models.random_model(model, models.one_device(cpu), jnp.dtype(dtype))
    mesh = models.one_device(device)
    scorer = RewardScorer.build(
        weights[0], jax.device_put(weights[1], device), mesh, step_size=_CANDIDATES
    )
    prompt = model.prompt()
    candidates = token_candidates(prompt, np.arange(_CANDIDATES))
    found = np.concatenate(list(scorer.rewards(scorer.prefill(prompt), candidates)), axis=1)[0]
    check_rewards(found)
    return found
