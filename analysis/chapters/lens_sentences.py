"""What the reward lens says of the models, in sentences."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.blocks import Finding
from analysis.measures.lens import ALL
from analysis.sentences import at_most, span
from analysis.significant_effects import significant


def findings(
    order: pl.DataFrame | None, frames: pl.DataFrame | None, layers: pl.DataFrame | None
) -> list[Finding]:
    """Where the final order appears and where two prompts part; each if it is sure.

    Args:
      order: the table `lens.csv`.
      frames: the table `lens_framing.csv`.
      layers: the table `lens_layers.csv`.
    """
    if order is None or layers is None:
        return []
    return [*_order(order, layers), *_frames(frames, layers)]


def _order(order: pl.DataFrame, layers: pl.DataFrame) -> Iterator[Finding]:
    """Rankings that are half way to the final one before the last layer, beyond noise."""
    every = layers.filter(what="order")
    early = every.filter(pl.col("layer_high") < pl.col("layers"))
    if not early.height:
        return
    inner = order.filter(pl.col("layer") < pl.col("layers"), of=ALL)
    inner = inner.join(early, on=["model", "prompt"], how="semi")
    # Of a layer that ranks all tokens alike, τ and its interval are not defined.
    width = np.nanmax((inner["ci_high"] - inner["ci_low"]).to_numpy()) / 2
    rest = ", and in the others not surely before the last" if early.height < every.height else ""
    yield Finding(
        text=f"Read by the final norm and head, the ranking of all tokens is half way to the final "
        f"one (τ of 0.5 or more with the last layer, from there on) after {_depths(early)} of the "
        f"layers, in {_of(early, every, 'rankings')}{rest}; the 95% intervals of τ are "
        f"±{at_most(width)} or narrower.",
        picture="lens",
    )


def _frames(frames: pl.DataFrame | None, layers: pl.DataFrame) -> Iterator[Finding]:
    """Models in which two prompts end further apart than two of one framing."""
    apart = layers.filter(what="frames")
    if frames is None or not apart.height:
        return
    last = frames.filter(pl.col("layer") == pl.col("layers"))
    tested = last.filter(pl.col("difference").is_not_nan())
    wide = significant(tested).filter(pl.col("difference") > 0)
    good, bad = apart.select("prompt", "against").row(0)
    yield Finding(
        text=f"After the last layer, τ of the rankings under “{good}” and “{bad}” is lower than "
        f"that of “greatest” and “best” by {span(wide['difference'].to_numpy())} in "
        f"{_of(wide, tested, 'models')} (q < .05). Half of this difference is there after "
        f"{_depths(apart)} of the layers.",
        picture="lens_framing",
    )


def _depths(rows: pl.DataFrame) -> str:
    """How deep some layers lie, such as "50 to 75%"."""
    depths: list[int] = (100 * rows["layer"] / rows["layers"]).round(0).cast(pl.Int64).to_list()
    low, high = min(depths), max(depths)
    return f"{low}%" if low == high else f"{low} to {high}%"


def _of(part: pl.DataFrame, whole: pl.DataFrame, noun: str) -> str:
    if whole.height == 1:
        return f"the one {noun.removesuffix('s')}"
    return f"{part.height} of {whole.height} {noun}"
