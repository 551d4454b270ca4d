"""What a sweep takes from disk: nothing that was computed otherwise, nothing that is damaged."""

import json
import shutil

import jax
import numpy as np
import pytest
from etils import epath

from engine.errors import AssayError
from engine.runs import provenance
from engine.runs.manifest import Manifest
from engine.runs.verify import verify
from engine.scoring import reward_passes
from engine.sweep import loop, setup
from tests.support.folders import flipped
from tests.support.sweeps import ONE, PROMPTS, SIZE, result

RESULT = result()
PART = f"{RESULT}/part-0000100-0000200.parquet"


@pytest.mark.parametrize(
    ("begun", "changes", "message"),
    [
        ({}, {"dtype": "bfloat16"}, "dtype='float32', not 'bfloat16'"),
        ({}, {"part_size": 50}, "part_size=100, not 50"),
        ({}, {"step_size": 8}, "was begun with step_size=16, not 8; use another run folder"),
        ({}, {"mode": "text"}, "mode='ids', not 'text'"),
        ({}, {"pooling": "first_pad"}, "pooling left at its default, not 'first_pad'"),
        ({}, {"lens": True}, "lens left at its default, not 3"),
        ({"lens": True}, {}, "lens=3, not its default"),
        ({"tokens": 70}, {"tokens": 70, "seed": 1}, "was begun with tokens"),
    ],
)
def test_a_result_is_not_continued_under_other_settings(run, checkpoint, begun, changes, message):
    model = checkpoint("tiny", pad_token_id=310)
    run.sweep([model], ONE, **begun)
    before, manifest = run.parts(), run.manifest()
    with pytest.raises(AssayError, match=message):
        run.sweep([model], ONE, **changes)
    assert (run.parts(), run.manifest()) == (before, manifest)


def forget_result(run):
    """The manifest loses a result, as it did when two commands wrote it at once."""
    run.edit_manifest(lambda content: content["results"].pop(RESULT))


def test_parts_in_float32_are_never_labelled_bfloat16(run, tiny):
    """Not even without a lock, and without the result's entry in the manifest."""
    run.sweep([tiny], ONE)
    forget_result(run)
    before, manifest = run.parts(), run.manifest()
    message = r"part-0000000-0000100\.parquet: belongs to something else \(dtype='float32', not 'b"
    with pytest.raises(AssayError, match=message):
        run.sweep([tiny], ONE, dtype="bfloat16")
    assert (run.parts(), run.manifest()) == (before, manifest)
    assert run.sweep([tiny], ONE) == 0
    assert run.manifest()["results"][RESULT]["fingerprint"]["dtype"] == "float32"


def test_a_part_of_another_result_is_refused(run, tiny):
    run.sweep([tiny], PROMPTS)
    source = result(prompt="worst")
    shutil.copy(run.folder / PART.replace(RESULT, source), run.folder / PART)
    with pytest.raises(AssayError, match=rf"{PART}: .*differs from its hash in the manifest"):
        run.sweep([tiny], ONE)
    forget_result(run)
    with pytest.raises(AssayError, match=rf"{PART}: .*path='{source}', not"):
        run.sweep([tiny], ONE)


def test_a_part_of_the_same_place_in_another_run_is_refused(run, other_run, tiny, checkpoint):
    run.sweep([tiny], ONE)
    other_run.sweep([checkpoint(seed=5)], ONE)
    shutil.copy(other_run.folder / PART, run.folder / PART)
    forget_result(run)
    with pytest.raises(AssayError, match=rf"{PART}: belongs to something else \(checkpoint_hash="):
        run.sweep([tiny], ONE)


def test_parts_of_another_part_size_are_refused(run, tiny):
    run.sweep([tiny], ONE)
    forget_result(run)
    message = r"part-0000000-0000100\.parquet: no part of a result of 288 rows with part_size=50"
    with pytest.raises(AssayError, match=message):
        run.sweep([tiny], ONE, part_size=50)


@pytest.mark.parametrize("known", [True, False])
def test_a_flipped_bit_in_a_complete_result_is_found(run, tiny, known):
    run.sweep([tiny], ONE)
    if not known:
        forget_result(run)
    path = run.folder / PART
    for position in np.linspace(0, path.stat().st_size - 1, 20).astype(int).tolist():
        with flipped(path, position), pytest.raises(AssayError, match=rf"{PART}: .*; remove it"):
            run.sweep([tiny], ONE)
    assert run.sweep([tiny], ONE) == 0


