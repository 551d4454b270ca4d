import os

import polars as pl
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AssayError
from engine.runs import parts, storage
from tests.support.killed import Killed, killed_after

FRAME = pl.DataFrame({"token_id": range(3), "reward": [0.5, -1.0, 2.0]})
ABOUT = {"path": "result", "fingerprint": {"dtype": "float32"}}


def write_part(folder, start, stop, frame=FRAME):
    return parts.write_part(folder, start, stop, frame, ABOUT)


def read_part(folder, start, stop, recorded=None, wanted=ABOUT):
    return parts.read_part(folder, start, stop, recorded, wanted)


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path / "result")


@given(rows=st.integers(0, 300_000), part_size=st.integers(100, 400_000))
def test_ranges_hold_every_row_once_in_order(rows, part_size):
    spans = parts.ranges(rows, part_size)
    assert [row for span in spans for row in range(*span)] == list(range(rows))
    assert all(stop - start == part_size for start, stop in spans[:-1])


def test_a_part_is_read_back_with_the_hash_it_was_written_under(folder):
    digest = write_part(folder, 4, 7)
    table = read_part(folder, 4, 7)
    assert table.frame.equals(FRAME)
    assert table.sha256 == digest


def test_a_part_appears_under_its_name_only_when_it_is_whole_on_disk(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.extend(p.name for p in folder.iterdir()))
    write_part(folder, 0, 3)
    [name] = seen
    assert storage.is_temporary(epath.Path(name))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"", lambda data: b"xx"])
def test_a_part_that_was_cut_short_is_named(folder, damage):
    write_part(folder, 0, 3)
    path = folder / "part-0000000-0000003.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(AssayError, match=r"part-0000000-0000003\.parquet: (damaged|nothing says)"):
        read_part(folder, 0, 3)


def test_a_part_of_other_length_than_its_name_says_is_named(folder):
    write_part(folder, 0, 4)
    with pytest.raises(AssayError, match=r"part-0000000-0000004\.parquet: 3 rows, expected 4"):
        read_part(folder, 0, 4)


def test_what_a_killed_process_left_is_removed_and_nothing_else(folder, monkeypatch):
    write_part(folder, 0, 3)
    (folder / ".notes.tmp").write_text("a user's own")
    killed_after(monkeypatch, os, "fsync", 0)
    with pytest.raises(Killed):
        write_part(folder, 3, 6)
    assert len(list(folder.iterdir())) == 3
    storage.remove_leftovers(folder)
    assert {p.name for p in folder.iterdir()} == {".notes.tmp", "part-0000000-0000003.parquet"}
