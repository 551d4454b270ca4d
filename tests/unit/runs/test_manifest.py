import polars as pl
import pytest

from engine.errors import AssayError
from engine.runs import parts, provenance, schema, verify
from engine.runs.manifest import Manifest

FINGERPRINT = {"checkpoint_hash": "aa", "mode": "ids", "dtype": "float32", "part_size": 100}
RESULT = "scores/model=m/prompt=p"


@pytest.fixture
def manifest(tmp_path):
    manifest = Manifest.open(str(tmp_path / "run"))
    manifest.admit("models", "m", {"checkpoint_hash": "aa", "source": "here", "vocab": "v"})
    manifest.admit("prompts", "p", "What?")
    manifest.admit_result(RESULT, FINGERPRINT)
    manifest.save()
    (manifest.run / RESULT).mkdir(parents=True)
    (manifest.run / RESULT / "part-0000000-0000100.parquet").write_bytes(b"rewards")
    return manifest


def reopened(manifest):
    return Manifest.open(str(manifest.run))


def test_a_new_run_is_not_made_by_looking_at_it(tmp_path):
    Manifest.open(str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_made_from_files_has_the_models_by_the_numbers_in_their_names(manifest):
    frame = pl.DataFrame([[0], [1.0]], schema=schema.SCORE_COLUMNS)
    for step in ("step-300", "step-50", "step-100"):
        path = schema.scores_path(step, "p")
        manifest.admit("models", step, {"checkpoint_hash": step, "source": "here", "vocab": None})
        manifest.admit_result(path, FINGERPRINT)
        about = manifest.about(path) | {"rows": provenance.part_rows(0, 1, 1)}
        parts.write_part(manifest.run / path, 0, 1, frame, about)
    (manifest.run / schema.MANIFEST).unlink()
    verify.rebuild(manifest.run)
    assert list(reopened(manifest).content["models"]) == ["step-50", "step-100", "step-300"]


def test_what_was_saved_is_read_back(manifest):
    assert reopened(manifest).content == manifest.content


def test_a_slug_with_other_weights_is_refused(manifest):
    entry, run = {"checkpoint_hash": "bb", "source": "here", "vocab": "v"}, manifest.run
    manifest.result(RESULT)["environment"] = {"began": "2026-11-27T23:59:59+00:00"}
    with pytest.raises(
        AssayError, match=r"model 'm' is there already with other weights; "
    ) as told:
        Manifest(run, manifest.content).admit("models", "m", entry)
    for command in (f"`mv {run} {run}-2026-11-27`", f"`assay diff --before={run}-2026-11-27 "):
        assert command in str(told.value)
    with pytest.raises(AssayError, match=r"is there already with source='here', not 'there'; "):
        reopened(manifest).admit("models", "m", {**entry, "source": "there"})


def test_a_prompt_id_with_another_text_is_refused(manifest):
    with pytest.raises(AssayError, match=r"prompt 'p' is there already with 'What.', not 'Who.'"):
        reopened(manifest).admit("prompts", "p", "Who?")


def test_a_name_that_nothing_on_disk_bears_is_free_again(manifest):
    (manifest.run / RESULT / "part-0000000-0000100.parquet").unlink()
    again = reopened(manifest)
    again.admit("models", "m", {"checkpoint_hash": "bb", "source": "here"})
    again.admit("prompts", "p", "Who?")
    again.admit_result(RESULT, {**FINGERPRINT, "checkpoint_hash": "bb"})
    assert again.content["models"]["m"]["checkpoint_hash"] == "bb"
    assert again.content["prompts"]["p"] == "Who?"
    assert again.result(RESULT)["fingerprint"]["checkpoint_hash"] == "bb"


def test_a_result_is_complete_only_between_its_finish_and_its_next_part(manifest):
    manifest.record_part(RESULT, "part-0000000-0000100.parquet", 100, "cc", 0.5)
    assert not manifest.result(RESULT)["complete"]
    manifest.finish(RESULT, {"candidates": 8})
    assert manifest.result(RESULT)["complete"]
    manifest.record_part(RESULT, "part-0000000-0000100.parquet", 100, "cc", 0.5)
    assert not manifest.result(RESULT)["complete"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ('{"version": 99}', "version 99; allowed: 1"),
        ('{"version": 1, "models": {}}', "prompts and lists: a key is missing or malformed"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(manifest, content, message):
    (manifest.run / "manifest.json").write_text(content)
    with pytest.raises(AssayError, match=rf"manifest\.json: {message}"):
        reopened(manifest)


def test_a_folder_of_other_things_is_no_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(AssayError, match=r"not empty and holds no manifest\.json"):
        Manifest.open(str(tmp_path))
    with pytest.raises(AssayError, match=r"thesis\.tex: a file; allowed: a folder"):
        Manifest.open(str(tmp_path / "thesis.tex"))


def test_a_run_killed_before_its_first_manifest_can_be_started_again(tmp_path):
    (tmp_path / ".manifest.json.0123abcd.tmp").write_text("{")
    assert Manifest.open(str(tmp_path)).content["results"] == {}
