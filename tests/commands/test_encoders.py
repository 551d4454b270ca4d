"""Commands with an encoder: what they compute of one, and what is refused in one line."""

import json

import numpy as np
import polars as pl
import pytest

from engine import api
from engine.runs.folder import RunFolder
from engine.runs.storage import path_of
from launch import report, score, sweep, verify
from tests.support import encoders, folders

pytestmark = pytest.mark.usefixtures("one_length")
PROMPT = "what is good"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    encoders.save(encoders.build("bert"), "bert", folder / "hf")
    return folders.convert(folder / "hf", folder / "checkpoint")


@pytest.fixture(scope="module")
def swept(checkpoint, tmp_path_factory):
    """A run with every token and a list of replies."""
    run = tmp_path_factory.mktemp("run") / "run"
    models = f"--checkpoint={checkpoint.path}", f"--run={run}", f"--prompt={PROMPT}"
    assert sweep.main([*models, "--config.part_size=10"]) == 0
    (run.parent / "items.txt").write_text("love\na bad film\n")
    assert score.main([*models, f"--items={run.parent / 'items.txt'}"]) == 0
    return run


def test_a_run_has_the_rewards_of_every_token_and_of_a_list(swept, checkpoint):
    model = api.load(checkpoint)
    results = list(RunFolder.read(path_of(swept)).results.values())
    by_kind = {"item" in r.columns: pl.concat(r.frames()) for r in results}
    assert {result.identity.pooling for result in results} == {"first"}
    expected = model.sweep(PROMPT).sort("token_id")["reward"].to_numpy()
    np.testing.assert_allclose(by_kind[False]["reward"].to_numpy(), expected, rtol=1e-4)
    expected = model.score(PROMPT, ["love", "a bad film"])
    np.testing.assert_allclose(by_kind[True]["reward"].to_numpy(), expected, rtol=1e-4)


def test_a_run_is_computed_again_by_the_plain_pass(swept, checkpoint, capsys):
    assert (
        verify.main([f"--run={swept}", f"--checkpoint={checkpoint.path}", "--rescore=4", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)


def test_tokens_behind_a_reply_start_and_of_a_reply_are_scored_one_by_one(checkpoint):
    model = api.load(checkpoint)
    assert isinstance(model, api.RewardModel)
    running = model.running(PROMPT, "a bad film")
    assert running["token"].to_list() == ["a", " bad", " film"]
    last = model.score(PROMPT, ["a bad film"])[0]
    assert running["reward"][-1] == pytest.approx(last, rel=1e-4)
    behind = model.sweep(PROMPT, after="a bad").sort("token_id")
    prefix = checkpoint.template.sequences(PROMPT, ["a bad"])[0][:-1]
    plain = model._scorer.plain_rewards([[*prefix, i, 3] for i in behind["token_id"]])[0]
    np.testing.assert_allclose(behind["reward"].to_numpy(), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "flag", "message"),
    [
        ("search", "--prompt=a", "is an encoder"),
        ("sweep", "--config.lens", "is an encoder"),
        ("sweep", "--config.pooling=last", "pooling='last'"),
        ("sweep", "--prompt=a [SEP] b", "[SEP] ends the prompt"),
        ("score", "--items={}", "item 1: "),  # too long
    ],
)
def test_what_an_encoder_has_not_is_refused_and_nothing_is_written(
    command, checkpoint, source, tmp_path, name, flag, message
):
    items = source("love\n" + "bad " * 300 + "\nfilm\n", "items.txt")
    flags = [f"--run={tmp_path / 'run'}", flag.format(items)]
    assert message in command(name, checkpoint.path, *flags).err[-1]
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
def test_pairs_probes_and_tokens_behind_replies_are_scored(checkpoint, tmp_path, monkeypatch):
    rows = [{"prompt": PROMPT, "chosen": f"{word} film", "rejected": "bad"} for word in ("a", "it")]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [f"--prompt={PROMPT}", f"--items={pairs}", "--probes", f"--after_items={pairs}"]
    monkeypatch.setattr("launch.common.reporting.report_on", lambda runs, target, settings: target)
    assert report.main([str(checkpoint.path), *flags, f"--out={tmp_path}"]) == 0
    held = RunFolder.read(path_of(tmp_path / "run")).results.values()
    assert {result.identity.pooling for result in held} == {"first"}
    assert {*map(lambda result: result.kind, held)} == {"scores", "items", "conversations"}
