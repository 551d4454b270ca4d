"""What is shown and not judged, what is judged, and why there is nothing of an exhibit."""

import dataclasses

import polars as pl
import pytest

from analysis.published import comparison, data, page, verdicts
from analysis.published.comparison import Readings
from analysis.published.exhibits import BY_ID
from analysis.published.run_values import RunValues, replaced

PAPERS = data.read()
NICKNAMES = PAPERS.models["nickname"].to_list()
SHARED = ("table_3", "figure_2a", "figure_a1", "table_a7")


def computed(tables):
    slugs = {name: name.lower() for name in NICKNAMES}
    return RunValues(name="a run", tables=tables, reasons={}, slugs=slugs)


def square(models, value):
    cells = {m: [1.0 if m == other else value for other in models] for m in models}
    return pl.DataFrame({"model": models, **cells})


def ends(models):
    rows = [
        (m, end, rank, rank, f"{m} {rank}", sign * rank)
        for m in models
        for end, sign in (("top", -1.0), ("bottom", 1.0))
        for rank in range(1, 21)
    ]
    names = ["model", "end", "rank", "token_id", "token", "reward"]
    return pl.DataFrame(rows, names, orient="row")


def swept(*nicknames, shift=0.0):
    """Tables of models that scored their vocabulary."""
    models = [name.lower() for name in nicknames]
    moments = {"mean": 1.0 + shift, "variance": 2.0, "skewness": 3.0}
    table = pl.DataFrame({"model": models, "prompt": "greatest", **moments})
    names = ("kendall_tau", "spearman", "rbo") if len(models) > 1 else ()
    tables = {(name, "greatest"): square(models, 0.3 + shift) for name in names}
    return {("moments",): table, ("shared_top_bottom", "greatest"): ends(models), **tables}


def compared(run, published=PAPERS, **more):
    found = comparison.compare(published, Readings(paper=run, ours=run, **more))
    return {one.exhibit.id: one for one in found}


def test_over_another_vocabulary_nothing_is_judged_and_over_the_papers_everything():
    found = compared(computed(swept(*NICKNAMES[:3])))
    for exhibit in SHARED:
        one = found[exhibit]
        assert {kind for kind, count in one.counts.items() if count} == {verdicts.NOT_RUN}
        reason = "it is over the vocabulary that 10 models share; here it is that of 3"
        shown = len(one.run_lines) + len(one.run_lists)
        assert one.not_judged == [(reason, shown)] and shown > 2
        assert reason not in dict(one.not_run)
    assert comparison.totals(found.values())["differs"] == 0
    found = compared(computed(swept(*NICKNAMES)))
    for exhibit in SHARED:
        counts = found[exhibit].counts
        assert counts[verdicts.DIFFERS] > 15
        assert counts[verdicts.NOT_RUN] == 0
        assert found[exhibit].not_judged == []


def test_values_of_a_run_of_the_same_models_are_judged_and_of_others_are_not():
    two = computed(swept(*NICKNAMES[:2]))
    before = replaced(PAPERS, two)
    for exhibit in SHARED:
        same = compared(two, before)[exhibit].counts
        assert same["differs"] == same["not run"] == 0
        changed = computed(swept(*NICKNAMES[:2], shift=0.1))
        assert exhibit == "table_a7" or compared(changed, before)[exhibit].counts["differs"]
    others = compared(computed(swept(*NICKNAMES[1:3])), before)["table_3"]
    assert [why for why, _ in others.not_judged] == [
        "it is over the vocabulary that 2 models share; here it is that of others"
    ]
    more = compared(computed(swept(*NICKNAMES)), before)["table_3"]
    assert more.not_judged[0][0].endswith("that 2 models share; here it is that of 10")


def slopes(words, value=0.2):
    """Tables of a model whose word frequencies are from a list."""
    cells = {"model": ["r-gem-2b"], "prompt": ["greatest"]}
    return {
        ("frequency_slopes",): pl.DataFrame({**cells, "slope": [value]}),
        ("matches", "frequency"): pl.DataFrame({"source": [words], **cells}),
    }


def test_slopes_that_rest_on_wordfreq_are_shown_and_not_judged():
    found = compared(computed(slopes("wordfreq")))["figure_3d"]
    assert found.counts == {"same": 0, "within noise": 0, "differs": 0, "not run": 30}
    (line,) = found.run_lines
    assert (line.computed, line.published) == (0.2, "0.1204")
    why = "it needs --config.frequency, the BNC list: wordfreq stands in for it"
    assert line.verdict == verdicts.Verdict(verdicts.NOT_RUN, why)


@pytest.mark.parametrize(("value", "kind"), [(0.2, "differs"), (0.1204, "same"), (0.124, "same")])
def test_slopes_that_rest_on_a_given_list_are_judged(value, kind):
    found = compared(computed(slopes("lists/bnc.txt", value)))["figure_3d"]
    assert found.counts[kind] == 1
    assert found.not_judged == []


def test_slopes_of_wordfreq_are_judged_by_those_of_wordfreq():
    before = replaced(PAPERS, computed(slopes("wordfreq")))
    assert compared(computed(slopes("wordfreq")), before)["figure_3d"].counts["same"] == 1
    assert compared(computed(slopes("wordfreq", 0.3)), before)["figure_3d"].counts["differs"] == 1
    bnc = compared(computed(slopes("bnc.txt")), before)["figure_3d"]
    assert bnc.not_judged == [("it rests on wordfreq, and this run on bnc.txt", 1)]


def test_the_page_shows_what_is_not_judged_with_the_reason():
    about = page.About(models=[], settings=[], facts=[], tried=[], published="the paper")
    run = computed(swept(*NICKNAMES[:2]) | slopes("wordfreq"))
    html = page.render(list(compared(run).values()), about, {})
    assert "Shown and not judged: 1 published value (it needs --config.frequency, the BNC" in html
    assert "Shown and not judged: 6 published values (it is over the vocabulary that 10" in html
    assert '<td class="number">0.2000</td>' in html


def test_the_search_and_the_log_probabilities_say_what_they_need():
    needs = {"gcg": "a search", "table_a1": "log-probabilities", "table_3": "every token"}
    for name, said in needs.items():
        assert said in comparison.missing(BY_ID[name], computed({}), [])
    tables = {
        ("moments",): swept(NICKNAMES[0])[("moments",)],
        ("logprobs", "greatest"): ends(["a"]),
    }
    for name in ("table_a1", "table_3"):
        assert comparison.missing(BY_ID[name], computed(tables), []) == ""


def test_what_is_not_judged_is_tried_with_no_change():
    """Else the stage `readings` would look for what explains it."""
    tried = frozenset({("r-gem-2b", "greatest")})
    single = dataclasses.replace(computed(slopes("wordfreq")), tried=tried)
    (line,) = compared(computed(slopes("wordfreq")), singles=[single])["figure_3d"].run_lines
    assert line.verdict.tried == ()
    (line,) = compared(computed(slopes("bnc.txt")), singles=[single])["figure_3d"].run_lines
    assert line.verdict.tried == ("a run",)
