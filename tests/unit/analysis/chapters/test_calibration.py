"""Whether margins mean what they say, in runs whose margins are planted."""

import dataclasses

import numpy as np
import pytest

import analysis
from analysis.chapters import calibration as chapter
from analysis.chapters import pairs as pairs_chapter
from analysis.report import facts, first_screen
from tests.support import runs
from tests.support.studies import cited, told


@pytest.fixture
def margins_of(make_run, rng):
    """Model -> what its right margins are multiplied by: the run of 400 pairs."""

    def make(models, replies=("x", "y")):
        run = make_run({"v": ["a", "b"]}, dict.fromkeys(models, "v"), {("s", "best"): [0.0, 1.0]})
        size = rng.exponential(1.5, 400)
        margins = np.where(rng.random(400) < 1 / (1 + np.exp(-size)), size, -size)
        rows = runs.list_of([(f"p{i // 2}", *replies, {}) for i in range(400)])
        rewards = {m: np.stack([by * margins, 0 * margins], 1).ravel() for m, by in models.items()}
        runs.add_conversations(run, "own", rows, rewards)
        return analysis.load(run), margins

    return make


def test_margins_that_are_too_large_or_small_are_told_and_right_ones_are_not(margins_of, study_of):
    run, _ = margins_of({"s": 3.0, "r": 1.0, "q": 1.25, "u": 0.4})
    study = study_of(run, pairs_chapter, chapter)
    found = [cited(text)[1] for text in told(chapter, study)]
    table = study.tables["calibration"]
    t = dict(table.select("model", "temperature").iter_rows())
    assert t["s"] == pytest.approx(3 * t["r"]) and t["u"] == pytest.approx(0.4 * t["r"])
    assert found == sorted([f"{t['s']:.2g}", f"{1 / t['u']:.2g}"], reverse=True)
    assert t["r"] < 1 < t["q"]
    assert study.tables["calibration_bins"].filter(model="r")["n"].to_list() == [40] * 10


def test_gaps_below_twice_the_difference_of_the_self_check_are_noise(
    margins_of, study_of, monkeypatch
):
    monkeypatch.setattr(runs, "CHECK", dataclasses.replace(runs.CHECK, max_abs_difference=0.05))
    run, margins = margins_of({"s": 1.0})
    (row,) = study_of(run, pairs_chapter, chapter).tables["calibration"].to_dicts()
    inside = int((np.abs(margins.astype(np.float32)) < 0.1).sum())
    assert (row["noise"], row["within_noise"]) == (pytest.approx(0.1), inside) and inside
    assert cited(chapter.in_a_line(row))[-3:] == ["0.1", f"{inside}", "400"]
    (question,) = first_screen.questions(study_of(run), ["best"])
    assert question["panels"][0]["noise"] == pytest.approx(0.1)


def test_the_terminal_and_json_have_the_numbers_of_the_table(margins_of):
    run, _ = margins_of({"s": 3.0})
    folder = str(run.folders[0])
    (found,) = facts.of_conversations(folder, "own", ["s"])
    line = facts.write_replies(folder, "own", ["s"])[-1]
    assert cited(line)[:2] == [f"{found['log_loss']:.3f}", f"{found['temperature']:.2g}"]
