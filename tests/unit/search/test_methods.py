"""Methods of search: what each finds, which tokens it may take, and when it ends."""

import math
import re

import numpy as np
import pytest

from engine.search.loop import Trace, end_step, run_search, trace_frame
from engine.search.objective import SearchObjective
from engine.settings import METHODS
from tests.support import slow, tiny
from tests.support.searches import job_of, problem, scorer, settings


def traced(asked: SearchObjective, model) -> Trace:
    return run_search(asked, scorer(model))[0]


@pytest.mark.parametrize("method", slow.all_but(["gcg"], METHODS))
def test_every_method_finds_what_its_model_gives_that_reward(checkpoint, method):
    model = checkpoint()
    asked = problem(model, method=method, direction="min", steps=80, candidates=15, round_trip=True)
    frame = trace_frame(asked, traced(asked, model), "min")
    last, (split,) = frame.row(-1, named=True), asked.prompts
    plain = scorer(model).plain_rewards([[*split.prefix, *last["token_ids"], *split.suffix]])
    assert plain[0, 0] == pytest.approx(last["reward"], rel=1e-4, abs=1e-5)
    assert asked.allowed[last["token_ids"]].all()
    assert last["round_trips"]


def test_the_steps_that_a_budget_allows_are_planned(checkpoint):
    model, seen = checkpoint(), []
    budget = {"steps": 10**6, "flops": 2.5e7, "restarts": 1, "every": 1}
    asked = problem(model, **budget)
    job = job_of(model, **budget)
    run_search(asked, scorer(model), None, lambda steps, _: seen.append(steps))
    assert len(seen) / 2 < job.amount < len(seen) * 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"patience": 2}, 6),
        ({"patience": 4}, None),
        ({"threshold": 1.5}, 4),
        ({"target": 1.0}, 2),
    ],
)
def test_when_a_search_ends(changes, expected):
    best = np.array([-math.inf, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0], np.float32)
    assert end_step(best, settings(**changes)) == expected


@pytest.mark.parametrize("changes", [{"patience": 1}, {"threshold": -math.inf}])
def test_no_search_ends_before_it_has_found_a_sequence(changes):
    searched = np.array([-math.inf] * 4 + [1.0, 1.0, 1.0], np.float32)
    assert end_step(searched[:4], settings(**changes)) is None
    assert end_step(searched, settings(**changes)) == (6 if "patience" in changes else 5)


@pytest.mark.parametrize(
    ("changes", "leaves"),
    [
        ({}, lambda text, special: not special),
        ({"ascii_only": True}, lambda text, special: re.fullmatch("[ -~]+", text) and not special),
        (
            {"allow": ("a", " love", "b"), "topk": 2},
            lambda text, special: text in ("a", " love", "b"),
        ),
        ({"allow": ("a", "b"), "deny": ("a",), "topk": 1}, lambda text, special: text == "b"),
    ],
)
def test_filters_leave_the_tokens_that_they_name(checkpoint, changes, leaves):
    tokens, special = checkpoint().tokens, range(len(tiny.SPECIAL))
    expected = [i for i, text in tokens.items() if leaves(text, i in special)]
    allowed = problem(checkpoint(), **{"candidates": 3, **changes}).allowed
    assert np.flatnonzero(allowed).tolist() == expected
    assert 0 < len(expected) <= len(tokens) < len(allowed) == 320
