"""Certificates: against brute force over every swap, how an ascent goes, and in run folders."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import polars as pl
import pytest
from etils import epath

import analysis
from engine import api
from engine.errors import AssayError
from engine.runs import provenance, schema
from engine.runs.manifest import Manifest
from engine.runs.verify import rebuild, verify
from engine.search import certificate
from engine.search.certificate import Ascent, PositionSweep, run_certificate
from tests.support import searches
from tests.support.killed import Killed, killed_after
from tests.support.parity import make_mesh
from tests.support.searches import problem, scorer

BUDGET = 60


def certified(asked, model, data=1, known=(), **options):
    """The certificate of a random sequence."""
    ids = asked.initial()[0]
    (split,) = asked.prompts
    whole = [*split.prefix, *ids, *split.suffix]
    found = {"token_ids": ids, "reward": float(scorer(model).plain_rewards([whole])[0, 0])}
    return run_certificate(asked, scorer(model, data), found, known, **options)


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
    ascent = certified(asked, checkpoint(), save=lambda done: known.append(done.sweeps[-1]))
    start = asked.initial()[0]
    swaps = brute_force(asked, checkpoint(), start)
    assert [sweep.position for sweep in known] == [0, 1, 2]
    for sweep in known:
        own = {token: r for (at, token), r in swaps.items() if at == sweep.position}
        first, second = sorted(own.values())[:-3:-1]
        assert own[sweep.token] == first == pytest.approx(sweep.reward, abs=2e-5)
        assert first - sweep.unchanged == pytest.approx(sweep.gain, abs=2e-5)
        assert second - sweep.unchanged == pytest.approx(sweep.second_gain, abs=2e-5)
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
        known = [PositionSweep.from_json(sweep.to_json()) for sweep in whole.sweeps[:stopped]]
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
    return PositionSweep.from_json([position, own, int(token), reward, reward - own, second, 0, 0])


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


PROMPTS = {"who": "Who?", "what": "What is the greatest thing?"}

# A search that compiles little: one token, repeated.
search = functools.partial(
    searches.search, method="repeat", candidates=320, certify=40, certify_step=64
)
file_of = functools.partial(searches.file_of, method="repeat-ascent")


def record(run, file):
    results = json.loads((run / "manifest.json").read_text())["results"]
    return results[str(file.relative_to(run))]


def problems(run):
    return verify(epath.Path(run)).problems


def test_a_certificate_is_written_beside_its_search(checkpoint, tmp_path):
    run = tmp_path / "run"
    found = search(run, [checkpoint()], direction="both", round_trip=True)
    assert [f.direction for f in found] == ["max", "min"] * 2
    assert [f.certificate is None for f in found] == [True, True, False, False]
    for one in found[2:]:
        frame, said = pl.read_parquet(file_of(run, one.direction)), one.certificate
        assert dict(frame.schema) == schema.SEQUENCE_COLUMNS
        assert frame["step"].to_list() == list(range(1, said["sweeps"] + 1))
        assert frame["round_trips"].all()
        last = frame.row(-1, named=True)
        assert (last["reward"], last["text"]) == (one.reward, one.text)
        searched = pl.read_parquet(file_of(run, one.direction, method="repeat"))
        assert said["searched_ids"] == searched["token_ids"][-1].to_list()
        assert said["searched_reward"] == searched["reward"][-1]
        assert frame["flops"][0] > searched["flops"][-1]
        entry = record(run, file_of(run, one.direction))
        assert (entry["complete"], entry["certificate"]) == (True, said)
        assert entry["self_check"]["max_abs_difference"] < 1e-4
    assert all(f.certificate["certified"] for f in found[2:])
    assert not problems(run)
    assert [p.name for p in run.rglob("*.json")] == ["manifest.json"]
    again = search(run, [checkpoint()], direction="both", round_trip=True)
    assert again == [dataclasses.replace(one, new=False) for one in found]
    table = analysis.sequence_certificates(analysis.load(run))
    assert table["text"].to_list() == [f.text for f in found[2:]]
    assert table["method"].unique().to_list() == ["repeat"]
    before = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").unlink()
    assert not rebuild(epath.Path(run))
    after = json.loads((run / "manifest.json").read_text())
    assert {p: e.get("certificate") for p, e in before["results"].items()} == {
        p: e.get("certificate") for p, e in after["results"].items()
    }


def killed_after_sweeps(patch, sweeps):
    whole = Ascent.take

    def take(self, sweep):
        if len(self.sweeps) == sweeps:
            raise Killed
        whole(self, sweep)

    patch.setattr(Ascent, "take", take)


def test_a_killed_certificate_goes_on_to_the_same_bytes(checkpoint, tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, [checkpoint()], direction="min")
    for sweeps in (2, 4):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            killed_after_sweeps(patch, sweeps)
            search(run, [checkpoint()], direction="min")
        assert record(run, file_of(run, "min"))["certificate"]["sweeps"] == sweeps
    with monkeypatch.context() as patch:  # between file and manifest
        killed_after(patch, Manifest, "record_part", 0)
        with pytest.raises(Killed):
            search(run, [checkpoint()], direction="min")
    search(run, [checkpoint()], direction="min")
    assert file_of(run, "min").read_bytes() == file_of(whole, "min").read_bytes()
    search(run, [checkpoint()], direction="min", certify=41)  # nothing is left to do
    assert record(run, file_of(run, "min"))["complete"]


def test_a_larger_budget_goes_on_where_a_smaller_one_ended(checkpoint, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, [checkpoint()], direction="min")
    assert len(search(run, [checkpoint()], direction="min", certify=0)) == 1
    (_, few) = search(run, [checkpoint()], direction="min", certify=3)
    assert not few.certificate["certified"]
    assert few.certificate["sweeps"] == 3
    assert not problems(run)
    (searched, more) = search(run, [checkpoint()], direction="min")
    assert (searched.new, more.new, more.certificate["certified"]) == (False, True, True)
    assert file_of(run, "min").read_bytes() == file_of(whole, "min").read_bytes()
    assert not problems(run)
    (_, known) = search(run, [checkpoint()], direction="min", certify=3)
    assert not known.new
    with pytest.raises(AssayError, match=r"was begun with step_size=64, not 32; use another run"):
        search(run, [checkpoint()], direction="min", certify_step=32)


def raised(patch):
    """The next version of the code that decides the last bits on a CPU."""
    patch.setitem(provenance.NUMERICS, "cpu", provenance.NUMERICS["cpu"] + 1)


def test_a_certificate_names_the_numerics_it_was_computed_with(checkpoint, tmp_path, monkeypatch):
    run, own = tmp_path / "run", {"direction": "min"}
    old = provenance.NUMERICS["cpu"]
    search(run, [checkpoint()], certify=0, **own)
    with monkeypatch.context() as patch:
        raised(patch)
        search(run, [checkpoint()], certify=3, **own)
    numerics = {
        method: record(run, file_of(run, "min", method=method))["fingerprint"]["numerics"]
        for method in ("repeat", "repeat-ascent")
    }
    assert numerics == {"repeat": old, "repeat-ascent": old + 1}
    (_, known) = search(run, [checkpoint()], certify=3, **own)  # nothing is added to it
    assert not known.new
    with pytest.raises(AssayError, match=rf"begun with numerics={old + 1}, not {old}; use another"):
        search(run, [checkpoint()], certify=40, **own)
    with monkeypatch.context() as patch:
        raised(patch)
        assert search(run, [checkpoint()], certify=40, **own)[1].new


def test_a_certificate_of_another_search_is_refused(checkpoint, tmp_path, monkeypatch):
    run, whole = tmp_path / "run", certificate.summary
    with monkeypatch.context() as patch:
        patch.setattr(certificate, "summary", lambda *of: whole(*of) | {"searched_ids": [0]})
        search(run, [checkpoint()], certify=3)
    with pytest.raises(AssayError, match=r"certifies another sequence than .*; remove it and run"):
        search(run, [checkpoint()])


@pytest.mark.slow
def test_the_mean_of_several_prompts_is_certified(checkpoint, tmp_path):
    _, found = search(tmp_path / "run", [checkpoint()], PROMPTS, joint=True, round_trip=True)
    assert found.prompt_id == "mean.who.what"
    assert found.certificate["certified"]


@pytest.mark.slow
def test_the_api_certifies_a_reply_of_any_origin(checkpoint):
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    few = {"ascii_only": False, "round_trip": True}
    said = model.certify("Who?", "war", sweeps=30, **few)
    last = said.steps.row(-1, named=True)
    assert said.certified
    assert said.ascent_steps > 0
    assert model.score("Who?", last["text"])[0] == pytest.approx(last["reward"], rel=1e-4)
    again = model.certify("Who?", last["token_ids"], **few)
    assert (again.certified, again.ascent_steps) == (True, 0)
    assert again.best_gain == pytest.approx(said.best_gain, abs=2e-5)
    own = {"method": "repeat", "candidates": 320, "length": len(last["token_ids"]), "topk": 16}
    found = model.search("Who?", certify=30, **own, **few)
    assert found["step"].is_unique().all()
    assert (found["reward"].diff().drop_nulls() >= 0).all()
    with pytest.raises(AssayError, match=r"^reply: the filters leave out its token .* at posit"):
        model.certify("Who?", last["token_ids"], deny=(last["text"][0],), **few)
