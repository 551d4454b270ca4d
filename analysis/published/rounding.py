"""What the paper rounded: the rewards of seven models, and the agreement behind Figure 2C."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.chapters import explained
from analysis.published.finders import ROUNDED
from analysis.published.own import GREATEST, TEN
from analysis.run import Run
from analysis.statistics import Array
from analysis.study import Absent, Study, Table, table

# Models whose released rewards are numbers of bfloat16; those of QRM and of URM are not.
MODELS = frozenset(
    (
        "S-Gem-27B-v0.2",
        "S-Gem-27B",
        "S-Lla-8B-v0.2",
        "R-Lla-8B",
        "R-Lla-3B",
        "F-Lla-8B-v0.1",
        "R-Gem-2B",
    )
)
_SCORE = 5e-6  # half a unit of the last digit of a printed reward
_BFLOAT16_BITS = 8  # of the significand, the hidden one counted
_DIGITS = 2  # of the agreement that Figure 2A prints
_DRAWS, _SEED = 9_999, 0  # of the Mantel tests, in every run: their p-values are compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundedRun(Run):
    """A run that gives the rewards of some models in bfloat16.

    Attributes:
      rounded: slugs of these models.
    """

    rounded: Collection[str]

    def rewards(self, model: str, prompt: str) -> tuple[Array, Array]:
        """As `Run.rewards`."""
        ids, rewards = super().rewards(model, prompt)
        return ids, to_bfloat16(rewards) if model in self.rounded else rewards

    def item_scores(
        self, items: str, prompt: str, models: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """As `Run.item_scores`."""
        scores = super().item_scores(items, prompt, models)
        own = [model for model in scores.columns if model in self.rounded]
        return scores.with_columns(
            pl.Series(model, to_bfloat16(scores[model].to_numpy())) for model in own
        )

    def scores(
        self, *, models: Iterable[str] | None = None, prompts: Iterable[str] | None = None
    ) -> pl.LazyFrame:
        """As `Run.scores`."""
        near = pl.col("reward").map_batches(
            lambda rewards: pl.Series(to_bfloat16(rewards.to_numpy())), return_dtype=pl.Float32
        )
        own = pl.col("model").is_in(list(self.rounded))
        scores = super().scores(models=models, prompts=prompts)
        return scores.with_columns(reward=pl.when(own).then(near).otherwise("reward"))


def rounded(run: Run, slugs: Collection[str]) -> RoundedRun:
    """A run with the rewards of some models rounded to bfloat16, of tokens and of items."""
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)}
    return RoundedRun(**fields, rounded=slugs)


def to_bfloat16(rewards: Array) -> Array:
    """Rewards (float32) rounded to the nearest number of bfloat16, halves to even; float32."""
    bits = np.ascontiguousarray(rewards, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)


def score_within(model: str, printed: float) -> float:
    """How far a reward may be from the printed one and still be the same.

    Half a unit of the last printed digit; of models whose rewards the paper has in bfloat16, half a
    step of bfloat16, where the printed number is one.
    """
    fraction, exponent = math.frexp(printed)  # printed = fraction * 2**exponent
    steps = fraction * 2**_BFLOAT16_BITS
    if model not in MODELS or not printed or steps != round(steps):
        return _SCORE
    return math.ldexp(0.5, exponent - _BFLOAT16_BITS)


class RoundedAgreement:
    """What explains agreement that is rounded as Figure 2A prints it: ("rsa_rounded", "greatest").

    The published values of Figure 2C were computed from the printed ones of Figure 2A, which have
    two decimals: from more, a run would hardly ever meet them.
    """

    def tables(self, study: Study) -> Iterator[Table]:
        """The one table, which is not written."""
        yield table(ROUNDED, GREATEST, make=partial(_explanation, study), file=False)


def _explanation(study: Study) -> pl.DataFrame:
    matrix = study.tables.get("kendall_tau", GREATEST)
    if matrix is None:
        raise Absent(study.tables.reason("kendall_tau", GREATEST) or "No model was scored.")
    models = matrix.columns[1:]
    if len(models) < TEN:
        raise Absent(f"It is over all ten models, and {len(models)} were scored.")
    return rounded_rsa(matrix, study.described.filter(pl.col("model").is_in(models)))


def rounded_rsa(matrix: pl.DataFrame, models: pl.DataFrame) -> pl.DataFrame:
    """`explained.rsa_table` of agreement with two decimals, without lineage.

    Args:
      matrix: Kendall's tau of every pair of models.
      models: model, base, developer, size_b, rewardbench_rank of the models of `matrix`, in their
        order.

    Returns:
      A row for each trait, beside the row on the joint regression.
    """
    two = matrix.with_columns(pl.col(matrix.columns[1:]).round(_DIGITS))
    by = explained.predictors(models)
    each, fit = explained.rsa_table(two, by, np.random.default_rng(_SEED), _DRAWS)
    return each.join(fit, how="cross")
