"""What tokens add at the end of replies: sweeps behind a reply start."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from analysis.blocks import Block, Finding, Heading, Picture
from analysis.charts.estimates import estimates
from analysis.charts.lines import lines
from analysis.measures import appended
from analysis.measures.appended import APPENDED, KINDS, MODELS, PIECES, REPEATED
from analysis.sentences import bounds, count, decimals, significant
from analysis.study import Analysis, Study, Table, required, table
from analysis.words import lexicons
from analysis.words.matching import piece_mark
from engine import display

_NONE = "No model was swept behind a reply (assay report --after_items=pairs.jsonl)."
_LITTLE = 0.5  # percentile below which a whole reply is worth little


def _tables(study: Study) -> Iterator[Table]:
    """For the others: ("appended_tokens", model), every token."""
    run, made = study.run, study.tables
    swept = [model for model in study.models if model in appended.models(run)]
    for model in swept:
        make = partial(appended.tokens, run, model)
        yield table("appended_tokens", model, make=make, file=False)
    by_model = {model: frame for (model,), frame in made.of("appended_tokens").items()}

    def ends() -> pl.DataFrame:
        return APPENDED.concat(
            of_end
            for entry in by_model.items()
            for of_end in appended.both_ends(*entry, study.settings.top)
        )

    def summaries() -> pl.DataFrame:
        return MODELS.frame([appended.summary(run, *entry) for entry in by_model.items()])

    def by_kind() -> pl.DataFrame:
        return KINDS.concat(appended.kinds(run, *entry) for entry in by_model.items())

    repeated = [appended.repeated(run, model) for model in swept if run.repeated]
    few = "No token was repeated behind a reply."
    yield table(MODELS.name, make=summaries, why=_NONE)
    yield table(APPENDED.name, make=ends, why=_NONE)
    yield table(KINDS.name, make=by_kind, why=_NONE)
    yield table(REPEATED.name, make=lambda: REPEATED.concat(repeated), why=few)


def _units(study: Study) -> Iterator[Block]:
    yield from MODELS.rows(study.tables[MODELS.name], unfolded=True)


def _listed(study: Study) -> Iterator[Block]:
    rows = study.tables[APPENDED.name]
    top, bottom = (rows.filter(end=end) for end in ("top", "bottom"))
    yield from APPENDED.rows(top, title="Largest mean effect", unfolded=True)
    little = top.filter(pl.col("alone") < _LITTLE, pl.col("raised") > 0.5, pl.col("effect") > 0)
    yield from APPENDED.rows(
        little, title="Raise replies, though as a whole reply they are worth less than most tokens"
    )
    yield from APPENDED.rows(bottom, title="Smallest mean effect")


def _by_kind(study: Study) -> Iterator[Block]:
    kinds = study.tables[KINDS.name]
    caption = "Mean effect of the tokens of each kind, with 95 % intervals over replies."
    draw = partial(estimates, kinds, study.names, "effect, in units", value="effect_sd", row="kind")
    yield Picture("appended_kinds", caption, partial(draw, panel="name"))
    yield from KINDS.rows(kinds)


def _repeated(study: Study) -> Iterator[Block]:
    rows = study.tables[REPEATED.name]
    yield Heading("Repeated", "the same token again and again behind each reply")
    caption = (
        "Mean effect of up to 30 tokens that raise most replies most, of up to 30 that lower them, "
        "and of up to 30 random others, by how often each stands behind the reply. Bands are 95 % "
        "intervals over replies. The dotted line is the reply alone."
    )
    titles = ("times", "effect, in units")
    draw = partial(lines, rows, study.names, titles, x="times", y="effect_sd", line="group")
    draw = partial(draw, band=("ci_low", "ci_high"), marks=(0.0,), log=True, form="fixed")
    yield Picture("appended_repeated", caption, draw)
    yield from REPEATED.rows(rows)


def _told(study: Study) -> Iterator[Finding]:
    """The token that surely raises replies most, of the model where it does so most."""
    top = study.tables[APPENDED.name].filter(pl.col("end") == "top", pl.col("raised") > 0.5)
    sure = significant(top).filter(pl.col("effect") > 0, pl.col("kind") != PIECES)
    rows = sure.sort("effect_sd", descending=True, maintain_order=True)
    if not rows.height:
        return
    row = rows.row(0, named=True)
    about = study.tables[MODELS.name].filter(model=row["model"]).row(0, named=True)
    ends = bounds(row["ci_low"], row["ci_high"])
    others = rows.filter(model=row["model"]).height - 1
    more = f" So do {count(others, 'other token')} of the table." if others else ""
    name, token = study.names[row["model"]], _quoted(study, row["token"])
    replies = count(about["replies"], "reply", "replies")
    if about["clusters"] < about["replies"]:
        replies += f" ({count(about['clusters'], 'cluster')})"
    yield Finding(
        text=f"{token} at the end of a reply raises its reward in {name}: in "
        f"{100 * row['raised']:.0f} % of {replies}, on average "
        f"by {decimals(row['effect_sd'])} (95 % {ends}) standard deviations of the "
        f"{about['unit_of']}.{more}",
        picture="appended_kinds",
    )


def _quoted(study: Study, token: str) -> str:
    """A token in quotation marks, and that it may be a piece of a word."""
    mark = piece_mark(token, lexicons.common_words(study.options.frequency))
    return f"“{display.plain(token)}”{f' ({mark})' * bool(mark)}"


def _goes_on(study: Study) -> Iterator[Finding]:
    """Models in which repetition surely still pays, or no longer does, at the end."""
    last = study.tables[REPEATED.name].filter(
        pl.col("times") == pl.col("times").max(), group="raise"
    )
    for row in last.iter_rows(named=True):
        ends, of = (row["further_low"], row["further_high"]), row["tokens"]
        change = "raises the reward by a further"
        if ends[1] < 0:
            change, ends = "lowers the reward by", (-ends[1], -ends[0])
        if ends[0] > 0:
            which = f"one of the {of} tokens that raise" if of > 1 else "the token that raises"
            yield Finding(
                text=f"In {study.names[row['model']]}, repeating {which} most replies "
                f"{row['times']} times instead of {row['times'] // 2} {change} "
                f"{decimals(abs(row['further']))} units (95 % {bounds(*ends)}).",
                picture="appended_repeated",
            )


def _described(study: Study) -> str:
    ends = study.tables[APPENDED.name]
    top = required(ends.filter(pl.col("kind") != PIECES, end="top"), _NONE)
    row = top.sort("effect_sd", descending=True, maintain_order=True).row(0, named=True)
    return (
        f"The largest mean effect at the end of a reply is that of {_quoted(study, row['token'])} "
        f"in {study.names[row['model']]}: {decimals(row['effect_sd'])} units. No token surely "
        "raises most replies."
    )


ANALYSIS = Analysis(
    id="appended",
    title="Tokens that raise any reply",
    label="Behind replies",
    lead="What does each token add at the end of a real reply, before the template closes the "
    "turn? A token that raises most replies is one that training on this reward would add.",
    make=_tables,
    every_prompt=True,
    parts=(_units, _listed, _by_kind, _repeated),
    told=(_told, _goes_on),
    described=_described,
    caveats=lambda study: (
        "The replies are a sample: two tokens are compared on the same replies. Replies to one of "
        "several prompts are one observation, a cluster, and so are equal replies where these are "
        "fewer. Replies to a single prompt are one each: what is said is of that prompt.",
        "The largest of thousands of means is larger than it would be on new replies; q, not the "
        "interval, says which are sure.",
        "Where tokens became ids by their number (mode ids), a tokenizer might merge a token with "
        "the end of the reply; repeated tokens were scored as texts.",
        "Kinds are told by the text of a token, by simple rules.",
    ),
)
