"""Every figure of the report: which there are, drawn one at a time and saved."""

import base64
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl
from matplotlib.figure import Figure

from analysis import tables
from analysis.figures import (
    agreement,
    distributions,
    framing,
    humans,
    identity,
    items,
    objectives,
    replies,
    sequences,
    slopes,
    style,
    tokens,
    variance,
    words,
)
from analysis.items import one_by_one, over_prompts, prompts_of, telling
from analysis.load import Run
from analysis.tables import Tables
from engine.errors import AssayError

_INLINE_SVG_BYTES = 300_000  # Above this the page takes the PNG, which then is the smaller.
_GAPS = 10  # Items an end in the figures of humans and models.

Plan = Iterator[tuple[str, Callable[[], Figure]]]


def draw(run: Run, found: Tables, figure_top: int, folder: pathlib.Path) -> dict[str, str]:
    """Draws and saves every figure whose table has rows.

    Args:
      run: the run, for the rewards of good against bad.
      found: the tables.
      figure_top: tokens an end.
      folder: where `<stem>.png` and `<stem>.svg` go.

    Returns:
      Stem -> data URI for the page.

    Raises:
      AssayError: two figures would have one name.
    """
    names = dict(found.models.select("model", "nickname").iter_rows())
    plans = (
        _rewards(run, found, names, figure_top),
        _agreement(found, names),
        _words(found, names, figure_top),
        _lists(found, names, figure_top),
        _people(found, names),
        _others(found, names, figure_top),
    )
    drawn: dict[str, str] = {}
    for stem, figure in itertools.chain(*plans):  # one at a time is in memory
        if stem in drawn:
            raise AssayError(
                f"figure {stem}: made twice, of two lists whose names run on in their prompts'; "
                "allowed: other names of lists"
            )
        drawn[stem] = _data_uri(style.save(figure(), folder, stem))
    return drawn


def _rewards(run: Run, found: Tables, names: Mapping[str, str], top: int) -> Plan:
    scored = {m: n for m, n in names.items() if m in run.vocabulary_models}
    prompts = list(run.vocabulary_prompts)
    if found.densities.height:
        yield (
            "distributions",
            partial(distributions.violins, found.densities, found.quantiles, scored, prompts),
        )
    for prompt, table in found.top_bottom.items():
        middle = found.quantiles.filter(prompt=prompt)
        yield f"top_bottom_{prompt}", partial(tokens.top_bottom, table, middle, names, top)
    pair = found.framing_prompts
    pairs, correlations = tables.contrasts(run, pair, list(names))
    if pairs:
        yield (
            "framing",
            partial(framing.contrast, pairs, correlations, found.framing_axis, names, pair),
        )


def _agreement(found: Tables, names: Mapping[str, str]) -> Plan:
    labels = {
        "kendall_tau": "Kendall’s τ",
        "spearman": "Spearman’s ρ",
        "rbo": "rank-biased overlap",
    }
    for stem, label in labels.items():
        for prompt, matrix in getattr(found, stem.removesuffix("_tau")).items():
            yield f"{stem}_{prompt}", partial(agreement.heat_map, matrix, names, label)
    for prompt, table in found.mds.items():
        yield f"mds_{prompt}", partial(agreement.mds, table, found.models, names)
    for prompt, table in found.rsa.items():
        yield f"rsa_{prompt}", partial(agreement.rsa, table)
    if found.variance.height:
        yield "variance", partial(variance.shares, found.variance)


def _words(found: Tables, names: Mapping[str, str], top: int) -> Plan:
    prompts = list(found.rewards)
    yield from _clouds(found, names)
    if found.sentiment_slopes.height:
        yield "sentiment_slopes", partial(slopes.fans, found.sentiment_slopes, names, prompts)
    if found.bing_effects.height:
        label = "share of pairs in which the positive word scores higher"
        yield "bing_effects", partial(variance.effects, found.bing_effects, names, label)
    if found.frequency_slopes.height:
        label = "change of reward for each e-fold of frequency, sentiment held"
        yield (
            "frequency_slopes",
            partial(slopes.dots, found.frequency_slopes, names, prompts, label),
        )
    good, bad = found.framing_prompts
    for stem, label in (("sum", "sum"), ("difference", "difference")):
        table = getattr(found, f"framing_{stem}")
        if table.height:
            said = f"{label} of the rewards under “{good}” and “{bad}”"
            yield (
                f"framing_{stem}",
                partial(tokens.ends, table, names, top, "reward", said),
            )
    for prompt in found.identity_q["prompt"].unique(maintain_order=True):
        part = found.identity_q.filter(prompt=prompt)
        yield f"identity_{prompt}", partial(identity.groups, part, names)


