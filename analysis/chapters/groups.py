"""Words for groups of people: where they stand, beside other groups and ordinary kinds of words."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import Block, Picture, Text
from analysis.charts.group_dots import group_dots
from analysis.columns import PROMPT, Column, Spec
from analysis.measures.matched_words import Matcher, matched_rewards, matches, matches_block
from analysis.measures.word_groups.estimates import GROUPS, LEAST_WORDS, OVER_MODELS, estimate
from analysis.measures.word_groups.placebo import (
    PLACEBO,
    left_out,
    placebo_contrasts,
    placebo_kinds,
)
from analysis.measures.word_groups.standing import Standing, standing
from analysis.run import Run
from analysis.sentences import ALPHA, q_value
from analysis.study import (
    NO_VOCABULARY,
    Absent,
    Analysis,
    Study,
    Table,
    prompts_in,
    required,
    table,
)
from analysis.words import lexicons
from analysis.words.matching import match_cased
from analysis.words.questions import ASKED_FOR, NEGATIVE, POSITIVE, questions

REFERENCE = Spec(
    "identity_reference",
    (
        *(PROMPT, Column("of", help="`groups of people` or `ordinary kinds`")),
        Column("tests", "count", help="in all models"),
        Column("below", "share", "p < .05", "share with p < .05"),
        Column("far", "share", "stand far", "share that stand where at most 5 % of the kinds do"),
    ),
    help="each ordinary kind is left out in turn and held against the rest",
)
_NONE = "No token is one of the identity terms."
_FAR = 0.05  # Share of ordinary kinds that are as far as one that stands far.


def _tables(study: Study) -> Iterator[Table]:
    made = study.tables
    yield table("matches", "identity", make=partial(_matches, study))
    words = functools.cache(partial(_standing, study))
    seed, draws = study.options.seed, (study.options.permutations, study.options.bootstraps)
    estimates = functools.cache(lambda: estimate(words(), np.random.default_rng(seed), *draws))
    yield table(GROUPS.name, make=lambda: estimates().groups, why=_NONE)
    yield table(OVER_MODELS.name, make=lambda: estimates().over_models, why=_NONE)
    yield table(PLACEBO.name, make=lambda: _placebo(study, words(), made[GROUPS.name]))
    yield table(
        REFERENCE.name, make=lambda: reference_shares(made[GROUPS.name], made[PLACEBO.name])
    )


def identity_words(run: Run, models: Sequence[str], terms: pl.DataFrame) -> pl.DataFrame:
    """Tokens that are words for groups of people, or neutral words, with their percentiles.

    Returns:
      model, prompt, token_id, token, the columns of `terms` (what `lexicons.identity` returns),
      surface, reward, percentile (in the model's whole vocabulary, 0 to 1; 1 is the best reply).
    """
    return matched_rewards(run, models, partial(match_cased, terms=terms), percentile=True)


def reference_shares(groups: pl.DataFrame, placebo: pl.DataFrame) -> pl.DataFrame:
    """The table `REFERENCE` of the tables `GROUPS` and `PLACEBO`: how many stand far."""
    prompts = groups["prompt"].unique(maintain_order=True).to_list()
    both = {"groups of people": groups, "ordinary kinds": left_out(placebo)}
    rows = []
    for prompt in prompts:
        for name, part in both.items():
            tested = part.filter(pl.col("p").is_not_nan(), prompt=prompt)
            if tested.height:
                far = tested["placebo_share"].fill_nan(1.0) <= _FAR
                rows.append((prompt, name, tested.height, (tested["p"] < 0.05).mean(), far.mean()))
    return REFERENCE.frame(rows)


def _matcher(study: Study, placebo: bool) -> Matcher:
    """Matches identity terms; with the words of placebo kinds, which a column placebo marks."""
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    people = lexicons.identity(study.options.identity)
    kinds = lexicons.placebo(besides=people).with_columns(placebo=True)
    terms = [people.with_columns(placebo=False), *([kinds] if placebo else [])]
    return partial(match_cased, terms=pl.concat(terms))


def _matches(study: Study) -> pl.DataFrame:
    path = study.options.identity
    source = f"built-in list and {path}" if path else "built-in list"
    people = _matcher(study, placebo=False)
    return matches(study.run, study.models, people, source, "trimmed")


def _standing(study: Study) -> Standing:
    matcher = _matcher(study, placebo=True)
    frames = (
        matched_rewards(study.run, [model], matcher, percentile=True) for model in study.scored
    )
    return standing([required(frame, _NONE) for frame in frames])


def _placebo(study: Study, words: Standing, groups: pl.DataFrame) -> pl.DataFrame:
    tested = groups.filter(pl.col("p").is_not_nan())
    required(tested, f"No group has {LEAST_WORDS} words or more to compare with others.")
    rng = np.random.default_rng(study.options.seed)
    stems, other_stems = (int(np.median(tested[name])) for name in ("stems", "other_stems"))
    contrasts = placebo_contrasts(placebo_kinds(words, rng), stems, other_stems, rng)
    return required(
        contrasts, "No model has ordinary kinds of words to compare groups of people with."
    )


Cells = Mapping[str, Any]  # Any: cells of a table


def _described(study: Study) -> str:
    """Where the group furthest from the others of its axis stands under the first prompt."""
    over, each = study.tables[OVER_MODELS.name], study.tables[GROUPS.name]
    alone = each["model"].n_unique() == 1
    tested = (each if alone else over).filter(pl.col("p").is_not_nan())
    for prompt in prompts_in(tested)[:1]:
        size = pl.col("contrast").abs().round(9)
        row = tested.filter(prompt=prompt).sort(-size, "axis", "group").row(0, named=True)
        on_axis = over.filter(prompt=prompt, axis=row["axis"])["group"].to_list()
        mean = f", on average over {models} models" if (models := row.get("models")) else ""
        chance = ""
        if row["q"] >= ALPHA:
            chance = f" No test tells it apart from chance ({q_value(row['q'])})."
        prompt_name = study.prompt_names[prompt]
        return f"Asked {prompt_name}, {_distance(row, on_axis)}{mean}.{_place(row)}{chance}"
    return ""


def _distance(row: Cells, on_axis: Sequence[str]) -> str:
    """How far the furthest group stands from the others of its axis."""
    other_groups = [group for group in on_axis if group != row["group"]]
    against = other_groups[0] if len(other_groups) == 1 else f"the other groups by {row['axis']}"
    side = "below" if row["contrast"] < 0 else "above"
    return (
        f"of the groups with words enough for a test, those for {row['group']} stand furthest from "
        "the others of their axis: "
        f"{abs(100 * row['contrast']):.0f} percentile points {side} {against}"
    )


def _place(row: Cells) -> str:
    """Its place among the ordinary kinds of words."""
    kinds, lower = row["kinds"], row["kinds_lower"]
    if not kinds:
        return ""
    side = f"lower than {kinds - lower}" if row["contrast"] < 0 else f"higher than {lower}"
    return (
        " Among ordinary kinds of words, each against the others of its axis, that is "
        f"{side} of {kinds}."
    )


def framing_of(study: Study, prompt: str) -> str:
    """Whether a prompt asks for something "positive" or "negative"; "" where that is not known.

    It is known of the texts of both papers, and of the prompts that options.questions or
    options.framing names.
    """
    worded = questions(study.run.prompts, study.options.questions)
    known = worded.filter(prompt=prompt)["framing"].item()
    named = dict(zip(study.options.framing, (POSITIVE, NEGATIVE), strict=True))
    return known or named.get(prompt, "")


def _drawn(study: Study) -> Iterator[Block]:
    """For each prompt the distance from the groups of an axis, then that from neutral words."""
    over, each = study.tables[OVER_MODELS.name], study.tables[GROUPS.name]
    for measure, stem, label, said in _MEASURES:
        for prompt in prompts_in(over):
            rows = (over.filter(prompt=prompt), each.filter(prompt=prompt))
            draw = partial(
                group_dots, *rows, study.names, measure, f"percentile points above {label}"
            )
            favour = ""
            if framing := framing_of(study, prompt):
                favour = (
                    f" The prompt asks for {ASKED_FOR[framing]}, so a "
                    f"{'low' if framing == POSITIVE else 'high'} place is unfavourable in models "
                    "that follow the question."
                )
            caption = (
                f"Under {study.prompt_names[prompt]}: words for a group of people less {said}."
                f"{favour} Plurals are compared with plurals. Dots are "
                "models, diamonds their mean with its 95% interval over models (not over words). "
                "Grey: where nine of ten ordinary kinds of words stand, with as many stems as the "
                "group has."
            )
            yield Picture(f"{stem}_{prompt}", caption, draw)


_MEASURES = (
    ("contrast", "identity", "the others of the axis", "those for the others of its axis"),
    ("difference", "identity_neutral", "neutral words", "neutral words for people"),
)


def _reference(study: Study) -> Iterator[Block]:
    """How far ordinary kinds stand, each left out of the kinds in turn."""
    shares = REFERENCE.rows(study.tables[REFERENCE.name], unfolded=True)
    yield Text(
        "Ordinary kinds (fruits against drinks, metals against gems) are measured like groups of "
        "people, in single models and at the size of a typical group; each is left out in turn and "
        "held against the rest. The table shows how many have p < .05, and how many stand where at "
        "most 5% of the other kinds do, beside the same of groups of people. It is why neither "
        "decides whether a group differs.",
        "how",
    )
    yield from shares


def _rows(study: Study) -> Iterator[Block]:
    each = study.tables[GROUPS.name]
    if each["model"].n_unique() > 1:
        yield from OVER_MODELS.rows(study.tables[OVER_MODELS.name])
    yield from GROUPS.rows(each)


ANALYSIS = Analysis(
    id="identity",
    title="Words for groups of people",
    label="Groups",
    lead="Where models place the words for each group of people, beside the other groups of the "
    "same axis: one religion and the other religions. Different kinds of things are rated "
    "differently too, so these distances stand before those of ordinary kinds of words (grey), "
    "such as months, fruits and tools.",
    make=_tables,
    parts=(_reference, _drawn, _rows, lambda study: matches_block(study.tables, "identity")),
    described=_described,
    caveats=lambda study: (
        "A word is not a person: a model may mark down a word for how it is used, or any noun for "
        "people, as no answer to the question.",
        "Words of one meaning always share something, and ordinary kinds of words differ from one "
        "another for reasons of their own. Nothing here says that a distance is about people.",
        "The ordinary kinds are a choice. Of 24 kinds that they do not hold (months, weekdays, "
        "sciences, sports, …), 14 to 25% stood, in the models of the demo, where at most 5% of the "
        "kinds do, with q < .05.",
        f"Groups with fewer than {LEAST_WORDS} words have an estimate and no test, and the list of "
        "words is a choice.",
    ),
)
