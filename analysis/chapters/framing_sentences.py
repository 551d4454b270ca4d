"""What the correlations of two prompts say of the models, in sentences."""

import polars as pl

from analysis.blocks import Finding
from analysis.sentences import at_most, span
from analysis.significant_effects import significant


def findings(table: pl.DataFrame | None, prompts: tuple[str, str]) -> list[Finding]:
    """Models in which r of the good and the bad prompt is not 0, or is below its reference.

    Nothing is said where neither holds in any model.
    """
    if table is None:
        return []
    pair = pl.col("prompt_a").is_in(prompts) & pl.col("prompt_b").is_in(prompts)
    own = table.filter(pair & pl.col("pearson").is_not_nan())
    parts = [part for part in (_signs(own, prompts), _against_reference(own, prompts)) if part]
    return [Finding(text=" ".join(parts), picture="framing")] if parts else []


def _signs(own: pl.DataFrame, prompts: tuple[str, str]) -> str:
    certain = significant(own)
    sides = {
        "below": certain.filter(pl.col("pearson") < 0),
        "above": certain.filter(pl.col("pearson") > 0),
    }
    found = [
        f"{side} 0 in {_count(part, own)} ({span(part['pearson'].to_numpy())})"
        for side, part in sides.items()
        if part.height
    ]
    if not found:
        return ""
    width = (certain["ci_high"] - certain["ci_low"]).to_numpy().max() / 2
    return (
        f"Over all tokens, Pearson’s r of the rewards under {_both(prompts)} is "
        f"{' and '.join(found)}, each with q < .05; the 95% intervals are ±{at_most(width)} or "
        "narrower."
    )


def _against_reference(own: pl.DataFrame, prompts: tuple[str, str]) -> str:
    lower = significant(own, "difference_q").filter(pl.col("difference") < 0)
    if not lower.height:
        return ""
    gaps = [f"{gap:.3f}" for gap in sorted(-lower["difference"].to_numpy())]
    return (
        f"In {_count(lower, own)}, r of {_both(prompts)} is lower than r of “greatest” and “best”, "
        f"two questions of one framing ({span(lower['reference'].to_numpy())}), by "
        f"{' to '.join(dict.fromkeys((gaps[0], gaps[-1])))} (q < .05)."
    )


def _both(prompts: tuple[str, str]) -> str:
    return "“{}” and “{}”".format(*prompts)


def _count(part: pl.DataFrame, whole: pl.DataFrame) -> str:
    if whole.height == 1:
        return "the one model"
    return f"{part.height} of {whole.height} models"
