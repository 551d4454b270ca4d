"""Probes: what the page says of edits of style, and the numbers that it rests on."""

import math

import numpy as np
import pytest

import analysis
from analysis.chapters import pairs, probes
from analysis.measures.probes import effects, sure
from analysis.statistics.inference import clustered, detectable
from tests.support import runs
from tests.support.studies import cited, told

PROBES = ("unchanged", "trailing space", "emoji behind", "hedge in front")


@pytest.fixture
def scored(make_run, rng):
    """Effects of `PROBES` on a model's rewards, and how many prompts -> the run."""

    def make(shifts, prompts=20, margin=1.0, name="run"):
        run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [0.0]}, name)
        listed = runs.list_of([(f"p{i % prompts}", "x", "y", {}) for i in range(40)])
        rewards = np.tile([margin, 0.0], 40)
        noise = 0.1 * rng.normal(size=(len(PROBES), 80))
        runs.add_conversations(run, "own", listed, {"m": rewards})
        edited = rewards + np.array(shifts)[:, None] + noise
        runs.add_probes(run, "own", listed, PROBES, {"m": edited})
        return analysis.load(run)

    return make


def test_the_page_names_the_edit_that_changes_rewards_most_and_no_other(scored, study_of):
    """None where a space at the end does as much."""
    study = study_of(scored([0, 0.05, 0.4, -1.5]), pairs, probes)
    [text] = told(probes, study)
    [row] = study.tables["probes"].filter(probe="hedge in front").to_dicts()
    assert row["effect"] == pytest.approx(-1.5, abs=0.05) and row["flips"] == 0
    assert cited(text)[:2] == ["hedge in front", f"{-row['effect']:.2f}"]
    study = study_of(scored([0, 1, 0.4, -0.9], name="spaces"), pairs, probes)
    assert not told(probes, study)
    assert cited(probes.ANALYSIS.section(study).answer) == ["2"]


@pytest.mark.parametrize(("prompts", "margin"), [(1, 1.0), (20, 0.0)])
def test_one_prompt_or_a_model_without_margins_supports_nothing(scored, prompts, margin):
    table = effects(scored([0, 0, 1, 2], prompts, margin), "own")
    assert table.height == len(PROBES) and not sure(table).height
    assert all(math.isnan(x) for x in table["ci_low"])


def test_an_effect_as_large_as_detectable_shows_in_four_of_five_samples(rng):
    clusters = np.arange(60) // 2
    shared, found = rng.normal(size=(2000, 30)), []
    for sample in shared:
        x = np.repeat(sample, 2) + rng.normal(size=60)
        found.append(detectable(clustered(x.mean(), x - x.mean(), clusters), clusters))
    size, shows = np.median(found), 0
    for sample in shared:
        x = size + np.repeat(sample, 2) + rng.normal(size=60)
        shows += clustered(x.mean(), x - x.mean(), clusters).p < 0.05
    assert 0.77 < shows / len(shared) < 0.83
