"""What changed between two models: a chapter of the report of `assay diff` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Heading, Picture, Text
from analysis.chapters.calibration import calibrated
from analysis.charts.estimates import estimates
from analysis.measures import changes as measured
from analysis.measures.matched_words import trims
from analysis.measures.pairs import pairs as judged
from analysis.measures.pairs import replies
from analysis.measures.probes import effects
from analysis.measures.two_models import AFTER, language_models, left_out
from analysis.run import Run
from analysis.sentences import listed, span
from analysis.settings import Limits
from analysis.study import Analysis, Study, Table, table
from analysis.words.matching import kinds

_SHOWN = 14  # Kinds of words in the chart.


def changes_between(
    limits: Limits, noise: Sequence[tuple[str, Run]], pairs: str = "", *, probes: bool = False
) -> Analysis:
    """The chapter.

    Args:
      limits: what before and after may differ by.
      noise: name of a pair of sweeps of one model, and a run of the two; see `two_models`.
      pairs: name of a list of pairs that both models judge; "" without.
      probes: whether both have also judged the edited replies of the list, on which a limit is.
    """

    def tables(study: Study) -> Iterator[Table]:
        run, made, top = study.run, study.tables, study.settings.top
        make = partial(measured.changes, run, noise, limits)
        yield table(measured.CHANGES.name, make=make)
        yield table(measured.WORDS.name, make=lambda: measured.moved_words(run, _kinds(study)))
        yield table(
            measured.CHECKS.name,
            make=lambda: measured.checks(
                made[measured.CHANGES.name],
                made[measured.WORDS.name],
                [measured.moved_words(pair, _kinds(study)) for _, pair in noise],
                limits,
                judged(replies(run, pairs)) if pairs else None,
                pairs,
                effects(run, pairs) if probes else None,
            ),
        )
        yield table(measured.TOKENS.name, make=partial(measured.moved_tokens, run, noise, top))
        make = partial(measured.noise_floors, run, noise)
        yield table("noise_floors", make=make, file=False)
        if pairs:
            all_pairs = judged(replies(run, pairs), all_rejected=True)
            yield table(
                "changes_margins", make=partial(calibrated, run, pairs, all_pairs), file=False
            )

    def drawn(study: Study) -> Iterator[Block]:
        """For each prompt, the shifts of tokens and of kinds of words."""
        made = study.tables
        yield Text(_PERCENTILES, "how")
        yield from _compared(study)
        yield from measured.CHANGES.rows(made[measured.CHANGES.name], unfolded=True)
        yield Text(_NOISE, "how") if noise else Text(_NO_NOISE, "note")
        for prompt in study.run.vocabulary_prompts:
            yield from _of_prompt(study, prompt)
        yield from measured.WORDS.rows(made[measured.WORDS.name])

    return Analysis(
        id="changes",
        title="What changed",
        label="Changes",
        lead="",
        make=tables,
        parts=(drawn,),
        described=lambda study: _answer(study.tables[measured.CHANGES.name]),
        caveats=lambda study: (
            "Percentiles say nothing about the scale of the numbers: two models with the same "
            "order and other gaps look alike here.",
            "A kind of words is compared with the whole vocabulary: where all ordinary words "
            "move, each kind does. Compare kinds with one another.",
        ),
    )


def _answer(summary: pl.DataFrame) -> str:
    """How far tokens moved, and how much of their order is left."""
    change = summary.filter(of=measured.CHANGE)
    moved = span(100 * change["mean_shift"].to_numpy())
    sentence = f"Tokens moved by {moved} percentile points on average"
    agreement = change["kendall"].to_numpy()
    if not np.isnan(agreement).any():
        sentence += f"; Kendall’s τ between the two rankings is {span(agreement)}"
    return sentence + (", depending on the question." if " to " in sentence else ".")


def _compared(study: Study) -> list[Block]:
    """What the reader must know of the comparison before its tables."""
    run, sentences = study.run, []
    if language := language_models(run):
        sentences.append(
            f"{listed([f'“{side}”' for side in language])}: log-probabilities of each token as the "
            "next one, of a language model. They are no rewards, so this page has no sections "
            "about rewards."
        )
    if out := left_out(run):
        sentences.append(f"{out[0].upper()}{out[1:]}. Ranks and percentiles are among the others.")
    tested, all_kinds = measured.kinds_with_a_test(study.tables[measured.WORDS.name])
    if tested < all_kinds:
        sentences.append(
            f"{tested} of {all_kinds} kinds of words in this vocabulary have the "
            f"{measured.LEAST_STEMS} stems that a test needs. The others have no p, so the limit "
            "on kinds of words cannot fail by them, however far they moved."
        )
    return [Text(sentence, "note") for sentence in sentences]


def _kinds(study: Study) -> pl.DataFrame:
    run, options = study.run, study.options
    vocabulary = run.vocabulary(AFTER).select("token_id", "token").collect()
    trim = any(trims(result, options.match_trim) for result in run.results.values())
    return kinds(vocabulary, options.afinn, options.identity, options.categories, trim)


def _of_prompt(study: Study, prompt: str) -> list[Block]:
    made = study.tables
    caption = (
        f"Kinds of words, at most the {_SHOWN} that moved most: shift of the mean percentile, with "
        "95 % intervals. The table has a q for each."
    )
    words = made[measured.WORDS.name].filter(pl.col("p").is_not_nan(), prompt=prompt)
    most = words.sort(pl.col("shift").abs(), descending=True).head(_SHOWN)
    most = most.sort("shift", descending=True)
    lists = most["list"].unique(maintain_order=True).to_list()
    look: dict[str, Any] = {"value": "shift", "row": "words", "scale": 100, "beside": False}
    look |= {"colour": "list", "kinds": lists, "width": 420}
    draw = partial(estimates, most, {}, "shift of the mean percentile, points", **look)
    moved = made[measured.TOKENS.name].filter(prompt=prompt)
    shown = moved.filter(pl.col("rank") <= study.settings.figure_top)
    return [
        Heading(f"“{study.run.prompts[prompt]}”"),
        *[Picture(f"changes_{prompt}", caption, draw)] * (most.height > 0),
        *measured.TOKENS.rows(shown, unfolded=True),
    ]


_PERCENTILES = (
    "Two models rank the same tokens. Percentiles compare them: the share of the vocabulary below "
    "a token. Noise is what two sweeps of one model differ by."
)
_NO_NOISE = "No noise was measured: no second sweep of one of the models was given."
_NOISE = (
    "How the noise was measured: two sweeps of the same weights, in the dtypes that the table "
    "names. Where assay diff made the second one, dtype and step size change together, so the "
    "noise is that of both and cannot be divided between them. The mesh is the same in both, "
    "unless a sweep on another one was given: differences between meshes are not in it."
)
