"""Analysis of runs: tables, figures and one report. Never imports jax.

    run = analysis.load("out/run")            # checks every score, then reads lazily
    run.scores(prompts=["greatest"])          # a polars LazyFrame
    shared = analysis.shared_vocabulary(run)
    analysis.kendall_matrix(analysis.shared_rewards(run, shared, "greatest"))

`analysis.report.write_report` writes the report, and `analysis.figures` draws; they are imported
by name, so that a notebook that wants a table does not load a plotting library.
"""

from analysis.agreement import consensus, kendall_matrix, spearman_matrix
from analysis.distributions import density_table, moments_table, quantiles_table, samples
from analysis.load import Run, load
from analysis.manifests import RunError
from analysis.models import ModelInfo, describe
from analysis.tokens import shared_rewards, shared_vocabulary, top_bottom

__all__ = [
    "ModelInfo",
    "Run",
    "RunError",
    "consensus",
    "density_table",
    "describe",
    "kendall_matrix",
    "load",
    "moments_table",
    "quantiles_table",
    "samples",
    "shared_rewards",
    "shared_vocabulary",
    "spearman_matrix",
    "top_bottom",
]
