"""Median percentile of word categories, for every model under every prompt."""

import numpy as np
import polars as pl

from analysis.measures.word_scores import WordScores
from analysis.statistics.ranks import median_interval
from engine.runs.schema import Columns

MEDIANS: Columns = {
    **dict.fromkeys(("model", "prompt", "list", "scale", "category"), pl.String),
    "n": pl.Int64,
    "median_percentile": pl.Float64,
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64),
}


def category_medians(scores: WordScores, words: pl.DataFrame) -> pl.DataFrame:
    """Median percentile of each category, for every model under every prompt of its own.

    Scales of which one category alone is there are left out.

    Returns:
      The table `categories.csv`: model, prompt, list, scale, category, n (words),
      median_percentile (among the words of the scale, 0 to 1), ci_low, ci_high (95 %, of the
      median over words; NaN for fewer than six).
    """
    found = []
    for (scale,), own in words.group_by("scale", maintain_order=True):
        kept = scores.only(own["word"].to_list())
        of_word = dict(own.select("word", "category").iter_rows())
        mine = np.array([of_word[word] for word in kept.words])
        if len(set(mine.tolist())) < 2:
            continue
        percentiles = kept.percentiles()
        for m, model in enumerate(kept.models):
            for p, prompt in enumerate(kept.prompts):
                if np.isnan(kept.values[m, p]).any():
                    continue
                for category in dict.fromkeys(own["category"]):
                    values = percentiles[m, p, mine == category]
                    if len(values):
                        keys = (model, prompt, scores.source, scale, category)
                        median = float(np.median(values))
                        found.append((*keys, len(values), median, *median_interval(values)))
    return pl.DataFrame(found, schema=MEDIANS, orient="row")
