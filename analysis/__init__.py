"""Analysis of runs: tables, figures and one report. Never imports jax.

    run = analysis.load("out/run")            # checks every score, then reads lazily
    run.scores(prompts=["greatest"])          # a polars LazyFrame
    shared = analysis.shared_vocabulary(run)
    analysis.kendall_matrix(analysis.shared_rewards(run, shared, "greatest"))

    afinn = analysis.lexicons.afinn()
    points = analysis.sentiment_points(run, list(run.models), afinn)
    analysis.sentiment_slopes(points)

    tables = analysis.compute(run, {}, top=20)  # every table at once, and why any is absent

`analysis.report.write_report` writes the report, and `analysis.figures` draws; they are imported
by name, so that a notebook that wants a table does not load a plotting library.
"""

from analysis import lexicons
from analysis.agreement import (
    consensus,
    kendall_matrix,
    mds_table,
    predictors,
    rbo_matrix,
    rsa_table,
    spearman_matrix,
)
from analysis.distributions import density_table, moments_table, quantiles_table, samples
from analysis.framing import framing_axis, framing_ends, framing_table
from analysis.humans import (
    humans_correlation,
    humans_gap,
    humans_kendall,
    humans_ranks,
    side_by_side,
)
from analysis.identity import identity_groups, identity_words, with_q
from analysis.item_logprobs import (
    item_logprobs_points,
    item_logprobs_ratio,
    item_logprobs_rewards,
)
from analysis.items import items_points, items_standing, items_top_bottom
from analysis.load import Run, load
from analysis.logprobs import log_ratio, logprobs_ends, logprobs_ratio, logprobs_rewards
from analysis.manifests import RunError
from analysis.models import ModelInfo, describe
from analysis.objectives import objectives_ends, objectives_spearman, objectives_table
from analysis.options import Options
from analysis.sentiment import (
    frequency_points,
    frequency_slopes,
    sentiment_points,
    sentiment_slopes,
    valence_effects,
)
from analysis.sequences import sequence_traces, sequence_transfer, sequences_table
from analysis.tables import Tables, compute
from analysis.tokens import shared_rewards, shared_vocabulary, top_bottom
from analysis.variance import variance_table

__all__ = [
    "ModelInfo",
    "Options",
    "Run",
    "RunError",
    "Tables",
    "compute",
    "consensus",
    "density_table",
    "describe",
    "framing_axis",
    "framing_ends",
    "framing_table",
    "frequency_points",
    "frequency_slopes",
    "humans_correlation",
    "humans_gap",
    "humans_kendall",
    "humans_ranks",
    "identity_groups",
    "identity_words",
    "item_logprobs_points",
    "item_logprobs_ratio",
    "item_logprobs_rewards",
    "items_points",
    "items_standing",
    "items_top_bottom",
    "kendall_matrix",
    "lexicons",
    "load",
    "log_ratio",
    "logprobs_ends",
    "logprobs_ratio",
    "logprobs_rewards",
    "mds_table",
    "moments_table",
    "objectives_ends",
    "objectives_spearman",
    "objectives_table",
    "predictors",
    "quantiles_table",
    "rbo_matrix",
    "rsa_table",
    "samples",
    "sentiment_points",
    "sentiment_slopes",
    "sequence_traces",
    "sequence_transfer",
    "sequences_table",
    "shared_rewards",
    "shared_vocabulary",
    "side_by_side",
    "spearman_matrix",
    "top_bottom",
    "valence_effects",
    "variance_table",
    "with_q",
]
