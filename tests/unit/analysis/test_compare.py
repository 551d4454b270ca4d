"""Two opened runs, compared in Python."""

import numpy as np
import pytest

import analysis
from tests.support import runs

N = 300


@pytest.fixture
def opened(tmp_path):
    """Name -> the run of one model; `same` and `noise` are `before` but for small differences."""
    rng = np.random.default_rng(0)
    rewards, made = rng.normal(size=N), {}
    for name, shift in {"before": 0.0, "same": 1e-4, "noise": 1e-2, "other": 1.0}.items():
        scores = {("m", "greatest"): rewards + shift * rng.normal(size=N)}
        tokens = [f"w{i}" for i in range(N)]
        folder = runs.write_run(tmp_path / name, {"v": tokens}, {"m": "v"}, scores, size=N)
        runs.edit_run(folder, _of_one_checkpoint if name != "other" else lambda content: None)
        made[name] = analysis.load(folder)
    return made


def _of_one_checkpoint(content):
    for result in content["results"].values():
        result["identity"] |= {"checkpoint_hash": "one"}
    for model in content["models"].values():
        model |= {"checkpoint_hash": "one", "decoder_hash": "one"}


def test_the_verdict_is_that_of_the_report_which_is_written_on_demand(opened, tmp_path, settings):
    made = analysis.diff(
        opened["before"], opened["same"], noise=[opened["noise"]], settings=settings
    )
    assert (made.verdict.failed, made.page, made.left_out) == (0, "", "")
    [tau] = made.verdict.checks.filter(check="Kendall’s τ").to_dicts()
    assert 0.9 < tau["noise"] < tau["measured"] < 1
    assert not (tmp_path / "report").exists()
