"""Bad input: each table that cannot be made says why, and nothing fails."""

import importlib.util

import polars as pl
import pytest

from analysis import CHAPTERS, ModelInfo
from analysis.chapters import explained, humans
from engine.errors import AssayError
from tests.support import runs


@pytest.fixture
def study_of(study_of, write):
    """A run, metadata and options -> the study with every table; `small_run` has known words."""
    bnc = "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n"
    lexica = {
        "afinn": write("afinn.txt", "love\t3\nhate\t-3\nx\t1\n"),
        "frequency": write("bnc.txt", bnc),
        "bing": write("bing.csv", "word,sentiment\nlove,positive\nhate,negative\n"),
    }
    return lambda run, **changed: study_of(run, *CHAPTERS, top=3, **lexica | changed)


def test_a_whole_run_has_its_tables_and_says_what_it_lacks_in_sentences(small_run, study_of):
    tables = study_of(small_run).tables
    for reason in tables.absent.values():
        assert reason.endswith(".") and "\n" not in reason and reason[0].isupper()
    why = "Fewer than two models were scored under this prompt."
    for name in ("kendall_tau", "spearman", "rbo", "mds"):
        assert tables.reason(name, "worst") == why
    no_lens = "No model was swept with the reward lens (--config.lens=true)."
    reasons = {
        "rsa": "What explains agreement takes 4 models or more.",
        "items_questions": "No reward model scored a list of items.",
        **dict.fromkeys(("lens", "lens_framing"), no_lens),
    }
    for name, why in reasons.items():
        assert tables.reason(name).startswith(why)
    assert tables["rbo", "greatest"].columns == ["model", "m-one", "m-two"]
    assert tables["mds", "greatest"].columns == ["model", "x", "y", "stress"]
    framed = tables["framing"].select("model", "prompt_a", "prompt_b").rows()
    assert framed == [("m-one", "greatest", "worst")]
    assert tables["framing_sum"]["reward"].to_list() == [2.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    matched = {name for (name,) in tables.of("matches")}
    assert matched == {"sentiment", "frequency", "bing", "groups"}


def test_a_lexicon_that_is_not_there_or_does_not_match(small_run, study_of, write, monkeypatch):
    other = write("other.txt", "\tother\tNoC\t:\t150\t100\t0.9\n")
    why = study_of(small_run, frequency=other).tables.reason("frequency_slopes")
    assert why.startswith("No matched word is in")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    tables = study_of(small_run, afinn="", bing="").tables
    assert tables.reason("sentiment_slopes").startswith("No lexicon: the package afinn is not")
    assert tables.reason("bing_effects") == "No Bing lexicon was named (options.bing)."


@pytest.mark.parametrize("option", ["afinn", "bing", "frequency", "identity", "categories"])
def test_a_lexicon_that_was_named_and_is_malformed_ends_the_command(
    small_run, study_of, write, option
):
    named = write("other.csv", "no,such\nlist,at all\n")
    with pytest.raises(AssayError, match=rf"^{named}: "):
        study_of(small_run, **{option: named})


ALONE = "Only one model was scored: agreement needs two."
APART = "The models share no tokens, so their orders cannot be compared."
RUNS: dict[str, tuple] = {  # vocabularies; rewards by model and vocabulary -> why a table is absent
    "one model": (
        {"v": ["a", "b", "c"]},
        {("m", "v"): [1.0, 2.0, 3.0]},
        {
            ("kendall_tau", "greatest"): ALONE,
            ("rsa",): ALONE,
            ("framing",): "No model was scored under two prompts.",
            ("sentiment_slopes",): "No token matches a word of ",
            ("frequency_slopes",): "Frequency needs the words of the sentiment lexicon. No token ",
            ("groups",): "No token is one of the identity terms.",
        },
    ),
    "no shared tokens": (
        {"v": ["a", "b"], "w": ["c", "d"]},
        {("m", "v"): [1.0, 2.0], ("n", "w"): [1.0, 2.0]},
        {("kendall_tau", "greatest"): APART},
    ),
    "a model that scores every token alike": (
        {"v": ["love", "hate"]},
        {("m", "v"): [1.0, 2.0], ("n", "v"): [3.0, 3.0]},
        {("mds", "greatest"): "Fewer than two models have an order"},
    ),
    "models of which nothing is known": (
        {"v": ["love", "hate", "x", "y"]},
        {(f"m{i}", "v"): [1.0, 2.0 * i, 3.0, -i] for i in range(4)},
        {("rsa",): "No base, developer, size or rank is known"},
    ),
}


@pytest.mark.parametrize(("vocabularies", "rewards", "reasons"), RUNS.values(), ids=RUNS)
def test_a_run_without_what_a_table_needs(make_run, study_of, vocabularies, rewards, reasons):
    scores = {(model, "greatest"): own for (model, _), own in rewards.items()}
    tables = study_of(make_run(vocabularies, dict(list(rewards)), scores)).tables
    for name, why in reasons.items():
        assert tables.reason(*name).startswith(why)
    assert tables.reason("shared_vocabulary") is None and tables["matches", "sentiment"].height
    every = [len(own) for own in rewards.values()]
    assert tables["moments"]["n"].to_list() == every  # of each model's whole vocabulary


def test_a_list_without_human_scores_beside_one_that_has_them(small_run, study_of):
    for items in ("elo", "mine"):
        runs.add_items(small_run, items, "m-one", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(small_run, "elo", {"a": 2.0, "b": 1.0})
    study = study_of(small_run)
    assert study.tables.reason("humans_gap") is None
    blocks = humans.ANALYSIS.section(study).blocks
    notes = [block.text for block in blocks if getattr(block, "role", "") == "note"]
    assert notes == ["No human ranks of the items are known (mine)."]


def test_items_that_people_compared_too_rarely(small_run, study_of):
    assert study_of(small_run).tables.reason("humans_gap") == "No list of items was scored."
    runs.add_items(small_run, "elo", "m-one", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(small_run, "elo", {"a": 2.0, "b": 1.0}, matches=49)
    why = "No item of elo was compared by people 50 times or more."
    assert study_of(small_run).tables.reason("humans_gap") == why
    assert study_of(small_run, humans_matches=0).tables["humans_gap"].height == 2


def test_items_alone(make_run, study_of):
    run = make_run({}, {"m": None}, {})
    runs.add_items(run, "elo", "m", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(run, "elo", {"a": 2.0, "b": 1.0})
    tables = study_of(run).tables
    assert tables["models"]["vocabulary"].to_list() == [None]
    assert tables["humans_correlation"]["kendall"].to_list() == pytest.approx([-1.0])
    assert tables.reason("groups") == "No model scored its vocabulary."
    assert tables.of("top_bottom") == {}
    assert "humans_gap" in tables.files


def test_four_models_of_which_something_is_known_are_explained(make_run, study_of):
    scores = {(f"m{i}", "greatest"): [1.0, 2.0 * i, 3.0 + i % 2, -i] for i in range(4)}
    models = {f"m{i}": "v" for i in range(4)}
    about = {"developer": "d", "base": "B", "rewardbench_rank": None}
    infos = {m: ModelInfo(nickname=m, size_b=2.0**i, **about) for i, m in enumerate(models)}
    run = make_run({"v": ["love", "hate", "x", "y"]}, models, scores)
    study = study_of(run, infos=infos)
    (row,) = study.tables["rsa"].to_dicts()
    assert (row["prompt"], row["predictor"], row["pairs"]) == ("greatest", "size", 6)
    assert row["r_squared"] == pytest.approx(row["pearson_r"] ** 2)
    assert "rsa.csv" in [
        b.file for b in explained.ANALYSIS.section(study).blocks if b.kind == "rows"
    ]


def test_round_trips_asked_of_an_imported_vocabulary(make_run, study_of):
    scores = {("m", "greatest"): [1.0, 2.0], ("n", "greatest"): [1.0, 2.0]}
    run = make_run({"v": ["a", "b"]}, {"m": "v", "n": "v"}, scores)
    unknown = pl.read_parquet(run / "vocab/v.parquet").with_columns(
        round_trip=pl.lit(None, dtype=pl.String)
    )
    runs.add_table(run, "vocab/v.parquet", unknown)
    tables = study_of(run, shared_round_trip=True, shared_ends=True).tables
    why = "m: its vocabulary does not say which tokens round-trip."
    for name in (
        ["shared_vocabulary"],
        ["kendall_tau", "greatest"],
        ["shared_top_bottom", "greatest"],
    ):
        assert tables.reason(*name) == why
    assert tables["moments"]["n"].to_list() == [2, 2]  # of each model's whole vocabulary


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("shared_trim", 1, "True, False"),
        ("afinn", None, "a path, or ''"),
        ("match_trim", True, "'auto', 'always', 'never'"),
        ("frequency_join", "heads", "'forms', 'paper'"),
        ("humans_matches", -1, "integers >= 0"),
        ("permutations", 10, "integers >= 99"),
        ("rbo_p", 1.0, "numbers between 0 and 1"),
        ("framing", ("best", "best"), "two different prompt ids"),
    ],
)
def test_an_option_that_is_not_allowed_is_named(options, key, value, allowed):
    with pytest.raises(AssayError) as caught:
        options(**{key: value})
    assert str(caught.value) == f"analyze.options.{key}={value!r}; allowed: {allowed}"
