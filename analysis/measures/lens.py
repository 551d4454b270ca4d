"""The reward lens: how near the ranking after each layer is to the last one's.

A sweep with `--config.lens=true` keeps the reward that final norm and head give the hidden state
after every layer. All intervals keep forms of one word together.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from analysis.run import Run
from analysis.significant_effects import ALPHA
from analysis.statistics import Array, ranks
from analysis.statistics.correlation import difference_interval
from analysis.statistics.inference import clustered_error, half_width, with_q
from analysis.statistics.kendall import FEWEST, Order, pair_influence, pair_interval, tau_of
from analysis.words.stems import stem_numbers
from engine.runs.schema import Columns

ALL = "all tokens"
ENDS = {"highest": True, "lowest": False}
END_SHARE = 0.01  # of the vocabulary: its tokens at either end, ten at least
HALF = 0.5

_CELL: Columns = {"model": pl.String, "prompt": pl.String}
_LAYER: Columns = {"layer": pl.Int64, "layers": pl.Int64}
_INTERVAL: Columns = {"ci_low": pl.Float64, "ci_high": pl.Float64}
ORDER: Columns = {
    **_CELL,
    **_LAYER,
    "of": pl.String,
    **dict.fromkeys(("n", "stems"), pl.Int64),
    "kendall": pl.Float64,
    **_INTERVAL,
    **dict.fromkeys(("kept", "kept_low", "kept_high"), pl.Float64),
}
_DIFFERENCE = ("reference", "difference", "difference_low", "difference_high", "p")
FRAMES: Columns = {
    "model": pl.String,
    "prompt_a": pl.String,
    "prompt_b": pl.String,
    **_LAYER,
    **dict.fromkeys(("n", "stems"), pl.Int64),
    "kendall": pl.Float64,
    **_INTERVAL,
    **dict.fromkeys(_DIFFERENCE, pl.Float64),
}
MILESTONES: Columns = {
    **_CELL,
    "against": pl.String,
    "what": pl.String,
    **dict.fromkeys(("layer", "layer_low", "layer_high", "layers"), pl.Int64),
}
Pair = tuple[str, str]


def swept(run: Run) -> list[Pair]:
    """Model and prompt of every result with the lens."""
    return [cell for cell, result in run.results.items() if result.layers]


@dataclasses.dataclass(frozen=True)
class Tables:
    """What one reading of all layers gives.

    Attributes:
      order: the table `lens.csv`.
      frames: the table `lens_framing.csv`.
    """

    order: pl.DataFrame
    frames: pl.DataFrame


def by_layer(run: Run, models: Sequence[str], pair: Pair, reference: Pair) -> Tables:
    """How the ranking of every token develops from layer to layer.

    Args:
      run: the run.
      models: slugs in the order of the rows; those without the lens are left out, and those with
        fewer than ten tokens that all their prompts have.
      pair: ids of a prompt and its opposite.
      reference: ids of two prompts that ask for the same.

    Returns:
      order: model, prompt, layer, layers (of the model), of ("all tokens"; "highest" and "lowest":
        the 1 % of tokens, ten at least, at either end of the last layer), n (tokens), stems,
        kendall (tau-b with the last layer, among these tokens), ci_low, ci_high (95 % for all
        layers, models and prompts together), kept (share of an end's tokens that are at that end
        after the layer too; by chance n over the number of all tokens), kept_low, kept_high. By
        model, prompt, layer.
      frames: model, prompt_a, prompt_b, layer, layers, n, stems, kendall (between the two prompts
        after the same layer), ci_low, ci_high, reference (kendall of the two that ask for the
        same), difference (reference less kendall), difference_low, difference_high (95 % after each
        layer by itself, unlike the other intervals), p, q (over the models of a pair after layers
        as far from the last one). Of the reference itself the last six are NaN.
    """
    order, frames, cells = [], [], [cell for cell in swept(run) if cell[0] in models]
    for model in models:
        prompts = [p for p in run.vocabulary_prompts if (model, p) in cells]
        own = _Model.read(run, model, prompts, len(cells)) if prompts else None
        if own is not None:
            for layer in range(1, own.layers + 1):
                after = own.orders(layer)
                order += [row for p in prompts for row in own.against_last(p, layer, after[p])]
                frames += own.framed(layer, after, pair, reference)
    first = pl.DataFrame(order, schema=ORDER, orient="row")
    place = {name: number for number, name in enumerate(run.vocabulary_prompts)}
    numbered = pl.col("prompt").replace_strict(place, return_dtype=pl.Int64)
    position = pl.col("model").replace_strict(
        {model: number for number, model in enumerate(models)}, return_dtype=pl.Int64
    )
    of = pl.col("of").replace_strict({ALL: 0, "highest": 1, "lowest": 2}, return_dtype=pl.Int64)
    first = first.sort(position, numbered, "layer", of)
    second = pl.DataFrame(frames, schema=FRAMES, orient="row")
    if second.height:
        second = _q_by_layer(second)
    else:
        second = second.with_columns(q=pl.lit(None, dtype=pl.Float64))
    return Tables(first, second)


def _q_by_layer(frames: pl.DataFrame) -> pl.DataFrame:
    """`with_q`, where tests of two prompts after layers as far from the last one are a family.

    So the last layers of all models are one, whatever their numbers.
    """
    left = frames.with_columns(_left=pl.col("layers") - pl.col("layer"))
    return with_q(left, ("prompt_a", "prompt_b", "_left")).drop("_left")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model:
    """The layers of one model.

    Attributes:
      slug: of the model.
      stems: number of the stem of each token [N].
      values: prompt -> float32 [layers, N].
      last: prompt -> order after the last layer.
      ends: prompt -> name of the end -> places of its tokens.
      rankings: number of models and prompts whose intervals hold together.
    """

    slug: str
    stems: Array
    values: Mapping[str, Array]
    last: Mapping[str, Order]
    ends: Mapping[str, Mapping[str, Array]]
    rankings: int

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
        values = {
            p: frame.filter(pl.col("token_id").is_in(common.implode()))
            .drop("token_id")
            .to_numpy()
            .T
            for p, frame in frames.items()
        }
        last = {p: each[-1] for p, each in values.items()}
        count = max(FEWEST, round(END_SHARE * len(common)))
        ends = {
            p: {end: ranks.extremes(x, count, highest) for end, highest in ENDS.items()}
            for p, x in last.items()
        }
        orders = {p: Order.of(x) for p, x in last.items()}
        tokens = run.vocabulary(model).filter(pl.col("token_id").is_in(common.implode()))
        stems = stem_numbers(tokens.collect()["token"])
        return cls(
            slug=model, stems=stems, values=values, last=orders, ends=ends, rankings=rankings
        )

    @property
    def layers(self) -> int:
        return len(next(iter(self.values.values())))

    def orders(self, layer: int) -> dict[str, Order]:
        """The order under each prompt after a layer, from 1."""
        if layer == self.layers:
            return dict(self.last)
        return {p: Order.of(np.ascontiguousarray(x[layer - 1])) for p, x in self.values.items()}

    def against_last(self, prompt: str, layer: int, after: Order) -> Iterator[tuple[object, ...]]:
        """Rows of `order`: all tokens, then either end."""
        key = self.slug, prompt, layer, self.layers
        tests = max(self.layers - 1, 1) * self.rankings
        tau, *interval = _tau(after, self.last[prompt], self.stems, tests)
        count = int(self.stems.max()) + 1
        yield (*key, ALL, len(self.stems), count, tau, *interval, *(math.nan,) * 3)
        values = self.values[prompt]
        for end, places in self.ends[prompt].items():
            stems = np.unique(self.stems[places], return_inverse=True)[1]
            own, final = (Order.of(values[number][places]) for number in (layer - 1, -1))
            tau, *interval = _tau(own, final, stems, tests)
            now = ranks.extremes(values[layer - 1], len(places), ENDS[end])
            kept = _share(np.isin(places, now), stems, tests)
            if layer == self.layers:
                kept = 1.0, 1.0, 1.0  # by definition, not by chance
            yield (*key, end, len(places), int(stems.max()) + 1, tau, *interval, *kept)

    def framed(
        self, layer: int, after: Mapping[str, Order], pair: Pair, reference: Pair
    ) -> Iterator[tuple[object, ...]]:
        """Rows of `frames`: the pair, and the reference."""
        known = {each for each in (pair, reference) if set(each) <= set(after)}
        found = {each: (after[each[0]], after[each[1]]) for each in known}
        taus = {each: tau_of(a.ranking, b.ranking) for each, (a, b) in found.items()}
        size, count = len(self.stems), int(self.stems.max()) + 1
        for each in (one for one in (pair, reference) if one in known):
            interval = pair_interval(*found[each], self.stems, taus[each], self.layers)
            other = (math.nan,) * 5
            if each == pair and reference in known and pair != reference:
                gap = taus[reference] - taus[pair]
                points = pair_influence(*found[reference]) - pair_influence(*found[pair])
                bounds = (math.nan,) * 3
                if not np.isnan(points).any():
                    bounds = difference_interval(gap, points, self.stems)
                other = (taus[reference], gap, *bounds)
            yield (self.slug, *each, layer, self.layers, size, count, taus[each], *interval, *other)


def milestones(order: pl.DataFrame, frames: pl.DataFrame | None) -> pl.DataFrame:
    """The layer from which on a quantity is half of what it is after the last layer, or more.

    Args:
      order: the table `lens.csv`.
      frames: the table `lens_framing.csv`, if there is one.

    Returns:
      The table `lens_layers.csv`: model, prompt, against (the other prompt, or null), what
      ("order": tau of all tokens with the last layer is 0.5 or more; "highest" and "lowest": half
      of the tokens at that end of the last layer are there; "frames": the difference from the
      reference is half of the last layer's, where that is above 0 with q < .05), layer, layer_low,
      layer_high (where the ends of the 95 % interval get there, for "frames" the interval after
      each layer by itself; half of the last difference counts as known; null where there is no
      interval), layers.
    """
    found: list[tuple[object, ...]] = []
    for key, own in order.group_by("model", "prompt", "of", maintain_order=True):
        names = ("kept", "kept_high", "kept_low")
        if key[2] == ALL:
            names = ("kendall", "ci_high", "ci_low")
        what = "order" if key[2] == ALL else key[2]
        layers = _reached(own, names, HALF)
        found.append((*key[:2], None, what, *layers, own["layers"][0]))
    for key, own, final in _parted(frames):
        names = ("difference", "difference_high", "difference_low")
        layers = _reached(own, names, final * HALF)
        found.append((*key, "frames", *layers, own["layers"][0]))
    return pl.DataFrame(found, schema=MILESTONES, orient="row")


def _parted(
    frames: pl.DataFrame | None,
) -> Iterator[tuple[tuple[object, ...], pl.DataFrame, float]]:
    """Keys, rows and last difference, where that is above 0 with q < .05."""
    if frames is None:
        return
    for key, own in frames.group_by("model", "prompt_a", "prompt_b", maintain_order=True):
        last = own.filter(pl.col("layer") == pl.col("layers")).row(0, named=True)
        if last["difference"] > 0 and last["q"] < ALPHA:
            yield key, own, last["difference"]


def _reached(own: pl.DataFrame, names: tuple[str, str, str], least: float) -> list[int | None]:
    """`_from` of a value and of both ends of its interval; None for ends that it lacks somewhere.

    Args:
      own: rows of one model, by layer.
      names: columns of the value, and of the upper and lower end of its interval.
      least: as in `_from`.
    """
    value, *ends = names
    lacking = own.filter(pl.col(value).is_not_nan() & pl.any_horizontal(pl.col(ends).is_nan()))
    found: list[int | None] = [_from(own, value, least)]
    found += [_from(own, end, least) if lacking.is_empty() else None for end in ends]
    return found


def _from(own: pl.DataFrame, name: str, least: float) -> int:
    """The first layer from which on the column `name` stays at `least` or above.

    Args:
      own: rows of one model, by layer.
      name: of the column; what is not defined is below `least`.
      least: what is asked for; the last layer is taken to have it.
    """
    layers, values = own["layer"].to_numpy(), own[name].fill_nan(-math.inf).to_numpy()
    below: Array = layers[values < least]
    return int(min(below.max(initial=0) + 1, layers[-1]))


def _tau(x: Order, y: Order, stems: Array, tests: int) -> tuple[float, float, float]:
    """Tau-b of two orders, and its interval."""
    tau = tau_of(x.ranking, y.ranking)
    return tau, *pair_interval(x, y, stems, tau, tests)


def _share(hit: Array, stems: Array, tests: int) -> tuple[float, float, float]:
    """Share of `hit` [N], and its 95 % interval; whole stems are resampled.

    Wilson's interval (1927) with Student's t, so that shares of 0 and 1 have one too. Its number of
    draws is that of the stems, or as many as have the clustered error where they are fewer.
    """
    share, count = float(hit.mean()), int(stems.max()) + 1
    if count < 2:
        return share, math.nan, math.nan
    variance, error = share * (1 - share), clustered_error(hit - share, stems)
    draws = min(count, variance / error**2) if error > 0 else count
    square = half_width(1.0, count, tests) ** 2 / draws
    centre = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (variance + square / 4)) / (1 + square)
    # At 0 and 1 an end is the share itself, but for rounding.
    return share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
