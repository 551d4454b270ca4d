"""`launch.logprobs`: what it writes, what it keeps, what it refuses."""

import json

import numpy as np
import polars as pl
import pytest

SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")


@pytest.fixture
def language(checkpoint):
    return checkpoint("lm", head="lm")


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def read(folder) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(part) for part in sorted(folder.iterdir())])


@pytest.mark.slow
def test_next_tokens_in_both_forms_lie_in_one_run_and_are_not_computed_again(
    command, language, run
):
    flags = (f"--checkpoint={language.path}", f"--run={run}", *SMALL)
    done = command("logprobs", *flags)
    assert done.out == [f"{run}/logprobs: 1 model × 1 prompt, 288 new log-probabilities"]
    assert command("logprobs", *flags, "--config.form=chat").code == 0
    plain = run / "logprobs/model=lm/prompt=greatest"
    chat = run / "logprobs/model=lm/prompt=greatest.chat"
    assert not np.allclose(read(plain)["logprob"], read(chat)["logprob"])

    (lost := sorted(plain.iterdir())[1]).rename(run / "lost")
    assert command("logprobs", *flags).out[-1].endswith("100 new log-probabilities")
    assert lost.read_bytes() == (run / "lost").read_bytes()
    assert command("logprobs", *flags).out[-1].endswith("complete already")
    results = json.loads((run / "manifest.json").read_text())["results"]
    assert [r["fingerprint"]["form"] for r in results.values()] == ["pretrained", "chat"]


def test_a_list_of_replies(command, language, run, tmp_path):
    (tmp_path / "words.txt").write_text("love\nwar and peace\nlove\n")
    flags = (f"--checkpoint={language.path}", f"--run={run}", *SMALL)
    done = command("logprobs", *flags, f"--items={tmp_path / 'words.txt'}")
    place = f"{run}/item_logprobs/words"
    assert done.out == [f"{place}: 1 model × 1 prompt, 3 new log-probabilities"]
    table = read(run / "item_logprobs/words/model=lm/prompt=greatest")
    assert table["item"].to_list() == ["love", "war and peace", "love"]
    assert table["tokens"].to_list() == [1, 11, 1]  # " love"; " war", then a byte a token
    assert table["logprob"][0] == table["logprob"][2]


def test_a_reward_model_is_refused_in_one_line(command, checkpoint, run):
    done = command("logprobs", f"--checkpoint={checkpoint().path}", f"--run={run}", *SMALL)
    [line] = done.err
    kind = "a reward model; allowed: a language model (`assay sweep` and `assay score` take re"
    assert done.code == 2 and kind in line
    assert not run.exists()
