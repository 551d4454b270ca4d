"""The analyses of a report, one module each; `analysis.study` says what a chapter is.

To add one: write the module, put it into the list below, and put its id into
`analysis/report/outline.py`: into `GROUPS`, without which it stands under "Method", and into
`ORDER`, the order of headlines.
"""

from analysis.chapters import (
    agreement,
    categories,
    distributions,
    explained,
    framing,
    frequency,
    groups,
    humans,
    items,
    items_agreement,
    language_models,
    lens,
    list_probabilities,
    model_list,
    objectives,
    pairs,
    policies,
    published,
    sentiment,
    sequences,
    tokens,
    wording,
)
from analysis.study import Chapter

# In the order of the page. A chapter may read the tables of those before it.
CHAPTERS: tuple[Chapter, ...] = (
    model_list.ANALYSIS,
    tokens.ANALYSIS,
    distributions.ANALYSIS,
    agreement.ANALYSIS,
    explained.ANALYSIS,
    sentiment.ANALYSIS,
    frequency.ANALYSIS,
    framing.ANALYSIS,
    items.ANALYSIS,
    items_agreement.ANALYSIS,
    pairs.ANALYSIS,
    humans.ANALYSIS,
    groups.ANALYSIS,
    categories.ANALYSIS,
    sequences.ANALYSIS,
    objectives.ANALYSIS,
    lens.ANALYSIS,
    language_models.ANALYSIS,
    list_probabilities.ANALYSIS,
    policies.ANALYSIS,
    wording.ANALYSIS,
    published.ANALYSIS,
)
