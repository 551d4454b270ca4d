"""The passes of a step: rewards of candidates, and slopes of their parents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engine.models.reward_model import RewardModels
from engine.search.gcg import build_step_inputs
from engine.search.objective import slopes_of
from engine.search.proposals import UNKNOWN
from tests.support import searches
from tests.support.searches import problem


def random_ids(seed, *shape):
    return np.random.default_rng(seed).integers(3, 280, shape).astype(np.int32)


def gradients(scorer, what, parents, asked):
    def compiled(params, what, parents):
        return slopes_of(nnx.merge(scorer.graph, params), what, parents, asked, scorer.mesh)

    return jax.jit(compiled)(scorer.params, what, jnp.asarray(parents))


@pytest.mark.slow
def test_every_candidate_scores_as_in_the_plain_pass(checkpoint):
    """Of a head whose gate reads the prompt."""
    model = checkpoint("qrm", head="qrm", architectures=("LlamaForRewardModelWithGating",))
    scorer = searches.scorer(model)
    asked = problem(model, direction="min", length=5, candidates=20, steps=20)
    ranked = searches.expanded(asked, scorer)
    for ids, rewards in zip(*map(np.asarray, ranked[:2]), strict=True):
        expected = -searches.plain_rewards(scorer, asked, ids)
        new = rewards > UNKNOWN  # a merged reply that is a candidate already comes last
        assert new.sum() >= asked.settings.candidates and new[: new.sum()].all()
        np.testing.assert_allclose(rewards[new], expected[new], rtol=1e-4, atol=1e-5)
        assert np.ptp(expected) > 0.1  # they differ, so the agreement says something
        assert (np.diff(rewards[new]) <= 0).all()
    initial, found = asked.initial(), np.asarray(ranked[0])
    assert asked.allowed[found].all()
    expected = -searches.plain_rewards(scorer, asked, initial)
    np.testing.assert_allclose(ranked[2], expected, rtol=1e-4, atol=1e-5)


def for_accelerators(scorer):
    """The scorer with the forms that accelerators compute, on any device."""
    model = nnx.merge(scorer.graph, scorer.params)
    model.decoder.platform = "gpu"
    return dataclasses.replace(scorer, graph=nnx.split(model)[0])


@pytest.mark.slow
def test_slopes_on_accelerators_are_those_on_a_cpu(checkpoint):
    scorer = searches.scorer(checkpoint())
    asked = problem(checkpoint(), restarts=3)  # one more than a block of parents
    what, parents = build_step_inputs(asked, scorer), random_ids(1, 3, 3)
    _, expected, _ = gradients(scorer, what, parents, asked.settings)
    _, found, _ = gradients(for_accelerators(scorer), what, parents, asked.settings)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_on_accelerators_no_parent_is_appended_where_a_gradient_is_taken(checkpoint, monkeypatch):
    scorer = for_accelerators(searches.scorer(checkpoint()))
    asked = problem(checkpoint(), candidates=20, length=5, topk=32)
    monkeypatch.setattr(RewardModels, "extend", None)
    ranked = searches.expanded(asked, scorer)
    for ids, rewards in zip(*map(np.asarray, ranked[:2]), strict=True):
        new = rewards > UNKNOWN
        expected = searches.plain_rewards(scorer, asked, ids[new])
        np.testing.assert_allclose(rewards[new], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError):  # without a gradient it is
        searches.expanded(problem(checkpoint(), method="random"), scorer)
