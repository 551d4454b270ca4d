"""Analysis of runs: tables, figures and one report. Never imports jax.

    run = analysis.load("out/run")            # checks every score, then reads lazily
    run.scores(prompts=["greatest"])          # a polars LazyFrame
    shared = analysis.shared_vocabulary(run)
    analysis.kendall_matrix(analysis.shared_rewards(run, shared, "greatest"))

    afinn = analysis.lexicons.afinn()
    points = analysis.sentiment_points(run, list(run.models), afinn)
    analysis.sentiment_slopes(points)

Every table of the report, and the report, take settings:

    from analysis import report

    settings = analysis.AnalyzeSettings()
    study = analysis.compute(run, {}, settings, analysis.CHAPTERS)
    study.tables["framing"], study.tables.absent
    report.write_report(run, "out/report", {}, settings)

A table needs no plotting library: figures load it when they are drawn.
"""

from analysis.chapters import CHAPTERS
from analysis.chapters.agreement import kendall_matrix, spearman_matrix
from analysis.chapters.distributions import moments_table, samples
from analysis.chapters.framing import framing_table
from analysis.chapters.frequency import frequency_points, frequency_slopes
from analysis.chapters.groups import group_words
from analysis.chapters.humans import humans_kendall
from analysis.chapters.logprobs import logprobs_items, logprobs_rewards
from analysis.chapters.sentiment import sentiment_slopes
from analysis.chapters.sequences import sequences_table
from analysis.chapters.tokens import framing_ends, logprobs_ends, top_bottom
from analysis.compare import diff
from analysis.measures.combined import combined
from analysis.measures.human_agreement import (
    humans_correlation,
    humans_gap,
    humans_ranks,
    side_by_side,
)
from analysis.measures.list_scores import items_points, list_scores
from analysis.measures.matched_words import lexicon_rewards as sentiment_points
from analysis.measures.shared_tokens import shared_rewards, shared_vocabulary
from analysis.model_info import ModelInfo
from analysis.run import Run, load
from analysis.settings import AnalyzeSettings, Options
from analysis.statistics.distributions import log_ratio
from analysis.statistics.inference import with_q
from analysis.study import Absent, Study, compute
from analysis.words import lexicons
from engine.runs.result import RunError

__all__ = [
    "CHAPTERS",
    "Absent",
    "AnalyzeSettings",
    "ModelInfo",
    "Options",
    "Run",
    "RunError",
    "Study",
    "combined",
    "compute",
    "diff",
    "framing_ends",
    "framing_table",
    "frequency_points",
    "frequency_slopes",
    "group_words",
    "humans_correlation",
    "humans_gap",
    "humans_kendall",
    "humans_ranks",
    "items_points",
    "kendall_matrix",
    "lexicons",
    "list_scores",
    "load",
    "log_ratio",
    "logprobs_ends",
    "logprobs_items",
    "logprobs_rewards",
    "moments_table",
    "samples",
    "sentiment_points",
    "sentiment_slopes",
    "sequences_table",
    "shared_rewards",
    "shared_vocabulary",
    "side_by_side",
    "spearman_matrix",
    "top_bottom",
    "with_q",
]
