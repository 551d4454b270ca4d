"""`assay diff`: of two runs, of two checkpoints with their noise, and bad input."""

import collections
import json

import numpy as np
import polars as pl
import pytest

from analysis.report import drawing
from tests.support import runs

N = 300
FAST = [f"--config.analyze.options.{key}=99" for key in ("permutations", "bootstraps")]


def _write(folder, rewards, tokens=None):
    tokens = tokens or [f"w{i}" for i in range(len(rewards))]
    return runs.write_run(folder, {"v": tokens}, {"m": "v"}, {("m", "greatest"): rewards}, size=N)


@pytest.fixture
def both(tmp_path):
    """Two runs of the same model but for noise, and one of another model."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=N)
    made = {"before": rewards, "same": rewards + 1e-4, "other": rng.normal(size=N)}
    return {name: _write(tmp_path / name, values) for name, values in made.items()}


@pytest.fixture
def light(monkeypatch):
    """Leaves the figures undrawn."""
    monkeypatch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))


@pytest.mark.parametrize(("after", "code"), [("same", 0), ("other", 1)])
def test_the_exit_status_is_the_verdict(command, both, tmp_path, light, after, code):
    report = tmp_path / "report"
    flags = [f"--before={both['before']}", f"--after={both[after]}", f"--report={report}"]
    done = command("diff", *flags, *FAST)
    assert done.code == code, done.err
    said = "all 4 limits hold" if code == 0 else "3 of 4 limits do not hold"
    assert done.out == [f"{report}/index.html: {said}"]
    page = (report / "index.html").read_text(encoding="utf-8")
    assert '<section id="changes">' in page
    assert pl.read_csv(report / "tables" / "changes.csv")["of"].to_list() == ["change"]


def test_two_checkpoints_are_swept_and_the_noise_is_measured(command, checkpoint, tmp_path, light):
    model = checkpoint("diffed", seed=3)
    flags = [f"--before={model.path}", f"--after={model.path}", f"--report={tmp_path / 'report'}"]
    flags += [f"--run={tmp_path / 'runs'}", "--config.prompts=greatest", *FAST]
    done = command("diff", *flags)
    assert done.code == 0, done.err
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    assert table["of"].to_list() == ["change", "noise: after in float32 and bfloat16 (noise)"]
    change, noise = table["mean_shift"]
    assert change == 0 < noise
    again = command("diff", *flags)
    assert again.code == 0, again.err
    manifest = json.loads((tmp_path / "runs" / "noise" / "manifest.json").read_text())
    (result,) = manifest["results"].values()
    assert result["fingerprint"]["dtype"] == "bfloat16"


def test_the_figures_are_drawn(command, both, tmp_path):
    report = tmp_path / "report"
    flags = [f"--before={both['before']}", f"--after={both['other']}", f"--report={report}"]
    assert command("diff", *flags, *FAST).code == 1
    assert (report / "figures" / "changes_greatest.png").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--after={same}"], "diff: --before is missing; allowed: a run of one model"),
        (["--before={before}", "--after={tmp}/no"], "diff: {tmp}/no: not a run folder"),
        (["--before={before}", "--after={short}"], "have two vocabularies (300 and 2 tokens)"),
        (
            ["--before={before}", "--after={same}", "--config.compared=worst"],
            "diff: --before has no prompt 'worst'; allowed: --config.compared=greatest",
        ),
        (
            ["--before={before}", "--after={same}", "--before_model=x"],
            "diff: --before_model='x'; allowed: m",
        ),
        (
            ["--before={before}", "--after={same}", "--config.limits.kendall=7.0"],
            "diff: diff.limits.kendall=7.0; allowed: -1 to 1",
        ),
        (
            ["--before={before}", "--after={same}", "--noise={other}"],
            "of neither model; allowed: another sweep of the checkpoint",
        ),
        (["--before={model}", "--after={same}"], "diff: --run is missing; allowed: a folder"),
    ],
)
def test_bad_input_ends_with_one_line_and_writes_nothing(
    command, both, checkpoint, tmp_path, flags, message
):
    short = _write(tmp_path / "short", [1.0, 2.0], ["a", "b"])
    known = {**both, "short": short, "model": checkpoint("diffed", seed=3).path, "tmp": tmp_path}
    report = tmp_path / "report"
    done = command("diff", *(flag.format(**known) for flag in flags), f"--report={report}")
    assert done.code == 2
    assert len(done.err) == 1
    assert message.format(**known) in done.err[0]
    assert not report.exists()
