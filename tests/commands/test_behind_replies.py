"""`--after` and `--after_items`: what is swept, printed and refused."""

import json

import polars as pl
import pytest

from engine.runs import schema
from launch.common import scoring

pytestmark = pytest.mark.usefixtures("one_length")
PAIRS = [
    {"prompt": f"What is {what}?", "chosen": f"{what} is love", "rejected": f"no {what}"}
    for what in ("art", "war", "truth", "food", "peace")
]


@pytest.fixture(scope="module")
def model(checkpoint):
    return checkpoint(max_position_embeddings=256).path


@pytest.fixture(autouse=True)
def few_times(monkeypatch):
    """Tokens stand once and twice behind a reply, not up to 32 times."""
    monkeypatch.setattr(schema, "TIMES", (1, 2))


@pytest.fixture
def pairs(source):
    return source("\n".join(map(json.dumps, PAIRS)), "pairs.jsonl")


def prompts(run) -> list[str]:
    """Texts of the prompts that were swept."""
    record = json.loads((run / "run.json").read_text())
    swept = [
        path.parent.name.removeprefix("prompt=") for path in run.glob("scores/*/*/result.json")
    ]
    return sorted(record["prompts"][prompt] for prompt in swept)


@pytest.mark.slow
def test_each_text_stands_behind_each_prompt_and_a_second_call_computes_nothing(
    command, model, tmp_path
):
    run = tmp_path / "run"
    flags = [model, f"--run={run}", "--prompt=Why?", "--prompt=How?", "--after=So ", "--after=No "]
    printed = json.loads(command("sweep", *flags, "--json").fine().out[-1])
    assert prompts(run) == sorted(f"{p}?␟{a}" for p in ("Why", "How") for a in ("So ", "No "))
    assert len(printed["results"]) == 4
    assert all(isinstance(result["baseline"], float) for result in printed["results"])
    assert "complete already" in command("sweep", *flags).fine().out[-1]
    assert command("verify", f"--run={run}", f"--checkpoint={model}", "--rescore=3").fine()


def test_a_sample_of_pairs_stands_behind_its_own_prompts(command, model, pairs, tmp_path):
    run = tmp_path / "run"
    flags = [f"--after_items={pairs}", "--config.after.rows=2", "--config.after.of=both"]
    done = command("sweep", model, f"--run={run}", "--shard=1/1", *flags).fine()
    behind = prompts(run / "shard-1-of-1")
    known = {f"{row['prompt']}␟{row[side]}" for row in PAIRS for side in ("chosen", "rejected")}
    assert len(behind) == 4 and known >= set(behind)
    assert any(line.startswith(f"note: behind 4 replies of {pairs} (rows ") for line in done.err)


def test_replies_that_leave_no_room_are_named_and_left_out(command, model, source, tmp_path):
    run, long = tmp_path / "run", "no truth " * 80
    replies = source(f"one\n{long}\n", "replies.txt")
    flags = [model, f"--run={run}", "--prompt=Why?", "--shard=1/1"]
    done = command("sweep", *flags, f"--after_items={replies}").fine()
    assert prompts(run / "shard-1-of-1") == ["Why?␟one"]
    [line] = [line for line in done.err if "too long for the 256 tokens" in line]
    assert "1 reply" in line and "'no truth no truth" in line
    assert "too long for the 256 tokens" in command("sweep", *flags, f"--after={long}").refusal()


def test_equal_replies_count_once_and_rows_of_several_turns_are_left_out(
    command, model, source, tmp_path
):
    turns = [{"role": r, "content": "x"} for r in ("user", "assistant", "user", "assistant")]
    rows = [*PAIRS[:2], *PAIRS[:2], {"prompt": turns[:3], "chosen": "a", "rejected": "b"}]
    file = source("\n".join(map(json.dumps, rows)), "twice.jsonl")
    flags = [f"--run={tmp_path}/run", f"--after_items={file}", "--shard=1/1"]
    done = command("sweep", model, *flags).fine()
    assert len(prompts(tmp_path / "run/shard-1-of-1")) == 2
    [line] = [line for line in done.err if line.startswith("note: behind 2 replies of ")]
    assert "; 1 replies cannot be used" in line


@pytest.mark.slow
def test_a_report_with_replies_has_the_chapter(command, model, pairs, tmp_path, light):
    flags = [model, f"--out={tmp_path}/out", "--prompt=Why?", f"--items={pairs}"]
    command("report", *flags, f"--after_items={pairs}").fine()
    table = pl.read_csv(tmp_path / "out/report/tables/appended.csv")
    assert table["model"].unique().to_list() == ["tiny"]
    lists = {schema.repeated_group(p.name) for p in (tmp_path / "out/run/items").iterdir()}
    assert lists == set(schema.REPEATED)
    shown = pl.read_csv(tmp_path / "out/report/tables/appended_models.csv").row(0, named=True)
    assert shown["replies"] == 5


def test_a_prompts_id_with_a_reply_start_begins_with_the_prompts():
    asked = "What, in one word, is the greatest thing ever?"
    assert scoring.prompt_id(f"{asked}␟Love").startswith("greatest-after-")
    assert scoring.prompt_id(f"{asked}␟Love") != scoring.prompt_id(f"{asked}␟love")
