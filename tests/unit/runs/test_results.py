"""Results on a disk: parts, the record that vouches for them, and the run that names them."""

import dataclasses
import os

import polars as pl
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.folder import RunFolder, read_table
from engine.runs.identity import Identity, sealed, to_json, unsealed
from engine.runs.result import Result, RunError
from tests.support.killed import Killed, killed_after
from tests.support.runs import CHECK

PATH = "scores/model=m/prompt=p"
IDENTITY = Identity(checkpoint_hash="aa", rows=3, mode="ids", dtype="float32")
MODEL = {"source": "here", "checkpoint_hash": "aa", "vocab": "v"}
FRAME = pl.DataFrame([[0, 1], [0.5, -1.0]], schema=schema.SCORE_COLUMNS)
NAMES = ["part-0000000-0000002.parquet", "part-0000002-0000003.parquet"]


@pytest.fixture
def run(tmp_path):
    """A run with one result, of which the first of two parts is there."""
    folder = RunFolder.open(str(tmp_path / "run"))
    folder.admit("models", "m", MODEL)
    folder.admit("prompts", "p", "What?")
    folder.save({})
    folder.begin(PATH, IDENTITY, 2).write(NAMES[0], FRAME, {"platform": "cpu"}, 0.5)
    return folder.run


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("part-0000100-0000200.parquet", (100, 200)),
        ("part-10000000-10000100.parquet", (10_000_000, 10_000_100)),
        ("part-100-200.parquet", None),
        ("part-00000100-0000200.parquet", None),
        ("humans.parquet", None),
    ],
)
def test_the_name_of_a_part_is_its_rows(name, span):
    assert schema.part_span(name) == span


# Records


def test_a_result_is_complete_when_it_has_all_parts_and_was_checked(run):
    result = RunFolder.open(str(run)).results[PATH]
    last = pl.DataFrame([[2], [3.0]], schema=schema.SCORE_COLUMNS)
    result.write(NAMES[1], last, {"platform": "cpu"}, 0.5)
    assert not Result.open(run, PATH).complete
    result.self_check = CHECK
    result.save()
    assert Result.open(run, PATH).complete
    os.unlink(run / PATH / NAMES[0])
    again = RunFolder.open(str(run)).results[PATH]
    assert (again.missing, again.self_check) == ([(0, 2)], None)


DATA = sealed(to_json(IDENTITY), 2)


@given(st.integers(0, len(DATA) - 1), st.integers(0, 7))
def test_every_flipped_bit_of_a_record_is_seen(position, bit):
    damaged = bytearray(DATA)
    damaged[position] ^= 1 << bit
    with pytest.raises(ValueError, match=r".+"):
        unsealed(bytes(damaged), 2)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"version": 3}', b"[1]", b"\xff"])
def test_what_is_no_record_is_damaged(run, data):
    (run / PATH / schema.RESULT).write_bytes(data)
    with pytest.raises(AssayError, match=r"result\.json: damaged"):
        Result.open(run, PATH)
    (run / schema.RUN).write_bytes(data)
    with pytest.raises(AssayError, match=r"run\.json: damaged"):
        RunFolder.open(str(run))


# Writing


def test_a_part_appears_under_its_name_only_when_it_is_whole_on_disk(run, monkeypatch):
    seen, result = [], RunFolder.open(str(run)).results[PATH]
    monkeypatch.setattr(
        os, "fsync", lambda _: seen.append({p.name for p in (run / PATH).iterdir()})
    )
    result.write(NAMES[1], FRAME[:1].with_columns(token_id=pl.lit(2, pl.UInt32)), {}, 0.0)
    [new] = seen[0] - {NAMES[0], schema.RESULT}
    assert storage.is_temporary(epath.Path(new))


def test_what_a_killed_process_left_is_removed_and_nothing_else(run, monkeypatch):
    (run / PATH / ".notes.tmp").write_text("a user's own")
    result = RunFolder.open(str(run)).results[PATH]
    with monkeypatch.context() as patch:
        killed_after(patch, os, "fsync", 0)
        with pytest.raises(Killed):
            result.write(NAMES[1], FRAME, {}, 0.0)
    assert len(list((run / PATH).iterdir())) == 4
    storage.remove_leftovers(run)
    left = {".notes.tmp", NAMES[0], schema.RESULT}
    assert {p.name for p in (run / PATH).iterdir()} == left


# What stands behind names


def test_a_slug_with_other_weights_is_refused(run):
    with pytest.raises(AssayError, match="model 'm'"):
        RunFolder.open(str(run)).admit("models", "m", {**MODEL, "checkpoint_hash": "bb"})


def test_a_prompt_id_with_another_text_is_refused(run):
    with pytest.raises(AssayError, match=r"prompt 'p' .*'What.', not 'Who.'"):
        RunFolder.open(str(run)).admit("prompts", "p", "Who?")


def test_a_name_of_which_nothing_was_computed_is_free_again(run):
    os.unlink(run / PATH / NAMES[0])
    again = RunFolder.open(str(run))
    again.admit("models", "m", {**MODEL, "checkpoint_hash": "bb"})
    again.admit("prompts", "p", "Who?")
    other = dataclasses.replace(IDENTITY, checkpoint_hash="bb")
    assert again.begin(PATH, other, 2).identity.checkpoint_hash == "bb"


def test_a_folder_of_other_things_is_no_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(AssayError, match=r"no run\.json"):
        RunFolder.open(str(tmp_path))
    with pytest.raises(AssayError, match=r"thesis\.tex: "):
        RunFolder.open(str(tmp_path / "thesis.tex"))


@pytest.mark.parametrize(
    "place", ["/dev/zero", "../other/vocab/v.parquet", "vocab/../../v.parquet"]
)
def test_a_table_outside_the_run_is_refused(run, place):
    fields = unsealed((run / schema.RUN).read_bytes(), schema.VERSION) | {"tables": {place: "aa"}}
    (run / schema.RUN).write_bytes(sealed(fields, schema.VERSION))
    with pytest.raises(RunError, match="is no table"):
        RunFolder.read(run)


def test_a_table_that_is_no_regular_file_is_refused(run):
    place = schema.vocab_path("v")
    fields = unsealed((run / schema.RUN).read_bytes(), schema.VERSION) | {"tables": {place: "aa"}}
    (run / schema.RUN).write_bytes(sealed(fields, schema.VERSION))
    (run / place).parent.mkdir()
    os.mkfifo(run / place)
    with pytest.raises(AssayError, match="not a regular file"):
        read_table(RunFolder.read(run), place)
