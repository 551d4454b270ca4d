"""The reward lens: how near the ranking after each layer is to the last one's.

A sweep with `--config.lens=true` keeps the reward that final norm and head give the hidden state
after every layer. All intervals keep forms of one word together.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.columns import KENDALL, MODEL, PROMPT, Column, P, Row, Spec, ends
from analysis.run import Run
from analysis.sentences import ALPHA
from analysis.statistics import Array, ranks
from analysis.statistics.correlation import LEAST_CLUSTERS
from analysis.statistics.inference import Estimate, clustered, clustered_share, with_q
from analysis.statistics.kendall import FEWEST, Order, pair_influence, pair_interval, tau_of
from analysis.words.stems import stem_numbers

ALL = "all tokens"
ENDS = {"highest": True, "lowest": False}
END_SHARE = 0.01  # of the vocabulary: its tokens at either end, ten at least
HALF = 0.5

_LAYER = (Column("layer", "count"), Column("layers", "count", "of", "of the model"))
_SIZE = (Column("n", "count", "number", "tokens"), Column("stems", "count"))
ORDER = Spec(
    "lens",
    (
        *(MODEL, PROMPT, *_LAYER),
        Column(
            "of",
            title="tokens",
            help="`all tokens`, or the 1 %, ten at least, that end `highest` or `lowest`",
        ),
        *_SIZE,
        KENDALL.but(help="τ-b with the last layer, among these tokens"),
        *ends("fixed", "95 % for all layers, models and prompts together, clustered by stem"),
        Column(
            "kept",
            "share",
            "already at this end",
            "share of an end's tokens that are at that end after the layer too",
        ),
        *ends("share", "", "kept"),
    ),
    page="model prompt layer layers of n kendall ci_low ci_high kept kept_low kept_high",
    title="Layer by layer",
)
FRAMES = Spec(
    "lens_framing",
    (
        *(MODEL, Column("prompt_a", title="prompt"), Column("prompt_b", title="and prompt")),
        *(_LAYER[0], _LAYER[1].but(help=""), _SIZE[0].but(help=""), _SIZE[1]),
        KENDALL.but(help="between the prompts after the layer"),
        *ends("fixed", ""),
        Column(
            "reference",
            "fixed",
            "τ of the reference",
            "kendall of `greatest` and `best`, two questions of one framing",
        ),
        Column("difference", "fixed", help="reference − kendall"),
        *ends("fixed", "95 %, each layer by itself", "difference"),
        P,
        Column("q", "p", help="over the models, after layers as far from the last one"),
    ),
    page="model prompt_a prompt_b layer layers kendall ci_low ci_high reference difference "
    "difference_low difference_high p q",
    title="Two prompts, layer by layer",
)
_WHAT = (
    "`order`: τ of all tokens is .5 or more; `highest`, `lowest`: half of an end is in place; "
    "`frames`: half of the last layer's difference, where that has q < .05"
)
MILESTONES = Spec(
    "lens_layers",
    (
        *(MODEL, PROMPT, Column("against", help="the other prompt"), Column("what", help=_WHAT)),
        Column("layer", "count", "half from layer", "from which on"),
        Column("layer_low", "count", "from"),
        Column(
            "layer_high",
            "count",
            "to",
            "where the ends of the 95 % interval reach it; empty without an interval",
        ),
        _LAYER[1].but(help=""),
    ),
    title="Layer where half is reached",
)
Pair = tuple[str, str]


def swept(run: Run) -> list[Pair]:
    """Model and prompt of every result with the lens."""
    return [cell for cell, result in run.results.items() if result.layers]


def by_layer(
    run: Run, models: Sequence[str], pair: Pair, reference: Pair
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """How the ranking of every token develops from layer to layer.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without the lens are left out, and those with
        fewer than ten tokens that all their prompts have.
      pair: ids of a prompt and its opposite.
      reference: ids of two prompts that ask for the same.

    Returns:
      The tables `ORDER`, by model, prompt and layer, and `FRAMES`. By chance, kept is n over the
      number of all tokens. Of the reference itself the last six columns of `FRAMES` are NaN.
    """
    order: list[Row] = []
    frames: list[Row] = []
    cells = [cell for cell in swept(run) if cell[0] in models]
    for slug in models:
        prompts = [p for p in run.vocabulary_prompts if (slug, p) in cells]
        model = _Model.read(run, slug, prompts, len(cells)) if prompts else None
        if model is not None:
            by_prompt: dict[str, list[Row]] = {prompt: [] for prompt in prompts}
            for layer in range(1, model.layers + 1):
                after = model.orders(layer)
                for prompt, rows in by_prompt.items():
                    rows += model.against_last(prompt, layer, after[prompt])
                frames += model.framed(layer, after, pair, reference)
            order += itertools.chain.from_iterable(by_prompt.values())
    return ORDER.frame(order), _q_by_layer(frames)


def _q_by_layer(frames: Sequence[Row]) -> pl.DataFrame:
    """`FRAMES`; tests after layers as far from the last one are a family, whatever the number."""
    tested = {key: kind for key, kind in FRAMES.schema.items() if key != "q"}
    table = pl.DataFrame(frames, schema=tested, orient="row")
    if not table.height:
        return pl.DataFrame(schema=FRAMES.schema)
    left = table.with_columns(_left=pl.col("layers") - pl.col("layer"))
    return with_q(left, ("prompt_a", "prompt_b", "_left")).drop("_left")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model:
    """The layers of one model, by prompt."""

    slug: str
    stems: Array  # Number of the stem of each token [N].
    values: Mapping[str, Array]  # float32 [layers, N].
    last: Mapping[str, Order]  # The order after the last layer.
    ends: Mapping[str, Mapping[str, Array]]  # Name of the end -> places of its tokens.
    rankings: int  # Models and prompts whose intervals hold together.

    @classmethod
    def read(cls, run: Run, model: str, prompts: Sequence[str], rankings: int) -> "_Model | None":
        """The tokens that were scored under all prompts; None for fewer than ten."""
        frames = {p: run.layers(model, p) for p in prompts}
        common = next(iter(frames.values()))["token_id"]
        for frame in frames.values():  # another draw of tokens, or none
            if not frame["token_id"].equals(common):
                common = common.filter(common.is_in(frame["token_id"].implode()))
        if len(common) < FEWEST:
            return None
        kept = pl.col("token_id").is_in(common.implode())
        values = {p: f.filter(kept).drop("token_id").to_numpy().T for p, f in frames.items()}
        count = max(FEWEST, round(END_SHARE * len(common)))
        ends = {
            p: {end: ranks.extremes(x[-1], count, highest) for end, highest in ENDS.items()}
            for p, x in values.items()
        }
        last = {p: Order.of(run.ranked(model, p, common.to_numpy())) for p in values}
        stems = stem_numbers(run.vocabulary(model).filter(kept).collect()["token"])
        return cls(slug=model, stems=stems, values=values, last=last, ends=ends, rankings=rankings)

    @property
    def layers(self) -> int:
        return len(next(iter(self.values.values())))

    def orders(self, layer: int) -> dict[str, Order]:
        """The order under each prompt after a layer, from 1."""
        if layer == self.layers:
            return dict(self.last)
        return {p: Order.of(np.ascontiguousarray(x[layer - 1])) for p, x in self.values.items()}

    def against_last(self, prompt: str, layer: int, after: Order) -> Iterator[Row]:
        """Rows of `order`: all tokens, then either end."""
        key = self.slug, prompt, layer, self.layers
        tests = max(self.layers - 1, 1) * self.rankings
        tau = _tau(after, self.last[prompt], self.stems, tests)
        count = int(self.stems.max()) + 1
        yield (*key, ALL, len(self.stems), count, *tau[:3], *(math.nan,) * 3)
        values = self.values[prompt]
        for end, places in self.ends[prompt].items():
            stems = np.unique(self.stems[places], return_inverse=True)[1]
            here, final = (Order.of(values[number][places]) for number in (layer - 1, -1))
            tau = _tau(here, final, stems, tests)
            now = ranks.extremes(values[layer - 1], len(places), ENDS[end])
            kept = clustered_share(np.isin(places, now), stems, tests)
            if layer == self.layers:
                kept = Estimate(1.0, 1.0, 1.0)  # by definition, not by chance
            yield (*key, end, len(places), int(stems.max()) + 1, *tau[:3], *kept[:3])

    def framed(
        self, layer: int, after: Mapping[str, Order], pair: Pair, reference: Pair
    ) -> Iterator[Row]:
        """Rows of `frames`: the pair, and the reference."""
        known = [two for two in (pair, reference) if set(two) <= set(after)]
        orders = {(a, b): (after[a], after[b]) for a, b in known}
        taus = {two: _tau(*of_two, self.stems, self.layers) for two, of_two in orders.items()}
        size, count = len(self.stems), int(self.stems.max()) + 1
        for prompts in known:
            other = (math.nan,) * 5
            if prompts == pair and reference in known and pair != reference:
                gap = taus[reference].value - taus[pair].value
                points = pair_influence(*orders[reference]) - pair_influence(*orders[pair])
                tested = clustered(gap, points, self.stems, LEAST_CLUSTERS, 2)
                other = (taus[reference].value, *tested)
            yield (self.slug, *prompts, layer, self.layers, size, count, *taus[prompts][:3], *other)


def milestones(order: pl.DataFrame, frames: pl.DataFrame | None) -> pl.DataFrame:
    """The layer from which on a quantity is half of what it is after the last layer, or more.

    The table `MILESTONES` of `ORDER` and, if there is one, `FRAMES`. For "frames" the ends are of
    the interval after each layer by itself, and half of the last difference counts as known; it is
    left out where that difference is not above 0 with q < .05.
    """
    rows: list[Row] = []
    tau, kept = ("kendall", "ci_high", "ci_low"), ("kept", "kept_high", "kept_low")
    for (model, prompt, of), table in order.group_by("model", "prompt", "of", maintain_order=True):
        what, names = ("order", tau) if of == ALL else (of, kept)
        rows.append((model, prompt, None, what, *_reached(table, names, HALF)))
    apart = ("difference", "difference_high", "difference_low")
    keys = ("model", "prompt_a", "prompt_b")
    for key, table in () if frames is None else frames.group_by(*keys, maintain_order=True):
        last = table.filter(pl.col("layer") == pl.col("layers")).row(0, named=True)
        if last["difference"] > 0 and last["q"] < ALPHA:
            rows.append((*key, "frames", *_reached(table, apart, last["difference"] * HALF)))
    return MILESTONES.frame(rows)


def _reached(table: pl.DataFrame, names: tuple[str, str, str], least: float) -> list[int | None]:
    """`_from` of a value and of both ends of its interval, and the number of layers.

    The ends are None where one is lacking.
    """
    value, *ends = names
    lacking = table.filter(pl.col(value).is_not_nan() & pl.any_horizontal(pl.col(ends).is_nan()))
    known = [_from(table, end, least) if lacking.is_empty() else None for end in ends]
    return [_from(table, value, least), *known, table["layers"][0]]


def _from(table: pl.DataFrame, name: str, least: float) -> int:
    """The first layer from which on a column stays at `least` or above; the last one does.

    What is not defined is below `least`.
    """
    layers, values = table["layer"].to_numpy(), table[name].fill_nan(-math.inf).to_numpy()
    below: Array = layers[values < least]
    return int(min(below.max(initial=0) + 1, layers[-1]))


def _tau(x: Order, y: Order, stems: Array, tests: int) -> Estimate:
    """Tau-b of two orders, clustered by stem."""
    return pair_interval(x, y, stems, tau_of(x.ranking, y.ranking), tests)
