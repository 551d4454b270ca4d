"""`launch.logprobs`: what it writes of a list."""

import pytest

SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")


@pytest.fixture
def flags(checkpoint, run):
    return f"--checkpoint={checkpoint('lm', head='lm').path}", f"--run={run.folder}", *SMALL


def test_a_list_of_replies(command, flags, run, source):
    lines = '{"reply": "love"}\n{"reply": "war and peace"}\n{"reply": "love"}\n\n \n'
    words = source(lines, "words.jsonl")
    done = command("logprobs", *flags, f"--items={words}")
    place = f"{run.folder}/item_logprobs/words"
    assert done.out == [f"{place}: 1 model × 1 prompt, 3 new log-probabilities"]
    table = run.frame("item_logprobs/words/model=lm/prompt=greatest")
    assert any(line.startswith("lm: ") and line.endswith("⟦␣love⟧") for line in done.err)
    assert table["item"].to_list() == ["love", "war and peace", "love"]
    assert table["tokens"].to_list() == [1, 11, 1]  # " love"; " war", then a byte a token
    assert table["logprob"][0] == table["logprob"][2]
