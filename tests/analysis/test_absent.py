"""Bad input: each table that cannot be made says why, and nothing fails."""

import polars as pl
import pytest

import analysis
from analysis import ModelInfo, Options, chapters
from engine.errors import AssayError
from engine.runs import schema

FEW = {"permutations": 99, "bootstraps": 99}


@pytest.fixture
def lexica(tmp_path):
    """Options whose lexicons know the tokens of `small_run`."""
    (tmp_path / "afinn.txt").write_text("love\t3\nhate\t-3\nx\t1\n", encoding="utf-8")
    (tmp_path / "bnc.txt").write_text(
        "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n", encoding="utf-8"
    )
    bing = "word,sentiment\nlove,positive\nhate,negative\n"
    (tmp_path / "bing.csv").write_text(bing, encoding="utf-8")
    names = {"afinn": "afinn.txt", "frequency": "bnc.txt", "bing": "bing.csv"}
    return Options(**FEW, **{key: str(tmp_path / name) for key, name in names.items()})


def compute(run, options, infos=None):
    return analysis.compute(analysis.load(run), infos or {}, 3, options)


def test_a_whole_run_has_its_tables_and_says_what_it_lacks(small_run, lexica):
    tables = compute(small_run, lexica)
    assert set(tables.absent) == {
        "kendall_tau_worst", "spearman_worst", "rbo_worst", "mds_worst", "rsa_worst",
        "rsa_greatest", "items_standing", "humans_correlation", "humans_gap", "identity",
        "sequences", "sequence_transfer", "objectives", "logprobs", "logprobs_rewards",
        "logprobs_ratio", "item_logprobs",
    }  # fmt: skip
    assert tables.absent["rsa_greatest"] == "What explains agreement takes 4 models or more."
    why = "Fewer than two models were scored under this prompt."
    assert tables.absent["kendall_tau_worst"] == why
    assert tables.rbo["greatest"].columns == ["model", "m-one", "m-two"]
    assert tables.mds["greatest"].columns == ["model", "x", "y", "stress"]
    assert tables.framing.select("model", "prompt_a", "prompt_b").rows() == [
        ("m-one", "greatest", "worst")
    ]
    assert tables.framing_sum["reward"].to_list() == [2.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert set(tables.matches["analysis"]) == {"sentiment", "frequency", "bing", "identity"}


def test_every_reason_is_one_sentence(small_run, lexica):
    for reason in compute(small_run, lexica).absent.values():
        assert reason.endswith(".")
        assert "\n" not in reason
        assert reason[0].isupper()


def test_one_model_only(make_run, lexica):
    run = make_run({"v": ["love", "hate", "x"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0]})
    tables = compute(run, lexica)
    why = "Only one model was scored: agreement needs two."
    assert tables.absent["kendall_tau_greatest"] == why
    assert tables.absent["framing"] == "No model was scored under two prompts."
    assert "variance" in tables.absent
    assert tables.kendall == tables.rsa == {}


def test_no_shared_tokens(make_run, lexica):
    scores = {("m1", "greatest"): [1.0, 2.0], ("m2", "greatest"): [1.0, 2.0]}
    run = make_run({"v1": ["a", "b"], "v2": ["c", "d"]}, {"m1": "v1", "m2": "v2"}, scores)
    tables = compute(run, lexica)
    why = "The models share no tokens, so their orders cannot be compared."
    assert tables.absent["kendall_tau_greatest"] == tables.absent["shared_vocabulary"] == why


def test_an_empty_lexicon_match(make_run, lexica):
    run = make_run({"v": ["a", "b"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    tables = compute(run, lexica)
    assert tables.absent["sentiment_slopes"].startswith("No token matches a word of ")
    assert tables.absent["sentiment_slopes"].endswith("(not trimmed, any case).")
    assert tables.absent["frequency_slopes"].startswith("It needs sentiment. No token matches")
    assert tables.absent["identity"] == "No token is one of the identity terms."
    assert tables.sentiment_slopes.columns == [
        "model", "prompt", "valence", "slope", "stderr", "p", "n"
    ]  # fmt: skip
    assert tables.matches.filter(analysis="sentiment")["tokens"].to_list() == [0]


def test_a_lexicon_that_is_not_there(small_run):
    options = Options(**FEW, afinn="nowhere.txt", identity="nowhere.csv")
    absent = compute(small_run, options).absent
    assert absent["sentiment_slopes"] == "No lexicon: nowhere.txt: No such file or directory."
    assert absent["bing_effects"] == "No Bing lexicon was named (options.bing)."
    assert absent["identity"] == "No identity terms: nowhere.csv: No such file or directory."


def test_no_matched_word_of_known_frequency(small_run, lexica, tmp_path):
    (tmp_path / "bnc.txt").write_text("\tother\tNoC\t:\t150\t100\t0.9\n", encoding="utf-8")
    assert compute(small_run, lexica).absent["frequency_slopes"].startswith("No matched word is in")


def test_a_list_without_human_scores(small_run, lexica, add_items):
    add_items(small_run, "elo", "m-one", "greatest", {"a": 1.0, "b": 2.0})
    absent = compute(small_run, lexica).absent
    assert absent["humans_gap"] == "What people think of the items is not known (elo)."


def test_a_list_without_human_scores_beside_one_that_has_them(
    small_run, lexica, add_items, add_humans
):
    for items in ("elo", "mine"):
        add_items(small_run, items, "m-one", "greatest", {"a": 1.0, "b": 2.0})
    add_humans(small_run, "elo", {"a": 2.0, "b": 1.0})
    tables = compute(small_run, lexica)
    assert "humans_gap" not in tables.absent
    (people,) = (c for c in chapters.chapters(tables) if c.id == "humans")
    notes = [block.note for block in people.blocks if block.note]
    assert notes == ["What people think of the items is not known (mine)."]


def test_what_searches_found_is_no_list_for_people(small_run, lexica, add_items):
    add_items(small_run, schema.FOUND + "85908000", "m-one", "greatest", {"a": 1.0, "b": 2.0})
    assert compute(small_run, lexica).absent["humans_gap"] == "No list of items was scored."


def test_items_alone(make_run, lexica, add_items, add_humans, edit):
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]})
    edit(run, lambda content: content["results"].clear())
    edit(run, lambda content: content["models"]["m"].update(vocab=None))
    add_items(run, "elo", "m", "greatest", {"a": 1.0, "b": 2.0})
    add_humans(run, "elo", {"a": 2.0, "b": 1.0})
    tables = compute(run, lexica)
    assert tables.models["vocabulary"].to_list() == [None]
    assert tables.humans_correlation["kendall"].to_list() == pytest.approx([-1.0])
    assert tables.absent["identity"] == "No model scored its vocabulary."
    assert tables.top_bottom == {}
    assert "humans_gap" in tables.named()


def test_a_model_that_scores_every_token_alike(make_run, lexica):
    scores = {("m1", "greatest"): [1.0, 2.0], ("m2", "greatest"): [3.0, 3.0]}
    run = make_run({"v": ["love", "hate"]}, {"m1": "v", "m2": "v"}, scores)
    assert "Fewer than two models have an order" in compute(run, lexica).absent["mds_greatest"]


def test_models_of_which_nothing_is_known(make_run, lexica):
    scores = {(f"m{i}", "greatest"): [1.0, 2.0 * i, 3.0, -i] for i in range(4)}
    models = {f"m{i}": "v" for i in range(4)}
    run = make_run({"v": ["love", "hate", "x", "y"]}, models, scores)
    absent = compute(run, lexica).absent
    assert absent["rsa_greatest"].startswith("Neither bases, developers, sizes nor ranks")


def test_four_models_of_which_something_is_known_are_explained(make_run, lexica):
    scores = {(f"m{i}", "greatest"): [1.0, 2.0 * i, 3.0 + i % 2, -i] for i in range(4)}
    models = {f"m{i}": "v" for i in range(4)}
    about = {"developer": "d", "base": "B", "rewardbench_rank": None}
    infos = {m: ModelInfo(nickname=m, size_b=2.0**i, **about) for i, m in enumerate(models)}
    run = make_run({"v": ["love", "hate", "x", "y"]}, models, scores)
    tables = compute(run, lexica, infos)
    assert tables.rsa["greatest"]["predictor"].to_list() == ["size"]
    assert tables.rsa_fit.columns == ["prompt", "predictors", "pairs", "r_squared", "p", "max_vif"]


def test_round_trips_asked_of_an_imported_vocabulary(make_run, lexica):
    run = make_run({"v": ["a", "b"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    (path,) = (run / "vocab").iterdir()
    pl.read_parquet(path).with_columns(round_trip=pl.lit(None, dtype=pl.String)).write_parquet(path)
    tables = compute(run, Options(**FEW, shared_round_trip=True))
    assert tables.absent["shared_vocabulary"] == (
        "m: its vocabulary does not say which tokens round-trip."
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("shared_trim", 1, "True, False"),
        ("afinn", None, "a path, or ''"),
        ("permutations", 10, "integers >= 99"),
        ("bootstraps", 1e3, "integers >= 99"),
        ("seed", -1, "integers >= 0"),
        ("rbo_p", 1.0, "numbers between 0 and 1"),
        ("framing", ("best", "best"), "two different prompt ids"),
    ],
)
def test_an_option_that_is_not_allowed_is_named(key, value, allowed):
    with pytest.raises(AssayError) as caught:
        Options(**{key: value})
    assert str(caught.value) == f"analyze.options.{key}={value!r}; allowed: {allowed}"
