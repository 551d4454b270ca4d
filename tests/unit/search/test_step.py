"""The compiled step: its gradient, its rewards, its proposals, its selection."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engine.checkpoint.card import Checkpoint
from engine.convert import gates
from engine.models.decoder import behind
from engine.models.reward_model import RewardModels
from engine.planning import flops
from engine.search import gcg, passes
from engine.search.gcg import (
    UNKNOWN,
    Ranked,
    admit,
    build_step,
    build_step_inputs,
    planned_steps,
    replacements,
    start,
    step_flops,
)
from engine.search.loop import StepDriver, run_search
from engine.search.passes import BROKEN, slopes_of
from engine.types import Candidates
from tests.support import searches, slow, tiny
from tests.support.searches import make_mesh, problem, settings

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


@pytest.mark.parametrize(
    ("head", "direction", "fixed"),
    slow.all_but([("linear", "min", (0,))], HEADS_AND_WAYS),
)
def test_every_candidate_scores_as_in_the_plain_pass(
    checkpoint, monkeypatch, head, direction, fixed
):
    monkeypatch.setattr(gates, "PATTERNS", {"llama": tiny.GATE})
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
    expected = sign * plain_rewards(scorer, asked, asked.initial())
    np.testing.assert_allclose(ranked.parent_rewards, expected, rtol=1e-4, atol=1e-5)


def of_positions(free, **changes):
    """Settings of a search in which only `free` positions change."""
    length = max(free) + 1
    fixed = tuple(i for i in range(length) if i not in free)
    return settings(length=length, fixed=fixed, initial="given" if fixed else "", **changes)


@pytest.mark.parametrize("free", [(0,), (2,), (0, 1, 2), tuple(range(20)), (1, 4, 5, 9)])
def test_candidates_are_spread_evenly_over_the_free_positions(free):
    first = gcg.first_changes(of_positions(free, candidates=37, topk=64))
    counts = np.bincount(first, minlength=max(free) + 1)[list(free)]
    assert counts.sum() == 37
    assert counts.max() - counts.min() <= 1
    assert list(first) == sorted(first)


@pytest.mark.parametrize(("length", "candidates"), [(8, 64), (20, 512), (20, 37), (7, 16)])
def test_rows_of_two_spread_candidates_are_equally_long(length, candidates):
    first = gcg.first_changes(settings(length=length, candidates=candidates, topk=64))
    rows = passes.pack(first, length + 1).place
    assert rows.shape[1] == 2 * (length + 1) - (length - 1)


def test_the_distance_between_embeddings_is_taken_off_the_gain():
    rng = np.random.default_rng(0)
    slopes, embedding = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9), (9, 4)))
    ids, allowed = np.array([3, 7]), np.arange(9) != 5
    gain = gcg.first_order_gain(slopes, ids, allowed, jnp.asarray(embedding), 4.5)
    for t, here in enumerate(ids):
        for v in range(9):
            apart = np.linalg.norm(embedding[v] - embedding[here])
            expected = slopes[t, v] - slopes[t, here] - 4.5 * apart
            expected = -np.inf if v in (5, here) else expected
            assert gain[t, v] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("usable", [1, 4])
def test_equal_gains_are_drawn_uniformly_too(usable):
    """The default temperature is infinite, and the spread of equal gains is 0."""
    ids = jnp.zeros(2, jnp.int32)
    kind = {"candidates": 2, "topk": 4, "temperature": math.inf, "replace_first": 1}
    gain = jnp.full((2, 9), -jnp.inf).at[:, 1 : 1 + usable].set(0.5)
    drawn = [
        gcg.by_position(jax.random.key(seed), ids, gain, jnp.asarray(1), settings(length=2, **kind))
        for seed in range(8)
    ]
    tokens = {int(reply.max()) for replies in drawn for reply in replies}
    assert tokens <= set(range(1, 1 + usable)) and (len(tokens) > 1) == (usable > 1)


@pytest.mark.parametrize("replace", [1, 3])
@pytest.mark.parametrize("free", [(0, 1, 2, 3), (1, 3)])
def test_proposals_change_allowed_tokens_at_free_positions_from_their_first_on(replace, free):
    chosen = of_positions(free, candidates=24, topk=30, replace_first=replace)
    draw = jax.jit(
        lambda key, ids, gain: gcg.by_position(key, ids, gain, jnp.asarray(replace), chosen)
    )
    for seed in range(10):
        rng = np.random.default_rng(seed)
        allowed = rng.random(50) < 0.7
        ids = rng.choice(np.flatnonzero(allowed), 4).astype(np.int32)
        slopes = jnp.asarray(rng.standard_normal((4, 50)), jnp.float32)
        gain = gcg.first_order_gain(slopes, ids, allowed, jnp.zeros((50, 2)), 0.0)
        found = np.asarray(draw(jax.random.key(seed), ids, gain))
        assert allowed[found].all()
        changed = found != ids
        assert set(np.flatnonzero(changed.any(0))) <= set(free)
        assert (changed.sum(1) <= replace).all()
        assert (changed.argmax(1) == gcg.first_changes(chosen)).all()
        if replace == 1:
            assert len(np.unique(found, axis=0)) == len(found)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize(
    "first", [(0,), (3, 3, 3), (0, 1, 2), (0, 0, 1, 1, 4, 4), tuple(range(20))]
)
def test_rows_hold_every_candidate_once_from_its_first_change_to_its_reward(first, block):
    positions = 22
    layout = passes.pack(first, positions, block)
    assert len(layout.read) < block or len(layout.read) % block == 0
    width = layout.read.shape[1]
    for c, begin in enumerate(first):
        row, which = divmod(int(layout.where[c]), width)
        own = (layout.reply[row] == which) & (layout.place[row] < positions)
        assert (layout.candidate[row, own] == c).all()
        assert layout.place[row, own].tolist() == list(range(begin, positions))
        assert (layout.first[row, own] == begin).all()
        at = layout.read[row, which]
        assert own[at]
        assert layout.place[row, at] == positions - 1
    if first == tuple(range(20)):  # the longest with the shortest: nothing is padding
        assert layout.place.max() == positions - 1


@pytest.mark.parametrize("sign", slow.all_but([-1.0], [1.0]))
def test_the_gradient_is_the_finite_difference_of_the_signed_reward(checkpoint, sign):
    scorer = searches.scorer(checkpoint())
    asked = problem(checkpoint(), *PROMPTS, direction="max" if sign > 0 else "min", restarts=1)
    parents = random_ids(1, 1, 3)
    model = nnx.merge(scorer.graph, scorer.params)
    what = build_step_inputs(asked, scorer)
    rewards, slopes, _ = gradients(scorer, what, parents, asked.settings)
    np.testing.assert_allclose(rewards, sign * plain_rewards(scorer, asked, parents), rtol=1e-4)

    @jax.jit
    def reward(rows):
        embedded = model.decoder._scaled(rows[None] @ model.decoder.embedding[...])
        x = jnp.concatenate([embedded, model.decoder.embed(what.suffix[None])], axis=1)
        last = jnp.full((1, 1), x.shape[1] - 1)
        under = [
            model.respond_embedded(
                jax.tree.map(lambda leaf, j=j: leaf[j], what.prefix),
                x,
                behind(what.lengths[j][None], x.shape[1]),
                last,
            )[0, 0, 0]
            for j in range(len(PROMPTS))
        ]
        return sign * jnp.mean(jnp.stack(under))

    rows = jax.nn.one_hot(parents[0], 320)
    rng = np.random.default_rng(0)
    step = 1e-2
    for _ in range(5):
        way = jnp.asarray(rng.standard_normal(rows.shape), jnp.float32) / 10
        there = (reward(rows + step * way) - reward(rows - step * way)) / (2 * step)
        assert float(jnp.vdot(slopes[0], way)) == pytest.approx(float(there), rel=1e-2, abs=1e-3)


def test_a_gradient_gives_the_keys_and_values_that_appending_the_parent_gives(checkpoint):
    scorer = searches.scorer(checkpoint())
    asked = problem(checkpoint(), *PROMPTS, restarts=2)
    what, parents = build_step_inputs(asked, scorer), jnp.asarray(random_ids(1, 2, 3))

    @jax.jit
    def both(params):
        model = nnx.merge(scorer.graph, params)
        found = passes.slopes_of(model, what, parents, asked.settings, scorer.mesh)
        return found[2], passes.keys_values_of(model, what, parents, scorer.mesh)

    found, expected = both(scorer.params)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape[:2] == (2, 2) and one.shape[3] == 3  # attempts, prompts; tokens
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert np.ptp(one) > 0.1


def for_accelerators(scorer):
    """The scorer with the forms that accelerators compute, on any device."""
    model = nnx.merge(scorer.graph, scorer.params)
    model.decoder.layers.for_cpu = False
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
    value, token = gcg.best_tokens(jnp.asarray(gain), 7, shards)
    expected = np.argsort(-gain, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(token, expected)
    np.testing.assert_array_equal(value, np.take_along_axis(gain, expected, axis=1))


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


def test_of_merged_changes_of_one_position_the_worse_candidate_decides():
    parent = jnp.array([1, 2, 3])
    best = jnp.array([[9, 2, 3], [1, 8, 3], [7, 2, 3]])
    assert gcg.merged(parent, best).tolist() == [[9, 8, 3], [7, 8, 3]]


@pytest.mark.parametrize("merge", [0, 3])
def test_the_operations_of_a_step_are_those_of_what_it_scores(checkpoint, merge):
    plain = problem(checkpoint(), candidates=12)
    before, positions = len(plain.prompts[0].prefix), 3 + len(plain.suffix)
    whole = flops.response(plain.config, positions, before)
    found = step_flops(problem(checkpoint(), candidates=12, merge=merge))
    assert found == pytest.approx(step_flops(plain) + max(0, merge - 1) * whole, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gcg", "paper"])
def test_two_devices_and_fixed_positions_are_scored_as_in_the_plain_pass(checkpoint, method):
    kind = {"method": method, "fixed": (0,), "initial": "abc", "candidates": 12, "topk": 8}
    asked = problem(checkpoint(), *PROMPTS, merge=3, **kind)
    on_one, on_two = (
        searches.expanded(asked, searches.scorer(checkpoint(), data)) for data in (1, 2)
    )
    np.testing.assert_array_equal(on_one.ids, on_two.ids)
    np.testing.assert_array_equal(on_one.rewards, on_two.rewards)
    assert (np.asarray(on_one.ids)[..., 0] == asked.initial()[0, 0]).all()
    for ids, rewards in zip(np.asarray(on_one.ids), np.asarray(on_one.rewards), strict=True):
        whole, scored = plain_rewards(searches.scorer(checkpoint()), asked, ids), rewards > UNKNOWN
        np.testing.assert_allclose(rewards[scored], whole[scored], rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("method", ["mutate", "gcg"])
@pytest.mark.parametrize("target", [0.0, 30.0])
def test_a_reward_that_is_not_finite_is_the_best_whatever_is_climbed(method, target):
    """There the host sees it."""
    state = jax.tree.map(jnp.asarray, start(np.zeros((1, 2)), np.array([[1, 1]]), 3))
    ranked = ranked_of(np.array([[5, 5], [6, 6]], np.int32), np.array([BROKEN, 2.0], np.float32))
    state = admit(state, ranked, jnp.ones((1, 2), bool), settings(method=method, target=target))
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


def test_the_number_of_replacements_falls_over_the_steps_that_are_afforded(checkpoint):
    asked = problem(checkpoint(), replace_first=3, replace_last=1, steps=10**6)
    cost = step_flops(asked)
    for restarts in (1, 2):
        own = settings(flops=9.5 * cost * restarts, restarts=restarts, steps=10**6)
        assert planned_steps(own, cost) == 9
    counts = [int(replacements(step, 9, asked.settings)) for step in range(12)]
    assert counts == [3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1]


@functools.cache
def pairs_of(path):
    """Rewards of all pairs of 400 tokens of a model: float32 [400, 400]."""
    model = Checkpoint.open(path)
    scorer, split = searches.scorer(model), model.template.split("Who?")
    scorer = dataclasses.replace(scorer, step_size=4096)
    ids = np.stack(np.meshgrid(np.arange(400), np.arange(400), indexing="ij"), -1).reshape(-1, 2)
    suffix = np.tile(np.array(split.suffix), (len(ids), 1))
    rows = Candidates(
        ids=np.concatenate([ids, suffix], 1).astype(np.int32),
        shared=np.full(len(ids), len(split.prefix), np.int32),
        last=np.full(len(ids), 1 + len(split.suffix), np.int32),
    )
    return scorer.rewards(scorer.prefill(split), rows)[0].reshape(400, 400)


@pytest.mark.slow
def test_two_tokens_of_four_hundred_find_the_best_of_all_pairs(checkpoint):
    """With a wide, flat buffer, more candidates than by default, always two changes.

    The best pair is often a neighbour of no other good one: what climbs towards good parents ends
    in the second best (by default in 4 of 10 seeds). Eight tokens have no such corner to fill.
    """
    model = checkpoint("wide", vocab_size=400)
    best = pairs_of(model.path).max()
    asked = problem(
        model,
        length=2,
        restarts=1,
        candidates=128,
        topk=128,
        buffer=32,
        spread=16.0,
        replace_last=2,
        merge=7,
        steps=300,
        every=50,
    )
    asked = dataclasses.replace(asked, allowed=np.ones(400, bool))
    found = []
    for seed in range(10):
        own = dataclasses.replace(asked, settings=dataclasses.replace(asked.settings, seed=seed))
        climb = StepDriver(own, searches.scorer(model))
        ids = np.random.default_rng(seed).integers(0, 400, (1, 2))
        drawn = climb.arrays()
        climb.restore(drawn | vars(start(drawn["keys"], ids, 32)))
        for _ in range(6):  # the best so far stays
            reward = climb.advance(50, 1e30)[0][-1, 0]
            if np.isclose(reward, best, rtol=1e-5):
                break
        found.append(reward)
    assert np.isclose(found, best, rtol=1e-5).sum() >= 9, (found, best)
