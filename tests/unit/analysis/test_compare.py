"""Two opened runs, compared in Python."""

import numpy as np

import analysis
from tests.support import runs

N = 300


def _of_one_checkpoint(content):
    for result in content["results"].values():
        result["identity"] |= {"checkpoint_hash": "one"}
    for model in content["models"].values():
        model |= {"checkpoint_hash": "one", "decoder_hash": "one"}


def test_the_verdict_is_that_of_the_report_which_is_written_on_demand(make_run, tmp_path, settings):
    rng = np.random.default_rng(0)
    rewards, opened = rng.normal(size=N), {}
    for name, noise in {"before": 0.0, "same": 1e-4, "noise": 1e-2}.items():
        scores = {("m", "greatest"): rewards + noise * rng.normal(size=N)}
        folder = make_run({"v": [f"w{i}" for i in range(N)]}, {"m": "v"}, scores, name, size=N)
        runs.edit_run(folder, _of_one_checkpoint)
        opened[name] = analysis.load(folder)
    sides = opened["before"], opened["same"]
    made = analysis.diff(*sides, noise=[opened["noise"]], settings=settings)
    assert (made.verdict.failed, made.page, made.left_out) == (0, "", "")
    [tau] = made.verdict.checks.filter(check="Kendall’s τ").to_dicts()
    assert 0.9 < tau["noise"] < tau["measured"] < 1
    assert not (tmp_path / "report").exists()
