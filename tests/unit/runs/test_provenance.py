"""What a file says about itself."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runs import provenance

FRAME = pl.DataFrame({"item_id": range(4), "item": ["a", "b", '"file_sha256": "', "d"]})
ABOUT = {
    "path": "items/words/model=m/prompt=p",
    "fingerprint": {"dtype": "float32", "rows": 4},
    "rows": {"start": 0, "stop": 4, "of": 4},
    "models": {"m": {"checkpoint_hash": "aa", "source": "here"}},
    "prompts": {"p": 'What is "file_sha256": "?'},
    "lists": {"words": {"rows": 4, "items_hash": "bb"}},
}
DATA = provenance.to_parquet(FRAME, ABOUT)


def test_what_was_said_is_read_back():
    about = provenance.read(DATA)
    assert {key: about[key] for key in ABOUT} == ABOUT
    assert provenance.is_whole(DATA)
    assert provenance.difference(about, ABOUT) == ""


def test_the_same_rows_and_words_give_the_same_bytes():
    assert provenance.to_parquet(FRAME, ABOUT) == DATA


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
    assert provenance.difference(about, ABOUT | change).startswith(why)


def test_a_file_that_says_nothing_is_told_from_one_that_is_damaged(tmp_path):
    FRAME.drop("item").write_parquet(tmp_path / "old.parquet")
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
