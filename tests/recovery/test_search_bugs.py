"""Bugs planted in the search, and the check that each must fail. All checks pass without them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engine.models.reward_model import RewardModels
from engine.search import gcg, objective, proposals
from engine.search.gcg import build_step_inputs, run_search, trace_frame
from engine.search.objective import SearchObjective
from tests.support import searches
from tests.support.planted import instead
from tests.support.searches import problem

pytestmark = pytest.mark.slow


def check_rewards(model):
    """Candidates score as in the plain pass, whichever position they change first."""
    scorer, asked = searches.scorer(model), problem(model, direction="both", restarts=1)
    rng = np.random.default_rng(0)
    first = (0, 0, 1, 1, 1, 2, 2)
    parents = rng.integers(3, 280, (2, 3)).astype(np.int32)
    ids = rng.integers(3, 280, (2, len(first), 3)).astype(np.int32)
    kept = np.arange(3) < np.array(first)[:, None]
    ids = np.where(kept, parents[:, None], ids)

    @jax.jit
    def scored(params, what):
        model = nnx.merge(scorer.graph, params)
        rows = jnp.asarray(parents), jnp.asarray(ids)
        return objective.rewards_of(model, what, *rows, first, scorer.mesh)

    rewards = scored(scorer.params, build_step_inputs(asked, scorer))
    for sign, rows, found in zip((1, -1), ids, np.asarray(rewards), strict=True):
        plain = searches.plain_rewards(scorer, asked, rows)
        np.testing.assert_allclose(found, sign * plain, rtol=1e-4, atol=1e-5)


def check_proposals(model):
    """Candidates differ from their parent where they should, in allowed tokens alone."""
    asked = problem(model, restarts=1, topk=8, allow=tuple("abcdefghij"))
    found, rewards, _ = searches.expanded(asked, searches.scorer(model))
    ids, parent = np.asarray(found[0]), asked.initial()[0]
    changed = ids != parent
    assert asked.allowed[ids].all(), "a token that is not allowed"
    assert changed.any(1).all(), "a candidate that is its parent"
    merged = (changed.sum(1) > 1) | ~np.isfinite(rewards[0])
    first = sorted(changed[~merged].argmax(1).tolist())
    assert first == list(proposals.first_changes(asked.settings)), "changed elsewhere"


def check_slopes(model):
    """To first order, the best proposal of `min` lowers the reward."""
    scorer, asked = searches.scorer(model), problem(model, direction="min", restarts=1)
    parents = jnp.asarray([[70, 80, 90]], jnp.int32)
    what = build_step_inputs(asked, scorer)

    @jax.jit
    def best_change(params, what):
        model = nnx.merge(scorer.graph, params)
        _, climbing, _ = objective.slopes_of(model, what, parents, asked.settings, scorer.mesh)
        upward = dataclasses.replace(what, signs=jnp.ones(1))
        # Of the reward itself.
        _, raw, _ = objective.slopes_of(model, upward, parents, asked.settings, scorer.mesh)
        gain = proposals.first_order_gain(climbing[0], parents[0], what.allowed)
        place, token = jnp.unravel_index(gain.argmax(), gain.shape)
        return raw[0, place, token] - raw[0, place, parents[0, place]]

    assert best_change(scorer.params, what) < 0


def check_texts(model):
    """What is found, its text tokenises to."""
    asked = problem(model, round_trip=True, length=5, steps=4, restarts=1, topk=64)
    trace, rejected = run_search(asked, searches.scorer(model))
    assert trace_frame(asked, trace, "max")["round_trips"].all()
    assert rejected["max"] > 0  # the check had something to refuse


CHECKS = (check_rewards, check_proposals, check_slopes, check_texts)


@pytest.fixture
def traced_anew(monkeypatch):
    """A bug shows only in a step that is traced while it is there, and must not stay."""
    anew = functools.cache(gcg.compiled_step.__wrapped__)
    monkeypatch.setattr(gcg, "compiled_step", anew)


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_bug_every_check_passes(checkpoint, check):
    check(checkpoint())


def laid_out(**changes):
    """Plants changes of a packing's fields."""

    def wrong(right, *args):
        layout = right(*args)
        wrong = {name: change(getattr(layout, name)) for name, change in changes.items()}
        return dataclasses.replace(layout, **wrong)

    return instead(objective, "pack", wrong)


def one_place_on(right, key, ids, *rest):
    """The token that was meant for a position stands at the next."""
    meant = right(key, ids, *rest)
    changed = jnp.roll(meant != ids, 1, axis=-1)
    return jnp.where(changed, jnp.roll(meant, 1, axis=-1), ids)


def sign_forgotten(right, model, what, *rest):
    return right(model, dataclasses.replace(what, signs=jnp.ones_like(what.signs)), *rest)


def mask_ignored(right, slopes, ids, allowed, *rest):
    return right(slopes, ids, jnp.ones_like(allowed), *rest)


not_appended = instead(RewardModels, "extend", lambda right, self, prefix, ids, length: prefix)
BUGS = {
    "wrong sign in min": (instead(objective, "slopes_of", sign_forgotten), check_slopes),
    "constraint mask ignored": (
        instead(proposals, "first_order_gain", mask_ignored),
        check_proposals,
    ),
    "replaced at the next position": (
        instead(proposals, "by_position", one_place_on),
        check_proposals,
    ),
    "one position of the parent too few": (laid_out(first=lambda f: f - 1), check_rewards),
    "positions off by one": (laid_out(place=lambda p: p + 1), check_rewards),
    "neighbours in a row seen": (laid_out(reply=lambda r: r * 0), check_rewards),
    "rewards handed to the wrong candidates": (laid_out(slot=lambda w: w[::-1]), check_rewards),
    "the parent not appended": (not_appended, check_rewards),
    "round trips not checked": (instead(SearchObjective, "passes", lambda *_: True), check_texts),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(checkpoint, monkeypatch, traced_anew, bug):
    plant, check = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(checkpoint())
