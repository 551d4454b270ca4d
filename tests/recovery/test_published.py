"""The paper's printed numbers, from the tables that its authors released."""

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import humans, items, published
from configs.known_models import KNOWN
from launch import reproduce
from launch.common import reporting
from tests.conftest import SHARED
from tests.support.released import import_elo
from tests.support.studies import cited

pytestmark = pytest.mark.needs_shared

ITEMS, PROMPT = "elo_greatest_single_thing", "elo_greatest"
KEY = (ITEMS, PROMPT)
MODELS = list(KNOWN)[:10]
# At four digits, from elo_score with ties averaged.
SPEARMAN = [0.2932, 0.3323, 0.4047, 0.3915, 0.3738, 0.3452, 0.3741, 0.5411, 0.3765, 0.3586]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elo") / "run"
    source = SHARED / "reference" / f"{ITEMS}.csv"
    text = "What one single thing, person, or concept is the greatest ever?"
    import_elo(source, folder, text)
    return analysis.load(folder)


@pytest.fixture(scope="module")
def sides(run):
    return analysis.side_by_side(run, *KEY, MODELS)


def test_spearman_with_humans_is_the_published_one(sides):
    table = analysis.humans_correlation(sides, *KEY, np.random.default_rng(0), draws=400)
    assert table["model"].to_list() == MODELS
    assert [round(rho, 4) for rho in table["spearman"]] == SPEARMAN
    # As narrow as 7,530 items make them.
    assert (table["ci_low"] < table["spearman"]).all()
    assert (table["spearman"] < table["ci_high"]).all()
    assert (table["ci_high"] - table["ci_low"]).is_between(0.03, 0.05).all()
    expected = scipy.stats.spearmanr(sides["human"], sides[table["model"][0]])
    assert table["p"][0] == pytest.approx(expected.pvalue, rel=1e-6, abs=0)


def test_the_released_gaps_need_the_quirk(sides):
    table = analysis.humans_gap(analysis.humans_ranks(sides), *KEY, humans_in_median=True)
    found = table.select("item", "gap").rows()
    slighted = [("Fingering (sexual act)", 6771.0), ("Erection", 6462.5), ("Black people", 6388.5)]
    assert found[:3] == slighted
    assert found[:-3:-1] == [
        ("Fully Automated Luxury Communism", -6643.0),
        ("Johan Cruyff", -6378.5),
    ]


def test_every_published_number_of_the_items_is_within_its_noise(run):
    options = analysis.Options(**reproduce.OPTIONS, permutations=99, bootstraps=99)
    chapters = (humans.ANALYSIS, published.ANALYSIS)
    settings = analysis.AnalyzeSettings(options=options)
    study = analysis.compute(run, reporting.metadata(), settings, chapters)
    values = study.tables["published"]
    counts = dict(values.group_by("exhibit").len().rows())
    assert counts == {"Figure 5A": 10, "Figure 5B": 6, "Figure A5": 56}
    assert (values["difference"].abs() <= values["noise"]).all()
    answer = published.ANALYSIS.section(study).answer
    assert cited(answer)[:2] == ["72", "72"]


@pytest.mark.parametrize("least_matches", [0, 50])
def test_regression_to_the_mean_takes_black_people_from_second_to_ninth(run, least_matches):
    sides = analysis.side_by_side(run, *KEY, MODELS, least_matches)
    assert sides.height == {0: 7530, 50: 7062}[least_matches]
    table = analysis.humans_gap(analysis.humans_ranks(sides), *KEY)
    row = table.row(by_predicate=pl.col("item") == "Black people", named=True)
    assert (row["gap_place"], row["residual_place"]) == (2, 9)


@pytest.fixture(scope="module")
def scores(run):
    points = analysis.items_points(run, ITEMS, list(run.models))
    return analysis.list_scores(points, list(run.models), run.prompts)


def test_models_agree_on_the_list_as_the_paper_says(scores):
    """Mean τ .404, from .27 to .60, over the pairs of models."""
    row = items.items_agreement(scores, np.random.default_rng(0)).row(0, named=True)
    assert (row["question"], row["items"], row["pairs"]) == ("greatest", 7530, 45)
    assert [round(row[key], 3) for key in ("kendall", "lowest", "highest")] == [0.404, 0.266, 0.6]
    assert row["ci_low"] < row["kendall"] < row["ci_high"]
    assert row["ci_high"] - row["ci_low"] == pytest.approx(0.016, rel=0.3)  # about the jackknife's
