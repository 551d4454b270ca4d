import io
import json
import sys
from pathlib import Path

import polars as pl
import pytest

from launch import sweep
from launch.common import config, inputs, text
from launch.common.inputs import chosen_prompts
from tests.support import tiny

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
    assert done.out == [f"{run}/scores: 1 models × 1 prompts, 288 new rewards"]
    assert "my-rm, prompt 'greatest':" in "\n".join(done.err)
    assert len(list((run / "scores/model=my-rm/prompt=greatest").iterdir())) == 3

    done = command("sweep", *flags)
    assert done.code == 0
    assert done.out[-1] == f"{run}/scores: 1 models × 1 prompts, complete already"


def test_a_terminal_without_unicode_gets_escapes(model, run, monkeypatch):
    """So do lone surrogates, which no encoding has."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    own = "--prompt=Wer ist größer?"
    assert sweep.main([f"--checkpoint={model}", f"--run={run}", own, *SMALL[:2]]) == 0
    err.flush()
    assert out.buffer.getvalue().endswith(rb"1 models \xd7 1 prompts, 288 new rewards" + b"\n")
    assert rb"prompt 'wer-ist-gr" in err.buffer.getvalue()
    text.show("\udcff")
    assert out.buffer.getvalue().endswith(b"\\udcff\n")


def test_prompts_of_the_users_own(command, model, run):
    own = ["Who are you?", "Wer bist du?\nSag es."]
    flags = [f"--prompt={text}" for text in own]
    done = command("sweep", f"--checkpoint={model}", f"--run={run}", *flags, *SMALL[:2])
    assert done.code == 0
    assert done.out[-1] == f"{run}/scores: 1 models × 2 prompts, 576 new rewards"
    prompts = manifest(run)["prompts"]
    assert list(prompts.values()) == own
    assert [name.rsplit("-", 1)[0] for name in prompts] == ["who-are-you", "wer-bist-du-sag-es"]


def test_a_prompt_that_has_a_name_keeps_it():
    text = "What, in one word, is the best thing ever?"
    assert chosen_prompts("greatest", own=[text]) == {"best": text}


@pytest.mark.parametrize("name", ["sweep", "score", "logprobs"])
def test_the_config_file_selects_a_set_of_prompts(name):
    ids = config.load(f"{CONFIGS / name}.py:elo").prompts
    assert list(chosen_prompts(ids, own=[])) == ["elo_greatest", "elo_prefer"]


def test_a_config_without_sets_is_told_so(command):
    done = command("convert", f"--config={CONFIGS / 'convert.py'}:elo")
    refused(done, "convert: --config: this file has no selections; remove ':…'")


def test_score_reads_a_list_and_says_where_its_rewards_are(command, model, run, tmp_path):
    words = tmp_path / "My Words.csv"
    words.write_text("name,rank\nlove,1\n007,2\nlove,3\n")
    flags = (f"--checkpoint={model}", f"--run={run}", f"--items={words}", *SMALL)
    done = command("score", *flags)
    assert done.code == 0
    assert done.out[-1] == f"{run}/items/my-words: 1 models × 1 prompts, 3 new rewards"
    [part] = (run / "items/my-words/model=tiny/prompt=greatest").iterdir()
    assert pl.read_parquet(part)["item"].to_list() == ["love", "007", "love"]


def test_a_name_of_lists_of_what_searches_found_is_refused(command, model, run, tmp_path):
    (tmp_path / "found-words.txt").write_text("love\n")
    done = command(
        "score", f"--checkpoint={model}", f"--run={run}", f"--items={tmp_path}/found-words.txt"
    )
    assert done.code == 2
    assert done.err == [
        "score: name='found-words'; allowed: names that do not begin with 'found-', "
        "which is reserved for what searches find"
    ]
    assert not run.exists()


@pytest.mark.parametrize("name", ["", "../words"])
def test_a_name_that_no_list_can_have_is_refused(command, model, run, tmp_path, name):
    (tmp_path / "words.txt").write_text("love\n")
    flags = (f"--checkpoint={model}", f"--run={run}", f"--items={tmp_path}/words.txt", *SMALL)
    done = command("score", *flags, f"--name={name}")
    assert done.code == 2
    assert done.err == [
        f"score: name {name!r}; allowed: lower-case letters, digits, '.', '_', "
        "'-', starting with a letter or digit"
    ]
    assert not run.exists()


# Flags and config keys


@pytest.mark.parametrize(
    ("name", "flag", "message"),
    [
        ("sweep", "--chekpoint=x", "--chekpoint is no flag (did you mean 'checkpoint'?); see --h"),
        ("score", "--item=x", "--item is no flag (did you mean 'items'?); see --help"),
        ("sweep", "--config.stepsize=8", "--config has no key 'stepsize' (did you mean 'step_si"),
        ("sweep", "--config.mesh.modle=2", "--config has no key 'modle' (did you mean 'model'?)"),
        ("sweep", "--config.=3", "--config has no key ''"),
        ("sweep", "--config.part_size=many", "flag --config.part_size=many: invalid literal for"),
        ("sweep", "--config=nowhere.py", "--config: No such file or directory: 'nowhere.py'"),
        ("sweep", "run", "argument 'run'; allowed: flags only, as --name=value"),
    ],
)
def test_a_bad_flag_is_one_line_and_nothing_is_written(
    command, model, run, tmp_path, name, flag, message
):
    given = {
        "sweep": [f"--checkpoint={model}", f"--run={run}"],
        "score": [f"--checkpoint={model}", f"--run={run}", "--items=words.txt"],
        "convert": [f"--source={model}", f"--checkpoint={run}"],
    }
    done = command(name, *given[name], flag)
    assert len(done.err) == 1
    assert done.err[0].startswith(f"{name}: {message}")
    assert done.out == []
    assert done.code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_set_of_prompts_is_refused_with_those_there_are(command):
    done = command("sweep", f"--config={CONFIGS / 'sweep.py'}:papers")
    refused(
        done, "sweep: --config: no set of prompts 'papers'; allowed: 'paper', 'elo', 'follow_up'"
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config.prompts=greatst", "prompts='greatst' (did you mean 'greatest'?); allowed: grea"),
        ("--config.prompts=", "nothing to score; give at least one checkpoint and one prompt"),
        ("--prompt=", "prompt=''; allowed: text that is not empty"),
        ("--config.mode=txt", "mode='txt'; allowed: 'auto', 'ids', 'text'"),
        ("--config.dtype=fp8", "dtype='fp8'; allowed: 'bfloat16', 'float16', 'float32'"),
        ("--config.part_size=0", "part_size=0; allowed: integers >= 1"),
        ("--config.mesh.model=3", "mesh.model=3; allowed: divisors of the "),
    ],
)
def test_a_bad_setting_is_one_line_and_nothing_is_written(command, model, run, flag, message):
    done = command("sweep", f"--checkpoint={model}", f"--run={run}", flag)
    assert [line[: len("sweep: ") + len(message)] for line in done.err] == [f"sweep: {message}"]
    assert done.out == []
    assert done.code == 2
    assert not run.exists()


@pytest.mark.parametrize("name", ["sweep", "score", "search", "logprobs", "import_scores"])
def test_a_prompt_that_is_not_utf8_is_one_line(command, run, name):
    done = command(name, f"--run={run}", "--prompt=\udcff")  # as Python hands on the byte ff
    refused(done, f"{name}: argument '--prompt=\\udcff': not UTF-8; allowed: UTF-8 text")


def test_a_sweep_needs_a_checkpoint_and_a_run(command, model, run):
    missing = "sweep: --checkpoint is missing; allowed: checkpoints to score, comma-separated"
    refused(command("sweep", f"--run={run}"), missing)
    refused(command("sweep", f"--run={run}", f"--checkpoint={model},"), missing)
    missing = "sweep: --run is missing; allowed: a run folder, new or to be continued or added to"
    refused(command("sweep", f"--checkpoint={model}"), missing)
    assert not run.exists()


@pytest.mark.parametrize("source", [".", "../My-RM/"])
def test_a_model_is_named_after_the_folder_one_stands_in(command, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tiny.write_model(tmp_path / "My-RM"))
    done = command("convert", f"--source={source}", "--checkpoint=../ck")
    assert done.out == ["../ck: my-rm, 3 layers, linear head, 320 tokens, float32"]


def test_a_listed_models_folder_must_have_its_head_and_says_where_its_dtype_differs(
    command, tmp_path, monkeypatch
):
    check = "launch.common.known_model_check.check_config"
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
    ("folder", "why"),
    [
        ("My RM", "allowed: lower-case letters, digits, '.', '_', '-', starting with a letter or"),
        ("model", "tables have a column of that name already"),
    ],
)
def test_a_folder_whose_name_no_model_can_have_is_told_of_the_slug(command, tmp_path, folder, why):
    source = tiny.write_model(tmp_path / folder)
    flags = (f"--source={source}", f"--checkpoint={tmp_path / 'ck'}")
    (line,) = command("convert", *flags).err
    assert line.startswith(f"convert: source='{source}': name '{folder.lower()}'; {why}")
    assert line.endswith("; give one as --config.slug")
    assert command("convert", *flags, "--config.slug=my-rm").code == 0


# Item lists


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "love\n \nworld war\n", ["love", " ", "world war"]),
        ("a.txt", "\ufeffone\u2028line\x0c\x85\n", ["one\u2028line\x0c\x85"]),
        ("a.csv", "name\nlove\n007\n1.50\ntrue\n", ["love", "007", "1.50", "true"]),
        ("a.csv", 'rank,name\n1,"a, b"\n2,"c\nd"\n', ["a, b", "c\nd"]),
        ("a.csv", "name\rlove\rwar\r", ["love", "war"]),
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
        ("a.csv", "name,n\nlove,1\n,2\n", "items={path}: column 'name', row 2 is empty; allowed: "),
        ("a.csv", b"name\nl\xf6ve\n", "items={path}: line 2 is not UTF-8; allowed: UTF-8"),
        ("a.csv", 'name\n"say \\"no\\""\n', "items={path}: row 1 is not CSV: "),
        ("a.txt", "love\r\n\r\nwar", "items={path}: line 2 is empty; allowed: a reply in each"),
        ("a.txt", b"love\nl\xf6ve\n", "items={path}: byte 6 is not UTF-8; allowed: UTF-8"),
        ("a.json", "[]", "items={path}; allowed: a .txt, .csv or .parquet file"),
        ("a.parquet", "love", "items={path}: "),
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


def test_a_column_of_numbers_is_refused(tmp_path):
    pl.DataFrame({"name": [1.5]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"column 'name' is Float64; allowed: text"):
        inputs.read_items(tmp_path / "a.parquet", "name")
