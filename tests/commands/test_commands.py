import json
from pathlib import Path

import polars as pl
import pytest

from launch.common import config, inputs
from launch.common.scoring import chosen_prompts, extremes
from tests.support import runs, tiny

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")


@pytest.fixture
def model(checkpoint):
    return checkpoint().path


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def manifest(run):
    return json.loads((run / "manifest.json").read_text())


def refused(done, message):
    """One line on standard error, none on standard output, an exit code that says so."""
    assert done.err == [message]
    assert done.out == []
    assert done.code not in (0, None)


# What commands do


def test_convert_then_sweep_then_sweep_again(command, tmp_path, run):
    source, target = tiny.write_model(tmp_path / "My-RM"), tmp_path / "checkpoint"
    done = command("convert", f"--source={source}", f"--checkpoint={target}")
    assert done.code == 0
    assert done.out == [f"{target}: my-rm, 3 layers, linear head, 320 tokens, float32"]

    flags = (f"--checkpoint={target}", f"--run={run}", *SMALL)
    done = command("sweep", *flags)
    assert done.code == 0
    assert done.out == [f"{run}/scores: 1 model × 1 prompt, 288 new rewards"]
    assert "my-rm, prompt 'greatest':" in "\n".join(done.err)
    assert len(list((run / "scores/model=my-rm/prompt=greatest").iterdir())) == 3

    done = command("sweep", *flags)
    assert done.code == 0
    assert done.out[-1] == f"{run}/scores: 1 model × 1 prompt, complete already"


def test_prompts_of_the_users_own(command, model, run):
    own = ["Who are you?", "Wer bist du?\nSag es."]
    flags = [f"--prompt={text}" for text in own]
    done = command("sweep", f"--checkpoint={model}", f"--run={run}", *flags, *SMALL[:2])
    assert done.code == 0
    assert done.out[-1] == f"{run}/scores: 1 model × 2 prompts, 576 new rewards"
    prompts = manifest(run)["prompts"]
    assert list(prompts.values()) == own
    assert [name.rsplit("-", 1)[0] for name in prompts] == ["who-are-you", "wer-bist-du-sag-es"]


def test_the_config_file_selects_a_set_of_prompts():
    ids = config.load(f"{CONFIGS}/sweep.py:elo").prompts
    assert list(chosen_prompts(ids, own=[])) == ["elo_greatest", "elo_prefer"]


def test_score_reads_a_list_and_says_where_its_rewards_are(command, model, run, tmp_path):
    words = tmp_path / "My Words.csv"
    words.write_text("name,rank\nlove,1\n007,2\nlove,3\n")
    flags = (f"--checkpoint={model}", f"--run={run}", f"--items={words}", *SMALL)
    done = command("score", *flags)
    assert done.code == 0
    assert done.out[-1] == f"{run}/items/my-words: 1 model × 1 prompt, 3 new rewards"
    [part] = (run / "items/my-words/model=tiny/prompt=greatest").iterdir()
    assert pl.read_parquet(part)["item"].to_list() == ["love", "007", "love"]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("../words", "lower-case letters, digits"),
        ("found-words", "names that do not begin with 'found-'"),
    ],
)
def test_a_name_that_no_list_can_have_is_refused(command, model, run, tmp_path, name, allowed):
    (tmp_path / "words.txt").write_text("love\n")
    flags = (f"--checkpoint={model}", f"--run={run}", f"--items={tmp_path}/words.txt", *SMALL)
    done = command("score", *flags, f"--name={name}")
    assert (done.code, len(done.err)) == (2, 1)
    assert repr(name) in done.err[0] and f"; allowed: {allowed}" in done.err[0]
    assert not run.exists()


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


# Flags and config keys


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--chekpoint=x", "--chekpoint is no flag (did you mean 'checkpoint'?); see --h"),
        ("--config.stepsize=8", "--config has no key 'stepsize' (did you mean 'step_si"),
        ("--config.part_size=many", "flag --config.part_size=many: invalid literal for"),
        ("run", "run: no such folder; allowed: a checkpoint, a model's folder, or a hub id"),
        ("--config.prompts=greatst", "prompts='greatst' (did you mean 'greatest'?); allowed: grea"),
        ("--config.prompts=", "nothing to score; give at least one checkpoint and one prompt"),
        ("--prompt=\udcff", "argument '--prompt=\\udcff': not UTF-8; allowed: UTF-8 text"),
        ("--config.dtype=fp8", "dtype='fp8'; allowed: 'bfloat16', 'float16', 'float32'"),
        ("--config.mesh.model=3", "mesh.model=3; allowed: divisors of the "),
        ("--config.step_size=0", "step_size=0; allowed: 'auto', or integers >= 1"),
    ],
)
def test_a_bad_flag_is_one_line_and_nothing_is_written(command, model, run, flag, message):
    done = command("sweep", f"--checkpoint={model}", f"--run={run}", flag)
    assert [line[: len("sweep: ") + len(message)] for line in done.err] == [f"sweep: {message}"]
    assert (done.code, done.out) == (2, [])
    assert not run.exists()


