"""Sums over the axis `model` in bfloat16: in passes with a mesh in their context, and without."""

import jax.numpy as jnp
import numpy as np
import pytest

from engine.checkpoint.restore import restore
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from tests.support.parity import make_mesh


@pytest.mark.parametrize("model", [1, 2])
def test_every_pass_runs_in_bfloat16_however_the_model_is_split(checkpoint, model):
    tiny = checkpoint()
    mesh = make_mesh(1, model)
    scorer = RewardScorer.build(*restore([tiny], mesh, jnp.dtype("bfloat16")), mesh, step_size=16)
    prompt = tiny.template.split("Who?")
    rows = token_candidates(prompt, np.arange(16))
    rewards = scorer.rewards(scorer.prefill(prompt), rows)
    plain = scorer.plain_rewards([[*prompt.prefix, t, *prompt.suffix] for t in range(16)])
    np.testing.assert_allclose(rewards[0], plain[0], atol=0.1)
