"""Published values beside those of made-up tables: numbers, lists, noise, reasons, and the page."""

import dataclasses
import re

import polars as pl
import pytest

from analysis.published import comparison, data, page, rounding, verdicts
from analysis.published.comparison import Readings
from analysis.published.run_values import Missing, RunValues, replaced

SLUGS = {"N-Gem-27B": "one", "S-Gem-27B": "two", "R-Gem-2B": "three", "gemma-2-2b-it": "lm"}
TWO = ("N-Gem-27B", "S-Gem-27B")  # whose moments are made up
SCRIPT = "<script>alert(1)</script>"


def moments(shift=0.0):
    rows = {"N-Gem-27B": (1.876, 0.193, 0.437), "S-Gem-27B": (-30.0, 11.986, 0.878)}
    cells = [(SLUGS[name], "greatest", mean + shift, *rest) for name, (mean, *rest) in rows.items()]
    names = ["model", "prompt", "mean", "variance", "skewness"]
    return pl.DataFrame(cells, names, orient="row")


def ends(model, top, number="reward"):
    rows = [
        {"model": model, "end": end, "rank": rank, "token_id": rank, "token": token}
        | {number: float(-rank if end == "top" else rank)}
        for end, tokens in (("top", top), ("bottom", top[::-1]))
        for rank, token in enumerate(tokens, 1)
    ]
    return pl.DataFrame(rows)


def computed(name, tables, **more):
    return RunValues(name=name, tables=tables, reasons=more.pop("reasons", {}), slugs=SLUGS, **more)


@pytest.fixture
def published():
    return data.read()


@pytest.fixture
def printed(published):
    """The tokens that Table A6 prints at the top of R-Gem-2B."""
    part = published.tokens.filter(exhibit="table_a6", model="R-Gem-2B", end="top")
    return part.sort("rank")["token"].to_list()


def among(published, *names):
    """The published values of some models alone, as if the paper had scored no others."""
    others = [name for name in published.models["nickname"] if name not in names]
    named = pl.any_horizontal(pl.col("model", "other").is_in(others))
    numbers = published.numbers.filter(~named)
    tokens = published.tokens.filter(~pl.col("model").is_in(others))
    return data.Published(models=published.models, numbers=numbers, tokens=tokens)


def compared(published, readings):
    return {one.exhibit.id: one for one in comparison.compare(published, readings)}


def against_nothing(paper):
    """A run in the paper's conventions, and none in ours."""
    return Readings(paper=paper, ours=computed("ours", {}))


def lines(one):
    return {(line.of, line.quantity): line for line in one.lines}


def test_numbers_are_compared_model_by_model(published):
    paper = computed("paper", {("moments",): moments()})
    two = among(published, *TWO)
    table = compared(two, against_nothing(paper))["table_3"]
    found = lines(table)
    assert found["N-Gem-27B", "mean"].verdict.kind == verdicts.SAME
    mean = found["S-Gem-27B", "mean"]
    assert (mean.published, mean.computed) == ("-30.422", -30.0)
    assert mean.verdict.kind == verdicts.DIFFERS
    assert mean.difference == pytest.approx(0.422)
    assert table.counts == {"same": 5, "within noise": 0, "differs": 1, "not run": 0}


def test_a_second_dtype_gives_the_noise_of_each_models_own_unit(published):
    paper = computed("paper", {("moments",): moments()})
    for shift, kind in ((0.4, verdicts.DIFFERS), (0.43, verdicts.NOISE)):
        noise = computed("noise", {("moments",): moments(shift)})
        readings = Readings(paper=paper, ours=computed("ours", {}), noise=noise)
        found = lines(compared(among(published, *TWO), readings)["table_3"])
        assert found["S-Gem-27B", "mean"].verdict.kind == kind
        assert found["S-Gem-27B", "variance"].verdict.kind == verdicts.SAME


