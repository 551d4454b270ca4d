"""Searches of several methods, compared pair by pair."""

import json

import numpy as np
import polars as pl
import pytest
import scipy.stats

from bench.support.methods import BASE, METHODS, Kept, paired, table
from engine.settings import SearchSettings

ORIGINAL = "gcg-original"


def rows(**gains):
    """Two seeds of four cells; the base finds 3, then 5, others so much more."""
    return pl.DataFrame(
        [
            {"model": model, "direction": "max", "length": length, "seed": seed}
            | {"method": method, "steps": 10 + seed, "z": 3.0 + 2 * seed + gain}
            for model in ("a", "b")
            for length in (4, 8)
            for seed in (0, 1)
            for method, gain in {BASE: 0.0, **gains}.items()
        ]
    )


def test_a_method_is_compared_with_the_base_in_the_same_cell():
    first, second = paired(rows(**{ORIGINAL: -0.5}))
    assert (first["method"], first["z"], first["gain"], first["more"]) == (BASE, 4.0, 0.0, 0.5)
    assert (second["method"], second["z"], second["more"]) == (ORIGINAL, 3.5, 0.0)
    assert second["gain"] == second["low"] == second["high"] == pytest.approx(-0.5)
    assert second["by_length"] == {4: pytest.approx(-0.5), 8: pytest.approx(-0.5)}


def test_cells_that_only_one_method_has_searched_do_not_count():
    both = rows(**{ORIGINAL: 1.0})
    partly = both.filter((pl.col("method") != ORIGINAL) | (pl.col("seed") == 0))
    assert paired(partly)[1]["pairs"] == 4
    assert ORIGINAL in table(paired(partly))


def test_the_interval_is_of_models_and_for_all_methods_together():
    more = pl.when(pl.col("model") == "a", pl.col("method") != BASE).then(2.0).otherwise(0.0)
    names = {ORIGINAL: 1.0, "gcg, momentum": 1.0}
    found = paired(rows(**names).with_columns(z=pl.col("z") + more))[1]
    assert (found["gain"], found["steps"]) == (pytest.approx(2.0), 10.5)
    half = scipy.stats.t.ppf(1 - 0.025 / 2, 1) * np.std([3.0, 1.0], ddof=1) / 2**0.5
    assert found["low"] == pytest.approx(2.0 - half) and found["high"] == pytest.approx(2.0 + half)


def test_a_search_is_kept_under_everything_that_decides_its_result(tmp_path):
    row = {"model": "a", "direction": "max", "length": 4, "seed": 0, "method": BASE}
    row |= {"prompt": "Who?", "flops": 1e9, "settings": {"merge": "0"}}
    kept = Kept(tmp_path / "new" / "rows.jsonl")
    kept.add(row | {"z": 1.0})
    again = Kept(kept.file)
    assert again.rows[Kept.key(row)]["z"] == 1.0
    for name, other in (("flops", 2e9), ("settings", {"merge": "7"}), ("prompt", "Why?")):
        assert Kept.key(row | {name: other}) not in again.rows
    assert json.loads(kept.file.read_text()) == row | {"z": 1.0}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_settings_that_exist(method):
    SearchSettings.of(**METHODS[method], direction="max", dtype="float32")
    assert method.startswith(METHODS[method]["method"])
