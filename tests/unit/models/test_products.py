"""Products with weights in 16 bits: in float32 first on a CPU, where that is what is fast."""

import re

import numpy as np
import pytest

from engine.checkpoint import restore as restoring
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from tests.support import searches

PROMPT = "What is the greatest thing?"


def scorer_of(checkpoint):
    mesh = searches.make_mesh()
    restored = restoring.restore([checkpoint], mesh, np.dtype("bfloat16"))
    return RewardScorer.build(*restored, mesh, step_size=16)


def passes(checkpoint):
    """The lowered step of a sweep, and its rewards."""
    scorer, prompt = scorer_of(checkpoint), checkpoint.template.split(PROMPT)
    candidates, prefix = token_candidates(prompt, np.arange(3, 19)), scorer.prefill(prompt)
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
