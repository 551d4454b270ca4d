"""Parts on a disk, and what a file says about itself."""

import os

import polars as pl
import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AssayError
from engine.runs import parts, provenance, schema, storage
from tests.support.killed import Killed, killed_after

FRAME = pl.DataFrame({"token_id": range(3), "reward": [0.5, -1.0, 2.0]})
ABOUT = {"path": "result", "fingerprint": {"dtype": "float32"}}


def write_part(folder, start, stop, frame=FRAME):
    return parts.write_part(folder, start, stop, frame, ABOUT)


def read_part(folder, start, stop, recorded=None, wanted=ABOUT):
    return parts.read_frame(folder / schema.part_name(start, stop), recorded, wanted)


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


WORDS = pl.DataFrame({"item_id": range(4), "item": ["a", "b", '"file_sha256": "', "d"]})
SAID = {
    "path": "items/words/model=m/prompt=p",
    "fingerprint": {"dtype": "float32", "rows": 4},
    "rows": {"start": 0, "stop": 4, "of": 4},
    "models": {"m": {"checkpoint_hash": "aa", "source": "here"}},
    "prompts": {"p": 'What is "file_sha256": "?'},
    "lists": {"words": {"rows": 4, "items_hash": "bb"}},
}
DATA = provenance.to_parquet(WORDS, SAID)


def test_what_was_said_is_read_back():
    about = provenance.read(DATA)
    assert {key: about[key] for key in SAID} == SAID
    assert provenance.is_whole(DATA)
    assert provenance.difference(about, SAID) == ""


def test_the_same_rows_and_words_give_the_same_bytes():
    assert provenance.to_parquet(WORDS, SAID) == DATA


@given(st.integers(0, len(DATA) - 1), st.integers(0, 7))
def test_every_flipped_bit_is_seen(position, bit):
    damaged = bytearray(DATA)
    damaged[position] ^= 1 << bit
    assert not provenance.is_whole(bytes(damaged))


@given(st.integers(0, len(DATA) - 1))
def test_every_cut_is_seen(length):
    assert not provenance.is_whole(DATA[:length])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "x"}, "path='items/words/model=m/prompt=p', not 'x'"),
        ({"fingerprint": {"dtype": "bfloat16", "rows": 4}}, "dtype='float32', not 'bfloat16'"),
        ({"fingerprint": {"dtype": "float32"}}, "rows=4, not its default"),
        ({"rows": {"start": 0, "stop": 4, "of": 5}}, "of=4, not 5"),
        ({"models": {"m": {"checkpoint_hash": "cc"}}}, "model 'm' with checkpoint_hash='aa', not"),
        ({"models": {"n": {"checkpoint_hash": "aa"}}}, "model 'n' with checkpoint_hash=None, not"),
        ({"prompts": {"p": "Who?"}}, "prompt 'p' with"),
        (
            {"lists": {"words": {"rows": 4, "items_hash": "cc"}}},
            "list 'words' with items_hash='bb'",
        ),
    ],
)
def test_a_difference_is_named(change, why):
    about = provenance.read(DATA)
    assert provenance.difference(about, SAID | change).startswith(why)


def test_a_file_that_says_nothing_is_told_from_one_that_is_damaged(tmp_path):
    WORDS.drop("item").write_parquet(tmp_path / "old.parquet")
    data = (tmp_path / "old.parquet").read_bytes()
    assert provenance.is_whole(data) is None


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
    assert provenance.part_span(name) == span
