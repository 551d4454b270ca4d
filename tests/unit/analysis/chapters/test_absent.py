"""Bad input: each table that cannot be made says why, and nothing fails."""

import dataclasses

import polars as pl
import pytest

from analysis import CHAPTERS, ModelInfo
from analysis.chapters import explained, humans
from engine.errors import AssayError
from engine.runs import schema
from tests.support import runs


@pytest.fixture
def lexica(tmp_path, options):
    """Options whose lexicons know the tokens of `small_run`."""
    (tmp_path / "afinn.txt").write_text("love\t3\nhate\t-3\nx\t1\n", encoding="utf-8")
    (tmp_path / "bnc.txt").write_text(
        "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n", encoding="utf-8"
    )
    bing = "word,sentiment\nlove,positive\nhate,negative\n"
    (tmp_path / "bing.csv").write_text(bing, encoding="utf-8")
    names = {"afinn": "afinn.txt", "frequency": "bnc.txt", "bing": "bing.csv"}
    return options(**{key: str(tmp_path / name) for key, name in names.items()})


@pytest.fixture
def study_of(study_of):
    """A run folder, options and metadata -> the study with every table."""
    return lambda run, options, infos=None: study_of(
        run, *CHAPTERS, infos=infos, top=3, **vars(options)
    )


@pytest.fixture
def compute(study_of):
    """A run folder, options and metadata -> every table."""
    return lambda *arguments: study_of(*arguments).tables


@pytest.fixture
def absent_of(study_of):
    """A run folder and options -> key of each absent table, joined by "_" -> the reason."""

    def absent(*arguments):
        reasons = study_of(*arguments).tables.absent
        return {"_".join(key): reason for key, reason in reasons.items()}

    return absent


