"""Both ends of a ranking, as rows of a table."""

from collections.abc import Iterable, Mapping

import polars as pl

from analysis.columns import Spec
from analysis.run import Run
from analysis.statistics import Array, ranks

ENDS = {"top": True, "bottom": False}


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
    run: Run,
    model: str,
    numbers: Iterable[Array | pl.Series],
    count: int,
    spec: Spec,
    **same: object,
) -> pl.DataFrame:
    """The `count` highest and lowest of a model's tokens by any number, as rows of a table.

    Args:
      run: the run.
      model: slug of the model.
      numbers: ascending token ids [N], and the number of each [N]: arrays, or a frame of both.
      count: tokens at each end; ties go to the lower token_id.
      spec: the table; its last column is that of the number.
      same: columns that hold one value in every row.
    """
    *_, name = spec.schema
    schema = {key: spec.schema[key] for key in ("token_id", name)}
    ends = both_ends(pl.DataFrame([*numbers], schema=schema, orient="col"), name, count)
    chosen = pl.col("token_id").is_in(ends["token_id"].implode())
    tokens = run.vocabulary(model).select("token_id", "token").filter(chosen).collect()
    with_tokens = ends.join(
        tokens, on="token_id", how="left", validate="m:1", maintain_order="left"
    )
    return spec.frame(with_tokens, model=model, **same)


def head_and_tail(table: pl.DataFrame, count: int) -> pl.DataFrame:
    """The first and the last `count` rows of a sorted table, or all where it has no more."""
    if table.height <= 2 * count:
        return table
    return pl.concat([table.head(count), table.tail(count)])
