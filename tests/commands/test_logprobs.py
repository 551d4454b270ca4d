"""`launch.logprobs`: what it writes, what it keeps, what it refuses."""

import numpy as np
import pytest

SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")


@pytest.fixture
def flags(checkpoint, run):
    return f"--checkpoint={checkpoint('lm', head='lm').path}", f"--run={run.folder}", *SMALL


@pytest.mark.slow
def test_next_tokens_in_both_forms_lie_in_one_run_and_are_not_computed_again(command, flags, run):
    done = command("logprobs", *flags)
    assert done.out == [f"{run.folder}/logprobs: 1 model × 1 prompt, 288 new log-probabilities"]
    assert command("logprobs", *flags, "--config.form=chat").code == 0
    plain, chat = (f"logprobs/model=lm/prompt=greatest{form}" for form in ("", ".chat"))
    assert not np.allclose(run.frame(plain)["logprob"], run.frame(chat)["logprob"])

    (lost := sorted((run.folder / plain).glob("part-*"))[1]).rename(run.folder / "lost")
    assert command("logprobs", *flags).out[-1].endswith("100 new log-probabilities")
    assert lost.read_bytes() == (run.folder / "lost").read_bytes()
    assert command("logprobs", *flags).out[-1].endswith("complete already")
    assert {r.identity.form for r in run.results().values()} == {"pretrained", "chat"}


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
