"""Searches into run folders: what they write, how they go on, what they refuse."""

import dataclasses
import functools
import itertools

import numpy as np
import polars as pl
import pytest
from etils import epath

import analysis
from engine.errors import AssayError
from engine.runs import identity, schema
from engine.runs.folder import RunFolder
from engine.runs.result import Result
from engine.search.gcg import StepDriver, run_search
from engine.search.run import resumable
from engine.settings import METHODS, SearchSettings
from launch import search as search_command
from launch.common import searching
from tests.support import full_disk, slow
from tests.support.folders import files_of
from tests.support.killed import Killed, killed_after
from tests.support.searches import file_of, problem, scorer, search


def test_a_search_writes_its_trace_and_its_result_knows_it(checkpoint, tmp_path):
    model, run = checkpoint(), tmp_path / "run"
    found = search(run, [model], direction="both", round_trip=True)
    assert [f.direction for f in found] == ["max", "min"]
    results = RunFolder.read(epath.Path(run)).results
    for result in found:
        frame = pl.read_parquet(file_of(run, result.direction))
        assert dict(frame.schema) == schema.SEQUENCE_COLUMNS
        sign = 1 if result.direction == "max" else -1
        assert (sign * np.diff(frame["reward"].to_numpy()) >= 0).all()
        assert (np.diff(frame["flops"].to_numpy()) > 0).all()
        assert frame["round_trips"].all()
        last = frame.row(-1, named=True)
        assert (last["reward"], last["text"]) == (result.reward, result.text)
        split = model.template.split("Who?")
        whole = model.template.sequences("Who?", [last["text"]])[0]
        assert whole == [*split.prefix, *last["token_ids"], *split.suffix]
        assert scorer(model).plain_rewards([whole])[0, 0] == pytest.approx(last["reward"], rel=1e-4)
        entry = results[str(file_of(run, result.direction).parent.relative_to(run))]
        assert (entry.complete, entry.rejected) == (True, result.rejected)
        assert entry.self_check.reward_from_text == pytest.approx(last["reward"], rel=1e-4)
    assert found[0].reward > found[1].reward
    assert not list(run.rglob("*.safetensors"))
    assert analysis.sequences_table(analysis.load(run))["text"].to_list() == [f.text for f in found]
    again = search(run, [model], direction="both", round_trip=True)
    assert again == [dataclasses.replace(result, new=False) for result in found]


@pytest.mark.slow
def test_another_setting_is_not_mixed_in(checkpoint, tmp_path):
    search(tmp_path / "run", [checkpoint()], steps=2)
    with pytest.raises(AssayError, match=r"search.steps=2, not 3"):
        search(tmp_path / "run", [checkpoint()], steps=3)


@pytest.mark.parametrize("round_trip", slow.all_but([False], [False, True]))
def test_a_search_that_goes_on_ends_as_one_that_never_stopped(checkpoint, tmp_path, round_trip):
    state = tmp_path / "state.safetensors"
    asked = problem(checkpoint(), round_trip=round_trip, steps=8, every=2)

    class Stop(Exception):
        pass

    def stop(steps, trace):
        if steps >= 6:
            raise Stop

    with pytest.raises(Stop):
        resumable(asked, scorer(checkpoint()), epath.Path(state), stop)
    assert state.exists()
    seen = []
    resumed, rejected = resumable(
        asked, scorer(checkpoint()), epath.Path(state), lambda steps, _: seen.append(steps)
    )
    assert min(seen) > 4  # it did not begin again
    whole, expected = run_search(asked, scorer(checkpoint()))
    np.testing.assert_array_equal(resumed.rewards, whole.rewards)
    np.testing.assert_array_equal(resumed.ids, whole.ids)
    np.testing.assert_array_equal(resumed.flops, whole.flops)
    assert rejected == expected


@pytest.mark.parametrize("differs", ["numerics", "topk"])
def test_an_unfinished_search_with_other_inputs_is_refused(
    checkpoint, tmp_path, monkeypatch, differs
):
    state = epath.Path(tmp_path / "state.safetensors")
    resumable(problem(checkpoint()), scorer(checkpoint()), state)
    if differs == "numerics":
        monkeypatch.setitem(identity.NUMERICS, "cpu", 1)
    other = problem(checkpoint(), topk=15) if differs == "topk" else problem(checkpoint())
    with pytest.raises(AssayError, match=rf"{differs}"):
        resumable(other, scorer(checkpoint()), state)


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_loses_nothing(checkpoint, tmp_path, monkeypatch):
    """Of the search's state, run.json and its result."""
    kind = {"every": 2, "ascii_only": True}
    models = [checkpoint()]
    search(tmp_path / "whole", models, **kind)
    for number in itertools.count():
        run = tmp_path / f"run-{number}"
        again = functools.partial(search, run, models, **kind)
        refused = full_disk.refusal(monkeypatch, number, again)
        assert not [path for path in run.rglob("*") if "tmp" in path.name]
        if not refused:
            break
        assert refused.endswith("No space left on device") and "\n" not in refused
        again()
        assert files_of(run, "*.parquet") == files_of(tmp_path / "whole", "*.parquet")
    assert number > 5


@pytest.mark.parametrize("method", [None, *METHODS])
def test_the_api_and_the_command_have_the_same_settings(method):
    config = search_command.COMMAND.settings.defaults()
    config.method = method
    command, _ = searching.settings(config, [])
    assert command == SearchSettings.of(method=method, direction="both", dtype="float32")


@pytest.mark.slow
def test_a_direction_that_finds_nothing_is_refused_whatever_the_other_finds(checkpoint, tmp_path):
    few = {"method": "random", "direction": "both", "length": 6, "steps": 1, "every": 1}
    few |= {"candidates": 2, "restarts": 1, "round_trip": True, "seed": 8}
    found = StepDriver(problem(checkpoint(), **few), scorer(checkpoint())).advance(1)[0]
    assert np.isneginf(found[-1]).tolist() == [True, False]
    with pytest.raises(AssayError, match=r"^method='random' .* 6"):
        search(tmp_path / "run", [checkpoint()], **few)
    assert not list(tmp_path.rglob("*.safetensors"))  # nothing that more steps would trip over


@pytest.mark.parametrize(
    "changes",
    slow.all_but([{}], [{"round_trip": True, "method": "random"}]),
)
def test_a_reward_that_is_not_finite_names_the_sequence(checkpoint, tmp_path, changes):
    with pytest.raises(AssayError, match=r"^the reward is not finite"):
        search(tmp_path / "run", [checkpoint("nan", nan_head=True)], **changes)


@pytest.mark.slow
def test_a_search_killed_between_two_directions_loses_neither(checkpoint, tmp_path, monkeypatch):
    kind = {"models": [checkpoint()], "direction": "both", "restarts": 1, "steps": 3}
    search(tmp_path / "whole", **kind)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, Result, "write", 1)  # the result of "max" is there
        search(tmp_path / "run", **kind)
    search(tmp_path / "run", **kind)
    whole, run = (files_of(tmp_path / name, "*.parquet") for name in ("whole", "run"))
    assert run == whole != {}
