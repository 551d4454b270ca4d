"""The reward lens: at which layer the final ranking appears, and where two prompts part."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Picture
from analysis.charts.lines import lines
from analysis.measures import lens
from analysis.measures.combined import prompts_of
from analysis.measures.lens import FRAMES, MILESTONES, ORDER
from analysis.sentences import part_of, significant, span
from analysis.study import Absent, Analysis, Study, Table, table

NO_LENS = "No model was swept with the reward lens (--config.lens=true)."
REFERENCE = ("greatest", "best")  # Two questions of one framing.
_BAND = ("ci_low", "ci_high")


def _tables(study: Study) -> Iterator[Table]:
    """Three files."""
    made = study.tables
    by_layer = functools.cache(partial(_by_layer, study))
    few = "Fewer than ten tokens were swept with the lens."
    pair = "” and “".join(prompts_of(study))
    alone = f"No model was swept with the lens under both “{pair}”."
    yield table(ORDER.name, make=lambda: by_layer()[0], why=few)
    yield table(FRAMES.name, make=lambda: by_layer()[1], why=alone)
    yield table(
        MILESTONES.name, make=lambda: lens.milestones(made[ORDER.name], made.get(FRAMES.name))
    )


def _by_layer(study: Study) -> tuple[pl.DataFrame, pl.DataFrame]:
    if not lens.swept(study.run):
        raise Absent(NO_LENS)
    return lens.by_layer(study.run, study.scored, prompts_of(study), REFERENCE)


def _order_drawn(study: Study) -> Iterator[Block]:
    order = study.tables[ORDER.name]
    caption = (
        "Kendall’s τ of the ranking after each layer with that after the last one, over all "
        "tokens; one line per prompt. Bands are 95% intervals for all layers, models and prompts "
        "together, forms of one word kept together. Dotted: 0 and half way."
    )
    titles = ("after layer", "τ with the last layer")
    draw = partial(lines, order.filter(of=lens.ALL), study.names, titles, x="layer", y="kendall")
    draw = partial(draw, line="prompt", band=_BAND, marks=(0.0, lens.HALF), form="fixed")
    yield Picture("lens", caption, draw)
    yield from MILESTONES.rows(study.tables[MILESTONES.name])


def _ends_drawn(study: Study) -> Iterator[Block]:
    order = study.tables[ORDER.name]
    caption = (
        "Share of the tokens that end highest (solid) or lowest (dashed) which are at that end "
        "after an earlier layer too. An end has 1 % of the tokens, ten at least, and that is the "
        "share by chance."
    )
    titles, ends = (
        ("after layer", "share already at the end"),
        order.filter(pl.col("of") != lens.ALL),
    )
    draw = partial(lines, ends, study.names, titles, x="layer", y="kept")
    draw = partial(draw, line="prompt", dashed="of", marks=(lens.HALF,), form="share")
    yield Picture("lens_ends", caption, draw)


def _frames_drawn(study: Study) -> Iterator[Block]:
    frames = study.tables[FRAMES.name]
    called = pl.col("prompt_a", "prompt_b").replace(study.prompt_names)
    pairs = frames.with_columns(pair=pl.concat_str(called, separator=" and "))
    caption = (
        "Kendall’s τ between the rankings under two prompts after the same layer: a question and "
        "its opposite, and (where both were scored) two questions that ask for the same. Where the "
        "lines part, the model begins to rank by what is asked. Bands are 95% intervals for all "
        "layers of a model together."
    )
    titles = ("after layer", "τ between two prompts")
    draw = partial(lines, pairs, study.names, titles, x="layer", y="kendall", line="pair")
    yield Picture("lens_framing", caption, partial(draw, band=_BAND, marks=(0.0,), form="fixed"))
    yield from FRAMES.rows(frames)


def order_findings(layers: pl.DataFrame) -> Iterator[Finding]:
    """Rankings that are half way to the final one before the last layer, beyond noise."""
    rankings = layers.filter(what="order")
    early = rankings.filter(pl.col("layer_high") < pl.col("layers"))
    if early.height:
        part = part_of(early.height, rankings.height, "ranking")
        yield Finding(
            text=f"In {part}, half of the final order of the tokens is in place before the last "
            f"layer: after at most {_depth(early)} of the layers.",
            picture="lens",
        )


def _described(study: Study) -> str:
    """That no ranking is surely half way to the final one before the last layer."""
    rankings = study.tables[MILESTONES.name].filter(what="order").height
    return f"In none of {rankings} rankings is half of the final order sure before the last layer."


def _frame_findings(study: Study) -> Iterator[Finding]:
    """Models in which two prompts end further apart than two of one framing."""
    frames, prompts = study.tables[FRAMES.name], study.prompt_names
    apart = study.tables[MILESTONES.name].filter(what="frames")
    if not apart.height:
        return
    last = frames.filter(pl.col("layer") == pl.col("layers"))
    tested = last.filter(pl.col("difference").is_not_nan())
    wide = significant(tested).filter(pl.col("difference") > 0)
    good, bad = (prompts[prompt] for prompt in apart.select("prompt", "against").row(0))
    first, second = (prompts[prompt] for prompt in REFERENCE)
    yield Finding(
        text=f"After the last layer, Kendall’s τ between {good} and {bad} is lower than between "
        f"{first} and {second} by {span(wide['difference'].to_numpy())}, in "
        f"{part_of(wide.height, tested.height, 'model')} (q < .05). Half of this difference is "
        f"in place after at most {_depth(apart)} of the layers.",
        picture="lens_framing",
    )


def _depth(rows: pl.DataFrame) -> str:
    """How deep the deepest upper end of some layers lies, rounded up, such as "75%"."""
    depths: list[int] = (100 * rows["layer_high"] / rows["layers"]).ceil().cast(pl.Int64).to_list()
    return f"{max(depths)}%"


ANALYSIS = Analysis(
    id="lens",
    title="Layer by layer",
    label="Layers",
    lead="A model’s final norm and head are applied to the hidden state after every layer, for "
    "every token: the reward lens. At which layer does the final ranking of the vocabulary "
    "appear, and where does the question begin to matter?",
    make=_tables,
    parts=(
        _order_drawn,
        _ends_drawn,
        _frames_drawn,
        lambda study: ORDER.rows(study.tables[ORDER.name]),
    ),
    told=(lambda s: order_findings(s.tables[MILESTONES.name]), _frame_findings),
    described=_described,
    caveats=lambda study: (
        "The head was trained on the last layer. That it reads nothing after an early layer does "
        "not say that the layer holds nothing: the hidden state may hold it in another form.",
        "“Half” is a choice: τ of 0.5 with the last layer, half of the tokens of an end, "
        "or half of a final difference. Intervals of τ with the last layer and of shares are for "
        "all layers, models and prompts together; of τ between two prompts, for all layers of a "
        "model. Those of a difference are for each layer by itself, and half of the final "
        "difference is taken as known.",
        "A gate (ArmoRM, QRM) keeps the weights that it gives the prompt after the last layer.",
    ),
)
