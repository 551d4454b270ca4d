"""What the paper rounded: rewards of seven models, and the agreement behind Figure 2C."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import ml_dtypes  # which makes bfloat16 a dtype of NumPy
import numpy as np
import polars as pl

from analysis.chapters import explained
from analysis.published.run_values import GREATEST, ROUNDED, TEN
from analysis.run import Run
from analysis.statistics import Array
from analysis.study import Absent, Study, Table, table

_BFLOAT16, _FLOAT16 = "bfloat16", "float16"
# Nickname -> dtype of the rewards that the authors released, of tokens (Table 2, for two of them)
# and of items. Rewards of QRM and of URM are of float32.
TOKENS: Mapping[str, str] = dict.fromkeys(
    (
        "S-Gem-27B-v0.2",
        "S-Gem-27B",
        "S-Lla-8B-v0.2",
        "R-Lla-8B",
        "R-Lla-3B",
        "F-Lla-8B-v0.1",
        "R-Gem-2B",
    ),
    _BFLOAT16,
)
ITEMS = {**TOKENS, **dict.fromkeys(("R-Lla-8B", "R-Lla-3B", "R-Gem-2B"), _FLOAT16)}
_SCORE = 5e-6  # half a unit of the last digit of a printed reward
_DIGITS = 2  # of the agreement that Figure 2A prints
_DRAWS, _SEED = 9_999, 0  # of the Mantel tests, in every run: their p-values are compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundedRun(Run):
    """A run that gives the rewards of some models rounded to the dtype that the paper has."""

    tokens: Mapping[str, str]  # slug -> dtype of its rewards of tokens
    listed: Mapping[str, str]  # slug -> dtype of its rewards of items

    def rewards(self, model: str, prompt: str) -> tuple[Array, Array]:
        """As `Run.rewards`."""
        ids, rewards = super().rewards(model, prompt)
        return ids, to_dtype(rewards, self.tokens.get(model, ""))

    def item_scores(
        self, items: str, prompt: str, models: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """As `Run.item_scores`."""
        scores = super().item_scores(items, prompt, models)
        return scores.with_columns(
            pl.Series(model, to_dtype(scores[model].to_numpy(), dtype))
            for model, dtype in self.listed.items()
            if model in scores.columns
        )


def rounded(run: Run, nicknames: Mapping[str, str]) -> RoundedRun:
    """A run with the rewards of the paper's models rounded as the paper's are.

    Args:
      run: the run.
      nicknames: slug -> nickname of the models.
    """
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Run)}
    tokens = {slug: TOKENS[name] for slug, name in nicknames.items() if name in TOKENS}
    listed = {slug: ITEMS[name] for slug, name in nicknames.items() if name in ITEMS}
    return RoundedRun(**fields, tokens=tokens, listed=listed)


def to_dtype(rewards: Array, dtype: str) -> Array:
    """Rewards (float32) rounded to the nearest number of a dtype, halves to even; float32.

    Args:
      rewards: of any shape.
      dtype: "bfloat16" or "float16"; "" gives them as they are.
    """
    return rewards.astype(dtype).astype(np.float32) if dtype else rewards


def score_within(model: str, printed: float) -> float:
    """How far a reward may be from the printed one and still be the same.

    Half a unit of the last printed digit; of models whose rewards the paper has in bfloat16, half a
    step of bfloat16, where the printed number is one.
    """
    near = ml_dtypes.bfloat16(printed)
    if TOKENS.get(model) != _BFLOAT16 or not printed or float(near) != printed:
        return _SCORE
    return abs(float(np.spacing(near))) / 2


def rounded_agreement(study: Study) -> Iterator[Table]:
    """What explains agreement that is rounded as Figure 2A prints it; it is not written.

    The published values of Figure 2C were computed from the printed ones of Figure 2A, which have
    two decimals: from more, a run would hardly ever meet them.
    """
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
    """`explained.rsa_table` of agreement with two decimals.

    Args:
      matrix: Kendall's tau of every pair of models.
      models: model, base, developer, size_b, rewardbench_rank of the models of `matrix`, in their
        order.

    Returns:
      A row for each trait.
    """
    two = matrix.with_columns(pl.col(matrix.columns[1:]).round(_DIGITS))
    by = explained.predictors(models)
    return explained.rsa_table(two, by, np.random.default_rng(_SEED), _DRAWS)
