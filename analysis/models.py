"""Who made a model and from what: metadata that the scores do not hold."""

import dataclasses
from collections.abc import Mapping

import polars as pl

from analysis.load import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Metadata of one model; None where it is not known.

    Attributes:
      nickname: the short name that tables and figures show.
      developer: who trained it.
      base: the family of base models it grew from, such as "Gemma 2".
      size_b: parameters in billions.
      rewardbench_rank: its rank on RewardBench; orders the models in figures.
    """

    nickname: str
    developer: str | None
    base: str | None
    size_b: float | None
    rewardbench_rank: int | None


def describe(run: Run, infos: Mapping[str, ModelInfo]) -> pl.DataFrame:
    """The table `models.csv`, ordered by RewardBench rank (unranked last), then by slug.

    Args:
      run: the run whose models are described.
      infos: slug -> its metadata. A slug that is absent shows as its own nickname.

    Returns:
      model, nickname, developer, base, size_b, rewardbench_rank, vocabulary (tokens).
    """
    rows = [
        {"model": slug, **dataclasses.asdict(infos.get(slug, _unknown(slug)))}
        for slug in run.models
    ]
    sizes = [run.vocabulary(slug).select(pl.len()).collect().item() for slug in run.models]
    schema = {
        "model": pl.String,
        "nickname": pl.String,
        "developer": pl.String,
        "base": pl.String,
        "size_b": pl.Float64,
        "rewardbench_rank": pl.Int64,
    }
    table = pl.DataFrame(rows, schema=schema).with_columns(vocabulary=pl.Series(sizes))
    return table.sort("rewardbench_rank", "model", nulls_last=True)


def _unknown(slug: str) -> ModelInfo:
    return ModelInfo(nickname=slug, developer=None, base=None, size_b=None, rewardbench_rank=None)
