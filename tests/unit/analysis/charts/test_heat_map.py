"""Matrices as colours."""

import re

import polars as pl

from analysis.chapters import agreement
from analysis.charts.heat_map import heat_map
from tests.support import charts


def numbers(rewards):
    chart = heat_map(agreement.kendall_matrix(rewards), {"m1": "One", "m2": "Two"}, "τ")
    return re.findall(r">(−?\d\.\d\d|–)</text>", charts.svg(chart))


def test_the_heat_map_writes_every_number_and_a_dash_where_none_is_defined():
    rewards = pl.DataFrame({"token": list("abc"), "m1": [1.0, 2.0, 3.0], "m2": [1.0, 3.0, 2.0]})
    assert numbers(rewards) == ["1.00", "0.33", "0.33", "1.00"]
    rewards = pl.DataFrame({"token": list("ab"), "m1": [1.0, 2.0], "m2": [3.0, 3.0]})
    assert numbers(rewards) == ["1.00", "–", "–", "–"]
