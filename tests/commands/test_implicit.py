"""`--reward-of`: what a pair of language models writes, keeps and refuses."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

import analysis
import engine
from analysis.measures import pairs
from tests.support import folders, tiny
from tests.support.sweeps import Run

pytestmark = pytest.mark.usefixtures("one_length")
PAIR = "lm-over-lm-before"
SMALL = ("--config.step_size=64", "--config.part_size=100", "--config.prompts=greatest")
SCORES = f"scores/model={PAIR}/prompt=greatest"
PART = f"{SCORES}/part-0000100-0000200.parquet"


@pytest.fixture(scope="module")
def models(checkpoint):
    """Checkpoints of a policy and its reference: as a flag, and by themselves."""
    pair = checkpoint("lm", head="lm"), checkpoint("lm-before", head="lm", seed=7)
    return f"--reward-of={pair[0].path},{pair[1].path}", *pair


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """A run of a pair: its vocabulary and a list."""
    from launch import score, sweep

    folder = tmp_path_factory.mktemp("implicit")
    (folder / "words.txt").write_text("love\nwar and peace\nlove\n")
    flags = (models[0], f"--run={folder / 'run'}", *SMALL, "--config.beta=.5")
    assert sweep.main(flags) == 0
    assert score.main([*flags, f"--items={folder / 'words.txt'}"]) == 0
    return folder / "run"


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def sweep(command, models, run):
    return lambda *flags: command("sweep", models[0], f"--run={run}", *SMALL, *flags)


@pytest.mark.parametrize(
    ("rewards", "logprobs"), [("scores", "logprobs"), ("items/words", "item_logprobs/words")]
)
def test_rewards_are_beta_times_the_difference_of_log_probabilities(whole, rewards, logprobs):
    policy, reference = (
        Run(whole).frame(f"{logprobs}/model={slug}/prompt=greatest.chat")
        for slug in ("lm", "lm-before")
    )
    scored = Run(whole).frame(f"{rewards}/model={PAIR}/prompt=greatest")
    expected = 0.5 * (policy["logprob"].cast(pl.Float64) - reference["logprob"].cast(pl.Float64))
    np.testing.assert_array_equal(scored["reward"], expected.cast(pl.Float32))
    assert scored["reward"].std() > 0.1
    assert scored.drop("reward").equals(policy.drop("logprob", "tokens", strict=False))


def test_the_run_says_of_which_models_form_and_beta_it_is(whole, models):
    of = Run(whole).record()["models"][PAIR]["reward_of"]
    assert (of["form"], of["beta"]) == ("chat", 0.5)
    for side, checkpoint in zip(("policy", "reference"), models[1:], strict=True):
        assert of[side]["source"] == checkpoint.card.source
        assert of[side]["checkpoint_hash"] == checkpoint.card.checkpoint_hash


def test_a_lost_part_is_written_again_and_another_beta_is_refused(sweep, run):
    before = (run / PART).read_bytes()
    (run / PART).unlink()
    assert sweep("--config.beta=.5").out == [f"{run}/scores: {PAIR} × 1 prompt, 100 new rewards"]
    assert (run / PART).read_bytes() == before
    assert sweep("--config.beta=.5").out[-1].endswith("complete already")
    before = (run / "run.json").read_bytes()
    assert "reward_of.beta=0.5, not 0.1" in sweep("--config.beta=.1").refusal()
    assert (run / "run.json").read_bytes() == before


def test_verify_compares_the_checks_of_both_log_probabilities(command, run):
    assert command("verify", f"--run={run}").code == 0
    check = Run(run).results()[SCORES].self_check
    assert check.candidates == 16 and [part.compared for part in check.of] == ["largest"] * 2
    Run(run).edit(lambda c: c["self_check"]["of"][1].update(relative_difference=0.01), SCORES)
    [line, _] = command("verify", f"--run={run}").out
    assert f"{SCORES}/result.json: " in line and " 0.01, beyond 0.0001" in line


@pytest.mark.slow
def test_pairs_are_scored_verified_and_scored_again(command, models, tmp_path):
    rows = [
        {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        for prompt, chosen, rejected in (("a?", "love", "war"), ("and b?", "zq", "the truth"))
    ]
    (items := tmp_path / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = tmp_path / "run"
    small = ("--config.self_check=2", "--config.part_size=3")
    flags = ("score", f"--run={run}", f"--items={items}", *small)
    done = command(*flags, models[0], "--config.beta=.5", "--probes", "--json").fine()
    expected = engine.reward_of(models[1].path, models[2].path, beta=0.5).score_pairs(rows)
    scored = pairs.pairs(pairs.replies(analysis.load(run), "pairs"))
    np.testing.assert_allclose(scored["margin"], expected["margin"], rtol=1e-4, atol=1e-5)
    assert json.loads(done.out[0])["results"][0]["agreement"] == {}
    assert {*analysis.load(run).probes} == {("pairs", PAIR)}
    known = f"--checkpoint={models[1].path},{models[2].path}"
    command("verify", f"--run={run}", "--rescore=4", known).fine()
    assert command(*flags, models[0], "--config.beta=.5").out[-1].endswith("complete already")


def test_a_policy_over_itself_gives_zero_everywhere_and_a_report(command, models, tmp_path, light):
    path, run = models[1].path, tmp_path / "run"
    flags = (f"--reward-of={path},{path}", f"--run={run}", *SMALL, "--config.form=pretrained")
    assert command("sweep", *flags).code == 0
    scored = Run(run).rewards("lm-over-lm", "greatest")
    assert scored.tobytes() == np.zeros(288, np.float32).tobytes()
    assert command("analyze", f"--run={run}", f"--report={tmp_path / 'report'}").code == 0
    assert "1 (log π − log π_ref)" in (tmp_path / "report/index.html").read_text()


def test_what_is_no_pair_is_refused_in_one_line(command, models, checkpoint, source, tmp_path):
    """A model without a template, with another one, and with a tokenizer of other merges."""
    folder = tiny.write_model(tmp_path / "hf", head="lm")
    fields = json.loads((folder / "tokenizer.json").read_text())
    merges = [pair for pair in fields["model"]["merges"] if "".join(pair) != "love"]
    folders.edit_json(folder / "tokenizer.json", model={**fields["model"], "merges": merges})
    merged = folders.convert(folder, tmp_path / "merges", "merges")
    turns = checkpoint("turns", head="lm", template="{{ messages[0]['content'] }}:")
    base, items = checkpoint("base", head="lm", template=None), source("love", "words.txt")
    for other, flags, message in (
        (turns, ["sweep"], "prompt 'greatest' in form='chat': token 0 is 1 in lm and "),
        (base, ["sweep"], "base has no chat template"),
        (merged, ["score", f"--items={items}"], "reply 'love': token 0 is"),
    ):
        pair = f"--reward-of={models[1].path},{other.path}"
        assert message in command(*flags, pair, f"--run={tmp_path / 'run'}", *SMALL).refusal()
        assert not (tmp_path / "run").exists()
