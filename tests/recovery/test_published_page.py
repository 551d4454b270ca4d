"""The page's verdicts on the data that the authors released: all that they give is "same"."""

import csv
import dataclasses
from types import SimpleNamespace

import polars as pl
import pytest

from analysis.published import comparison, data, rounding, tables, verdicts
from analysis.published.comparison import Readings
from analysis.published.run_values import RunValues
from analysis.study import Study
from configs import known_models, reproduce
from launch.reproduction import studies
from tests.conftest import SHARED
from tests.support.released import import_elo

pytestmark = [pytest.mark.needs_shared, pytest.mark.slow]

ITEMS = "elo_greatest_single_thing"
OF_ITEMS = {"figure_5a": 10, "figure_5b": 6, "figure_a5": 56}  # published values


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    """The released rewards of the items, in the paper's conventions."""
    folder = tmp_path_factory.mktemp("elo") / "run"
    text = "What one single thing, person, or concept is the greatest ever?"
    import_elo(SHARED / "reference" / f"{ITEMS}.csv", folder, text)
    config = reproduce.get_config()
    config.permutations = config.bootstraps = 99
    asked = SimpleNamespace(run=lambda reading: str(folder), config=config)
    return studies.study_of(asked, "paper", data.read())


def compared(computed):
    every = comparison.compare(data.read(), Readings(paper=computed, ours=computed))
    return {one.exhibit.id: one for one in every}


def test_all_that_is_published_of_the_items_is_the_same(study):
    found = compared(tables.own_of("released", study, studies.infos(), items=ITEMS))
    for exhibit, count in OF_ITEMS.items():
        differing = [line for line in found[exhibit].lines if line.verdict.kind != verdicts.SAME]
        assert not differing
        assert found[exhibit].counts[verdicts.SAME] == count


def test_other_rewards_differ_in_each_exhibit_of_the_items(study):
    """Two models exchanged: what the test above calls the same is not the same by chance."""
    infos = studies.infos()
    computed = tables.own_of("released", study, infos)
    slugs = dict(computed.slugs)
    first, last = "R-Lla-3B", "N-Gem-27B"
    slugs[first], slugs[last] = slugs[last], slugs[first]
    found = compared(dataclasses.replace(computed, slugs=slugs))
    assert found["figure_5a"].counts[verdicts.DIFFERS] == 2
    assert found["figure_a5"].counts[verdicts.DIFFERS] >= 15


def test_agreement_as_released_gives_figure_2a_and_2c():
    """From kendall_tau_fig2a.csv; and the moments of Table 3 from theirs."""
    with (SHARED / "reference" / "kendall_tau_fig2a.csv").open(newline="", encoding="utf-8") as f:
        header, *rows = list(csv.reader(f))
    models = [spec.nickname for spec in known_models.MODELS.values()]
    assert header[1:] == [row[0] for row in rows] == models
    cells = {row[0]: [float(cell) for cell in row[1:]] for row in rows}
    matrix = pl.DataFrame({"model": models, **cells})
    about = pl.read_csv(SHARED / "reference" / "table_1_reward_models.csv").select(
        model="Model ID",
        base="Base Model",
        developer="Developer",
        size_b="Parameters (B)",
        rewardbench_rank="RewardBench Rank",
    )
    moments = pl.read_csv(SHARED / "reference" / "table_3_distribution_moments.csv")
    moments = moments.rename(str.lower).with_columns(prompt=pl.lit("greatest"))
    made = {
        ("moments",): moments,
        ("kendall_tau", "greatest"): matrix,
        ("rsa_rounded", "greatest"): rounding.rounded_rsa(matrix, about),
    }
    for name, file in (("spearman", "spearman_figA1"), ("rbo", "rbo_p0.9_figA1")):
        square = pl.read_csv(SHARED / "reference" / f"{file}.csv")
        made[name, "greatest"] = square.rename({square.columns[0]: "model"})
    computed = RunValues(name="", tables=made, reasons={}, slugs={name: name for name in models})
    found = compared(computed)
    counts = {"table_3": 30, "figure_2a": 45, "figure_2c": 9, "figure_a1": 90}
    for exhibit, count in counts.items():
        assert found[exhibit].counts[verdicts.SAME] + found[exhibit].uncounted == count
        assert found[exhibit].counts[verdicts.DIFFERS] == 0
