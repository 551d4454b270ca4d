"""Certificates: against brute force over every swap, and how an ascent goes."""

import dataclasses
import itertools

import numpy as np
import pytest

from engine.errors import AssayError
from engine.search import certificate
from engine.search.certificate import Ascent, Sweep, run_certificate, starts_of
from tests.support.searches import problem, scorer

BUDGET = 60


def certified(asked, model, data=1, known=(), **options):
    """The certificate of a random sequence."""
    ids = asked.initial()[0]
    (split,) = asked.prompts
    whole = [*split.prefix, *ids, *split.suffix]
    reward = asked.signs[0] * scorer(model).plain_rewards([whole])[0, 0]
    return run_certificate(asked, scorer(model, data), ids, float(reward), known, **options)


def brute_force(asked, model, ids):
    """(position, token) -> signed reward of every allowed swap that is admitted; plain passes."""
    (split,), swaps = asked.prompts, {}
    for position, token in itertools.product(range(len(ids)), np.flatnonzero(asked.allowed)):
        changed = np.array(ids)
        changed[position] = token
        if position in asked.settings.free and token != ids[position] and asked.passes(changed):
            swaps[position, int(token)] = [*split.prefix, *changed.tolist(), *split.suffix]
    rows = list(swaps.values())
    parts = [rows[i : i + 256] for i in range(0, len(rows), 256)]
    parts = [part + [rows[0]] * (256 - len(part)) for part in parts]  # one shape
    every = np.concatenate([scorer(model).plain_rewards(part)[0] for part in parts])
    return dict(zip(swaps, asked.signs[0] * every, strict=False))


def check(asked, model, ascent):
    """That an ascent's sequence is what brute force calls certified."""
    assert ascent.certified
    assert all(asked.passes(ids) for ids, _ in ascent.history)
    swaps = brute_force(asked, model, ascent.ids)
    best = max(swaps.values()) - ascent.reward
    assert best == pytest.approx(ascent.best_gain, abs=2e-5)
    assert best <= ascent.margin


CASES = [
    {"direction": "max"},
    {"direction": "min", "round_trip": True},
    {"direction": "max", "ascii_only": True, "initial": "ow!", "fixed": (1,)},
]


@pytest.mark.parametrize("changes", CASES)
def test_brute_force_finds_no_swap_that_improves_a_certified_sequence(checkpoint, changes):
    asked = problem(checkpoint(), certify=BUDGET, **changes)
    ascent = certified(asked, checkpoint())
    assert ascent.steps > 0  # a random sequence is no optimum
    check(asked, checkpoint(), ascent)
    assert all(asked.allowed[ids[i]] for ids, _ in ascent.history for i in asked.settings.free)
    initial = asked.initial()[0]
    assert all(ascent.ids[i] == initial[i] for i in asked.settings.fixed)


def test_each_sweep_gives_what_brute_force_gives(checkpoint):
    asked, known = problem(checkpoint(), certify=3), []
    ascent = certified(asked, checkpoint(), save=lambda sweeps: known.append(sweeps[-1]))
    start = asked.initial()[0]
    swaps = brute_force(asked, checkpoint(), start)
    assert [sweep.position for sweep in known] == [0, 1, 2]
    for sweep in known:
        own = {token: r for (at, token), r in swaps.items() if at == sweep.position}
        first, second = sorted(own.values())[:-3:-1]
        assert own[sweep.token] == first == pytest.approx(sweep.reward, abs=2e-5)
        assert first - sweep.own == pytest.approx(sweep.gain, abs=2e-5)
        assert second - sweep.own == pytest.approx(sweep.second, abs=2e-5)
    best = max(swaps, key=swaps.get)  # the first step is the best of all swaps
    assert (np.flatnonzero(ascent.ids != start).item(), ascent.ids[best[0]]) == best


def skip_last(patch, asked):
    whole = Ascent.__init__
    patch.setattr(
        Ascent, "__init__", lambda self, ids, r, free, t: whole(self, ids, r, free[:-1], t)
    )
    return asked


def let_fewer_in(patch, asked):
    every = np.flatnonzero(asked.allowed)
    allowed = np.zeros_like(asked.allowed)
    allowed[[*every[::2], *asked.initial()[0]]] = True
    return dataclasses.replace(asked, allowed=allowed)


def forget_texts(patch, asked):
    settings = dataclasses.replace(asked.settings, round_trip=not asked.settings.round_trip)
    return dataclasses.replace(asked, settings=settings)


def take_the_wrong_end(patch, asked):
    patch.setattr(certificate, "_good", lambda rewards, target: -rewards.astype(np.float64))
    return asked