def test_a_whole_run_has_its_tables_and_says_what_it_lacks_in_sentences(small_run, lexica, compute):
    tables = compute(small_run, lexica)
    for reason in tables.absent.values():
        assert reason.endswith(".") and "\n" not in reason and reason[0].isupper()
    assert tables.reason("rsa") == "What explains agreement takes 4 models or more."
    why = "Fewer than two models were scored under this prompt."
    for name in ("kendall_tau", "spearman", "rbo", "mds"):
        assert tables.reason(name, "worst") == why
    assert tables["rbo", "greatest"].columns == ["model", "m-one", "m-two"]
    assert tables["mds", "greatest"].columns == ["model", "x", "y", "stress"]
    assert tables["framing"].select("model", "prompt_a", "prompt_b").rows() == [
        ("m-one", "greatest", "worst")
    ]
    assert tables["framing_sum"]["reward"].to_list() == [2.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    matched = {name for (name,) in tables.of("matches")}
    assert matched == {"sentiment", "frequency", "bing", "identity"}


def test_one_model_only(make_run, lexica, compute):
    run = make_run({"v": ["love", "hate", "x"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0]})
    tables = compute(run, lexica)
    why = "Only one model was scored: agreement needs two."
    assert tables.reason("kendall_tau", "greatest") == why
    assert tables.reason("framing") == "No model was scored under two prompts."
    assert tables.reason("variance")
    assert tables.of("kendall_tau") == {} and tables.reason("rsa") == why


def test_no_shared_tokens(make_run, lexica, compute):
    scores = {("m1", "greatest"): [1.0, 2.0], ("m2", "greatest"): [1.0, 2.0]}
    run = make_run({"v1": ["a", "b"], "v2": ["c", "d"]}, {"m1": "v1", "m2": "v2"}, scores)
    tables = compute(run, lexica)
    why = "The models share no tokens, so their orders cannot be compared."
    assert tables.reason("kendall_tau", "greatest") == why
    assert tables.files["shared_vocabulary"].height == 0
    assert tables["moments"]["n"].to_list() == [2, 2]  # of each model's whole vocabulary


def test_an_empty_lexicon_match(make_run, lexica, compute):
    run = make_run({"v": ["a", "b"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    tables = compute(run, lexica)
    why = tables.reason("sentiment_slopes")
    assert why.startswith("No token matches a word of ")
    assert why.endswith("(outer spaces ignored, any case).")
    needs = "Frequency needs the words of the sentiment lexicon. "
    assert tables.reason("frequency_slopes") == needs + why
    assert tables.reason("identity") == "No token is one of the identity terms."
    assert tables["matches", "sentiment"]["tokens"].to_list() == [0]


def test_a_lexicon_that_is_not_there(small_run, options, absent_of):
    absent = absent_of(small_run, options(afinn="nowhere.txt", identity="nowhere.csv"))
    assert absent["sentiment_slopes"] == "No lexicon: nowhere.txt: No such file or directory."
    assert absent["bing_effects"] == "No Bing lexicon was named (options.bing)."
    assert absent["identity"] == "No identity terms: nowhere.csv: No such file or directory."


def test_no_matched_word_of_known_frequency(small_run, lexica, tmp_path, absent_of):
    (tmp_path / "bnc.txt").write_text("\tother\tNoC\t:\t150\t100\t0.9\n", encoding="utf-8")
    absent = absent_of(small_run, lexica)
    assert absent["frequency_slopes"].startswith("No matched word is in")


def test_a_list_without_human_scores_beside_one_that_has_them(small_run, lexica, study_of):
    for items in ("elo", "mine"):
        runs.add_items(small_run, items, "m-one", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(small_run, "elo", {"a": 2.0, "b": 1.0})
    study = study_of(small_run, lexica)
    assert study.tables.reason("humans_gap") is None
    blocks = humans.ANALYSIS.section(study).blocks
    notes = [block.text for block in blocks if getattr(block, "role", "") == "note"]
    assert notes == ["No human ranks of the items are known (mine)."]


def test_items_that_people_compared_too_rarely(small_run, lexica, study_of):
    runs.add_items(small_run, "elo", "m-one", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(small_run, "elo", {"a": 2.0, "b": 1.0}, matches=49)
    why = "No item of elo was compared by people 50 times or more."
    assert study_of(small_run, lexica).tables.reason("humans_gap") == why
    paper = dataclasses.replace(lexica, humans_matches=0)
    assert study_of(small_run, paper).tables["humans_gap"].height == 2


def test_what_searches_found_is_no_list_for_people(small_run, lexica, absent_of):
    runs.add_items(small_run, schema.FOUND + "85908000", "m-one", "greatest", {"a": 1.0, "b": 2.0})
    assert absent_of(small_run, lexica)["humans_gap"] == "No list of items was scored."


def test_items_alone(make_run, lexica, compute):
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]})
    runs.edit_manifest(run, lambda content: content["results"].clear())
    runs.edit_manifest(run, lambda content: content["models"]["m"].update(vocab=None))
    runs.add_items(run, "elo", "m", "greatest", {"a": 1.0, "b": 2.0})
    runs.add_humans(run, "elo", {"a": 2.0, "b": 1.0})
    tables = compute(run, lexica)
    assert tables["models"]["vocabulary"].to_list() == [None]
    assert tables["humans_correlation"]["kendall"].to_list() == pytest.approx([-1.0])
    assert tables.reason("identity") == "No model scored its vocabulary."
    assert tables.of("top_bottom") == {}
    assert "humans_gap" in tables.files


def test_a_model_that_scores_every_token_alike(make_run, lexica, absent_of):
    scores = {("m1", "greatest"): [1.0, 2.0], ("m2", "greatest"): [3.0, 3.0]}
    run = make_run({"v": ["love", "hate"]}, {"m1": "v", "m2": "v"}, scores)
    assert "Fewer than two models have an order" in absent_of(run, lexica)["mds_greatest"]


def test_models_of_which_nothing_is_known(make_run, lexica, absent_of):
    scores = {(f"m{i}", "greatest"): [1.0, 2.0 * i, 3.0, -i] for i in range(4)}
    models = {f"m{i}": "v" for i in range(4)}
    run = make_run({"v": ["love", "hate", "x", "y"]}, models, scores)
    absent = absent_of(run, lexica)
    assert absent["rsa"].startswith("No base, developer, size or rank is known")


def test_four_models_of_which_something_is_known_are_explained(make_run, lexica, study_of):
    scores = {(f"m{i}", "greatest"): [1.0, 2.0 * i, 3.0 + i % 2, -i] for i in range(4)}
    models = {f"m{i}": "v" for i in range(4)}
    about = {"developer": "d", "base": "B", "rewardbench_rank": None}
    infos = {m: ModelInfo(nickname=m, size_b=2.0**i, **about) for i, m in enumerate(models)}
    run = make_run({"v": ["love", "hate", "x", "y"]}, models, scores)
    study = study_of(run, lexica, infos)
    (row,) = study.tables["rsa"].to_dicts()
    assert (row["prompt"], row["predictor"], row["pairs"]) == ("greatest", "size", 6)
    assert row["r_squared"] == pytest.approx(row["pearson_r"] ** 2)
    assert "rsa.csv" in [
        b.file for b in explained.ANALYSIS.section(study).blocks if b.kind == "rows"
    ]


def test_round_trips_asked_of_an_imported_vocabulary(make_run, options, compute):
    scores = {("m", "greatest"): [1.0, 2.0], ("n", "greatest"): [1.0, 2.0]}
    run = make_run({"v": ["a", "b"]}, {"m": "v", "n": "v"}, scores)
    (path,) = (run / "vocab").iterdir()
    pl.read_parquet(path).with_columns(round_trip=pl.lit(None, dtype=pl.String)).write_parquet(path)
    tables = compute(run, options(shared_round_trip=True, shared_ends=True))
    why = "m: its vocabulary does not say which tokens round-trip."
    assert tables.reason("shared_vocabulary") == why
    assert tables.reason("kendall_tau", "greatest") == why
    assert tables.reason("shared_top_bottom", "greatest") == why
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
