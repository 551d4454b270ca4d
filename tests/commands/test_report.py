"""`assay report`: from a model's folder to its page; `--json`."""

import itertools
import json
import re

import pytest
from etils import epath

from engine.runs.folder import RunFolder
from tests.support import tiny

PROMPT = "What matters?"
SMALL = ("--config.step_size=64", "--config.self_check=1")


@pytest.fixture
def call(command, tmp_path, monkeypatch):
    """Flags -> what `assay report` of two reward models, a list and a language model did."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("launch.common.reporting.report_on", lambda runs, target, settings: target)
    for number, name in enumerate(("a/final", "b/final")):
        tiny.write_model(tmp_path / name, seed=number)
    tiny.write_model(tmp_path / "lm", head="lm", seed=2)
    (tmp_path / "words.txt").write_text("love\nwar\n")
    given = ("a/final", "b/final", f"--prompt={PROMPT}", "--items=words.txt")
    return lambda *flags: command("report", *given, "--language_model=lm", *SMALL, *flags)


@pytest.mark.slow
def test_it_converts_sweeps_scores_and_goes_on(call, tmp_path):
    done = call("--json").fine()
    numbers = [line.split(" ")[0] for line in done.err if re.match(r"\d/\d ", line)]
    assert [*dict.fromkeys(numbers)] == [f"{number}/5" for number in range(1, 6)]  # no pairs
    run = tmp_path / "reports" / "a-final-b-final" / "run"
    results = RunFolder.read(epath.Path(run)).results
    rewards = itertools.product(("scores", "items"), ("a-final", "b-final"))
    expected = {*rewards, ("logprobs", "lm"), ("item_logprobs", "lm")}
    assert {(entry.kind, entry.model) for entry in results.values()} == expected
    assert {entry.identity.mode for entry in results.values() if entry.kind == "items"} == {"text"}
    printed = json.loads(done.out[-1])
    assert len(done.out) == 1 and printed["page"] == "reports/a-final-b-final/report"
    scores = {result["model"]: result for result in printed["results"] if "highest" in result}
    assert set(scores) == {"a-final", "b-final"} and scores["a-final"]["self_check"]
    best, worst = (scores["a-final"][end][0]["reward"] for end in ("highest", "lowest"))
    times = {path: path.stat().st_mtime_ns for path in run.rglob("part-*")}
    again = call()
    assert times == {path: path.stat().st_mtime_ns for path in run.rglob("part-*")}
    assert again.out[0].startswith("a-final, prompt 'what-matters-")
    assert f" {best:.2f}   " in again.out[1] and f" {worst:.2f}   " in again.out[2]
    assert again.out[-1] == "report: reports/a-final-b-final/report"


def test_a_language_model_is_refused_as_a_reward_model(command, checkpoint, tmp_path):
    done = command("report", checkpoint("lm", head="lm").path, f"--out={tmp_path / 'out'}")
    assert done.code == 2 and "a language model; allowed: a reward model" in done.err[-1]
    assert "`assay sweep --reward-of=<policy>,<reference>`" in done.err[-1]