def test_noise_of_a_value_is_its_own_and_not_that_of_another_pair(published):
    def square(first, last):
        cells = {"one": [1.0, first, 0.35], "two": [first, 1.0, last], "three": [0.35, last, 1.0]}
        return pl.DataFrame({"model": list(cells), **cells})

    def pair(noise):
        readings = Readings(paper=paper, ours=ours, noise=noise)
        table = compared(among(published, *TWO), readings)["figure_2a"]
        return lines(table)["N-Gem-27B · S-Gem-27B", "Kendall’s τ"]

    key = ("kendall_tau", "greatest")
    ours = computed("ours", {key: square(0.56, 0.43)})
    paper = computed("paper", {key: square(0.5, 0.43), ("moments",): moments()})
    other_pair = pair(computed("noise", {key: square(0.5, 0.5)}))  # moves by .07
    assert other_pair.verdict == verdicts.Verdict(verdicts.DIFFERS, "the same in ours")
    same_pair = pair(computed("noise", {key: square(0.57, 0.43)}))
    assert (same_pair.published, same_pair.verdict.kind) == ("0.56", verdicts.NOISE)
    assert same_pair.verdict.why == "two dtypes differ by 0.07"
    assert pair(None).verdict.kind == verdicts.DIFFERS


@pytest.mark.parametrize(
    ("model", "printed", "within"),
    [
        ("R-Gem-2B", 4.59375, 1 / 64),
        ("R-Gem-2B", -9.5, 1 / 32),
        ("R-Gem-2B", 0.0, 5e-6),
        ("R-Gem-2B", 4.5972, 5e-6),  # of an earlier run of ours, which rounds nothing
        ("N-Lla-8B", 4.59375, 5e-6),
    ],
)
def test_a_reward_that_the_paper_rounded_is_met_within_half_a_step(model, printed, within):
    assert rounding.score_within(model, printed) == within


def test_the_unrounded_reward_of_a_perfect_run_is_the_printed_one(published):
    row = published.tokens.filter(exhibit="table_2", model="R-Gem-2B", end="top", rank=1)
    token = {name: row[name].to_list() for name in ("prompt", "token_id")}
    scores = pl.DataFrame({**token, "model": ["three"], "reward": [4.5972]})
    paper = computed("paper", {("printed_scores",): scores})
    table = compared(published, against_nothing(paper))["table_2"]
    found = [line for line in table.lines if line.verdict.kind != verdicts.NOT_RUN]
    assert [(line.published, line.verdict.kind) for line in found] == [("4.59375", verdicts.SAME)]


def test_lists_are_compared_end_by_end(published, printed):
    paper = computed("paper", {("top_bottom", "greatest"): ends("three", [*printed, "x", "y"])})
    table = compared(published, against_nothing(paper))["table_a6"]
    found = {(one.model, one.end): one for one in table.lists}
    top, bottom = (found["R-Gem-2B", end] for end in ("top", "bottom"))
    assert (top.verdict.kind, top.common, top.at_rank) == (verdicts.SAME, 20, 20)
    assert (bottom.verdict.kind, bottom.common) == (verdicts.DIFFERS, 0)
    assert found["N-Gem-27B", "top"].verdict.kind == verdicts.NOT_RUN
    assert top.computed == printed


def test_what_is_not_there_says_why(published):
    why = {"reasons": {("humans_correlation",): "No items. "}}
    why |= {"failures": {"three": "no room on the disk"}}
    paper = computed("paper", {("moments",): moments()}, **why)
    found = compared(published, against_nothing(paper))
    mean = lines(found["table_3"])["R-Gem-2B", "mean"]
    assert mean.verdict == verdicts.Verdict(verdicts.NOT_RUN, "no room on the disk")
    people = found["figure_5a"]
    assert people.missing.startswith("Not run: it needs the EloEverything items")
    assert "No items. " in dict(people.not_run)
    gap = found["figure_2c"].lines[0]
    assert gap.verdict.why == "it is over all ten models, and 2 were scored"
    assert any("2 of the ten models" in remark for remark in found["table_3"].remarks)


