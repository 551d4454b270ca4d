"""Sweeps that are killed, lose a part or fill the disk: the next one completes them."""

import functools
import itertools

import pytest

from engine.runs import parts
from engine.runs.manifest import Manifest
from tests.support import full_disk, slow
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import ONE, PROMPTS, Run, result
from tests.support.tiny import TRIMMED

RESULT = result()


def everywhere(*calls):
    """Sweeps by ids: killed at every kind of write."""
    return [("ids", *call) for call in calls]


KILLED_AT = [
    *everywhere(
        (parts, "write_part", 1),  # between two models of one pass
        (Manifest, "record_part", 2),  # a part is on disk, the manifest does not know
        (Manifest, "finish", 1),
    ),
    ("objectives", parts, "write_part", 2),
    ("lens", parts, "write_part", 2),
]
SELDOM = [
    *everywhere(
        (parts, "write_part", 0),
        (parts, "write_part", 7),
        (Manifest, "save", 0),
        (Manifest, "save", 1),
        (Manifest, "save_if_due", 2),
        (parts, "write_frame", 0),  # before the vocabulary
    ),
    ("text", parts, "write_part", 1),
    ("text", parts, "write_part", 5),
    ("text", Manifest, "record_part", 3),
    ("text", Manifest, "finish", 0),
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
    finished = run.parts()
    run.sweep(models, prompts, **settings)
    after = run.parts()
    assert {path: after[path] for path in finished} == finished
    assert run.hashes() == other_run.hashes()
    assert all(result["complete"] for result in run.manifest()["results"].values())


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_loses_nothing(tiny, other_run, monkeypatch, tmp_path):
    """Of the manifest, the vocabulary and the parts, at the first write and at every later one."""
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