def test_a_sweep_needs_a_checkpoint_and_a_run(command, model, run):
    kinds = "checkpoints, models' folders or hub ids"
    missing = f"sweep: --checkpoint is missing; allowed: models to score, comma-separated: {kinds}"
    refused(command("sweep", f"--run={run}"), missing)
    refused(command("sweep", f"--run={run}", f"--checkpoint={model},"), missing)
    missing = "sweep: --run is missing; allowed: a run folder, new or to be continued or added to"
    refused(command("sweep", f"--checkpoint={model}"), missing)
    assert not run.exists()


def test_a_listed_models_folder_must_have_its_head_and_says_where_its_dtype_differs(
    command, tmp_path, monkeypatch
):
    check = "launch.common.converting.check_config"
    monkeypatch.setattr(check, lambda place, hf, spec: None)
    flags = f"--checkpoint={tmp_path / 'ck'}"
    other = tiny.write_model(tmp_path / "ArmoRM-Llama3-8B-v0.1")
    done = command("convert", f"--source={other}", flags)
    what = "head='gated'; allowed for this checkpoint: 'linear'"
    refused(done, f"convert: {other}: {what}")
    same = tiny.write_model(tmp_path / "GRM-Llama3-8B-rewardmodel-ft")
    done = command("convert", f"--source={same}", flags)
    assert done.out[-1].endswith(
        ": grm-llama3-8b-rewardmodel-ft, 3 layers, linear head, "
        "320 tokens, float32 (listed as float16)"
    )


@pytest.mark.parametrize(
    ("folder", "source", "slug"),
    [
        ("My-RM", "../My-RM/", "my-rm"),
        ("My RM (2)", ".", "my-rm-2"),
        ("model", ".", "runs-model"),
    ],
)
def test_a_model_is_named_after_its_folder(command, tmp_path, monkeypatch, folder, source, slug):
    monkeypatch.chdir(tiny.write_model(tmp_path / "Runs" / folder))
    done = command("convert", f"--source={source}", "--checkpoint=../ck")
    assert done.out == [f"../ck: {slug}, 3 layers, linear head, 320 tokens, float32"]


def test_a_folder_that_gives_no_name_is_told_of_the_slug(command, tmp_path):
    flags = (f"--source={tiny.write_model(tmp_path / '模型')}", f"--checkpoint={tmp_path / 'ck'}")
    (line,) = command("convert", *flags).err
    assert line.startswith(f"convert: source='{tmp_path / '模型'}': name ''; allowed: lower-case")
    assert line.endswith("; give one as --config.slug")
    assert command("convert", *flags, "--config.slug=my-rm").code == 0


def test_a_tokenizer_far_smaller_than_the_embedding_is_questioned(command, tmp_path):
    source = tiny.write_model(tmp_path / "rm", vocab_size=600)
    done = command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'ck'}")
    said = "no candidates; is it the tokenizer that the model was trained with?"
    assert done.code == 0 and said in done.err[0]


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
    assert inputs.read_items(tmp_path / name, "name") == expected


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_items_of_a_parquet_column(tmp_path, dtype):
    words = pl.Series(["love", "war", "love"], dtype=dtype)
    pl.DataFrame({"word": words, "n": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    expected = ["love", "war", "love"]
    assert inputs.read_items(tmp_path / "a.parquet", "word") == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "word,n\nlove,1\n", "items={path}: no column 'name'; it has word, n"),
        ("a.csv", 'name\n"say \\"no\\""\n', "items={path}: row 1 is not CSV: "),
        ("a.txt", "love\r\n\r\nwar", "items={path}: line 2 is empty; allowed: a reply in each"),
        ("a.json", "[]", "items={path}; allowed: a .txt, .jsonl, .csv or .parquet file"),
        (None, "", "items={path}: No such file or directory"),
    ],
)
def test_a_bad_list_is_one_line_and_nothing_is_written(
    command, model, run, tmp_path, name, content, message
):
    path = tmp_path / (name or "missing.txt")
    if name:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = command("score", f"--checkpoint={model}", f"--run={run}", f"--items={path}", *SMALL)
    message = f"score: {message.format(path=path)}"
    assert [line[: len(message)] for line in done.err] == [message]
    assert done.out == []
    assert done.code == 2
    assert not run.exists()


# analyze


@pytest.fixture
def small_run(tmp_path):
    return runs.small_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run={tmp}/nowhere"], "analyze: {tmp}/nowhere: not a run folder (no such folder)"),
        ([], "analyze: --run is missing; allowed: run folders, comma-separated"),
        (
            ["--run={run}", "--config.options.bing=nowhere.csv"],
            "analyze: analyze.options.bing='nowhere.csv': no such file",
        ),
    ],
)
def test_bad_input_of_analyze_is_one_line_and_writes_nothing(
    command, small_run, tmp_path, flags, message
):
    values = {"tmp": tmp_path, "run": small_run}
    report = tmp_path / "report"
    done = command("analyze", *(flag.format(**values) for flag in flags), f"--report={report}")
    assert done.code == 2
    assert done.err == [message.format(**values)]  # before any line of progress
    assert not report.exists()
