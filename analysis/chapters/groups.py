"""Words for groups of people: where they stand, beside other groups and ordinary kinds of words."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from analysis.blocks import (
    INTERVAL_OF_SHARE,
    MODEL,
    PROMPT,
    Block,
    Column,
    Files,
    Picture,
    Section,
    Text,
    notes,
    rows,
)
from analysis.figures import style
from analysis.figures.group_dots import group_dots
from analysis.measures.matched_words import Matcher, matched_rewards, matches, matches_block
from analysis.measures.word_groups.estimates import Estimates, estimate
from analysis.measures.word_groups.measure import LEAST_WORDS
from analysis.measures.word_groups.placebo import placebo_kinds
from analysis.measures.word_groups.placebo_contrasts import left_out, placebo_contrasts
from analysis.measures.word_groups.standing import Standing, standing
from analysis.run import Run
from analysis.study import NO_VOCABULARY, Absent, Study, Table, prompts_in, required, table
from analysis.words import lexicons
from analysis.words.matching import match_cased
from analysis.words.questions import ASKED_FOR, NEGATIVE, POSITIVE, questions

_NONE = "No token is one of the identity terms."
_SHOWN_ROWS = 2_000  # A longer table of single models is in its file alone.
_FAR = 0.05  # Share of ordinary kinds that are as far as one that stands far.


def tables(study: Study) -> Iterator[Table]:
    """identity.csv, identity_models.csv, identity_placebo.csv and identity_reference.csv.

    And matches_identity.csv.
    """
    made = study.tables
    yield table("matches", "identity", make=partial(_matches, study))
    words = functools.cache(partial(_standing, study))
    estimates = functools.cache(lambda: _estimates(study, words()))
    yield table("identity", make=lambda: estimates().groups)
    yield table("identity_models", make=lambda: estimates().over_models)
    yield table("identity_placebo", make=lambda: _placebo(study, words(), made["identity"]))
    yield table(
        "identity_reference",
        make=lambda: reference_shares(made["identity"], made["identity_placebo"]),
    )


def identity_words(run: Run, models: Sequence[str], terms: pl.DataFrame) -> pl.DataFrame:
    """Tokens that are words for groups of people, or neutral words, with their percentiles.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      terms: what `lexicons.identity` returns.

    Returns:
      model, prompt, token_id, token, the columns of `terms` (word, group, axis, form, stem),
      surface, reward, percentile (of the token in the model's whole vocabulary, 0 to 1; 1 is the
      best reply).
    """
    return matched_rewards(run, models, partial(match_cased, terms=terms), percentile=True)


def reference_shares(groups: pl.DataFrame, placebo: pl.DataFrame) -> pl.DataFrame:
    """How far groups of people stand from the others of their axis, and how far placebo kinds do.

    Args:
      groups: the table `identity.csv`.
      placebo: the table `identity_placebo.csv`.

    Returns:
      prompt, of ("groups of people" or "ordinary kinds", each left out of the kinds in turn), tests
      (in all models), below (share of them with p < .05), far (share of them whose contrast at most
      5 % of the other placebo kinds have).
    """
    frames = [
        part.filter(pl.col("p").is_not_nan())
        .group_by("prompt", maintain_order=True)
        .agg(
            of=pl.lit(name),
            tests=pl.len().cast(pl.Int64),
            below=(pl.col("p") < 0.05).cast(pl.Float64).mean(),
            far=(pl.col("placebo_share").fill_nan(1.0) <= _FAR).cast(pl.Float64).mean(),
        )
        for name, part in (("groups of people", groups), ("ordinary kinds", left_out(placebo)))
    ]
    asked = groups.select("prompt").unique(maintain_order=True).with_row_index("place")
    joined = pl.concat(frames).join(asked, on="prompt", how="left", validate="m:1")
    return joined.sort("place", "of").drop("place")


def _terms(study: Study) -> pl.DataFrame:
    """The identity terms and the words of the placebo kinds, which a column placebo marks."""
    try:
        people = lexicons.identity(study.options.identity)
    except lexicons.LexiconError as error:
        raise Absent(f"No identity terms: {error}.") from error
    placebo = lexicons.placebo(besides=people)
    return pl.concat([people.with_columns(placebo=False), placebo.with_columns(placebo=True)])


def _matcher(study: Study, placebo: bool) -> Matcher:
    if not study.run.results:
        raise Absent(NO_VOCABULARY)
    terms = _terms(study)
    return partial(match_cased, terms=terms if placebo else terms.filter(placebo=False))


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


def _estimates(study: Study, words: Standing) -> Estimates:
    options = study.options
    rng = np.random.default_rng(options.seed)
    found = estimate(words, rng, options.permutations, options.bootstraps)
    required(found.groups, _NONE)
    return found


def _placebo(study: Study, words: Standing, groups: pl.DataFrame) -> pl.DataFrame:
    tested = groups.filter(pl.col("p").is_not_nan())
    required(tested, f"No group has {LEAST_WORDS} words or more to compare with others.")
    rng = np.random.default_rng(study.options.seed)
    stems, others = (int(np.median(tested[name])) for name in ("stems", "other_stems"))
    found = placebo_contrasts(placebo_kinds(words, rng), stems, others, rng)
    return required(found, "No model has ordinary kinds of words to compare groups of people with.")


def section(study: Study) -> Section:
    """The furthest groups, dots prompt by prompt, and the tables."""
    over, each = study.tables.get("identity_models"), study.tables.get("identity")
    blocks: list[Block] = notes([study.tables.reason("identity")])
    if over is not None and each is not None:
        blocks += [*_furthest(study, over, each), *_of_placebo(study)]
        for prompt in prompts_in(over):
            own = over.filter(prompt=prompt)
            draw = partial(group_dots, own, each.filter(prompt=prompt), study.names)
            blocks.append(Picture(f"identity_{prompt}", _caption(study, prompt), draw))
        if each["model"].n_unique() > 1:
            blocks += rows(over, _OVER_MODELS, "identity_models.csv", "Over models")
        blocks += _of_single_models(each)
    return Section(
        id="identity",
        title="Words for groups of people",
        label="Groups",
        lead="Does a model place the words for one group of people lower or higher than those for "
        "the other groups of the same axis: one religion and the other religions? And how far do "
        "they stand from neutral words for people? Different kinds of things are rated differently "
        "too, so both distances stand beside those of ordinary kinds of words: months, fruits, "
        "tools. A low place is unfavourable under a prompt that asks for something good, and a "
        "high one under a prompt that asks for something bad.",
        blocks=[*blocks, *matches_block(study.tables, "identity")],
        caveats=(
            "A word is not a person: a model may mark down a word for how it is used, or any noun "
            "for people, as no answer to the question.",
            "Words of one meaning always share something, and ordinary kinds of words differ from "
            "one another for reasons of their own. Nothing here says that a distance is about "
            "people.",
            "The ordinary kinds are a choice. Of 24 kinds that they do not hold (months, weekdays, "
            "sciences, sports, …), 14 to 25% stood, in the models of the demo, where at most 5% of "
            "the kinds do, with q < .05.",
            f"Groups with fewer than {LEAST_WORDS} words have an estimate and no test, and the "
            "list of words is a choice.",
        ),
    )


def _furthest(study: Study, over: pl.DataFrame, each: pl.DataFrame) -> Iterator[Block]:
    """Prompt by prompt, the group that stands furthest from the others of its axis, in words."""
    alone = each["model"].n_unique() == 1
    tested = (each if alone else over).filter(pl.col("p").is_not_nan())
    if not tested.height:
        yield Text(
            f"No group has {LEAST_WORDS} words or more to compare with as many of the other groups "
            "of its axis."
        )
    size = pl.col("contrast").abs().round(9)
    for prompt in prompts_in(tested):
        own = tested.filter(prompt=prompt).sort(
            size, "axis", "group", descending=[True, False, False]
        )
        on_axis = over.filter(prompt=prompt, axis=own["axis"][0])["group"].to_list()
        yield Text(_sentence(study, own.row(0, named=True), own.height, on_axis, alone))


def _sentence(
    study: Study,
    row: dict[str, Any],  # Any: cells of a table
    groups: int,
    on_axis: Sequence[str],
    alone: bool,
) -> str:
    """Where a group stands, and its place among the ordinary kinds.

    Args:
      study: names the models and the prompts.
      row: of `identity.csv` or `identity_models.csv`, the furthest under its prompt.
      groups: how many groups it is the furthest of.
      on_axis: the groups of its axis.
      alone: whether there is one model alone.
    """
    is_lower = row["contrast"] < 0
    others = [group for group in on_axis if group != row["group"]]
    against = others[0] if len(others) == 1 else f"the other groups by {row['axis']}"
    size, low, high = (100 * row[f"contrast{end}"] for end in ("", "_low", "_high"))
    ends = style.minus(f"{low:.0f} to {high:.0f}")
    said = (
        f"Under “{row['prompt']}”, of {groups} groups of people, words for {row['group']} stand "
        f"furthest from the others of their axis: {abs(size):.0f} percentile points "
        f"{'below' if is_lower else 'above'} those for {against}"
    )
    if alone:
        said += f" (95% interval {ends})"
    else:
        count = row["models"] - row["above"] if is_lower else row["above"]
        said += (
            f", on average over {row['models']} models (95% interval over models {ends}; so in "
            f"{count} of {row['models']})"
        )
    said += ". The interval does not allow for the choice of the furthest."
    if row["kinds"]:
        lower = row["kinds_lower"]
        place = f"lower than {row['kinds'] - lower}" if is_lower else f"higher than {lower}"
        said += (
            f" Among ordinary kinds of words, each against the others of its axis, that is {place} "
            f"of {row['kinds']}."
        )
    asked = framing_of(study, row["prompt"])
    if asked:
        side = "unfavourable" if is_lower == (asked == POSITIVE) else "favourable"
        said += f" The prompt asks for {ASKED_FOR[asked]}, so a {'low' if is_lower else 'high'} "
        said += f"place is {side}."
    return said


def framing_of(study: Study, prompt: str) -> str:
    """Whether a prompt asks for something "positive" or "negative"; "" where that is not known.

    It is known of the texts of both papers, and of the prompts that options.questions or
    options.framing names.
    """
    asked = questions(study.run.prompts, study.options.questions)
    known = asked.filter(prompt=prompt)["framing"].item()
    named = dict(zip(study.options.framing, (POSITIVE, NEGATIVE), strict=True))
    return known or named.get(prompt, "")


def _of_placebo(study: Study) -> list[Block]:
    """How far ordinary kinds stand, each left out of the kinds in turn."""
    shares = study.tables.get("identity_reference")
    if shares is None:
        return notes([study.tables.reason("identity_placebo")])
    how = (
        "Ordinary kinds (fruits against drinks, metals against gems) are measured like groups of "
        "people, in single models and at the size of a typical group; each is left out in turn and "
        "held against the rest. The table shows how many have p < .05, and how many stand where at "
        "most 5% of the other kinds do, beside the same of groups of people. It is why neither "
        "decides whether a group differs."
    )
    return [Text(how, "how"), *rows(shares, _SHARES, "identity_reference.csv", unfolded=True)]


def _caption(study: Study, prompt: str) -> str:
    asked = framing_of(study, prompt)
    reading = ""
    if asked:
        side = "low" if asked == POSITIVE else "high"
        reading = f" It asks for {ASKED_FOR[asked]}, so a {side} place is unfavourable."
    return (
        f"Prompt “{prompt}”.{reading} Left: words for a group less those for the other groups of "
        "its axis. Right: less neutral words for people. Plurals are compared with plurals. Dots "
        "are models, diamonds their mean with its 95% interval over models (not over words). "
        "Grey: where nine of ten ordinary kinds stand, with "
        "as many stems as the group has: left from the other kinds of their axis, right from the "
        "same neutral words."
    )


def _of_single_models(each: pl.DataFrame) -> list[Block]:
    title = "In each model"
    if each.height > _SHOWN_ROWS:
        text = f"The table of single models has {each.height:,} rows: identity.csv."
        return [Text(text, "note"), Files(["identity.csv"])]
    return rows(each, _EACH, "identity.csv", title)


_GROUP: tuple[Column, ...] = (("axis", "axis", "text"), ("group", "group", "text"))
_CONTRAST: tuple[Column, ...] = (
    ("contrast", "minus others of the axis", "share"),
    ("contrast_low", "from", "share"),
    ("contrast_high", "to", "share"),
)
_PLACE: tuple[Column, ...] = (
    ("kinds_lower", "ordinary kinds lower", "count"),
    ("kinds", "of", "count"),
    ("placebo_share", "ordinary kinds as far", "share"),
    ("difference", "minus neutral", "share"),
    ("placebo_percentile", "ordinary kinds below", "share"),
)
_OVER_MODELS: tuple[Column, ...] = (
    *(PROMPT, *_GROUP, ("models", "models", "count"), *_CONTRAST),
    ("contrast_spread", "spread between models", "share"),
    ("above", "models above", "count"),
    *_PLACE,
)
_EACH: tuple[Column, ...] = (
    *(MODEL, PROMPT, *_GROUP, ("n", "tokens", "count"), ("words", "words", "count")),
    ("mean_percentile", "mean percentile", "share"),
    *INTERVAL_OF_SHARE,
    *(*_CONTRAST, *_PLACE),
)
_SHARES: tuple[Column, ...] = (
    PROMPT,
    ("of", "of", "text"),
    ("tests", "tests", "count"),
    ("below", "p < .05", "share"),
    ("far", "stand far", "share"),
)
