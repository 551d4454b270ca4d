"""What becomes of the other models of a command when one of them fails."""

import gc
import weakref

import jax
import pytest

from engine.errors import AssayError
from engine.sweep import reward_jobs
from engine.sweep.outcomes import Outcomes


class Arrays:
    """Stands for the parameters of a model."""


def test_a_model_that_failed_is_released_before_the_next_one_is_loaded():
    """Errors of the writing thread stand in a cycle with their own traceback."""
    outcomes, loaded = Outcomes(["one", "two"]), []

    def fail():
        arrays = Arrays()
        loaded.append(weakref.ref(arrays))
        error = AssayError("not finite")
        raise error

    with outcomes.group(["one"]):
        fail()
    with outcomes.group(["two"]):
        assert loaded[0]() is None


@pytest.mark.slow
def test_a_model_that_is_complete_is_released_before_the_next_one_is_loaded(
    checkpoint, run, monkeypatch
):
    models, load = [checkpoint(), checkpoint("b", seed=3)], reward_jobs.load_scorer
    loaded, left = [], []

    def watched(*inputs):
        left.append([array for array in loaded if array() is not None])
        scorer = load(*inputs)
        loaded.extend(weakref.ref(array) for array in jax.tree.leaves(scorer.params))
        return scorer

    monkeypatch.setattr(reward_jobs, "load_scorer", watched)
    gc.disable()  # by itself it comes too late
    try:
        assert run.sweep(models, {"greatest": "What is the greatest thing?"}) == 2 * 288
    finally:
        gc.enable()
    assert len(loaded) > 20
    assert left == [[], []]


def test_a_model_that_failed_alone_keeps_its_reason():
    outcomes = Outcomes(["one", "two", "three"])
    with outcomes.group(["one", "two"]):
        outcomes.fail(["one"], AssayError("not finite"))
        raise AssayError("no memory")
    failures = {outcome.model: outcome.failure for outcome in outcomes.all()}
    assert failures == {"one": "not finite", "two": "no memory", "three": ""}
