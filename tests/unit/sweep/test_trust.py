"""What a sweep takes from disk: nothing that means something else, nothing that is damaged."""

import shutil

import numpy as np
import pytest
from etils import epath

from engine.errors import AssayError
from engine.runs import identity, verify
from tests.support.folders import flipped
from tests.support.sweeps import ONE, PROMPTS, SIZE, result

RESULT = result()
PART = f"{RESULT}/part-0000100-0000200.parquet"


@pytest.mark.parametrize(
    ("begun", "changes", "message"),
    [
        ({}, {"dtype": "bfloat16"}, "dtype='float32', not 'bfloat16'"),
        ({}, {"mode": "text"}, "mode='ids', not 'text'"),
        ({}, {"pooling": "first_pad"}, "pooling .*'first_pad'"),
        ({}, {"lens": True}, "lens .* 1"),
        ({"lens": True}, {}, "lens=1"),
    ],
)
def test_a_result_is_not_continued_with_another_identity(run, checkpoint, begun, changes, message):
    model = checkpoint("tiny", pad_token_id=310)
    run.sweep([model], ONE, **begun)
    before = run.parts()
    with pytest.raises(AssayError, match=message):
        run.sweep([model], ONE, **changes)
    assert run.parts() == before


def test_a_result_goes_on_with_another_step_and_its_own_part_size(run, other_run, tiny, capsys):
    other_run.sweep([tiny], ONE)
    run.sweep([tiny], ONE)
    (run.folder / PART).unlink()
    assert run.sweep([tiny], ONE, step_size=8, part_size=50) == 100
    assert "step_size 16 and 8" in capsys.readouterr().err
    assert run.hashes().keys() == other_run.hashes().keys()
    np.testing.assert_allclose(
        run.rewards("tiny", "greatest"), other_run.rewards("tiny", "greatest"), rtol=1e-5, atol=1e-6
    )
    assert run.sweep([tiny], ONE, part_size=50) == 0


def forget_result(run):
    (run.folder / RESULT / "result.json").unlink()


def test_parts_in_float32_are_never_labelled_bfloat16(run, tiny):
    """Not even without the result's record: its parts do not count then."""
    run.sweep([tiny], ONE)
    before = run.hashes()
    forget_result(run)
    assert run.sweep([tiny], ONE, dtype="bfloat16") == SIZE
    assert not set(run.hashes().values()) & set(before.values())
    assert run.results()[RESULT].identity.dtype == "bfloat16"


def test_a_result_of_the_same_place_in_another_run_is_refused(run, other_run, tiny, checkpoint):
    run.sweep([tiny], ONE)
    other_run.sweep([checkpoint(seed=5)], ONE)
    shutil.rmtree(run.folder / RESULT)
    shutil.copytree(other_run.folder / RESULT, run.folder / RESULT)
    with pytest.raises(AssayError, match="checkpoint_hash="):
        run.sweep([tiny], ONE)


def test_a_lost_run_json_is_written_again_and_costs_nothing(run, tiny):
    run.sweep([tiny], ONE)
    before, record = run.parts(), run.record()
    (run.folder / "run.json").unlink()
    assert run.sweep([tiny], ONE) == 0
    assert (run.parts(), run.record()) == (before, record)


def test_a_flipped_bit_in_a_complete_result_is_found(run, tiny):
    run.sweep([tiny], ONE)
    with flipped(run.folder / PART, 500), pytest.raises(AssayError, match=rf"{PART}: "):
        run.sweep([tiny], ONE)
    [path] = (run.folder / "vocab").iterdir()
    with flipped(path, 500), pytest.raises(AssayError, match=rf"{path}: damaged"):
        run.sweep([tiny], ONE)
    assert run.sweep([tiny], ONE) == 0


def test_a_result_says_how_its_parts_were_computed(run, tiny):
    run.sweep([tiny], ONE)
    found = run.results()[RESULT]
    [way] = found.ways
    assert {part.way for part in found.parts.values()} == {0}
    assert way["device_kind"] == "cpu" and way["step_size"] == 16 and way["together"] == ["tiny"]
    assert found.inputs == {"models": {"tiny": tiny.card.checkpoint_hash}, "prompts": ONE}
    assert {"host", "began", "process_count"} <= found.environment.keys()


def test_a_complete_result_of_an_earlier_numerical_code_stays_and_others_are_added(
    run, tiny, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setitem(identity.NUMERICS, "cpu", 1)
        run.sweep([tiny], ONE)
    before = run.hashes()
    assert run.sweep([tiny], ONE) == 0
    assert run.hashes() == before
    run.sweep([tiny], PROMPTS)
    numbers = [entry.ways[0]["numerics"] for entry in run.results().values()]
    assert numbers == [1, identity.NUMERICS["cpu"]]
    assert run.hashes().items() >= before.items()
    assert not verify.verify(epath.Path(run.folder)).problems
