"""The analyses of a report, one module each; `analysis.study` says what a chapter is.

To add one: write the module, and put it into a group below.
"""

from analysis.chapters import (
    agreement,
    appended,
    calibration,
    categories,
    distributions,
    framing,
    frequency,
    groups,
    humans,
    items,
    lens,
    logprobs,
    model_list,
    pair_features,
    pairs,
    policies,
    probes,
    published,
    sentiment,
    sequences,
    tokens,
)
from analysis.study import Analysis

OVER_STEPS = "over-steps"
# Anchor and heading of each group of the page, and its analyses. Their order is that of the page,
# of its headlines, and in which tables are made: an analysis may read the tables of those before.
# Those of `assay watch` are made for its steps (`chapters.steps`).
GROUPS: tuple[tuple[str, str, tuple[Analysis, ...]], ...] = (
    (OVER_STEPS, "Over the steps", ()),
    ("words", "Words", (tokens.ANALYSIS, appended.ANALYSIS, framing.ANALYSIS)),
    ("models-compared", "Models", (agreement.ANALYSIS,)),
    (
        "kinds",
        "Kinds of words",
        (sentiment.ANALYSIS, frequency.ANALYSIS, groups.ANALYSIS, categories.ANALYSIS),
    ),
    (
        "lists",
        "Lists and people",
        (
            pairs.ANALYSIS,
            pair_features.ANALYSIS,
            calibration.ANALYSIS,
            probes.ANALYSIS,
            items.ANALYSIS,
            humans.ANALYSIS,
        ),
    ),
    (
        "replies",
        "Search and policies",
        (
            policies.ANALYSIS,
            logprobs.ANALYSIS,
            sequences.ANALYSIS,
        ),
    ),
    (
        "rewards",
        "Rewards and layers",
        (lens.ANALYSIS, distributions.ANALYSIS),
    ),
    ("method", "Method", (published.ANALYSIS, model_list.ANALYSIS)),
)
CHAPTERS: tuple[Analysis, ...] = tuple(chapter for _, _, inside in GROUPS for chapter in inside)