def test_a_token_beyond_the_vocabulary_is_named(published):
    scores = {"model": ["three"], "prompt": ["greatest"], "token_id": [5], "reward": [1.0]}
    tables = {("moments",): moments(), ("printed_scores",): pl.DataFrame(scores)}
    paper = computed("paper", tables)

    def reward(prompt, model, token_id):
        row = {"exhibit": "table_2", "quantity": "reward", "prompt": prompt, "model": model}
        return paper.number({**row, "other": str(token_id)})

    assert reward("greatest", "R-Gem-2B", 5) == 1.0
    with pytest.raises(Missing, match="token id 9 is not in the vocabulary"):
        reward("greatest", "S-Gem-27B", 9)
    with pytest.raises(Missing, match="the model was not scored"):
        reward("best", "R-Gem-2B", 5)


def test_what_any_run_would_meet_is_left_out_of_the_totals(published):
    slopes = pl.DataFrame({"model": ["one"], "prompt": ["greatest"], "valence": ["positive"]})
    paper = computed("paper", {("sentiment_slopes",): slopes.with_columns(slope=0.002)})
    where = {"exhibit": "figure_3c", "prompt": "greatest", "model": "N-Gem-27B"}
    chosen = published.numbers.filter(**where, other="positive")
    for value, differs in (("0.0", 0), ("0.001", 0), ("0.2", 1)):
        only = chosen.with_columns(value=pl.lit(value))
        small = dataclasses.replace(published, numbers=only, tokens=published.tokens.clear())
        every = comparison.compare(small, against_nothing(paper))
        counts = {"same": 0, "within noise": 0, "differs": differs, "not run": 0}
        assert comparison.totals(every) == counts
        assert comparison.uncounted(every) == 41 - differs  # Table 1 has 40 cells


def test_replaced_by_its_own_values_a_run_is_the_same_everywhere(published, printed):
    tables = {("moments",): moments(), ("top_bottom", "greatest"): ends("three", printed * 3)}
    paper = computed("paper", tables)
    found = compared(replaced(published, paper), against_nothing(paper))
    kinds = comparison.totals(one for name, one in found.items() if name != "table_1")
    assert kinds["same"] == 6 + 2 + 2  # numbers; the ends of Table A6, and of Table 2
    assert kinds["not run"] == 44  # rewards of the tokens of Table 2: these tables lack them
    assert kinds["differs"] == kinds["within noise"] == 0


def test_language_models_are_found_in_the_form_that_they_read(published):
    tables = {("logprobs", "greatest.chat"): ends("lm", ["a", "b"], "logprob")}
    paper = computed("paper", tables)
    (top, bottom) = [
        one
        for one in compared(published, Readings(paper=paper, ours=paper))["table_a1"].lists
        if one.model == "gemma-2-2b-it"
    ]
    assert (top.computed, bottom.computed) == (["a", "b"], ["b", "a"])


def test_the_page_escapes_tokens_and_reasons_and_loads_nothing(published):
    hostile = [SCRIPT, *map(str, range(30))]
    paper = computed(
        "paper",
        {("moments",): moments(), ("top_bottom", "greatest"): ends("three", hostile)},
        failures={"two": SCRIPT},
    )
    about = page.About(
        models=[("R-Gem-2B", SCRIPT)], settings=[], facts=[SCRIPT], tried=[SCRIPT], published=SCRIPT
    )
    html = page.render(comparison.compare(published, against_nothing(paper)), about, {})
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html


def test_a_summary_names_the_median_and_the_largest_difference_in_few_digits(published):
    paper = computed("paper", {("moments",): moments(2.0)})
    table = compared(published, against_nothing(paper))["table_3"]
    assert page.summary(table.run_lines) == (
        "6 published values; median difference 0; largest +2.42 (S-Gem-27B)"
    )
    assert page.shown(-0.55123, "0.55") == "−0.5512"
    assert page.shown(4.34375, "4.34375") == "4.34375"
    assert page.shown(None, "1") == "–"
    assert [page.signed(x) for x in (0.5, -0.0001, 0.0, None)] == ["+0.5", "−0.0001", "0", "–"]
