"""What a reward is made of, on rewards made of known objectives."""

import math

import numpy as np
import pytest
import scipy.stats

import analysis
from tests.support import runs

WEIGHTS = {"helpful": 0.8, "verbose": -0.5, "idle": 0.0}
SIZE = 4_000


@pytest.fixture
def made():
    """Independent objectives of known spread, and the reward that the weights make of them."""
    rng = np.random.default_rng(0)
    values = {"helpful": rng.normal(0, 1, SIZE), "verbose": rng.normal(3, 2, SIZE)}
    values["idle"] = rng.normal(0, 5, SIZE)
    return values, sum(WEIGHTS[name] * x for name, x in values.items())


@pytest.fixture
def run(made, make_run):
    values, reward = made
    tokens = [f"t{i}" for i in range(SIZE)]
    scores = {("gated", "greatest"): reward, ("plain", "greatest"): reward[::-1]}
    run = make_run({"v": tokens}, {"gated": "v", "plain": "v"}, scores, size=SIZE)
    runs.add_objectives(run, "gated", "greatest", values, WEIGHTS)
    return run


def test_the_share_of_an_objective_is_the_variance_that_it_was_given(run):
    table = analysis.objectives_table(analysis.load(run), ["gated", "plain"])
    assert set(table.select("model", "prompt").rows()) == {("gated", "greatest")}
    assert dict(table.select("objective", "weight").rows()) == WEIGHTS
    # Variances .64 × 1, .25 × 4 and 0 of 1.64; three standard errors of a sample of 4,000.
    np.testing.assert_allclose(table["share"], [0.64 / 1.64, 1 / 1.64, 0], atol=0.05)
    assert table["share"].sum() == pytest.approx(1, abs=1e-6)
    expected = np.array([0.8, -1, 0]) / math.sqrt(1.64)
    np.testing.assert_allclose(table["pearson"], expected, atol=0.05)


def test_an_objective_that_pulls_against_the_reward_has_a_share_below_zero(make_run):
    a, b = np.arange(5.0), np.arange(5.0) ** 2
    run = make_run({"v": list("abcde")}, {"m": "v"}, {("m", "greatest"): b - a}, size=5)
    runs.add_objectives(run, "m", "greatest", {"a": a, "b": b}, {"a": -1.0, "b": 1.0})
    table = analysis.objectives_table(analysis.load(run), ["m"])
    expected = [-np.cov(a, b - a)[0, 1], np.cov(b, b - a)[0, 1]] / np.var(b - a, ddof=1)
    np.testing.assert_allclose(table["share"], expected, rtol=1e-6)
    assert table["share"][0] < 0


def test_correlations_are_scipys_reward_first(run, made):
    values, reward = made
    matrix = analysis.objectives_spearman(analysis.load(run), "gated", "greatest")
    assert matrix.columns == ["objective", "reward", *WEIGHTS]
    columns = np.float32([reward, *values.values()])
    expected = scipy.stats.spearmanr(columns, axis=1).statistic
    np.testing.assert_allclose(matrix.drop("objective").to_numpy(), expected, atol=1e-12)


def test_each_objective_has_its_highest_and_lowest_tokens(run, made):
    table = analysis.objectives_ends(analysis.load(run), ["gated", "plain"], 2)
    order = np.argsort(np.float32(made[0]["verbose"]))
    own = table.filter(objective="verbose")
    assert own["end"].to_list() == ["top", "top", "bottom", "bottom"]
    assert own["token_id"].to_list() == [order[-1], order[-2], order[0], order[1]]
    assert own["token"].to_list() == [f"t{i}" for i in own["token_id"]]
    assert set(table["objective"]) == set(WEIGHTS)


def test_quantiles_tell_how_wide_an_objective_is_and_are_none_themselves(make_run):
    run = make_run({"v": list("abc")}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0]})
    columns = {"kind": [1.0, 2.0, 3.0], "dull": [0.0, 0.0, 0.0]}
    columns |= {"kind-q01": [0.0, 1.0, 1.0], "kind-q02": [1.0, 2.0, 3.0]}
    columns |= {"kind-q10": [2.0, 4.0, 6.0]}
    runs.add_objectives(run, "m", "greatest", columns)
    table = analysis.objectives_table(analysis.load(run), ["m"])
    assert table["objective"].to_list() == ["kind", "dull"]
    assert table["spread"].to_list() == [pytest.approx(10 / 3), None]
    assert table["weight"].to_list() == table["share"].to_list() == [None, None]
    assert math.isnan(table["spearman"][1])


def test_a_gate_is_shown_where_its_objectives_were_not_written(small_run):
    path = "scores/model=m-one/prompt=worst"
    runs.edit_run(
        small_run, lambda content: content["results"][path].update(coefficients={"safe": 0.5})
    )
    table = analysis.objectives_table(analysis.load(small_run), ["m-one", "m-two"])
    shown = table.select("prompt", "objective", "weight", "spearman").rows()
    assert shown == [("worst", "safe", 0.5, None)]
