"""The paper's printed numbers, from the tables that its authors released."""

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import explained
from analysis.statistics import ranks
from tests.conftest import SHARED
from tests.support.released import import_elo

pytestmark = pytest.mark.needs_shared

ITEMS, PROMPT = "elo_greatest_single_thing", "elo_greatest"
KEY = (ITEMS, PROMPT)
SLUGS = {
    "N-Gem-27B": "qrm-gemma-2-27b",
    "S-Gem-27B-v0.2": "skywork-reward-gemma-2-27b-v0.2",
    "S-Gem-27B": "skywork-reward-gemma-2-27b",
    "S-Lla-8B-v0.2": "skywork-reward-llama-3.1-8b-v0.2",
    "N-Lla-8B": "qrm-llama3.1-8b",
    "L-Lla-8B": "urm-llama-3.1-8b",
    "R-Lla-8B": "grm-llama3-8b-rewardmodel-ft",
    "R-Lla-3B": "grm-llama3.2-3b-rewardmodel-ft",
    "F-Lla-8B-v0.1": "armorm-llama3-8b-v0.1",
    "R-Gem-2B": "grm-gemma2-2b-rewardmodel-ft",
}
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
    return analysis.side_by_side(run, *KEY, list(SLUGS.values()))


def gaps(sides, **quirk):
    table = analysis.humans_gap(analysis.humans_ranks(sides), *KEY, **quirk)
    return [(row["item"], row["gap"]) for row in table.to_dicts()]


def test_spearman_with_humans_is_the_published_one(sides):
    table = analysis.humans_correlation(sides, *KEY, np.random.default_rng(0), draws=99)
    assert table["model"].to_list() == list(SLUGS.values())
    assert [round(rho, 4) for rho in table["spearman"]] == SPEARMAN


def test_spearman_with_humans_is_scipys(sides):
    table = analysis.humans_correlation(sides, *KEY, np.random.default_rng(0), draws=99)
    for slug, rho, p in table.select("model", "spearman", "p").iter_rows():
        expected = scipy.stats.spearmanr(sides["human"], sides[slug])
        assert (rho, p) == pytest.approx((expected.statistic, expected.pvalue))


def test_the_intervals_hold_the_correlation_and_are_as_narrow_as_7530_items_make_them(sides):
    table = analysis.humans_correlation(sides, *KEY, np.random.default_rng(0), draws=400)
    rho = table["spearman"]
    assert (table["ci_low"] < rho).all()
    assert (rho < table["ci_high"]).all()
    assert (table["ci_high"] - table["ci_low"]).is_between(0.03, 0.05).all()


def test_kendall_among_humans_and_models_is_the_published_one(sides, shared):
    published = pl.read_csv(shared / "reference" / "elo_kendall_GE.csv")
    assert published.columns[2:] == list(SLUGS)
    table = analysis.humans_kendall(sides)
    found = table.select(table.columns[1:]).to_numpy()
    np.testing.assert_array_equal(found.round(4), published.select(published.columns[1:]))


def test_the_models_agree_as_published(sides):
    table = analysis.humans_kendall(sides)
    models = table.filter(pl.col("model") != "human").drop("model", "human").to_numpy()
    pairs = models[np.triu_indices(len(models), 1)]
    assert round(pairs.mean(), 3) == 0.404
    assert (round(pairs.min(), 2), round(pairs.max(), 2)) == (0.27, 0.60)


def test_the_released_gaps_need_the_quirk(sides):
    found = gaps(sides, humans_in_median=True)
    slighted = [("Fingering (sexual act)", 6771.0), ("Erection", 6462.5), ("Black people", 6388.5)]
    assert found[:3] == slighted
    assert found[:-3:-1] == [
        ("Fully Automated Luxury Communism", -6643.0),
        ("Johan Cruyff", -6378.5),
    ]


def test_without_the_quirk_black_people_are_second(sides):
    found = gaps(sides)
    assert found[1] == ("Black people", 6477.5)
    assert found[2][0] == "Erection"


def test_gaps_fall_with_the_human_rank_and_residuals_do_not(sides):
    table = analysis.humans_gap(analysis.humans_ranks(sides), *KEY)
    assert round(ranks.pearson(table["gap"].to_numpy(), table["human_rank"].to_numpy()), 2) == -0.61
    residual, human = table["residual"].to_numpy(), table["human_rank"].to_numpy()
    expected = scipy.stats.linregress(human, table["model_rank"].to_numpy())
    np.testing.assert_allclose(
        residual, table["model_rank"].to_numpy() - expected.intercept - expected.slope * human
    )
    assert abs(ranks.pearson(residual, human)) < 1e-9


@pytest.mark.parametrize("least_matches", [0, 50])
def test_regression_to_the_mean_takes_black_people_from_second_to_ninth(run, least_matches):
    sides = analysis.side_by_side(run, *KEY, list(SLUGS.values()), least_matches)
    assert sides.height == {0: 7530, 50: 7062}[least_matches]
    table = analysis.humans_gap(analysis.humans_ranks(sides), *KEY)
    row = table.row(by_predicate=pl.col("item") == "Black people", named=True)
    assert (row["gap_place"], row["residual_place"]) == (2, 9)


def test_black_people_stand_at_202_for_people_and_low_for_the_models(sides):
    row = analysis.humans_ranks(sides).filter(item="Black people").row(0, named=True)
    assert int(row["human_rank"]) == 202
    ranks = [row[slug] for slug in SLUGS.values()]
    assert 2500 < min(ranks) < 2700
    assert 6900 < max(ranks) < 7100


def test_six_models_rank_unconditional_love_first(sides):
    row = analysis.humans_ranks(sides).filter(item="Unconditional love").row(0, named=True)
    assert sum(row[slug] == 1 for slug in SLUGS.values()) == 6


@pytest.fixture(scope="module")
def rsa():
    tau = pl.read_csv(SHARED / "reference" / "kendall_tau_fig2a.csv")
    tau = tau.rename({tau.columns[0]: "model"})
    about = pl.read_csv(SHARED / "reference" / "table_1_reward_models.csv")
    assert about["Model ID"].to_list() == tau["model"].to_list()
    models = about.select(
        model="Model ID",
        base="Base Model",
        developer="Developer",
        size_b="Parameters (B)",
        rewardbench_rank="RewardBench Rank",
    )
    by = explained.predictors(models)
    return analysis.rsa_table(tau, by, np.random.default_rng(0), draws=19_999)


def test_what_explains_agreement_is_the_published_analysis(rsa):
    table = rsa
    assert table["predictor"].to_list() == ["base", "developer", "size", "rank"]
    assert [round(r, 3) for r in table["pearson_r"]] == [0.555, -0.082, 0.469, 0.495]


def test_its_p_values_are_the_published_ones_within_monte_carlo_error(rsa):
    for found, published in zip(rsa["mantel_p"], [0.018, 0.69, 0.009, 0.002], strict=True):
        # The published ones carry an error of their own, of some thousands of draws.
        error = np.sqrt(published * (1 - published) * (1 / 19_999 + 1 / 5_000))
        assert found == pytest.approx(published, abs=3 * error + 5e-4)


def test_the_joint_regression_explains_as_much_as_published(rsa):
    assert {round(r_squared, 2) for r_squared in rsa["r_squared"]} == {0.37}
    assert set(rsa["pairs"]) == {45}