def _clouds(found: Tables, names: Mapping[str, str]) -> Plan:
    """The words themselves, a figure a prompt."""
    for prompt in found.rewards:
        points = found.sentiment_points.filter(prompt=prompt)
        if points.height:
            slopes_ = found.sentiment_slopes.filter(prompt=prompt)
            yield f"sentiment_points_{prompt}", partial(words.sentiment, points, slopes_, names)
        points = found.frequency_points.filter(prompt=prompt)
        if points.height:
            slopes_ = found.frequency_slopes.filter(prompt=prompt)
            yield f"frequency_points_{prompt}", partial(words.frequency, points, slopes_, names)
        points = found.bing_points.filter(prompt=prompt)
        if points.height:
            yield f"bing_points_{prompt}", partial(words.swarms, points, names)


def _lists(found: Tables, names: Mapping[str, str], top: int) -> Plan:
    for name, points in found.items_points.items():
        standing = found.items_standing.filter(list=name)
        prompts = prompts_of(points)
        if not one_by_one(prompts):
            groups = telling(over_prompts(standing), top)
            labels = {prompt: prompt for prompt in prompts}
            yield (
                f"items_prompts_{name}",
                partial(items.standings, standing, "prompt", "mean_percentile", groups, labels),
            )
            continue
        for prompt in prompts:
            own = standing.filter(prompt=prompt)
            cells = points.filter(prompt=prompt)
            yield (
                f"items_standing_{name}_{prompt}",
                partial(items.standings, cells, "model", "percentile", telling(own, top), names),
            )
            ends = found.items_top_bottom.filter(list=name, prompt=prompt).rename({"item": "token"})
            count = min(top, max(1, own.height // 2))
            yield (
                f"items_top_bottom_{name}_{prompt}",
                partial(tokens.ends, ends, names, count, "reward", "reward"),
            )


def _people(found: Tables, names: Mapping[str, str]) -> Plan:
    for (name, prompt), ranks in found.humans_ranks.items():
        stem = f"{name}_{prompt}"
        part = found.humans_correlation.filter(list=name, prompt=prompt)
        yield f"humans_correlation_{stem}", partial(humans.correlation, part, names)
        gap = found.humans_gap.filter(list=name, prompt=prompt)
        yield f"humans_gap_{stem}", partial(humans.gaps, gap, _GAPS)
        best = ranks.sort("human_rank")["item"].head(3)
        apart = gap.sort("gap", "item", descending=[True, False])["item"]
        chosen = list(dict.fromkeys([*best, *apart.head(4), *apart.tail(3)]))
        yield (
            f"humans_ranks_{stem}",
            partial(humans.trajectories, ranks, names, chosen),
        )
    for (name, prompt), matrix in found.humans_kendall.items():
        yield (
            f"humans_kendall_{name}_{prompt}",
            partial(agreement.heat_map, matrix, names, "Kendall’s τ"),
        )


def _others(found: Tables, names: Mapping[str, str], top: int) -> Plan:
    if found.sequence_traces.height:
        yield "sequence_traces", partial(sequences.traces, found.sequence_traces, names)
    if found.sequences.filter(pl.col("flops") > 0).height:
        yield "sequences", partial(sequences.costs, found.sequences, names)
    for prompt in found.objectives["prompt"].unique(maintain_order=True):
        part = found.objectives.filter(prompt=prompt)
        yield f"objectives_{prompt}", partial(objectives.makeup, part, names)
    for (model, prompt), matrix in found.objectives_spearman.items():
        square = partial(agreement.heat_map, matrix, {}, "Spearman’s ρ")
        yield f"objectives_{model}_{prompt}", square
    for prompt, table in found.logprobs.items():
        yield (
            f"logprobs_{prompt}",
            partial(tokens.ends, table, names, top, "logprob", "log-probability"),
        )
    for key, points in found.item_logprobs_points.items():
        yield f"item_logprobs_{'_'.join(key)}", partial(replies.against_logprobs, points, names)


def _data_uri(paths: Mapping[str, pathlib.Path]) -> str:
    small = paths["svg"].stat().st_size <= _INLINE_SVG_BYTES
    kind, path = ("svg+xml", paths["svg"]) if small else ("png", paths["png"])
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
