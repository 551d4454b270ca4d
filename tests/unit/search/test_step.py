"""The compiled step: its gradient, its rewards, its proposals, its selection."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engine.models import flops
from engine.models.reward_model import RewardModels
from engine.search.loop import StepDriver, run_search
from engine.search.passes import BROKEN, slopes_of
from engine.search.step import (
    UNKNOWN,
    Ranked,
    admit,
    best_tokens,
    build_step,
    build_step_inputs,
    first_order_gain,
    start,
    step_flops,
)
from tests.support import searches
from tests.support.parity import make_mesh
from tests.support.searches import problem, settings

PROMPTS = ("Who?", "What is the greatest thing?")  # of two lengths


def random_ids(seed, *shape):
    return np.random.default_rng(seed).integers(3, 280, shape).astype(np.int32)


def plain_rewards(scorer, problem, ids):
    """Mean over the prompts of the plain pass, for sequences [N, T]."""
    every = [
        scorer.plain_rewards([[*p.prefix, *row, *p.suffix] for row in ids.tolist()])[0]
        for p in problem.prompts
    ]
    return np.mean(every, axis=0)


def gradients(scorer, what, parents, asked):
    def compiled(params, what, parents):
        return slopes_of(nnx.merge(scorer.graph, params), what, parents, asked, scorer.mesh)

    return jax.jit(compiled)(scorer.params, what, jnp.asarray(parents))


HEADS = {
    "linear": {},
    "qrm": {"architectures": ("LlamaForRewardModelWithGating",)},  # its gate reads the prompt
    "urm": {"architectures": ("LlamaForSequenceClassificationWithNormal_Weights",)},
}


HEADS_AND_WAYS = [
    ("linear", "max", ()),
    ("linear", "min", (0,)),
    ("linear", "max", (1,)),
    ("qrm", "max", ()),
    ("urm", "min", ()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("head", "direction", "fixed"), HEADS_AND_WAYS)
def test_every_candidate_scores_as_in_the_plain_pass(checkpoint, head, direction, fixed):
    model = checkpoint(head, head=head, **HEADS[head])
    scorer = searches.scorer(model)
    asked = problem(
        model,
        *PROMPTS,
        direction=direction,
        length=5,
        candidates=20,
        initial="qwxyz",
        fixed=fixed,
        steps=20,
    )
    ranked = searches.expanded(asked, scorer)
    sign = 1 if direction == "max" else -1
    for ids, rewards in zip(np.asarray(ranked.ids), np.asarray(ranked.rewards), strict=True):
        expected = sign * plain_rewards(scorer, asked, ids)
        np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)
        assert np.ptp(expected) > 0.1  # they differ, so the agreement says something
        assert (np.diff(rewards) <= 0).all()
    initial, found = asked.initial(), np.asarray(ranked.ids)
    assert (found[..., list(fixed)] == initial[0, list(fixed)]).all()
    assert asked.allowed[found].all()
    expected = sign * plain_rewards(scorer, asked, initial)
    np.testing.assert_allclose(ranked.parent_rewards, expected, rtol=1e-4, atol=1e-5)


def test_the_distance_between_embeddings_is_taken_off_the_gain():
    rng = np.random.default_rng(0)
    slopes, embedding = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9), (9, 4)))
    ids, allowed = np.array([3, 7]), np.arange(9) != 5
    gain = first_order_gain(slopes, ids, allowed, jnp.asarray(embedding), 4.5)
    for t, here in enumerate(ids):
        for v in range(9):
            apart = np.linalg.norm(embedding[v] - embedding[here])
            expected = slopes[t, v] - slopes[t, here] - 4.5 * apart
            expected = -np.inf if v in (5, here) else expected
            assert gain[t, v] == pytest.approx(expected, rel=1e-4)


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


@pytest.mark.parametrize("shards", [1, 2, 8, 5])  # 24 tokens do not divide by 5
def test_the_best_tokens_do_not_depend_on_how_many_devices_share_the_vocabulary(shards):
    gain = np.random.default_rng(0).integers(0, 9, (3, 24)).astype(np.float32)  # with ties
    gain[0, 4:] = -np.inf
    value, token = best_tokens(jnp.asarray(gain), 7, shards)
    expected = np.argsort(-gain, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(token, expected)
    np.testing.assert_array_equal(value, np.take_along_axis(gain, expected, axis=1))


@pytest.mark.slow
def test_on_accelerators_no_parent_is_appended_where_a_gradient_is_taken(checkpoint, monkeypatch):
    scorer = for_accelerators(searches.scorer(checkpoint()))
    asked = problem(checkpoint(), *PROMPTS, candidates=20, length=5, initial="qwxyz", topk=32)
    monkeypatch.setattr(RewardModels, "extend", None)
    ranked = searches.expanded(asked, scorer)
    for ids, rewards in zip(np.asarray(ranked.ids), np.asarray(ranked.rewards), strict=True):
        expected = plain_rewards(scorer, asked, ids)
        np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError):  # without a gradient it is
        searches.expanded(problem(checkpoint(), method="mutate"), scorer)


@pytest.mark.slow
def test_a_target_is_climbed_by_the_squared_distance_to_it(checkpoint):
    scorer = searches.scorer(checkpoint())
    asked = problem(checkpoint(), direction="min", restarts=1)
    what, parents = build_step_inputs(asked, scorer), random_ids(1, 1, 3)
    rewards, slopes, _ = gradients(scorer, what, parents, asked.settings)
    aimed, towards, _ = gradients(scorer, what, parents, settings(direction="min", target=30.0))
    np.testing.assert_allclose(aimed, rewards, rtol=1e-5)
    expected = 2 * (30 - rewards[:, None, None]) * slopes
    np.testing.assert_allclose(towards, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_the_changes_of_the_best_candidates_are_tried_together(checkpoint):
    model, kind = checkpoint(), {"restarts": 1, "candidates": 12, "spread": 0.0}
    scorer, asked = searches.scorer(model), problem(model, merge=4, **kind)
    every = searches.expanded(problem(model, **kind), scorer)
    found = searches.expanded(asked, scorer)
    parent, joined, expected = asked.initial()[0], np.asarray(every.ids[0, 0]), []
    for row in np.asarray(every.ids[0, 1:4]):
        joined = np.where(row == parent, joined, row)
        expected.append(tuple(joined.tolist()))
    rows = [tuple(row) for row in np.asarray(found.ids[0]).tolist()]
    assert len(rows) == 12 + 3
    more = list(rows)
    for row in np.asarray(every.ids[0]).tolist():
        more.remove(tuple(row))
    assert sorted(more) == sorted(expected)
    assert (np.array(expected) != parent).sum(1).max() > 1
    rewards = np.asarray(found.rewards[0])
    scored = rewards > UNKNOWN
    assert {rows[i] for i in np.flatnonzero(~scored)} <= {rows[i] for i in np.flatnonzero(scored)}
    assert len({rows[i] for i in np.flatnonzero(scored)}) == scored.sum()  # none twice
    whole = plain_rewards(scorer, asked, np.asarray(found.ids[0]))
    np.testing.assert_allclose(rewards[scored], whole[scored], rtol=1e-4, atol=1e-5)
    assert (np.diff(rewards[scored]) <= 0).all()


def test_the_operations_of_a_step_are_those_of_what_it_scores(checkpoint):
    plain = problem(checkpoint(), candidates=12)
    before, positions = len(plain.prompts[0].prefix), 3 + len(plain.suffix)
    whole = flops.response(plain.config, positions, before)
    found = step_flops(problem(checkpoint(), candidates=12, merge=3))
    assert found == pytest.approx(step_flops(plain) + 2 * whole, rel=1e-12)


def ranked_of(ids, rewards):
    return Ranked(
        ids=jnp.asarray(ids)[None],
        rewards=jnp.asarray(rewards)[None],
        parent_rewards=jnp.asarray([0.5]),
    )


def admitted(checkpoint, passes, **changes):
    scorer = searches.scorer(checkpoint())
    step = build_step(scorer.graph, make_mesh(), settings(length=2, **changes))
    state = start(np.zeros((1, 2)), np.array([[1, 1]]), 3)
    ids = np.array([[5, 5], [5, 5], [6, 6], [1, 1], [7, 7]], np.int32)
    rewards = np.array([3.0, 3.0, 2.0, 0.5, 0.1], np.float32)
    return step.admit(state, ranked_of(ids, rewards), np.array([passes]))


def test_the_buffer_keeps_the_best_distinct_sequences(checkpoint):
    state = admitted(checkpoint, [True] * 5, method="mutate")
    assert state.buffer[0].tolist() == [[5, 5], [6, 6], [1, 1]]
    assert state.buffer_rewards[0].tolist() == [3.0, 2.0, 0.5]
    assert state.best_rewards.tolist() == [3.0]


def test_what_does_not_pass_is_not_kept(checkpoint):
    state = admitted(checkpoint, [False, False, False, False, True], method="mutate")
    assert state.buffer[0, :2].tolist() == [[1, 1], [7, 7]]
    assert state.best_rewards.tolist() == [0.5]
    assert state.best.tolist() == [[1, 1]]


@pytest.mark.parametrize("method", ["gcg", "paper"])
def test_with_a_gradient_a_search_moves_on_even_to_worse_sequences(checkpoint, method):
    state = admitted(checkpoint, [False, False, False, True, True], method=method)
    assert state.buffer[0].tolist() == [[7, 7], [1, 1], [1, 1]]  # [1, 1] was visited
    assert state.best_rewards.tolist() == [0.5]
    assert state.best.tolist() == [[1, 1]]


@pytest.mark.parametrize(("method", "target"), [("mutate", 0.0), ("gcg", 30.0)])
def test_a_reward_that_is_not_finite_is_the_best_whatever_is_climbed(method, target):
    """There the host sees it."""
    state = jax.tree.map(jnp.asarray, start(np.zeros((1, 2)), np.array([[1, 1]]), 3))
    ranked = ranked_of(np.array([[5, 5], [6, 6]], np.int32), np.array([BROKEN, 2.0], np.float32))
    chosen, compiled = settings(method=method, target=target), jax.jit(admit, static_argnums=3)
    state = compiled(state, ranked, jnp.ones((1, 2), bool), chosen)
    assert state.best_rewards.tolist() == [BROKEN]


@pytest.mark.slow
def test_four_devices_search_as_one(checkpoint):
    traces = []
    for data in (1, 4):
        asked = problem(checkpoint(), *PROMPTS, direction="both", steps=6, every=6, candidates=18)
        scorer = searches.scorer(checkpoint(), data)
        traces.append(run_search(asked, scorer)[0])
    np.testing.assert_array_equal(traces[0].ids, traces[1].ids)
    np.testing.assert_array_equal(traces[0].rewards, traces[1].rewards)


def test_many_steps_and_other_searches_trace_each_pass_once(checkpoint):
    scorer = searches.scorer(checkpoint())
    for round_trip in (False, True):
        sizes = []
        for changes in ({}, {"seed": 1}, {"deny": ("a",), "steps": 9}):
            asked = problem(checkpoint(), round_trip=round_trip, **changes)
            climb = StepDriver(asked, scorer)
            step = build_step(scorer.graph, scorer.mesh, asked.settings)
            for _ in range(2):
                climb.advance(2, 1e30)
            climb.advance(1, 1e30)
            passes = (step.expand, step.admit) if round_trip else (step.many,)
            sizes.append([p._cache_size() for p in passes])
        assert sizes[1:] == sizes[:1] * 2
