"""The paper's numbers beside a run's, with the right values by SciPy and NumPy; those that ship."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis import lexicons
from analysis.chapters import published
from analysis.report import outline
from configs import known_models
from launch.common import reporting
from tests.support import runs
from tests.support.studies import cited

TEN = list(known_models.MODELS)
FIRST, LAST = TEN[0], TEN[-1]
NAMED = published.read().filter(exhibit="Figure 5B")["other"].unique(maintain_order=True).to_list()
ITEMS = [*NAMED, *(f"item {i}" for i in range(20))]
WORDS = lexicons.afinn("").filter(pl.col("word").str.contains("^[a-z]+$")).sort("word")
WORDS = WORDS.gather_every(40)
PAPERS = {"humans_matches": 0, "humans_in_median": True, "frequency_join": "paper"}


@pytest.fixture
def made(make_run, study_of, write):
    """Slugs and changed options -> the study of a run of these models, their rewards and items."""
    from analysis import CHAPTERS

    rng = np.random.default_rng(3)
    words = [*WORDS["word"], *(f"w{i}" for i in range(30))]
    taste, liked = rng.normal(size=len(words)), rng.normal(size=len(ITEMS))
    bnc = "".join(f"\t{w}\tNoC\t:\t{1 + i}\t100\t0.9\n" for i, w in enumerate(WORDS["word"]))
    frequency = write("bnc.txt", bnc)

    def make(models, name="run", **changed):
        rewards = {m: (taste + rng.normal(size=len(words))).astype(np.float32) for m in models}
        items = {m: (liked + rng.normal(size=len(ITEMS))).astype(np.float32) for m in models}
        scores = {(m, "greatest"): r.tolist() for m, r in rewards.items()}
        run = make_run({"v": words}, dict.fromkeys(models, "v"), scores, name, size=500)
        for model, own in items.items():
            listed = dict(zip(ITEMS, own.tolist(), strict=True))
            runs.add_items(run, "elo", model, "elo_greatest", listed)
        runs.add_humans(run, "elo", {item: 1700.0 - i for i, item in enumerate(ITEMS)})
        options = {"frequency": frequency, **PAPERS, **changed}
        study = study_of(run, *CHAPTERS, infos=reporting.metadata(), **options)
        return study, rewards, items

    return make


def value(study, exhibit, quantity, model="", other="", column="ours"):
    rows = study.tables["published"].filter(exhibit=exhibit, quantity=quantity, other=other)
    rows = rows.filter(pl.col("model") == model, pl.col("prompt").str.ends_with("greatest"))
    return rows[column].item()


def test_each_kind_of_number_is_that_of_the_run(made):
    study, rewards, items = made(TEN)
    greatest = study.tables["published"].filter(
        pl.col("prompt").is_in(["greatest", "elo_greatest"])
    )
    assert (
        greatest.height
        == published.read().filter(pl.col("prompt").is_in(["greatest", "elo_greatest"])).height
    )
    x, y = rewards[FIRST], rewards[LAST]
    expected = {
        ("Table 3", "mean", LAST, ""): y.mean(dtype=np.float64),
        ("Table 3", "variance", LAST, ""): y.var(dtype=np.float64),
        ("Table 3", "skewness", LAST, ""): scipy.stats.skew(y.astype(float)),
        ("Figure 2A", "kendall", FIRST, LAST): scipy.stats.kendalltau(x, y).statistic,
        ("Figure A1", "spearman", FIRST, LAST): scipy.stats.spearmanr(x, y).statistic,
    }
    upper = np.triu_indices(10, 1)
    values = WORDS["value"].to_numpy().astype(float)
    for valence, chosen in (("positive", values > 0), ("negative", values <= 0)):
        slope = np.polyfit(values[chosen], y[: len(values)][chosen], 1)[0]
        expected["Figure 3C", "sentiment_slope", LAST, valence] = slope
    often = np.log(1.0 + np.arange(len(values)))
    design = np.column_stack([np.ones_like(often), often, values])
    fitted = np.linalg.lstsq(design, y[: len(values)].astype(float), rcond=None)[0]
    expected["Figure 3D", "frequency_slope", LAST, ""] = fitted[1]
    people = -np.arange(len(ITEMS))
    ranks = {m: scipy.stats.rankdata(-own) for m, own in items.items()}
    human, own = scipy.stats.rankdata(-people), items[LAST]
    median = np.median([*ranks.values(), human], axis=0)
    love = ITEMS.index("Unconditional love")
    expected |= {
        ("Figure 5A", "spearman", LAST, "human"): scipy.stats.spearmanr(own, people).statistic,
        ("Figure 5B", "rank_gap", "", NAMED[0]): median[0] - human[0],
        ("Figure 5B", "first", "", "Unconditional love"): sum(r[love] == 1 for r in ranks.values()),
        ("Figure A5", "kendall", LAST, "human"): scipy.stats.kendalltau(own, people).statistic,
    }
    pairs = [
        scipy.stats.kendalltau(items[TEN[i]], items[TEN[j]])[0] for i, j in np.transpose(upper)
    ]
    expected["Figure A5", "mean_kendall", "", "models"] = np.mean(pairs)
    for which, right in expected.items():
        assert value(study, *which) == pytest.approx(right, abs=1e-5), which
    ours, difference = (
        value(study, "Table 3", "mean", LAST, column=c) for c in ("ours", "difference")
    )
    assert difference == pytest.approx(ours - (-5.279))
    assert value(study, "Figure 5A", "spearman", LAST, "human", "paper") == 0.359
    assert value(study, "Figure 5A", "spearman", LAST, "human", "noise") == 0.0005


def test_what_depends_on_all_ten_is_left_out_where_one_lacks(made):
    study, _, _ = made(TEN[1:])
    exhibits = set(study.tables["published"]["exhibit"])
    assert exhibits == {"Figure 3C", "Figure 3D", "Figure 5A", "Figure A5"}
    assert "mean_kendall" not in study.tables["published"]["quantity"].to_list()
    other = dataclasses.replace(study.options, humans_matches=50, frequency_join="forms")
    other = dataclasses.replace(study.settings, options=other)
    why = published.left_out(dataclasses.replace(study, settings=other))
    assert {"Figure 3D", "Figure 5A", "Figure 5B", "Figure A5"} <= why.keys()


def test_the_answer_counts_the_numbers_that_are_met(made):
    """Of two that are met, one is below its noise, which any small number would meet."""
    study, _, _ = made([LAST])
    paper, difference = pl.Series([1.0, 0.001, 1.0]), pl.Series([0.005, 0.0, 0.006])
    table = study.tables["published"].head(3)
    study.tables.frames["published",] = table.with_columns(
        paper=paper, noise=0.005, difference=difference
    )
    assert cited(published.ANALYSIS.section(study).answer)[:2] == ["1", "2"]


def test_a_run_without_the_ten_has_no_such_section(made):
    study, _, _ = made(["mine"])
    assert study.tables.reason("published")
    section = published.ANALYSIS.section(study)
    assert not section.blocks
    assert not any(g["sections"] or g["empty"] for g in outline.groups([section]))


# --- The numbers that ship ------------------------------------------------------------------------


def test_each_number_stands_there_once():
    numbers = published.read()
    keys = ["exhibit", "quantity", "prompt", "model", "other"]
    assert not numbers.select(keys).is_duplicated().any() and numbers["source"].min() > ""
    assert published.ten() == {*TEN} == {*numbers["model"]} - {""}


def test_the_numbers_are_those_that_were_compared_with_the_papers():
    """Exhibit -> how many; sums of them and of their noise, weighted by place; on 2026-11-28."""
    place = pl.int_range(1, pl.len() + 1)
    exhibits = published.read().group_by("exhibit", maintain_order=True)
    digits = {"paper": 3, "noise": 4}
    sums = ((pl.col(name) * place).sum().round(count) for name, count in digits.items())
    found = exhibits.agg(pl.len(), *sums)
    assert {exhibit: tuple(numbers) for exhibit, *numbers in found.iter_rows()} == {
        "Table 3": (30, 452.964, 0.2325),
        "Figure 2A": (45, 318.02, 5.175),
        "Figure 3C": (56, 345.208, 7.98),
        "Figure 3D": (30, 74.845, 2.325),
        "Figure 5A": (10, 21.604, 0.0275),
        "Figure 5B": (6, -19831.5, 5.25),
        "Figure A5": (56, 634.61, 0.105),
        "Figure A1": (90, 1839.86, 20.475),
    }