@pytest.mark.parametrize("bug", [skip_last, let_fewer_in, forget_texts, take_the_wrong_end])
def test_brute_force_finds_planted_bugs(checkpoint, monkeypatch, bug):
    asked = problem(checkpoint(), certify=BUDGET, round_trip=True, direction="min")
    with monkeypatch.context() as patch:
        ascent = certified(bug(patch, asked), checkpoint())
    with pytest.raises(AssertionError):
        check(asked, checkpoint(), ascent)


def test_an_ascent_that_goes_on_ends_as_one_that_never_stopped(checkpoint):
    asked = problem(checkpoint(), certify=BUDGET, direction="min")
    whole = certified(asked, checkpoint())
    for stopped in (1, 3, 4):
        known = [Sweep.from_json(sweep.to_json()) for sweep in whole.sweeps[:stopped]]
        resumed = certified(asked, checkpoint(), known=known)
        assert resumed.sweeps == whole.sweeps
        np.testing.assert_array_equal(resumed.ids, whole.ids)


@pytest.mark.slow
def test_more_devices_change_nothing(checkpoint):
    asked = problem(checkpoint(), certify=BUDGET)
    assert certified(asked, checkpoint(), 2).sweeps == certified(asked, checkpoint()).sweeps


def test_a_target_is_approached_from_both_sides(checkpoint):
    asked = problem(checkpoint(), certify=BUDGET, target=0.5)
    ascent = certified(asked, checkpoint())
    swaps = np.array(list(brute_force(asked, checkpoint(), ascent.ids).values()))
    assert np.abs(swaps - 0.5).min() >= abs(ascent.reward - 0.5) - ascent.margin


@pytest.mark.parametrize("seed", range(5))
def test_an_ascent_on_a_known_landscape_ends_at_a_local_maximum(seed):
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(6,) * 4)
    ascent = Ascent(np.zeros(4), reward[0, 0, 0, 0], range(4), 1e-4)
    while (position := ascent.next_position()) is not None:
        line = reward[tuple(slice(None) if i == position else ascent.ids[i] for i in range(4))]
        own, order = line[ascent.ids[position]], np.argsort(-line)
        best, second = order[order != ascent.ids[position]][:2]
        ascent.take(sweep(position, own, best, line[best], line[second] - own))
    final = tuple(ascent.ids)
    lines = [reward[(*final[:i], slice(None), *final[i + 1 :])] for i in range(4)]
    assert all(line.max() == reward[final] for line in lines)
    seconds = [np.sort(line)[-2] - reward[final] for line in lines]
    assert ascent.best_gain == pytest.approx(max(seconds))
    assert ascent.reward == reward[final]
    # No position is swept for swaps that were scored before.
    places = [each.position for each in ascent.sweeps]
    assert places[:4] == [0, 1, 2, 3]
    assert len(set(places[-3:])) == 3


def sweep(position, own, token, reward, second):
    return Sweep(
        position=position,
        own=own,
        token=int(token),
        reward=reward,
        gain=reward - own,
        second=second,
        rejected=0,
        still=0,
    )


def test_a_gain_within_the_noise_of_batches_is_none():
    ascent = Ascent(np.zeros(1), 20.0, [0], 1e-4)
    ascent.take(sweep(0, 20.001, 1, 20.0025, -1.0))
    assert (ascent.certified, ascent.steps) == (True, 0)
    assert ascent.best_gain == pytest.approx(0.0015)
    assert ascent.noise == pytest.approx(0.001)


def test_a_sequence_with_two_rewards_is_refused():
    ascent = Ascent(np.zeros(2), 1.0, range(2), 1e-4)
    with pytest.raises(
        AssayError, match=r"^self-check of a certificate: reward 1, the sweep of po"
    ):
        ascent.take(sweep(0, 1.001, 1, 2.0, 0.0))


def test_a_reward_that_is_not_finite_is_named(checkpoint):
    asked = problem(checkpoint(), certify=BUDGET)
    rewards = np.zeros(asked.allowed.sum(), np.float32)
    rewards[7] = np.nan
    ids, token = asked.initial()[0], np.flatnonzero(asked.allowed)[7]
    with pytest.raises(AssayError, match=rf"sequence of token ids \[{ids[0]}, {token}, {ids[2]}\]"):
        certificate.judged(asked, ids, 1, rewards)


def test_few_lengths_are_compiled_and_the_least_is_computed():
    assert starts_of((0, 2, 5)) == {0: 0, 2: 2, 5: 5}
    starts = starts_of(range(20))
    assert len(set(starts.values())) == 8
    assert all(starts[i] <= i for i in range(20))
