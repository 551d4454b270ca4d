"""What successors of GCG have: momentum, a screen by half of the layers, merged changes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from engine.errors import AssayError
from engine.planning import flops
from engine.search import proposals
from engine.search.buffer import UNKNOWN, State
from engine.search.drivers import StepDriver, build_step_inputs, step_flops
from engine.search.passes import slopes_of
from engine.search.step import build_step
from engine.search.universal import check_settings
from tests.support import searches, slow
from tests.support.searches import problem, settings

PROMPT = "Who?"


@pytest.fixture(scope="module")
def model(checkpoint):
    return checkpoint()


def expanded(asked, scorer, **changes):
    """The state before a step, with some fields changed, and what the step ranks."""
    fields = {k: v for k, v in StepDriver(asked, scorer).arrays().items() if k != "rejected"}
    state = State(**fields | changes)
    step = build_step(scorer.graph, scorer.mesh, asked.settings)
    return state, step.expand(scorer.params, build_step_inputs(asked, scorer), state)


def slopes_at(asked, scorer, parents):
    @jax.jit
    def slopes(params, what):
        model = nnx.merge(scorer.graph, params)
        return slopes_of(model, what, parents, asked.settings, scorer.mesh)[1]

    return np.asarray(slopes(scorer.params, build_step_inputs(asked, scorer)))


def test_momentum_is_the_running_mean_of_the_gradients_and_proposals_follow_it(model):
    scorer = searches.scorer(model)
    asked = problem(model, momentum=0.4, spread=0.0, topk=4, replace_first=1)
    earlier = np.random.default_rng(0).normal(0, 5, (2, 3, asked.config.vocab_size))
    earlier = earlier.astype(np.float32)
    state, first = expanded(asked, scorer, momentum=earlier)
    own = slopes_at(asked, scorer, jnp.asarray(state.buffer[:, 0]))
    np.testing.assert_allclose(first.momentum, own, rtol=1e-5, atol=1e-6)

    _, later = expanded(asked, scorer, momentum=earlier, step=np.int32(1))
    mixed = 0.4 * earlier + 0.6 * own
    np.testing.assert_allclose(later.momentum, mixed, rtol=1e-5, atol=1e-6)
    for parent, slopes, ids in zip(state.buffer[:, 0], mixed, np.asarray(later.ids), strict=True):
        gain = np.where(asked.allowed, slopes, -np.inf)
        gain[np.arange(3), parent] = -np.inf
        best = np.argsort(-gain, axis=1)[:, :4]
        for place, token in zip(*np.nonzero(ids != parent), strict=True):
            changed = np.flatnonzero(ids[place] != parent)
            assert ids[place, token] in best[token], (changed, best[token])


@pytest.mark.slow
def test_a_search_with_momentum_goes_on_as_if_it_had_not_stopped(model):
    scorer, asked = searches.scorer(model), problem(model, momentum=0.4, every=4)
    whole, begun, resumed = (StepDriver(asked, scorer) for _ in range(3))
    expected = whole.advance(4, np.inf)
    begun.advance(2, np.inf)
    resumed.restore(begun.arrays())
    found = resumed.advance(2, np.inf)
    np.testing.assert_array_equal(found.ids, expected.ids[2:])
    np.testing.assert_array_equal(resumed.arrays()["momentum"], whole.arrays()["momentum"])
    assert whole.arrays()["momentum"].any()


@pytest.mark.slow
def test_a_search_that_was_saved_before_there_was_momentum_goes_on(model):
    scorer, asked = searches.scorer(model), problem(model)
    begun, resumed = (StepDriver(asked, scorer) for _ in range(2))
    begun.advance(2, np.inf)
    resumed.restore({k: v for k, v in begun.arrays().items() if k != "momentum"})
    np.testing.assert_array_equal(
        resumed.advance(2, np.inf).ids[-1], begun.advance(2, np.inf).ids[-1]
    )


def rewards_by_layer(scorer, asked, ids):
    """The reward and the rewards after each layer [1 + L, C] of replies [C, T], by plain passes."""
    (prompt,) = asked.prompts
    rows = jnp.asarray([[*prompt.prefix, *row, *prompt.suffix] for row in ids.tolist()])
    last = jnp.full(len(rows), rows.shape[1] - 1)

    @jax.jit
    def plain(params):
        model = nnx.merge(scorer.graph, params)
        return model.plain(rows, last, jnp.zeros((len(rows), 1), jnp.int32), lens=True)

    with jax.default_matmul_precision("highest"):
        return np.asarray(plain(scorer.params))


@pytest.mark.parametrize("direction", slow.all_but(["max"], ["max", "min"]))
def test_a_screen_scores_those_that_the_first_half_of_the_layers_rates_highest(model, direction):
    scorer = searches.scorer(model)
    kind = {"direction": direction, "restarts": 1, "candidates": 12}
    _, every = expanded(problem(model, PROMPT, **kind), scorer)
    asked = problem(model, PROMPT, **kind, screen=4)
    _, found = expanded(asked, scorer)
    sign, ids = asked.signs[0], np.asarray(every.ids[0])
    drafted = sign * rewards_by_layer(scorer, asked, ids)[1]  # of three layers, after the first
    expected = {tuple(row) for row in ids[np.argsort(-drafted)[:4]].tolist()}
    assert {tuple(row) for row in np.asarray(found.ids[0]).tolist()} == expected
    whole = sign * rewards_by_layer(scorer, asked, np.asarray(found.ids[0]))[0]
    np.testing.assert_allclose(found.rewards[0], whole, rtol=1e-4, atol=1e-5)
    order = np.argsort(-sign * rewards_by_layer(scorer, asked, ids)[0])[:4]
    assert expected != {tuple(row) for row in ids[order].tolist()}  # the model's own order differs


@pytest.mark.slow
def test_the_changes_of_the_best_candidates_are_tried_together(model):
    scorer = searches.scorer(model)
    kind = {"restarts": 1, "candidates": 12, "spread": 0.0}
    state, every = expanded(problem(model, PROMPT, **kind), scorer)
    asked = problem(model, PROMPT, **kind, merge=4)
    _, found = expanded(asked, scorer)
    parent, joined, expected = state.buffer[0, 0], np.asarray(every.ids[0, 0]), []
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
    whole = rewards_by_layer(scorer, asked, np.asarray(found.ids[0]))[0]
    np.testing.assert_allclose(rewards[scored], whole[scored], rtol=1e-4, atol=1e-5)
    assert (np.diff(rewards[scored]) <= 0).all()


def test_of_merged_changes_of_one_position_the_worse_candidate_decides():
    parent = jnp.array([1, 2, 3])
    best = jnp.array([[9, 2, 3], [1, 8, 3], [7, 2, 3]])
    assert proposals.merged(parent, best).tolist() == [[9, 8, 3], [7, 8, 3]]


@pytest.mark.parametrize(("screen", "merge"), [(0, 0), (0, 3), (4, 0), (4, 3)])
def test_the_operations_of_a_step_are_those_of_what_it_scores(model, screen, merge):
    plain = problem(model, PROMPT, candidates=12)
    asked = problem(model, PROMPT, candidates=12, screen=screen, merge=merge)
    config, before = asked.config, len(asked.prompts[0].prefix)
    own = 3 + len(asked.suffix)
    whole = flops.response(config, own, before)
    firsts = [0] * 4 + [1] * 4 + [2] * 4
    scored = sum(flops.response(config, own - f, before + f) for f in firsts)
    expected = step_flops(plain) + max(0, merge - 1) * whole
    if screen:
        half = sum(flops.response(one_layer(config), own - f, before + f) for f in firsts)
        expected += screen * whole + half - scored
    assert step_flops(asked) == pytest.approx(expected, rel=1e-12)


def one_layer(config):  # half of three layers
    return dataclasses.replace(config, num_layers=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"screen": 12},
        {"screen": -1},
        {"merge": 1},
        {"merge": 13},
        {"screen": 4, "merge": 5},
    ],
)
def test_values_that_mean_nothing_are_refused(wrong):
    with pytest.raises(AssayError, match=next(reversed(wrong)) + "="):
        settings(**wrong)


def test_a_search_without_them_is_the_search_that_it_was():
    assert not {"momentum", "screen", "merge"} & set(settings().fingerprint("max"))
    assert settings(merge=3).fingerprint("max")["merge"] == 3


@pytest.mark.parametrize("name", ["momentum", "screen", "merge"])
def test_a_universal_search_refuses_them(name):
    check_settings(settings())
    with pytest.raises(AssayError, match=f"{name}=.*; allowed in a universal search: 0"):
        check_settings(settings(**{name: 0.4 if name == "momentum" else 3}))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gcg", "paper", "gcg-original"])
def test_two_devices_fixed_positions_and_several_prompts_are_scored_as_in_the_plain_pass(
    model, method
):
    kind = {"method": method, "fixed": (0,), "initial": "abc", "candidates": 12, "topk": 8}
    asked = problem(
        model, PROMPT, "What is the greatest thing?", momentum=0.4, screen=6, merge=3, **kind
    )
    (_, on_one), (_, on_two) = (
        expanded(asked, searches.scorer(model, data=data)) for data in (1, 2)
    )
    np.testing.assert_array_equal(on_one.ids, on_two.ids)
    np.testing.assert_array_equal(on_one.rewards, on_two.rewards)
    scorer, ids = searches.scorer(model), np.asarray(on_one.ids)
    assert (ids[..., 0] == asked.initial()[0, 0]).all()
    for rows, rewards in zip(ids, np.asarray(on_one.rewards), strict=True):
        every = [
            scorer.plain_rewards([[*p.prefix, *row, *p.suffix] for row in rows.tolist()])[0]
            for p in asked.prompts
        ]
        scored = rewards > UNKNOWN
        whole = np.mean(every, axis=0)
        np.testing.assert_allclose(rewards[scored], whole[scored], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["momentum", "screen", "merge"])
@pytest.mark.parametrize("method", ["random", "mutate", "beam"])
def test_methods_without_a_gradient_refuse_them(name, method):
    value = 0.4 if name == "momentum" else 3
    with pytest.raises(AssayError, match=f"{name}={value} with method='{method}'; allowed: 0, or"):
        settings(method=method, **{name: value})
