"""The reward lens: at which layer the final ranking appears, and where two prompts part."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import (
    INTERVAL,
    KENDALL,
    MODEL,
    P_AND_Q,
    PROMPT,
    Block,
    Column,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.chapters.lens_sentences import findings
from analysis.figures import style
from analysis.figures.by_layer import Line, by_layer
from analysis.measures import lens
from analysis.measures.combined import prompts_of
from analysis.study import Absent, Study, Table, prompts_in, required, table

NO_LENS = "No model was swept with the reward lens (--config.lens=true)."
REFERENCE = ("greatest", "best")  # two questions of one framing
_BAND = ("ci_low", "ci_high")
_HALF = "Layer where half is reached"


def tables(study: Study) -> Iterator[Table]:
    """lens.csv, lens_framing.csv and lens_layers.csv."""
    made = study.tables
    both = functools.cache(partial(_by_layer, study))
    few = "Fewer than ten tokens were swept with the lens."
    yield table("lens", make=lambda: required(both().order, few))
    yield table("lens_framing", make=lambda: _framed(study, both()))
    yield table(
        "lens_layers",
        make=lambda: lens.milestones(made["lens"], made.get("lens_framing")),
    )


def _by_layer(study: Study) -> lens.Tables:
    if not lens.swept(study.run):
        raise Absent(NO_LENS)
    return lens.by_layer(study.run, study.scored, prompts_of(study), REFERENCE)


def _framed(study: Study, both: lens.Tables) -> pl.DataFrame:
    pair = "” and “".join(prompts_of(study))
    return required(both.frames, f"No model was swept with the lens under both “{pair}”.")


def section(study: Study) -> Section:
    """Lines over the layers, the layers at which things are half way, and the tables."""
    made = study.tables
    order = made.get("lens")
    blocks: list[Block] = notes([made.reason("lens")])
    if order is not None:
        blocks = [
            _order(study, order),
            *rows(made.get("lens_layers"), _LAYERS, "lens_layers.csv", _HALF),
            _ends(study, order),
            *_framing(study),
            *rows(order, _ORDER, "lens.csv", "Layer by layer"),
            *notes([made.reason("lens_framing")]),
        ]
    return Section(
        id="lens",
        title="Layer by layer",
        label="Layers",
        lead="A model’s final norm and head are applied to the hidden state after every layer, for "
        "every token: the reward lens. At which layer does the final ranking of the vocabulary "
        "appear, and where does the question begin to matter?",
        blocks=blocks,
        caveats=(
            "The head was trained on the last layer. That it reads nothing after an early layer "
            "does not say that the layer holds nothing: the hidden state may hold it in another "
            "form.",
            "“Half way” is a convention: τ of 0.5 with the last layer, half of the tokens of an "
            "end, or half of a final difference. Intervals of τ with the last layer and of shares "
            "are for all layers, models and prompts together; of τ between two prompts, for all "
            "layers of a model. Those of a difference are for each layer by itself, and half of "
            "the final difference is taken as known.",
            "A gate (ArmoRM, QRM) keeps the weights that it gives the prompt after the last layer.",
        ),
        findings=findings(made.get("lens"), made.get("lens_framing"), made.get("lens_layers")),
    )


def _order(study: Study, order: pl.DataFrame) -> Picture:
    own = order.filter(of=lens.ALL)
    looks = style.looks(prompts_in(own))
    lines = [
        Line(name=name, rows=own.filter(prompt=name), value="kendall", band=_BAND, look=look)
        for name, look in looks.items()
    ]
    caption = (
        "Kendall’s τ of the ranking after each layer with that after the last one, over all "
        "tokens; one line per prompt. Bands are 95% intervals for all layers, models and prompts "
        "together, forms of one word kept together. Dotted: 0 and half way."
    )
    label = "τ with the last layer"
    draw = partial(by_layer, lines, study.names, label, (0.0, lens.HALF))
    return Picture("lens", caption, draw)


def _ends(study: Study, order: pl.DataFrame) -> Picture:
    looks = style.looks(prompts_in(order))
    lines = [
        Line(
            name=prompt,
            rows=order.filter(prompt=prompt, of=end),
            value="kept",
            band=(),
            look=look,
            dashed=end == "lowest",
        )
        for prompt, look in looks.items()
        for end in lens.ENDS
    ]
    caption = (
        f"Share of the tokens that end highest (solid) or lowest (dashed) which are at that end "
        f"after an earlier layer too. {_sizes(order)}"
    )
    draw = partial(by_layer, lines, study.names, "share there already", (lens.HALF,))
    return Picture("lens_ends", caption, draw)


def _sizes(order: pl.DataFrame) -> str:
    """How many tokens an end has, and so what share of them is there by chance."""
    every = order.filter(of=lens.ALL).select("model", "prompt", "layer", all="n")
    ends = order.filter(pl.col("of") != lens.ALL).join(every, on=["model", "prompt", "layer"])
    sizes = ends.select("n", "all").unique().sort(pl.col("n") / pl.col("all"), "all").rows()
    if len(sizes) == 1:
        n, size = sizes[0]
        return f"An end is {n:,} of {size:,} tokens: by chance the share is {n / size:.3f}."
    (n, size), (m, other) = sizes[0], sizes[-1]
    return (
        f"An end is between {n:,} of {size:,} tokens and {m:,} of {other:,}, by model: by chance "
        f"the share is {n / size:.3f} to {m / other:.3f}."
    )


def _framing(study: Study) -> list[Block]:
    frames = study.tables.get("lens_framing")
    if frames is None:
        return []
    pairs = frames.select("prompt_a", "prompt_b").unique(maintain_order=True).rows()
    looks = style.looks(["worst" if pair != REFERENCE else "best" for pair in pairs])
    lines = [
        Line(
            name=" and ".join(pair),
            rows=frames.filter(prompt_a=pair[0], prompt_b=pair[1]),
            value="kendall",
            band=_BAND,
            look=look,
        )
        for pair, look in zip(pairs, looks.values(), strict=True)
    ]
    caption = (
        "Kendall’s τ between the rankings under two prompts after the same layer: a question and "
        "its opposite, and (where both were scored) two questions that ask for the same. Where the "
        "lines part, the model begins to rank by what is asked."
    )
    draw = partial(by_layer, lines, study.names, "τ between two prompts", (0.0,))
    picture = Picture("lens_framing", caption, draw)
    return [picture, *rows(frames, _FRAMES, "lens_framing.csv", "Two prompts, layer by layer")]


_AT: tuple[Column, ...] = (("layer", "layer", "count"), ("layers", "of", "count"))
_LAYERS: tuple[Column, ...] = (
    *(MODEL, PROMPT, ("against", "against", "text"), ("what", "what", "text")),
    ("layer", "half from layer", "count"),
    ("layer_low", "from", "count"),
    ("layer_high", "to", "count"),
    ("layers", "of", "count"),
)
_ORDER: tuple[Column, ...] = (
    *(MODEL, PROMPT, *_AT, ("of", "tokens", "text"), ("n", "number", "count")),
    *(KENDALL, *INTERVAL, ("kept", "there already", "share")),
    ("kept_low", "from", "share"),
    ("kept_high", "to", "share"),
)
_FRAMES: tuple[Column, ...] = (
    *(MODEL, ("prompt_a", "prompt", "text"), ("prompt_b", "and prompt", "text")),
    *(*_AT, KENDALL, *INTERVAL, ("reference", "τ of the reference", "fixed")),
    ("difference", "difference", "fixed"),
    ("difference_low", "from", "fixed"),
    ("difference_high", "to", "fixed"),
    *P_AND_Q,
)