def test_a_flipped_bit_in_a_vocabulary_is_found(run, tiny):
    run.sweep([tiny], ONE)
    [path] = (run.folder / "vocab").iterdir()
    for position in np.linspace(0, path.stat().st_size - 1, 20).astype(int).tolist():
        with flipped(path, position), pytest.raises(AssayError, match=rf"{path}: damaged; remove"):
            run.sweep([tiny], ONE)


def test_parts_that_the_manifest_lacks_are_adopted(run, tiny):
    run.sweep([tiny], ONE)
    before, entry = run.parts(), run.manifest()["results"][RESULT]
    forget_result(run)
    assert run.sweep([tiny], ONE) == 0
    assert run.parts() == before
    adopted = run.manifest()["results"][RESULT]
    for key in ("fingerprint", "parts", "complete", "self_check", "coefficients"):
        assert adopted[key] == entry[key]


def test_a_part_says_what_computed_it_and_nothing_that_equal_runs_differ_in(run, tiny):
    run.sweep([tiny], ONE)
    about = provenance.read((run.folder / PART).read_bytes())
    manifest = run.manifest()
    entry = manifest["results"][RESULT]
    assert about["fingerprint"] == entry["fingerprint"]
    assert about["models"] == {"tiny": manifest["models"]["tiny"]}
    assert about["prompts"] == ONE
    assert about["rows"] == {"start": 100, "stop": 200, "of": SIZE}
    assert about["computed_by"]["device_kind"] == "cpu"
    assert entry["environment"]["process_count"] == 1
    for key in ("host", "began", "process_count", "device_count"):
        assert key in entry["environment"] and key not in json.dumps(about)


def test_a_run_that_stops_saves_what_it_wrote(run, tiny, monkeypatch):
    """However seldom it saves."""
    monkeypatch.setattr(Manifest, "save_if_due", lambda self: None)
    original, left = reward_passes.check_finite, iter(range(2))

    def stops(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        original(*arguments)

    monkeypatch.setattr(loop, "check_finite", stops)
    with pytest.raises(KeyboardInterrupt):
        run.sweep([tiny], ONE)
    assert len(run.manifest()["results"][RESULT]["parts"]) == len(run.parts()) == 2


def test_the_manifest_is_saved_seldom(run, tiny, monkeypatch):
    """Not once a part: the time since the last save counts, and what a save costs."""
    original, saves = Manifest.save, []

    def save(self):
        saves.append(1)
        original(self)
        self._cost_s = 1e6

    monkeypatch.setattr(Manifest, "save", save)
    run.sweep([tiny], ONE, part_size=8)
    assert len(run.manifest()["results"][RESULT]["parts"]) == SIZE // 8
    assert len(saves) == 2  # at the start and at the end


# Numbers of another version of the code are not mixed into a result, and stay readable.

CURRENT = provenance.numerics(jax.default_backend())


@pytest.fixture(params=[{}, {"numerics": 1}], ids=["without", "one"])
def earlier(request, run, tiny, monkeypatch):
    """What an earlier version computed; the first had no number."""
    with monkeypatch.context() as patch:
        patch.setattr(setup, "numerics_entry", lambda *_, **__: request.param)
        run.sweep([tiny], ONE)
    return run


def numbers(run) -> list[int | None]:
    results = run.manifest()["results"].values()
    return [result["fingerprint"].get("numerics") for result in results]


@pytest.mark.slow
def test_a_result_that_an_earlier_version_began_is_not_continued(earlier, tiny):
    next((earlier.folder / RESULT).iterdir()).unlink()
    before = earlier.hashes()
    message = rf"was begun with numerics.*, not {CURRENT}; use another run folder"
    with pytest.raises(AssayError, match=message):
        earlier.sweep([tiny], ONE)
    assert earlier.hashes() == before


def test_a_complete_result_of_an_earlier_version_stays_and_others_are_added(earlier, tiny):
    before, number = earlier.hashes(), numbers(earlier)[0]
    assert earlier.sweep([tiny], ONE) == 0
    assert earlier.hashes() == before
    earlier.sweep([tiny], PROMPTS)
    assert numbers(earlier) == [number, CURRENT]
    assert earlier.hashes().items() >= before.items()
    assert not verify(epath.Path(earlier.folder)).problems
