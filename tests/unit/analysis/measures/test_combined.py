"""Rewards under two prompts: of the keys and the columns that both tables have."""

import polars as pl
import pytest

from analysis.measures.combined import combined


@pytest.mark.parametrize(("how", "sums"), [("sum", [35.0, 13.0]), ("difference", [-25.0, -7.0])])
def test_keys_and_columns_of_one_table_alone_are_left_out(how, sums):
    good = pl.DataFrame({"token_id": [7, 2, 4], "a": [3, 5, 8], "of_good": [0, 0, 0]})
    bad = pl.DataFrame({"token_id": [2, 7, 9], "of_bad": [1, 1, 1], "a": [30, 10, 9]})
    assert combined(good, bad, how).to_dict(as_series=False) == {"token_id": [2, 7], "a": sums}
