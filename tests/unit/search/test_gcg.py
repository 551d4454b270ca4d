"""The step of a search, its proposals and its selection, and the loop until it ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.models import flops
from engine.search import gcg, proposals
from engine.search.gcg import (
    StepDriver,
    Trace,
    admit,
    build_step,
    run_search,
    start,
    step_flops,
    trace_frame,
)
from engine.search.objective import BROKEN, SearchObjective
from engine.search.proposals import UNKNOWN, best_tokens, first_order_gain
from engine.settings import METHODS
from tests.support import searches, slow
from tests.support.parity import make_mesh
from tests.support.searches import problem, scorer, settings


def test_the_gain_is_the_first_order_change_of_an_allowed_swap():
    slopes = np.random.default_rng(0).standard_normal((2, 9)).astype(np.float32)
    ids, allowed = np.array([3, 7]), np.arange(9) != 5
    gain = first_order_gain(slopes, ids, allowed)
    for t, here in enumerate(ids):
        for v in range(9):
            expected = -np.inf if v in (5, here) else slopes[t, v] - slopes[t, here]
            assert gain[t, v] == pytest.approx(expected, rel=1e-4)


def test_the_papers_pairs_are_those_that_bring_the_reward_nearest_to_30_less_their_distance():
    rng, ids, reward = np.random.default_rng(0), np.array([3, 7]), -4.0
    slopes, embedding = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 9), (9, 4))
    )
    slopes *= 0.1
    asked = settings(method="paper", length=2, candidates=5)
    given = ids[None], np.array([reward], np.float32), slopes[None], jnp.zeros((1, 2), jnp.uint32)
    parents, rewards, gradient, keys = map(jnp.asarray, given)
    found = proposals.propose(
        parents, rewards, gradient, keys, jnp.ones(9, bool), jnp.asarray(embedding), asked
    )
    gains = {
        (t, v): 2 * (30 - reward) * (slopes[t, v] - slopes[t, here])
        - 4.5 * np.linalg.norm(embedding[v] - embedding[here])
        for t, here in enumerate(ids)
        for v in range(9)
        if v != here
    }
    best = sorted(gains, key=gains.get, reverse=True)[:5]
    expected = [[v if t == place else int(ids[t]) for t in range(2)] for place, v in best]
    assert np.asarray(found[0]).tolist() == expected


@pytest.mark.parametrize("shards", [1, 2, 8, 5])  # 24 tokens do not divide by 5
def test_the_best_tokens_do_not_depend_on_how_many_devices_share_the_vocabulary(shards):
    gain = np.random.default_rng(0).integers(0, 9, (3, 24)).astype(np.float32)  # with ties
    gain[0, 4:] = -np.inf
    value, token = best_tokens(jnp.asarray(gain), 7, shards)
    expected = np.argsort(-gain, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(token, expected)
    np.testing.assert_array_equal(value, np.take_along_axis(gain, expected, axis=1))


@pytest.mark.slow
def test_the_changes_of_the_best_candidates_are_tried_together(checkpoint, monkeypatch):
    model, kind = checkpoint(), {"restarts": 1, "candidates": 12}
    scorer, asked = searches.scorer(model), problem(model, **kind)
    found = searches.expanded(asked, scorer)
    monkeypatch.setattr(gcg, "compiled_step", gcg.compiled_step.__wrapped__)
    monkeypatch.setattr(proposals, "merged_count", lambda settings: 0)
    ranked = searches.expanded(asked, scorer)
    parent, joined, expected = asked.initial()[0], np.asarray(ranked[0][0, 0]), []
    for row in np.asarray(ranked[0][0, 1:7]):
        joined = np.where(row == parent, joined, row)
        expected.append(tuple(joined.tolist()))
    rows = [tuple(row) for row in np.asarray(found[0][0]).tolist()]
    assert len(rows) == 12 + 6
    more = list(rows)
    for row in np.asarray(ranked[0][0]).tolist():
        more.remove(tuple(row))
    assert sorted(more) == sorted(expected)
    assert (np.array(expected) != parent).sum(1).max() > 1
    rewards = np.asarray(found[1][0])
    scored = rewards > UNKNOWN
    assert {rows[i] for i in np.flatnonzero(~scored)} <= {rows[i] for i in np.flatnonzero(scored)}
    assert len({rows[i] for i in np.flatnonzero(scored)}) == scored.sum()  # none twice
    whole = searches.plain_rewards(scorer, asked, np.asarray(found[0][0]))
    np.testing.assert_allclose(rewards[scored], whole[scored], rtol=1e-4, atol=1e-5)
    assert (np.diff(rewards[scored]) <= 0).all()


def test_the_operations_of_a_step_are_those_of_what_it_scores(checkpoint, monkeypatch):
    asked = problem(checkpoint(), candidates=12)
    before, positions = len(asked.prompt.prefix), 3 + len(asked.suffix)
    whole = flops.response(asked.config, positions, before)
    found = step_flops(asked)
    monkeypatch.setattr(proposals, "merged_count", lambda settings: 0)
    assert found == pytest.approx(step_flops(asked) + 6 * whole, rel=1e-12)


NO, ONE_WORSE = [False] * 4, [False] * 3 + [True] * 2


# With a gradient a search moves on even to worse sequences, but not to one that was visited.
@pytest.mark.parametrize(
    ("method", "passes", "buffer", "best"),
    [
        ("random", [True] * 5, [[5, 5], [6, 6], [1, 1]], [5, 5]),
        ("random", [*NO, True], [[1, 1], [7, 7]], [1, 1]),
        ("gcg", ONE_WORSE, [[7, 7], [1, 1], [1, 1]], [1, 1]),
        ("paper", ONE_WORSE, [[7, 7], [1, 1], [1, 1]], [1, 1]),
    ],
)
def test_the_buffer_keeps_the_best_distinct_sequences_that_pass(
    checkpoint, method, passes, buffer, best
):
    graph = searches.scorer(checkpoint()).graph
    _, admit = build_step(graph, make_mesh(), settings(length=2, method=method))
    state = start(np.zeros((1, 2)), np.array([[1, 1]]), 3)
    ids = jnp.asarray([[[5, 5], [5, 5], [6, 6], [1, 1], [7, 7]]], jnp.int32)
    rewards = {(5, 5): 3.0, (6, 6): 2.0, (1, 1): 0.5, (7, 7): 0.1}
    scored = jnp.asarray([[rewards[tuple(row)] for row in ids[0].tolist()]], jnp.float32)
    state = admit(state, (ids, scored, jnp.asarray([0.5])), np.array([passes]))
    assert state.buffer[0, : len(buffer)].tolist() == buffer
    assert state.best.tolist() == [best]
    assert state.best_rewards.tolist() == [rewards[tuple(best)]]


@pytest.mark.parametrize("method", ["random", "gcg"])
def test_a_reward_that_is_not_finite_is_the_best(method):
    """There the host sees it."""
    state = jax.tree.map(jnp.asarray, start(np.zeros((1, 2)), np.array([[1, 1]]), 3))
    ids = jnp.asarray([[[5, 5], [6, 6]]], jnp.int32)
    ranked = ids, jnp.asarray([[BROKEN, 2.0]], jnp.float32), jnp.asarray([0.5])
    compiled = jax.jit(admit, static_argnums=3)
    state = compiled(state, ranked, jnp.ones((1, 2), bool), settings(method=method))
    assert state.best_rewards.tolist() == [BROKEN]


@pytest.mark.slow
def test_four_devices_search_as_one(checkpoint):
    traces = []
    for data in (1, 4):
        asked = problem(checkpoint(), direction="both", length=2, every=6)
        scorer = searches.scorer(checkpoint(), data)
        traces.append(run_search(asked, scorer)[0])
    np.testing.assert_array_equal(traces[0].ids, traces[1].ids)
    np.testing.assert_array_equal(traces[0].rewards, traces[1].rewards)


@pytest.mark.slow
def test_many_steps_and_other_searches_trace_each_pass_once(checkpoint):
    scorer = searches.scorer(checkpoint())
    sizes = []
    for changes in ({}, {"seed": 1}, {"ascii_only": True, "steps": 9}):
        asked = problem(checkpoint(), **changes)
        climb = StepDriver(asked, scorer)
        climb.advance(2)
        climb.advance(1)
        passes = build_step(scorer.graph, scorer.mesh, asked.settings)
        sizes.append([(p, p._cache_size()) for p in passes])
    assert sizes[1:] == sizes[:1] * 2


def traced(asked: SearchObjective, model) -> Trace:
    return run_search(asked, scorer(model))[0]


@pytest.mark.parametrize("method", slow.all_but(["gcg"], METHODS))
def test_every_method_finds_what_its_model_gives_that_reward(checkpoint, method):
    model = checkpoint()
    asked = problem(model, method=method, direction="min", steps=20, candidates=12, round_trip=True)
    frame = trace_frame(asked, traced(asked, model), "min")
    last, split = frame.row(-1, named=True), asked.prompt
    plain = scorer(model).plain_rewards([[*split.prefix, *last["token_ids"], *split.suffix]])
    assert plain[0, 0] == pytest.approx(last["reward"], rel=1e-4, abs=1e-5)
    assert asked.allowed[last["token_ids"]].all()
    assert last["round_trips"]


@pytest.mark.slow
def test_a_direction_alone_finds_what_it_finds_beside_the_other(checkpoint):
    joint = problem(checkpoint(), direction="both", round_trip=True, seed=1)
    alone = problem(checkpoint(), direction="min", round_trip=True, seed=1)
    (together, rejected), (single, own) = (
        run_search(asked, scorer(checkpoint())) for asked in (joint, alone)
    )
    assert rejected["min"] == own["min"] != rejected["max"]
    found, expected = trace_frame(joint, together, "min"), trace_frame(alone, single, "min")
    assert found.drop("reward").equals(expected.drop("reward"))
    np.testing.assert_allclose(found["reward"], expected["reward"], rtol=1e-5)  # other batches


@pytest.mark.slow
def test_each_candidate_that_is_refused_for_its_text_is_counted_once(checkpoint, monkeypatch):
    judge, refused, counts = SearchObjective.passes, [], {}

    def passes(*of):
        refused.extend([] if judge(*of) else [of])
        return judge(*of)

    monkeypatch.setattr(SearchObjective, "passes", passes)
    for direction in ("min", "max", "both"):
        asked = problem(checkpoint(), direction=direction, round_trip=True)
        engine = StepDriver(asked, scorer(checkpoint()))
        refused.clear()  # the drawing of the first parents
        for _ in range(4):
            engine.advance(1)
        found = engine.rejected.reshape(-1, asked.settings.restarts).sum(axis=1).tolist()
        counts[direction] = dict(zip(asked.settings.directions, found, strict=True))
        assert sum(counts[direction].values()) == len(refused) > 0
    assert counts["both"] == counts["min"] | counts["max"]
