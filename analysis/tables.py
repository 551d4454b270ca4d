"""The report's tables: every one computed once, named and written as DESIGN.md lists them."""

import dataclasses
import pathlib
from collections.abc import Mapping

import polars as pl

from analysis import agreement, distributions, ranks, tokens
from analysis.load import Run
from analysis.models import ModelInfo, describe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Everything the report shows. Mappings are keyed by prompt id unless they say otherwise.

    Attributes:
      models: `models.csv`, in the order in which everything lists the models.
      shared: `shared_vocabulary.csv`.
      moments: `moments.csv`.
      quantiles: quantiles of the same samples as `moments`.
      densities: densities of the same samples as `moments`.
      top_bottom: `top_bottom_<prompt>.csv`.
      kendall: `kendall_tau_<prompt>.csv`; absent where fewer than two models share tokens.
      spearman: `spearman_<prompt>.csv`; absent where `kendall` is.
      consensus: `agreement.consensus`; absent where nothing is shared.
      rewards: `tokens.shared_rewards`.
    """

    models: pl.DataFrame
    shared: pl.DataFrame
    moments: pl.DataFrame
    quantiles: pl.DataFrame
    densities: pl.DataFrame
    top_bottom: Mapping[str, pl.DataFrame]
    kendall: Mapping[str, pl.DataFrame]
    spearman: Mapping[str, pl.DataFrame]
    consensus: Mapping[str, pl.DataFrame]
    rewards: Mapping[str, pl.DataFrame]

    def named(self) -> dict[str, pl.DataFrame]:
        """File stem -> table, for every table that the contract names."""
        flat = {
            "models": self.models,
            "shared_vocabulary": self.shared,
            "moments": self.moments,
        }
        for stem in ("top_bottom", "kendall_tau", "spearman"):
            by_prompt = getattr(self, stem.removesuffix("_tau"))
            flat |= {f"{stem}_{prompt}": table for prompt, table in by_prompt.items()}
        return flat


def compute(run: Run, infos: Mapping[str, ModelInfo], top: int) -> Tables:
    """Every table of `run`, with `top` tokens an end; models in the order of `describe`."""
    models = describe(run, infos)
    order = models["model"].to_list()
    shared = tokens.shared_vocabulary(run)
    rewards = {
        prompt: tokens.shared_rewards(
            run, shared, prompt, [m for m in order if (m, prompt) in run.results]
        )
        for prompt in run.prompts
    }
    data = list(distributions.samples(run, rewards))
    common = {p: t for p, t in rewards.items() if t.height}
    several = {p: t for p, t in common.items() if t.width > 2}
    return Tables(
        models=models,
        shared=shared.select("token", *order),
        moments=distributions.moments_table(data),
        quantiles=distributions.quantiles_table(data),
        densities=distributions.density_table(data),
        top_bottom={p: tokens.top_bottom(run, p, top, order) for p in run.prompts},
        kendall={p: agreement.kendall_matrix(t) for p, t in several.items()},
        spearman={p: agreement.spearman_matrix(t) for p, t in several.items()},
        consensus={p: agreement.consensus(t) for p, t in common.items()},
        rewards=rewards,
    )


def contrasts(
    run: Run, prompts: tuple[str, str], order: list[str]
) -> tuple[dict[str, pl.DataFrame], dict[str, float]]:
    """Each model's rewards under two prompts, token by token, over its whole vocabulary.

    Returns:
      slug -> a frame token_id, x, y (rewards under the first and the second prompt), and
      slug -> Pearson's r of x and y; models that lack either prompt are left out.
    """
    pairs, correlations = {}, {}
    for model in order:
        if all((model, prompt) in run.results for prompt in prompts):
            x, y = (
                pl.DataFrame(dict(zip(("token_id", axis), run.rewards(model, prompt), strict=True)))
                for axis, prompt in zip("xy", prompts, strict=True)
            )
            pair = x.join(y, on="token_id", how="inner", validate="1:1").sort("token_id")
            pairs[model] = pair
            correlations[model] = ranks.pearson(pair["x"].to_numpy(), pair["y"].to_numpy())
    return pairs, correlations


def write(tables: Mapping[str, pl.DataFrame], folder: pathlib.Path) -> list[str]:
    """Writes each table as `<stem>.csv` (UTF-8, quoted where needed); returns the names."""
    names = []
    for stem, table in tables.items():
        table.write_csv(folder / f"{stem}.csv")
        names.append(f"{stem}.csv")
    return names
