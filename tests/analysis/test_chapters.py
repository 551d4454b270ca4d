"""The sections an analysis: figure, table, how to read it, and why something is not there."""

import dataclasses
import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import chapters, page, summary, tables
from analysis.explorer import Packed
from analysis.figures import drawing, style
from analysis.options import Options
from tests.analysis import made

NOTHING = Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])


def full(run):
    """Tables in which every analysis has found something."""
    rng = np.random.default_rng(0)
    ranks = made.humans_ranks(rng, 40)
    identity = made.identity(rng)
    empty = tables.compute(run, {}, 4, Options(permutations=99, bootstraps=99))
    models = pl.concat([made.models(), empty.models], how="diagonal_relaxed")
    return dataclasses.replace(
        empty,
        models=models,
        sentiment_slopes=made.sentiment_slopes(rng),
        frequency_slopes=made.frequency_slopes(rng),
        bing_effects=made.bing_effects(rng),
        framing=made.framing(rng),
        framing_sum=made.ends(rng),
        framing_difference=made.ends(rng),
        framing_axis=made.framing_axis(),
        humans_correlation=made.humans_correlation(rng),
        humans_gap=made.humans_gap(ranks),
        humans_ranks={("elo", "thing"): ranks},
        humans_kendall={("elo", "thing"): made.square(rng, ["human", *made.NAMES])},
        identity=identity,
        identity_q=identity.with_columns(difference=pl.col("mean_percentile") - 0.5, q=pl.col("p")),
        sequences=made.sequences(rng),
        sequence_traces=made.sequence_traces(rng),
        objectives=made.objectives(rng),
        objectives_ends=made.objectives_ends(rng),
        objectives_spearman={("armorm-llama3-8b-v0.1", "best"): made.square(rng)},
        item_logprobs=made.item_logprobs(rng),
        item_logprobs_points={("elo", "best.chat", "lm"): made.item_logprobs_points(rng)},
        logprobs={"greatest": made.ends(rng, "logprob")},
        variance=made.variance(),
        matches=made.matches(),
        absent={},
    )


@pytest.fixture
def run(small_run):
    found = analysis.load(small_run)
    return dataclasses.replace(found, prompts={**found.prompts, "thing": "What <i>thing</i>?"})


def text_of(run, found, figures):
    return page.render(run, found, figures, [], NOTHING, 3, 3)


class Anything(dict):
    """A figure of any name, for pages whose figures are not drawn."""

    def __missing__(self, key):
        return f"data:{key}"


def test_every_section_that_has_a_table_shows_it_and_escapes_it(run):
    source = text_of(run, full(run), Anything())
    for chapter in chapters.chapters(full(run)):
        assert f'<section id="{chapter.id}">' in source
        assert f'href="#{chapter.id}"' in source
    assert "<script>alert(1)" not in source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in source
    assert "<b>peace" not in source
    assert "<i>\\u202e</i>" in source


def test_every_figure_of_a_section_is_one_that_is_drawn(run, monkeypatch, tmp_path):
    def save(figure, folder, stem):
        (folder / stem).write_text("undrawn", encoding="utf-8")
        return {"png": folder / stem, "svg": folder / stem}

    monkeypatch.setattr(style, "save", save)
    found = full(run)
    drawn = drawing.draw(run, found, 3, tmp_path)
    wanted = {b.figure for c in chapters.chapters(found) for b in c.blocks if b.figure}
    assert wanted <= set(drawn)
    assert {"identity_best", "humans_gap_elo_thing", "logprobs_greatest", "sequences"} <= wanted
    own = {"objectives_best", "objectives_armorm-llama3-8b-v0.1_best"}
    assert {*own, "item_logprobs_elo_best.chat_lm"} <= wanted


def test_every_lexicon_says_how_many_tokens_matched(run):
    found = full(run)
    named = {name: found.matches.with_columns(analysis=pl.lit(name), source=pl.lit(f"<{name}>"))
             for name in ("sentiment", "bing", "frequency", "identity")}  # fmt: skip
    source = text_of(run, dataclasses.replace(found, matches=pl.concat(named.values())), Anything())
    for name in named:
        assert f"&lt;{name}&gt;" in source


def test_a_section_without_a_table_says_why(run):
    found = tables.compute(run, {}, 4, Options(permutations=99, bootstraps=99))
    for chapter in chapters.chapters(found):
        assert chapter.blocks, chapter.id
        assert all(
            block.note or block.figure or block.rows or block.title for block in chapter.blocks
        )
    source = text_of(run, found, Anything())
    for stem in ("humans_correlation", "sequences", "logprobs", "identity"):
        assert found.absent[stem].replace("'", "&#39;") in source


def test_files_have_the_columns_of_the_contract_whatever_the_page_shows(run):
    files = full(run).named()
    assert set(files["sequences"].columns) == {
        "model", "prompt", "direction", "method", "seed", "length", "reward", "percentile", "text",
        "round_trips", "flops",
    }  # fmt: skip
    assert files["identity"].columns[-3:] == ["ci_low", "ci_high", "p"]


def test_the_summary_names_the_groups_that_stand_lowest_and_highest(run):
    found = full(run)
    table = found.identity_q.with_columns(
        mean_percentile=pl.col("group").replace_strict(
            {"Jews": 0.04, "men": 0.9, "Hindus": 0.01}, default=0.6
        ),
        # Beside neutral words like them, not beside the middle of the vocabulary.
        difference=pl.when(pl.col("group") == "men").then(-0.05).otherwise(0.02),
        ci_low=pl.when(pl.col("group") == "Hindus").then(math.nan).otherwise("ci_low"),
        q=pl.when(pl.col("group").is_in(["Jews", "men"])).then(0.001).otherwise(0.8),
    )
    said = summary._slights(dataclasses.replace(found, identity_q=table), "greatest")
    assert "the words for Jews (4), " in said
    assert "those for men (90), " in said
    assert "Hindus" not in said  # One word is no group.
    means = 10 * sum(map(len, made.GROUPS.values()))
    assert f"Of {means} means of a group in a model, 10 lie below neutral words" in said
    assert "and 10 above" in said


def test_the_summary_names_what_people_and_models_see_differently(run):
    found = full(run)
    (people,) = summary.people(found, made.NAMES, run.prompts, 2)
    gap = found.humans_gap.sort("gap", "item", descending=[True, False])
    assert people.lower == gap["item"].head(2).to_list()
    assert people.higher == gap["item"].reverse().head(2).to_list()
    best = found.humans_correlation.sort("spearman").row(-1, named=True)
    assert f"to {best['spearman']:.2f} ({made.NAMES[best['model']]})" in people.agreement


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (None, "number", "–"),
        (float("nan"), "p", "–"),
        (0.0004, "p", "< .001"),
        (0.0312, "p", ".031"),
        (1.0, "p", "1.000"),
        (0.4321, "share", "43.2 %"),
        (-6462.5, "count", "−6,462.5"),
        (7530.0, "count", "7,530"),
        (12, "count", "12"),
        (-0.25, "number", "−0.25"),
        (-0.034871, "fixed", "−0.035"),
        (True, "bool", "yes"),
        ("x", "text", "x"),
    ],
)
def test_cells_read_as_a_reader_writes(value, kind, said):
    assert page.cell(value, kind) == said
