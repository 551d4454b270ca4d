import numpy as np
import polars as pl
import pytest

from analysis.chapters import variance
from analysis.sentences import cell
from tests.support import charts

TOKENS = [f"{space}w{i}" for i in range(400) for space in ("", " ")]


def rewards_of(cube):
    """Rewards [T, M, P] as tables of shared rewards."""
    return {
        f"p{p}": pl.DataFrame({"token": TOKENS}).with_columns(
            **{f"m{m}": pl.Series(cube[:, m, p]) for m in range(cube.shape[1])}
        )
        for p in range(cube.shape[2])
    }


def said(cube):
    table = variance.variance_table(rewards_of(cube))
    return [finding.text for finding in variance.findings(table)]


def test_of_noise_nothing_is_said_and_the_chart_has_its_shares_beside_their_reference(rng):
    cube = rng.normal(size=(800, 5, 3))
    assert said(cube) == []
    table = variance.variance_table(rewards_of(cube))
    shown = charts.rows(variance.bars(table))
    bars = ["corrected for noise", "not corrected", "pure noise"]
    assert [row["what"] for row in shown[::4]] == bars
    told = [cell(share, "share") for share in table["estimated_share"]]
    assert [row["percent_text"] for row in shown[:4]] == told
    assert min(row["drawn"] for row in shown) >= 0
    assert table["share"].to_list() == pytest.approx(table["noise_share"].to_list(), abs=0.02)
    assert table["share"].sum() == pytest.approx(1.0)


def test_spellings_that_agree_are_not_taken_for_more_evidence(rng):
    """A source that 400 words carry twice is as uncertain as it is in 400 words."""
    half = rng.normal(size=(400, 4, 3)) + 0.5 * rng.normal(size=(400, 1, 1))
    rewards = rewards_of(np.repeat(half, 2, axis=0))
    other = pl.Series([f"x{i}" for i in range(800)])  # As if each spelling were a word.
    apart = {prompt: table.with_columns(token=other) for prompt, table in rewards.items()}
    widths = [
        (table["estimated_high"] - table["estimated_low"]).to_numpy()
        for table in map(variance.variance_table, (rewards, apart))
    ]
    assert (widths[1] < 0.8 * widths[0]).all()


def test_one_model_has_raw_shares_and_their_reference_alone(rng):
    table = variance.variance_table(rewards_of(rng.normal(size=(800, 1, 3))))
    assert table["estimated_share"].is_nan().all()
    assert table["noise_share"].to_list() == pytest.approx([1 / 3, 0, 2 / 3, 0])
    assert list(variance.findings(table)) == []
    shown = charts.rows(variance.bars(table))
    assert {row["what"] for row in shown} == {"not corrected", "pure noise"}


def test_the_prompt_is_said_to_matter_more_only_where_intervals_show_it(rng):
    noise = rng.normal(size=(800, 5, 3))
    (headline,) = said(rng.normal(size=(800, 1, 3)) + noise)
    assert headline.startswith(
        "Over these prompts and models together, where a token stands depends more on the prompt"
    )
    (headline,) = said(rng.normal(size=(800, 5, 1)) + noise)
    assert headline.startswith(
        "Over these prompts and models together, where a token stands depends more on the model"
    )
    both = said(rng.normal(size=(800, 1, 3)) + rng.normal(size=(800, 5, 1)) + noise)
    assert both == []
