"""Sweeps that are killed, lose a part or fill the disk: the next one completes them."""

import functools
import itertools

import pytest

from engine.runs import storage
from engine.runs.folder import RunFolder
from engine.runs.result import Result
from engine.sweep import loop
from tests.support import full_disk, slow
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import ONE, PROMPTS, Run
from tests.support.tiny import TRIMMED


def everywhere(*calls):
    """Sweeps by ids: killed at every kind of write."""
    return [("ids", *call) for call in calls]


KILLED_AT = [
    *everywhere(
        (Result, "write", 1),  # between two models of one pass
        (Result, "save", 2),  # a part is on disk, its record does not know
        (loop, "self_check", 1),
    ),
    ("objectives", Result, "write", 2),
    ("lens", Result, "write", 2),
]
SELDOM = [
    *everywhere(
        (Result, "write", 7),  # in the second prompt
        (RunFolder, "save", 0),
        (storage, "write_atomic", 1),  # between run.json and the vocabulary
    ),
    ("text", Result, "write", 5),  # rows of a later part repeat those of an earlier one
]


@pytest.fixture
def kinds(checkpoint, trims, heads):
    """Kind of sweep -> models and settings."""
    mlp = {"template": TRIMMED, "head": "mlp", "head_seed": 2}
    return {
        "ids": ([checkpoint(), checkpoint("shallow", num_hidden_layers=2, head_seed=1)], {}),
        "text": ([trims, checkpoint("trims-mlp", **mlp)], {"mode": "text"}),
        "objectives": ([heads["qrm"]], {"objectives": "values"}),
        "lens": ([heads["tiny"]], {"lens": True}),
    }


@pytest.mark.parametrize(
    ("kind", "owner", "name", "calls"), slow.all_but(KILLED_AT, [*KILLED_AT, *SELDOM])
)
def test_a_sweep_killed_anywhere_ends_in_the_bytes_of_an_uninterrupted_one(
    run, other_run, kinds, monkeypatch, kind, owner, name, calls
):
    models, settings = kinds[kind]
    prompts = PROMPTS if kind == "ids" else ONE
    other_run.sweep(models, prompts, **settings)
    with monkeypatch.context() as patched:
        killed_after(patched, owner, name, calls)
        with pytest.raises(Killed):
            run.sweep(models, prompts, **settings)
    known = run.results() if (run.folder / "run.json").exists() else {}
    names = {f"{path}/{name}" for path, result in known.items() for name in result.parts}
    finished = {path: said for path, said in run.parts().items() if path in names}
    assert len(run.parts()) - len(finished) <= 1  # nothing else is lost
    run.sweep(models, prompts, **settings)
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
