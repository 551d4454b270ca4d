"""Sweeps that are killed, lose a part or fill the disk: the next one completes them."""

import functools
import itertools

import pytest

from engine.runs.result import Result
from engine.sweep import loop
from tests.support import full_disk
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import ONE, Run

KILLED_AT = [
    ("ids", Result, "write", 1),  # between two models of one pass
    ("ids", Result, "save", 2),  # a part is on disk, its record does not know
    ("ids", loop, "self_check", 1),
    ("text", Result, "write", 2),  # rows of a later part repeat those of an earlier one
    ("lens", Result, "write", 2),
]


@pytest.mark.parametrize(("kind", "owner", "name", "calls"), KILLED_AT)
def test_a_sweep_killed_anywhere_ends_in_the_bytes_of_an_uninterrupted_one(
    run, other_run, checkpoint, trims, monkeypatch, kind, owner, name, calls
):
    pair = [checkpoint(num_hidden_layers=2), checkpoint("shallow", head_seed=1)]
    models, settings = {
        "ids": (pair, {}),
        "text": ([trims], {"mode": "text"}),
        "lens": (pair[:1], {"lens": True}),
    }[kind]
    other_run.sweep(models, ONE, **settings)
    with monkeypatch.context() as patched:
        killed_after(patched, owner, name, calls)
        with pytest.raises(Killed):
            run.sweep(models, ONE, **settings)
    known = run.results() if (run.folder / "run.json").exists() else {}
    names = {f"{path}/{name}" for path, result in known.items() for name in result.parts}
    finished = {path: stamp for path, stamp in run.parts().items() if path in names}
    assert len(run.parts()) - len(finished) <= 1  # nothing else is lost
    run.sweep(models, ONE, **settings)
    after = run.parts()
    assert {path: after[path] for path in finished} == finished
    assert run.hashes() == other_run.hashes()
    assert all(result.complete for result in run.results().values())


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_loses_nothing(tiny, other_run, monkeypatch, tmp_path):
    """Of run.json, the vocabulary and the parts, at the first write and at every later one."""
    other_run.sweep([tiny], ONE)
    for number in itertools.count():
        run = Run(tmp_path / f"run-{number}")
        again = functools.partial(run.sweep, [tiny], ONE)
        refused = full_disk.refusal(monkeypatch, number, again)
        assert run.leftovers() == []
        if not refused:
            break
        assert refused.endswith("No space left on device")
        again()
        assert run.hashes() == other_run.hashes()
    assert number > 5
