"""Networks in 16 bits, on one device and on several; the shapes that their annotations state."""

import re

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from engine.checkpoint import restore as restoring
from engine.models.decoder import rms_norm
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from tests.support.parity import make_mesh

PROMPT = "What is the greatest thing?"
TOKENS = np.arange(3, 19)


def scorer_of(checkpoint, model=1):
    mesh = make_mesh(1, model)
    restored = restoring.restore([checkpoint], mesh, np.dtype("bfloat16"))
    return RewardScorer.build(*restored, mesh, step_size=16)


def passes(checkpoint):
    """The lowered step of a sweep, and its rewards."""
    scorer, prompt = scorer_of(checkpoint), checkpoint.template.split(PROMPT)
    candidates, prefix = token_candidates(prompt, TOKENS), scorer.prefill(prompt)
    text = scorer.score_step.lower(scorer.params, prefix, candidates).as_text()
    return text, scorer.rewards(prefix, candidates)[0]


@pytest.mark.slow
def test_products_of_a_step_in_bfloat16_are_float32_on_a_cpu(checkpoint, monkeypatch):
    text, rewards = passes(checkpoint())
    products = re.findall(r"stablehlo\.dot_general .*: \((.*)\) -> tensor<(.*)>", text)
    assert len(products) >= 9
    assert all(result.endswith("xf32") for _, result in products), products

    made = restoring._abstract
    monkeypatch.setattr(restoring, "_abstract", lambda *args, for_cpu: made(*args, for_cpu=False))
    plain, expected = passes(checkpoint())
    assert re.search(r"dot_general .* -> tensor<.*xbf16>", plain)
    scale = np.std(expected)
    np.testing.assert_allclose(rewards, expected, atol=0.02 * scale)


@pytest.mark.parametrize("model", [1, 2])
def test_every_pass_runs_in_bfloat16_however_the_model_is_split(checkpoint, model):
    scorer, prompt = scorer_of(checkpoint(), model), checkpoint().template.split(PROMPT)
    rewards = scorer.rewards(scorer.prefill(prompt), token_candidates(prompt, TOKENS))
    plain = scorer.plain_rewards([[*prompt.prefix, t, *prompt.suffix] for t in TOKENS])
    np.testing.assert_allclose(rewards[0], plain[0], atol=0.1)


def test_an_array_of_another_shape_than_annotated_is_refused():
    with pytest.raises(jaxtyping.TypeCheckError):
        rms_norm(jnp.ones((2, 3)), jnp.ones(4), 1e-5)
