"""Networks in 16 bits and on several devices; frequencies of RoPE; shapes as annotated."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from engine.checkpoint import restore as restoring
from engine.mesh import build_mesh
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
    model = checkpoint(num_hidden_layers=3)
    text, rewards = passes(model)
    products = re.findall(r"stablehlo\.dot_general .*: \((.*)\) -> tensor<(.*)>", text)
    assert len(products) >= 9
    assert all(result.endswith("xf32") for _, result in products), products

    made = restoring._abstract
    monkeypatch.setattr(restoring, "_abstract", lambda *args, platform: made(*args, platform="gpu"))
    plain, expected = passes(model)
    assert re.search(r"dot_general .* -> tensor<.*xbf16>", plain)
    scale = np.std(expected)
    np.testing.assert_allclose(rewards, expected, atol=0.02 * scale)


def test_every_pass_runs_in_bfloat16_where_the_model_is_split(checkpoint):
    stored = checkpoint()
    scorer, prompt = scorer_of(stored, model=2), stored.template.split(PROMPT)
    rewards = scorer.rewards(scorer.prefill(prompt), token_candidates(prompt, TOKENS))
    plain = scorer.plain_rewards([[*prompt.prefix, t, *prompt.suffix] for t in TOKENS])
    np.testing.assert_allclose(rewards[0], plain[0], atol=0.1)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("model", [2, 4])
def test_no_program_that_places_a_layer_waits_for_other_devices(
    checkpoint, monkeypatch, kv_heads, model
):
    """Whole heads, heads that are split, and heads that are repeated."""
    programs: list[str] = []
    make: Any = restoring._place

    def recorded(*shape):
        place = make(*shape)

        def call(*operands):
            programs.append(place.lower(*operands).compile().as_text())
            return place(*operands)

        return call

    monkeypatch.setattr(restoring, "_place", recorded)
    checkpoint = checkpoint(num_key_value_heads=kv_heads)
    restoring.restore([checkpoint], build_mesh(model), jnp.dtype("float32"))
    assert len(programs) > 4
    together = r"all-gather|all-reduce|all-to-all|collective|reduce-scatter|send|recv"
    assert not [text for text in programs if re.search(rf"= \S+ ({together})", text)]
