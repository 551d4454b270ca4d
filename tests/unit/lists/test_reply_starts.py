"""Reply starts of a file: which rows are drawn, left out and named."""

import json

import pytest

from engine.errors import AssayError
from engine.lists.reply_starts import read_reply_starts
from engine.settings import AfterSettings


def read(path, rows, seed=0, **more):
    return read_reply_starts(path, AfterSettings(rows=rows, **more), seed)


@pytest.fixture
def pairs(tmp_path):
    """Rows of pairs -> their file."""

    def make(rows):
        path = tmp_path / "pairs.jsonl"
        keys = ("prompt", "chosen", "rejected")
        path.write_text("\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows))
        return path

    return make


@pytest.mark.parametrize("seed", range(3))
def test_more_rows_keep_those_that_fewer_draw(pairs, seed):
    path = pairs([(f"p{i}?", f"yes {i}", "no") for i in range(20)])
    drawn = [set(read(path, rows, seed).rows) for rows in (1, 5, 8, 20)]
    assert [len(rows) for rows in drawn] == [1, 5, 8, 20]
    assert drawn[0] < drawn[1] < drawn[2] < drawn[3]


@pytest.mark.parametrize("bad", [("a␟b?", "yes"), ("a␞b?", "yes"), ("a?", "ye␟s"), ("a?", "ye␞s")])
def test_texts_that_cannot_be_parted_again_are_left_out_and_counted(pairs, bad):
    sampled = read(pairs([("p?", "yes", "no"), (*bad, "no")]), 8)
    assert (list(sampled.replies), sampled.rows, sampled.left_out) == ([("p?", "yes")], [1], 1)


def test_blank_replies_of_a_file_without_prompts_are_counted(tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("one\n  \ntwo\n")
    sampled = read(path, 8)
    assert (sampled.rows, sampled.left_out) == ([1, 3], 1)


@pytest.mark.parametrize("name", ["none.jsonl", "none.txt", "none.csv", "none.pdf"])
def test_a_missing_file_is_named_by_its_flag(tmp_path, name):
    with pytest.raises(AssayError, match=f"^--after_items={tmp_path / name}"):
        read(tmp_path / name, 8)
