import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from engine.checkpoint.card import Checkpoint
from engine.lists import files
from launch.common.scoring import extremes
from tests.support import tiny
from tests.support.folders import edit_json

SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")


@pytest.fixture
def model(checkpoint):
    return checkpoint().path


# What commands do


def test_score_reads_a_list_and_says_where_its_rewards_are(command, model, run, source):
    words = source("name,rank\nlove,1\n007,2\nlove,3\n", "My Words.csv")
    flags = (f"--checkpoint={model}", f"--run={run.folder}", f"--items={words}", *SMALL)
    done = command("score", *flags).fine()
    assert done.out[-1] == f"{run.folder}/items/my-words: 1 model × 1 prompt, 3 new rewards"
    items = run.frame("items/my-words/model=tiny/prompt=greatest")["item"]
    assert items.to_list() == ["love", "007", "love"]


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


@pytest.mark.parametrize(
    ("folder", "source", "slug"),
    [("My-RM", "../My-RM/", "my-rm"), ("My RM (2)", ".", "my-rm-2"), ("model", ".", "runs-model")],
)
def test_a_model_is_named_after_its_folder(command, tmp_path, monkeypatch, folder, source, slug):
    monkeypatch.chdir(tiny.write_model(tmp_path / "Runs" / folder))
    done = command("convert", f"--source={source}", "--checkpoint=../ck")
    assert done.out == [f"../ck: {slug}, 1 layer, linear head, 320 tokens, float32"]


def test_a_folder_that_gives_no_name_is_told_of_the_slug(command, tmp_path):
    flags = (f"--source={tiny.write_model(tmp_path / '模型')}", f"--checkpoint={tmp_path / 'ck'}")
    (line,) = command("convert", *flags).err
    assert line.startswith(f"convert: source='{tmp_path / '模型'}': name ''; allowed: lower-case")
    assert line.endswith("; give one as --config.slug")
    assert command("convert", *flags, "--config.slug=my-rm").code == 0


def test_a_tokenizer_far_smaller_than_the_embedding_is_questioned(command, tmp_path):
    source = tiny.write_model(tmp_path / "rm", vocab_size=600)
    done = command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'ck'}")
    message = "no candidates"
    assert done.code == 0 and message in done.err[0]


def test_a_value_head_beside_an_output_head_is_a_reward_model_in_one_printed_line(
    command, tmp_path
):
    folder = tiny.write_model(tmp_path / "rm")
    weights = load_file(folder / "model.safetensors")
    head = {"v_head.summary.weight": weights.pop("score.weight")}
    save_file(head, folder / "value_head.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    save_file(weights, folder / "model.safetensors")
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"])
    done = command("convert", f"--source={folder}", f"--checkpoint={tmp_path / 'ck'}")
    notes = [line for line in done.err if "left out" in line]
    assert notes == ["note: rm: lm_head.weight is left out: the reward head is v_head.summary"]
    assert Checkpoint.open(tmp_path / "ck").card.kind == "reward model"


# Item lists


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


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_items_of_a_parquet_column(tmp_path, dtype):
    words = pl.Series(["love", "war", "love"], dtype=dtype)
    pl.DataFrame({"word": words, "n": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    expected = ["love", "war", "love"]
    assert files.read_replies(tmp_path / "a.parquet", "word") == expected
