import json

import polars as pl
import pytest

from engine.lists import files
from launch.common.scoring import extremes
from tests.support import tiny

SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")
SEARCH = ("method=random", "length=2", "steps=2", "candidates=12", "every=2", "direction=max")


def test_score_reads_a_list_and_says_where_its_rewards_are(command, checkpoint, run, source):
    words = source("name,rank\nlove,1\n007,2\nlove,3\nwar,4\n", "My Words.csv")
    flags = (f"--run={run.folder}", f"--items={words}", *SMALL)
    done = command("score", checkpoint().path, *flags).fine()
    assert done.out[-1] == f"{run.folder}/items/my-words: 1 model × 1 prompt, 4 new rewards"
    items = run.frame("items/my-words/model=tiny/prompt=greatest")["item"]
    assert items.to_list() == ["love", "007", "love", "war"]


def test_log_probabilities_of_a_list_of_replies(command, checkpoint, run, source):
    lines = '{"reply": "love"}\n{"reply": "war and peace"}\n{"reply": "love"}\n\n \n'
    flags = (f"--run={run.folder}", f"--items={source(lines, 'words.jsonl')}", *SMALL)
    done = command("logprobs", checkpoint("lm", head="lm").path, *flags)
    place = f"{run.folder}/item_logprobs/words"
    assert done.out == [f"{place}: 1 model × 1 prompt, 3 new log-probabilities"]
    table = run.frame("item_logprobs/words/model=lm/prompt=greatest")
    assert any(line.startswith("lm: ") and line.endswith("⟦␣love⟧") for line in done.err)
    assert table["item"].to_list() == ["love", "war and peace", "love"]
    assert table["tokens"].to_list() == [1, 11, 1]  # " love"; " war", then a byte a token
    assert table["logprob"][0] == table["logprob"][2]


@pytest.mark.slow
def test_a_found_sequence_is_said_with_its_reward_and_kept(command, checkpoint, run):
    flags = [checkpoint().path, f"--run={run.folder}", "--noconfig.ascii_only"]
    flags += [f"--config.{setting}" for setting in SEARCH]
    done = command("search", *flags).fine()
    (file,) = (run.folder / "sequences").rglob("*.parquet")
    last = pl.read_parquet(file).row(-1, named=True)
    rejected = json.loads(file.with_name("result.json").read_text())["rejected"]
    message = f"max {last['reward']:.4g} {last['text']!r} ({rejected} "
    assert rejected > 0 and message in done.out[-1]
    left = file.parent / ".max.safetensors.0123abcd.tmp"
    left.write_bytes(b"{")  # as a command that is killed leaves it
    assert command("search", *flags).out[-1].endswith("0 new; complete already")
    assert not left.exists()
    assert command("verify", f"--run={run.folder}").code == 0


def test_the_five_highest_and_lowest_tokens_are_named_readably():
    tokens = [" love", "a", "b", "\n", "<|im_end|>", "\u200b", "", "war"]
    rewards = [3.0, 0.5, 0.5, 1.0, 2.0, -1.0, -2.0, -3.456]
    frame = pl.DataFrame({"token_id": range(8), "token": tokens, "reward": rewards})
    assert extremes("tiny", "greatest", frame.sort("token")).splitlines() == [
        "tiny, prompt 'greatest':",
        "  highest  ␣love 3.00   <|im_end|> 2.00   ↵ 1.00   a 0.50   b 0.50",
        "  lowest   war -3.46   (empty) -2.00   \\u200b -1.00   a 0.50   b 0.50",
    ]
    title = "tiny, prompt 'greatest' (the first 8 of 1,008 tokens):"
    assert extremes("tiny", "greatest", frame, 1000).splitlines()[0] == title


def test_a_listed_models_folder_must_have_its_head_and_says_where_its_dtype_differs(
    command, tmp_path, monkeypatch
):
    check = "engine.sources.convert.check_config"
    monkeypatch.setattr(check, lambda place, hf, spec: None)
    flags = f"--checkpoint={tmp_path / 'ck'}"
    other = tiny.write_model(tmp_path / "ArmoRM-Llama3-8B-v0.1")
    done = command("convert", f"--source={other}", flags)
    what = "head='gated'; allowed for this checkpoint: 'linear'"
    assert done.refusal() == f"convert: {other}: {what}"
    same = tiny.write_model(tmp_path / "GRM-Llama3-8B-rewardmodel-ft")
    done = command("convert", f"--source={same}", flags)
    assert done.out[-1].endswith(
        ": grm-llama3-8b-rewardmodel-ft, 1 layer, linear head, "
        "320 tokens, float32 (listed as float16)"
    )


def test_a_folder_that_gives_no_name_is_told_of_the_slug(command, tmp_path):
    flags = (f"--source={tiny.write_model(tmp_path / '模型')}", f"--checkpoint={tmp_path / 'ck'}")
    (line,) = command("convert", *flags).err
    assert line.startswith(f"convert: source='{tmp_path / '模型'}': name ''; allowed: lower-case")
    assert line.endswith("; give one as --config.slug")
    assert command("convert", *flags, "--config.slug=my-rm").code == 0
    named = tiny.write_model(tmp_path / "Runs" / "My RM (2)")
    done = command("convert", f"--source={named}", f"--checkpoint={tmp_path / 'other'}")
    assert done.out[0].startswith(f"{tmp_path / 'other'}: my-rm-2, 1 layer, linear head, ")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "love\n \nworld war\n", ["love", " ", "world war"]),
        ("a.txt", "\ufeffone\u2028line\x0c\x85\n", ["one\u2028line\x0c\x85"]),
        ("a.csv", "name\nlove\n007\n1.50\ntrue\n", ["love", "007", "1.50", "true"]),
    ],
)
def test_items_are_read_as_they_are_written(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert files.read_replies(tmp_path / name, "name") == expected


def test_items_of_a_parquet_column(tmp_path):
    words = pl.Series(["love", "war", "love"], dtype=pl.Categorical)
    pl.DataFrame({"word": words, "n": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    assert files.read_replies(tmp_path / "a.parquet", "word") == words.to_list()
