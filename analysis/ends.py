"""Both ends of a ranking, as rows of a table."""

from collections.abc import Mapping

import polars as pl

from analysis.run import Run
from analysis.statistics import Array, ranks
from engine.runs.schema import Columns

ENDS = {"top": True, "bottom": False}
TOKEN_ENDS: Columns = {
    "model": pl.String,
    "end": pl.String,
    "rank": pl.UInt32,
    "token_id": pl.UInt32,
    "token": pl.String,
}


def both_ends(
    table: pl.DataFrame, value: str, count: int, ends: Mapping[str, bool] = ENDS
) -> pl.DataFrame:
    """The `count` highest and lowest rows of `table` by the column `value`.

    Args:
      table: the rows; of equal values the earlier row comes first.
      value: the column that is ranked.
      count: rows at each end. The ends overlap in a table of fewer than twice as many rows.
      ends: name of each end, in the order of the result -> whether it is the highest one.

    Returns:
      The columns of `table`, end (its name) and rank (uint32, 1 is the extreme).
    """
    values = table[value].to_numpy()
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.UInt32)
    return pl.concat(
        table[ranks.extremes(values, count, highest)].with_columns(end=pl.lit(end), rank=rank)
        for end, highest in ends.items()
    )


def token_ends(
    run: Run, model: str, token_ids: Array, values: Array, count: int, schema: Columns
) -> pl.DataFrame:
    """The `count` highest and lowest of a model's tokens by any number.

    Args:
      run: the run.
      model: slug of the model.
      token_ids: ascending token ids [N].
      values: the number of each [N].
      count: tokens at each end.
      schema: `TOKEN_ENDS`, and then the column of the number.

    Returns:
      The columns of `schema`: model, end ("top" or "bottom"), rank (1 is the extreme), token_id,
      token, and the number. Ties go to the lower token_id.
    """
    name = list(schema)[-1]
    number_schema: Columns = {"token_id": schema["token_id"], name: schema[name]}
    scores = pl.DataFrame([token_ids, values], schema=number_schema, orient="col")
    ends = both_ends(scores, name, count)
    chosen = pl.col("token_id").is_in(ends["token_id"].implode())
    tokens = run.vocabulary(model).select("token_id", "token").filter(chosen).collect()
    named = ends.join(tokens, on="token_id", how="left", validate="m:1", maintain_order="left")
    return named.with_columns(model=pl.lit(model)).select(list(schema))


def head_and_tail(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The first and the last `count` rows of a sorted table, or all where it has no more."""
    if table.height <= 2 * count:
        return table
    return pl.concat([table.head(count), table.tail(count)])
