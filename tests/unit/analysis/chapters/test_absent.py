"""Bad input: each table that cannot be made says why, and nothing fails."""

import importlib.util

import pytest

from analysis import CHAPTERS
from analysis.chapters import humans
from engine.errors import AssayError
from tests.support import runs
from tests.support.studies import cited


@pytest.fixture
def study_of(study_of, write):
    """A run, metadata and options -> the study with every table; `small_run` has known words."""
    bnc = "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n"
    lexica = {
        "afinn": write("afinn.txt", "love\t3\nhate\t-3\nx\t1\n"),
        "frequency": write("bnc.txt", bnc),
    }
    return lambda run, **changed: study_of(run, *CHAPTERS, top=3, **lexica | changed)


def test_a_whole_run_has_its_tables_and_says_what_it_lacks_in_a_line(small_run, study_of):
    tables = study_of(small_run).tables
    for reason in tables.absent.values():
        assert reason.endswith(".") and "\n" not in reason
    lacking = {("items_questions",), ("lens",), ("lens_framing",)}
    assert lacking <= tables.absent.keys()
    assert {(name, "worst") for name in ("kendall_tau", "rbo")} <= tables.absent.keys()
    assert tables["rbo", "greatest"].columns == ["model", "m-one", "m-two"]
    framed = tables["framing"].select("model", "prompt_a", "prompt_b").rows()
    assert framed == [("m-one", "greatest", "worst")]
    assert tables["framing_sum"]["reward"].to_list() == [2.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_a_lexicon_that_is_not_there_or_does_not_match(small_run, study_of, write, monkeypatch):
    other = write("other.txt", "\tother\tNoC\t:\t150\t100\t0.9\n")
    assert study_of(small_run, frequency=other).tables.reason("frequency_slopes")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    tables = study_of(small_run, afinn="").tables
    assert "afinn" in tables.reason("sentiment_slopes")


# Vocabularies; rewards by model and vocabulary; tables that are absent.
RUNS: dict[str, tuple] = {
    "one model": (
        {"v": ["a", "b", "c"]},
        {("m", "v"): [1.0, 2.0, 3.0]},
        ["framing", "sentiment_slopes", "frequency_slopes", "groups"],
    ),
    "no shared tokens": (
        {"v": ["a", "b"], "w": ["c", "d"]},
        {("m", "v"): [1, 2], ("n", "w"): [1, 2]},
        [],
    ),
    "a model that scores every token alike": (
        {"v": ["love", "hate"]},
        {("m", "v"): [1.0, 2.0], ("n", "v"): [3.0, 3.0]},
        [],
    ),
}


@pytest.mark.parametrize(("vocabularies", "rewards", "lacking"), RUNS.values(), ids=RUNS)
def test_a_run_without_what_a_table_needs(make_run, study_of, vocabularies, rewards, lacking):
    scores = {(model, "greatest"): own for (model, _), own in rewards.items()}
    tables = study_of(make_run(vocabularies, dict(list(rewards)), scores)).tables
    assert {(name,) for name in lacking} <= tables.absent.keys()
    sizes = [len(own) for own in rewards.values()]
    assert tables["moments"]["n"].to_list() == sizes  # of each model's whole vocabulary


def test_items_that_people_ranked_too_rarely_or_not(small_run, study_of):
    assert study_of(small_run).tables.reason("humans_gap")
    for items in ("elo", "mine"):
        runs.add_items(small_run, items, "m-one", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(small_run, "elo", {"a": 2.0, "b": 1.0}, matches=49)
    assert cited(study_of(small_run).tables.reason("humans_gap")) == ["50"]
    study = study_of(small_run, humans_matches=0)
    assert study.tables["humans_gap"].height == 2
    blocks = humans.ANALYSIS.section(study).blocks
    (note,) = [block.text for block in blocks if getattr(block, "role", "") == "note"]
    assert "(mine)" in note


def test_items_alone(make_run, study_of):
    run = make_run({}, {"m": None}, {})
    runs.add_items(run, "elo", "m", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(run, "elo", {"a": 2.0, "b": 1.0})
    tables = study_of(run).tables
    assert tables["models"]["vocabulary"].to_list() == [None]
    assert tables["humans_correlation"]["kendall"].to_list() == pytest.approx([-1.0])
    assert tables.reason("groups")
    assert tables.of("top_bottom") == {}
    assert "humans_gap" in tables.files


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("humans_in_median", 1, "True, False"),
        ("afinn", None, "a path, or ''"),
        ("match_trim", True, "'auto', 'always', 'never'"),
        ("frequency_join", "heads", "'forms', 'paper'"),
        ("humans_matches", -1, "integers >= 0"),
        ("permutations", 10, "integers >= 99"),
        ("framing", ("best", "best"), "two different prompt ids"),
    ],
)
def test_an_option_that_is_not_allowed_is_named(options, key, value, allowed):
    with pytest.raises(AssayError) as caught:
        options(**{key: value})
    assert str(caught.value) == f"analyze.options.{key}={value!r}; allowed: {allowed}"
