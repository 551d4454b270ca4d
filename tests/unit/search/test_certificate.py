"""Certificates: against brute force over every swap, as coordinate ascent, and in run folders."""

import dataclasses
import itertools

import numpy as np
import pytest
from etils import epath

import analysis
from engine import api
from engine.errors import AssayError
from engine.runs.folder import RunFolder
from engine.search.swaps import certificate
from tests.support import slow
from tests.support.parity import make_mesh
from tests.support.searches import file_of, problem, scorer, search


def brute_force(asked, model, ids):
    """(position, token) -> signed reward of every allowed swap that is admitted; plain passes."""
    split, swaps = asked.prompt, {}
    for position, token in itertools.product(range(len(ids)), np.flatnonzero(asked.allowed)):
        changed = np.array(ids)
        changed[position] = token
        if token != ids[position] and asked.passes(changed):
            swaps[position, int(token)] = [*split.prefix, *changed.tolist(), *split.suffix]
    rows = list(swaps.values())
    parts = [rows[i : i + 256] for i in range(0, len(rows), 256)]
    parts = [part + [rows[0]] * (256 - len(part)) for part in parts]  # one shape
    rewards = np.concatenate([scorer(model).plain_rewards(part)[0] for part in parts])
    return dict(zip(swaps, asked.signs[0] * rewards, strict=False))


def check(asked, model, searched=None):
    """That the certificate of a random reply says what brute force says of it."""
    ids, split, sign = asked.initial()[0], asked.prompt, asked.signs[0]
    result = certificate(searched or asked, scorer(model), ids)
    swaps = brute_force(asked, model, ids)
    own = sign * scorer(model).plain_rewards([[*split.prefix, *ids, *split.suffix]])[0, 0]
    gains = {swap: reward - own for swap, reward in swaps.items()}
    better = [swap for swap, gain in gains.items() if gain > 1e-4 * max(1, abs(own))]
    tokens = int(asked.allowed.sum())
    assert result.swaps == len(ids) * (tokens - 1)
    assert result.better == len(better)
    position, token = max(gains, key=gains.get)
    ids[position] = token
    assert result.best_ids == tuple(ids.tolist())
    assert sign * result.best_reward == pytest.approx(swaps[position, token], abs=2e-5)
    assert result.best_text == asked.text(ids)


@pytest.mark.parametrize("direction", slow.all_but(["min"], ["max"]))
def test_a_certificate_counts_what_brute_force_finds(checkpoint, direction):
    check(problem(checkpoint(), direction=direction, round_trip=direction == "min"), checkpoint())


def let_fewer_in(asked):
    ids = np.flatnonzero(asked.allowed)
    allowed = np.zeros_like(asked.allowed)
    allowed[[*ids[::2], *asked.initial()[0]]] = True
    return dataclasses.replace(asked, allowed=allowed)


def test_brute_force_finds_that_swaps_were_left_out(checkpoint):
    asked = problem(checkpoint(), round_trip=True, direction="min")
    with pytest.raises(AssertionError):
        check(asked, checkpoint(), let_fewer_in(asked))


@pytest.mark.slow
def test_more_devices_change_nothing(checkpoint):
    asked = problem(checkpoint())
    alone, split = (certificate(asked, scorer(checkpoint(), n), asked.initial()[0]) for n in (1, 2))
    assert alone == split


def record(run, file):
    return RunFolder.read(epath.Path(run)).results[str(file.parent.relative_to(run))]


@pytest.mark.slow
def test_a_certificate_is_noted_with_the_result_of_its_search(checkpoint, tmp_path):
    run, kind = tmp_path / "run", {"direction": "both", "round_trip": True}
    found = search(run, [checkpoint()], certify=True, **kind)
    asked = problem(checkpoint(), **kind)
    for result in found:
        note = record(run, file_of(run, result.direction)).certificate
        assert result.certificate == note
        assert note.swaps == 3 * (asked.allowed.sum() - 1)
        assert (note.best_reward > result.reward) == (result.direction == "max") or not note.better
    table = analysis.sequences_table(analysis.load(run))
    assert table["swaps"].to_list() == [result.certificate.swaps for result in found]
    assert table["better_swaps"].to_list() == [result.certificate.better for result in found]


@pytest.mark.slow
def test_a_finished_search_is_certified_without_a_new_one(checkpoint, tmp_path):
    run = tmp_path / "run"
    (before,) = search(run, [checkpoint()])
    data = file_of(run).read_bytes()
    assert before.certificate is None
    (after,) = search(run, [checkpoint()], certify=True)
    assert (after.new, after.text) == (True, before.text)
    assert file_of(run).read_bytes() == data
    (again,) = search(run, [checkpoint()], certify=True)
    assert again == dataclasses.replace(after, new=False)


@pytest.mark.slow
def test_the_api_certifies_a_reply_of_any_origin(checkpoint):
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    few = {"ascii_only": False, "candidates": 12, "topk": 16}
    note = model.certify("Who?", "war", **few)
    assert model.score("Who?", note["best_text"])[0] == pytest.approx(note["best_reward"], rel=1e-4)
    assert model.certify("Who?", note["best_ids"], **few)["swaps"] == note["swaps"]
    kept = model.certify("Who?", "war", allow=("love", "a"), **few)
    assert kept["swaps"] == 2 * len(model._checkpoint.template.reply_ids("war"))


def test_the_api_refuses_what_is_no_reply_and_settings_that_it_has_no_use_for(checkpoint):
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    given = [(odd, {}, "reply") for odd in ("", 5, [1.5], [True], [-1], [10**6])]
    given += [("war", {"length": 3}, "length=3")]
    for reply, changes, line in given:
        with pytest.raises(AssayError, match=line):
            model.certify("Who?", reply, **changes)
