"""The report's tables: every one computed once, named and written as DESIGN.md lists them."""

import dataclasses
import pathlib
from collections.abc import Mapping

import polars as pl

from analysis import distributions, matching, ranks, sections, tokens
from analysis.load import Run
from analysis.manifests import RunError
from analysis.models import ModelInfo, describe
from analysis.options import Options

Frames = Mapping[str, pl.DataFrame]
ByPair = Mapping[tuple[str, str], pl.DataFrame]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Everything the report shows. Mappings are keyed by prompt id unless they say otherwise.

    A table whose inputs are not there has no rows (or no entry, in a mapping), and `absent` says
    why. The functions named are where the columns are described.

    Attributes:
      models: `models.csv`, in the order in which everything lists the models.
      shared: `shared_vocabulary.csv`.
      moments: `moments.csv`.
      quantiles: quantiles of the same samples as `moments`.
      densities: densities of the same samples as `moments`.
      top_bottom: `top_bottom_<prompt>.csv`.
      rewards: `tokens.shared_rewards`.
      consensus: `agreement.consensus`; absent where nothing is shared.
      kendall: `kendall_tau_<prompt>.csv`; absent where fewer than two models share tokens.
      spearman: `spearman_<prompt>.csv`; absent where `kendall` is.
      rbo: `rbo_<prompt>.csv`; absent where `kendall` is.
      mds: `mds_<prompt>.csv`.
      rsa: `rsa_<prompt>.csv`.
      rsa_fit: the joint regressions: prompt, predictors, pairs, r_squared, p, max_vif.
      variance: `variance.csv`.
      sentiment_points: `sentiment.sentiment_points`.
      sentiment_slopes: `sentiment_slopes.csv`.
      frequency_points: `sentiment.frequency_points`.
      frequency_slopes: `frequency_slopes.csv`.
      bing_points: `sentiment.sentiment_points` of the Bing lexicon.
      bing_effects: `sentiment.valence_effects`.
      framing: `framing.csv`.
      framing_sum: `framing_sum.csv`.
      framing_difference: `framing_difference.csv`.
      framing_axis: `framing_axis.csv`.
      framing_prompts: ids of the good and the bad prompt that the three above take.
      items_points: name of a list -> `items.items_points`.
      items_top_bottom: `items_top_bottom.csv`.
      items_standing: `items_standing.csv`.
      humans_correlation: `humans_correlation.csv`.
      humans_gap: `humans_gap.csv`.
      humans_kendall: (list, prompt id) -> `humans.humans_kendall`.
      humans_ranks: (list, prompt id) -> `humans.humans_ranks`.
      identity: `identity.csv`.
      identity_q: `identity` with the difference that is tested and q (Benjamini and Hochberg).
      sequences: `sequences.csv`, with reward_from_text and rejected.
      sequence_traces: `sequences.sequence_traces`.
      sequence_transfer: `sequence_transfer.csv`.
      objectives: `objectives.csv`.
      objectives_ends: `objectives_tokens.csv`.
      objectives_spearman: (slug, prompt id) -> `objectives_<model>_<prompt>.csv`.
      logprobs: `logprobs_<prompt>.csv`.
      logprobs_rewards: `logprobs.logprobs_rewards`.
      logprobs_ratio: `logprobs.logprobs_ratio`.
      item_logprobs: `item_logprobs.csv`.
      item_logprobs_points: (list, prompt id, slug of the language model) ->
        `item_logprobs.item_logprobs_points`; absent where no reward model scored the list.
      item_logprobs_ratio: `item_logprobs.item_logprobs_ratio`.
      matches: `matching.matches` of each analysis that matches words.
      absent: file stem, or field that no file is named after -> why it is not there.
    """

    models: pl.DataFrame
    shared: pl.DataFrame
    moments: pl.DataFrame
    quantiles: pl.DataFrame
    densities: pl.DataFrame
    top_bottom: Frames
    rewards: Frames
    consensus: Frames
    kendall: Frames
    spearman: Frames
    rbo: Frames
    mds: Frames
    rsa: Frames
    rsa_fit: pl.DataFrame
    variance: pl.DataFrame
    sentiment_points: pl.DataFrame
    sentiment_slopes: pl.DataFrame
    frequency_points: pl.DataFrame
    frequency_slopes: pl.DataFrame
    bing_points: pl.DataFrame
    bing_effects: pl.DataFrame
    framing: pl.DataFrame
    framing_sum: pl.DataFrame
    framing_difference: pl.DataFrame
    framing_axis: pl.DataFrame
    framing_prompts: tuple[str, str]
    items_points: Frames
    items_top_bottom: pl.DataFrame
    items_standing: pl.DataFrame
    humans_correlation: pl.DataFrame
    humans_gap: pl.DataFrame
    humans_kendall: ByPair
    humans_ranks: ByPair
    identity: pl.DataFrame
    identity_q: pl.DataFrame
    sequences: pl.DataFrame
    sequence_traces: pl.DataFrame
    sequence_transfer: pl.DataFrame
    objectives: pl.DataFrame
    objectives_ends: pl.DataFrame
    objectives_spearman: ByPair
    logprobs: Frames
    logprobs_rewards: pl.DataFrame
    logprobs_ratio: pl.DataFrame
    item_logprobs: pl.DataFrame
    item_logprobs_points: Mapping[tuple[str, str, str], pl.DataFrame]
    item_logprobs_ratio: pl.DataFrame
    matches: pl.DataFrame
    absent: Mapping[str, str]

    def named(self) -> dict[str, pl.DataFrame]:
        """File stem -> table, for every table that has a file and rows."""
        flat = {"models": self.models, "shared_vocabulary": self.shared, "moments": self.moments}
        for stem in ("top_bottom", "kendall_tau", "spearman", "rbo", "mds", "rsa", "logprobs"):
            by_prompt = getattr(self, stem.removesuffix("_tau"))
            flat |= {f"{stem}_{prompt}": table for prompt, table in by_prompt.items()}
        for pair, table in self.objectives_spearman.items():
            flat[f"objectives_{'_'.join(pair)}"] = table
        single = {stem: getattr(self, stem) for stem in _SINGLE}
        single["objectives_tokens"] = self.objectives_ends
        single["sequences"] = self.sequences.drop("reward_from_text", "rejected")
        return flat | {stem: table for stem, table in single.items() if table.height}


_SINGLE = (
    "sentiment_slopes",
    "frequency_slopes",
    "framing",
    "framing_sum",
    "framing_difference",
    "framing_axis",
    "items_top_bottom",
    "items_standing",
    "humans_correlation",
    "humans_gap",
    "identity",
    "sequences",
    "sequence_transfer",
    "variance",
    "objectives",
    "item_logprobs",
)


def compute(
    run: Run, infos: Mapping[str, ModelInfo], top: int, options: Options | None = None
) -> Tables:
    """Every table of `run`, models in the order of `describe`.

    Args:
      run: what `analysis.load` returned.
      infos: slug -> metadata of the model, as far as it is known.
      top: tokens an end.
      options: choices of the analyses; the defaults where None.
    """
    options = options or Options()
    absent: dict[str, str] = {}
    models = describe(run, infos)
    scored = [model for model in models["model"] if model in run.vocabulary_models]
    shared = _shared(run, options, absent)
    rewards = {
        prompt: tokens.shared_rewards(
            run, shared, prompt, [m for m in scored if (m, prompt) in run.results]
        )
        for prompt in run.vocabulary_prompts
    }
    data = list(distributions.samples(run, rewards))
    order = models["model"].to_list()
    lexical = sections.words(run, order, options, absent)
    counts = lexical.pop("matches")
    fields = {
        **sections.agreements(rewards, models, infos, options, absent),
        **lexical,
        **sections.frames(run, order, options, top, absent),
        **sections.lists(run, order, top, absent),
        **sections.people(run, order, options, absent),
        **sections.identities(run, order, options, counts, absent),
        **sections.searches(run, absent),
        **sections.makeup(run, order, top, absent),
        **sections.language(run, order, top, absent),
    }
    return Tables(
        models=models,
        shared=shared.select("token", *scored),
        moments=distributions.moments_table(data),
        quantiles=distributions.quantiles_table(data),
        densities=distributions.density_table(data),
        top_bottom={p: tokens.top_bottom(run, p, top, scored) for p in run.vocabulary_prompts},
        rewards=rewards,
        matches=pl.concat([pl.DataFrame(schema=matching.MATCHES), *counts]),
        absent=absent,
        **fields,
    )


def _shared(run: Run, options: Options, absent: dict[str, str]) -> pl.DataFrame:
    rules = {
        "trim": options.shared_trim,
        "fold_case": options.shared_fold_case,
        "round_trip": options.shared_round_trip,
    }
    try:
        shared = tokens.shared_vocabulary(run, **rules)
    except RunError as error:
        absent["shared_vocabulary"] = f"{error}."
        none = dict.fromkeys(run.vocabulary_models, pl.UInt32)
        return pl.DataFrame(schema={"token": pl.String, **none})
    if shared.height == 0:
        absent["shared_vocabulary"] = (
            sections.NOTHING_SHARED if run.results else sections.NO_VOCABULARY
        )
    return shared


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
