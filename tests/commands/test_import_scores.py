"""`import_scores`: scores come back as they were released, or are refused in one line."""

import re

import numpy as np
import polars as pl
import pytest

import analysis
from configs import known_models, prompts
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.verify import verify
from launch.common.released_files import files, model_id, read, slugged
from tests.support.released import (
    ELO,
    LONG,
    PROMPT,
    TOKENS,
    WORDS,
    import_elo,
    import_one,
    logprobs,
    wide,
)


def test_items_come_back_with_rewards_and_humans(source, tmp_path):
    run = str(tmp_path / "run")
    said = import_elo(source(ELO), run)
    counted = "1 file, 2 models, 1 prompt, 6 rewards, with humans"
    assert said == f"{run}/items/some-list: {counted}"
    loaded = analysis.load(run)
    ((items, prompt),) = loaded.lists()
    assert loaded.prompts[prompt] == PROMPT
    table = loaded.item_scores(items, prompt)
    assert table.columns == ["item_id", "item", "model-a", "model.b_v2"]
    assert table["item"].to_list() == ["Water", "null", "007"]
    assert table["model-a"].to_list() == [1.5, -0.5, 2.0]
    humans = loaded.humans(items)
    assert humans["elo_score"].to_list() == [1700.0, 1600.0, 1600.0]
    assert humans["elo_rank"].to_list() == [1, 2, 3]


def test_tokens_come_back_with_their_strings_and_prompts(source, tmp_path):
    run = str(tmp_path / "run")
    import_one(source(TOKENS), run, "tokens", model="Org/Model-A")
    loaded = analysis.load(run)
    assert set(loaded.prompts.values()) == {
        "What, in one word, is the greatest thing ever?",
        "What, of all?",
    }
    frame = loaded.scores(prompts=["greatest"]).collect()
    assert frame["token"].to_list() == ["null", " love", "", "<|eot|>"]
    assert frame["reward"].to_list() == [-1.0, 2.5, 0.0, 0.25]
    assert frame["is_special"].to_list() == [False, False, False, True]
    assert frame["round_trip"].null_count() == 4


# Lists without people


def test_a_list_with_a_column_per_prompt_comes_back(source, tmp_path):
    path = source(WORDS, "Ray2333--GRM-gemma2-2B-rewardmodel-ft.csv")
    import_one(path, tmp_path / "run", "items", items="big-two")
    loaded = analysis.load(tmp_path / "run")
    best, terrible = "best-ever-one-word", "most_terrible-of_all_time-answer-only"
    assert loaded.lists() == [("big-two", best), ("big-two", terrible)]
    assert loaded.prompts[terrible] == prompts.FOLLOW_UP[terrible]
    table = loaded.item_scores("big-two", best)
    assert table["item"].to_list() == ["love", "war", "love"]
    assert table["grm-gemma2-2b-rewardmodel-ft"].to_list() == [1.5, -3.0, 1.25]
    assert loaded.item_scores("big-two", terrible).to_series(2).to_list() == [-2.0, 0.5, -2.0]
    assert loaded.humans("big-two") is None


def test_a_long_table_comes_back_and_its_rows_may_be_in_any_order(source, tmp_path):
    import_one(source(LONG, "words.csv"), tmp_path / "run", "long")
    loaded = analysis.load(tmp_path / "run")
    assert loaded.lists() == [("words", "greatest"), ("words", "worst")]
    gemma = "grm-gemma2-2b-rewardmodel-ft"
    assert loaded.item_scores("words", "worst").rows() == [(0, "love", -2.0), (1, "war", -1.0)]
    table = loaded.item_scores("words", "greatest", [gemma, "other"])
    assert table.rows() == [(0, "love", 1.0, 5.0), (1, "war", 2.0, 6.0)]
    assert loaded.models["other"]["source"] == "Org/Other"


def test_a_folder_of_csv_and_parquet_files_is_one_list(source, tmp_path):
    """Each file has its own order of the items."""
    folder, names = tmp_path / "Big Two", [name for name in prompts.RELEASED if "_" in name]
    folder.mkdir()
    models = [spec.hub_id for spec in known_models.MODELS.values()]
    words = np.array([f"w{i}" for i in range(5)])
    for index, model in enumerate(models):
        order = np.roll(np.arange(5), index)
        values = {name: 10.0 * place + order + index for place, name in enumerate(names)}
        frame = pl.DataFrame({"response": words[order], **values})
        path = folder / f"big2_rewards_{model.replace('/', '_')}"
        write = (frame.write_csv, frame.write_parquet)[index % 2]
        write(path.with_name(f"{path.name}{('.csv', '.parquet')[index % 2]}"))
    (folder / "notes.txt").write_text("not a table")
    (folder / ".hidden.csv").write_text("nor this one")
    said = import_one(folder, tmp_path / "run", "items", column="response")
    where = f"{tmp_path / 'run'}/items/big-two"
    assert said == f"{where}: 10 files, 10 models, 54 prompts, 2,700 rewards"
    loaded = analysis.load(tmp_path / "run")
    assert set(loaded.models) == set(known_models.MODELS)
    table = loaded.item_scores("big-two", "worst-in_the_world-single-word")
    place = names.index("worst_world_single")
    for index, model in enumerate(models):
        assert table[slugged(model)].to_list() == [10 * place + i + index for i in range(5)]


def test_of_a_table_in_both_formats_one_is_taken(source, tmp_path):
    path = source(LONG)
    frame = pl.read_csv(path, schema_overrides={"item": pl.String})
    frame.write_parquet(path.with_suffix(".parquet"))
    assert files(str(path.parent)) == [path.with_suffix(".parquet")]
    frame.with_columns(pl.col("reward") + 1).write_parquet(path.with_suffix(".parquet"))
    with pytest.raises(
        AssayError, match=r"other values than in .*parquet; allowed: one of the two"
    ):
        files(str(path.parent))


def test_files_are_named_one_by_one_even_with_commas_in_their_names(source, tmp_path):
    """A file's name may be the text of its prompt."""
    texts = [prompts.ELO["elo_greatest"], prompts.ELO["elo_prefer"]]
    paths = [source(ELO, f"{text.removesuffix('?')}.csv") for text in texts]
    import_one(",".join(map(str, paths)), tmp_path / "run", "elo", items="elo")
    loaded = analysis.load(tmp_path / "run")
    assert loaded.lists() == [("elo", "elo_greatest"), ("elo", "elo_prefer")]
    assert loaded.humans("elo").height == 3


# Log-probabilities


def test_log_probabilities_of_a_vocabulary_come_back(tmp_path):
    frame = logprobs(["greatest", "worst"])
    frame.write_csv(tmp_path / "google--gemma-2-2b.csv")
    frame.write_parquet(tmp_path / "google--gemma-2-2b-it.parquet")
    run = tmp_path / "run"
    base, tuned = tmp_path / "google--gemma-2-2b.csv", tmp_path / "google--gemma-2-2b-it.parquet"
    import_one(base, run, "tokens", values="logprobs")
    import_one(tuned, run, "tokens", values="logprobs", form="chat")
    rewards = frame.with_columns(pl.col("greatest") * 3, pl.col("worst").abs())
    rewards.write_csv(tmp_path / "R-Gem-2B.csv")
    import_one(tmp_path / "R-Gem-2B.csv", run, "tokens")
    loaded = analysis.load(run)
    asked = {("gemma-2-2b", p) for p in ("greatest", "worst")}
    asked |= {("gemma-2-2b-it", f"{p}.chat") for p in ("greatest", "worst")}
    assert set(loaded.logprobs) == asked
    found = loaded.next_tokens("gemma-2-2b", "worst")
    np.testing.assert_allclose(found["logprob"], frame["worst"].cast(pl.Float32))
    assert found["token"].to_list() == frame["token_decoded"].to_list()
    against = analysis.logprobs_rewards(loaded, ["grm-gemma2-2b-rewardmodel-ft"])
    same = against.filter(language_model="gemma-2-2b-it", prompt="greatest.chat")
    assert same["spearman"].item() == pytest.approx(1)
    assert same["n"].item() == 40


def test_logits_are_normalised(tmp_path):
    frame = logprobs(["best", "worst"])
    shifted = frame.with_columns(pl.col("best") + 800, pl.col("worst") - 7.5)
    for name, table in {"a": frame, "b": shifted}.items():
        table.write_csv(tmp_path / f"{name}.csv")
    import_one(tmp_path / "a.csv", tmp_path / "run", "tokens", values="logprobs")
    import_one(tmp_path / "b.csv", tmp_path / "run", "tokens", values="logits")
    loaded = analysis.load(tmp_path / "run")
    for prompt in ("best", "worst"):
        a, b = (loaded.next_tokens(model, prompt)["logprob"] for model in "ab")
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_log_probabilities_of_a_list_come_back(source, tmp_path):
    wide = "item,tokens,greatest\nlove,1,-2.5\ntrue love,2,-7\n"
    long = "item,tokens,model,prompt,logprob\nlove,1,m,greatest,-3\ntrue love,3,m,greatest,-4\n"
    said = {"items": "words", "values": "logprobs"}
    import_one(source(wide, "google--gemma-2b.csv"), tmp_path / "run", "items", **said)
    import_one(source(long, "long.csv"), tmp_path / "run", "long", **said)
    loaded = analysis.load(tmp_path / "run")
    rows = loaded.replies("words", "gemma-2b", "greatest").rows()
    assert rows == [(0, "love", 1, -2.5), (1, "true love", 2, -7.0)]
    assert loaded.replies("words", "m", "greatest")["tokens"].to_list() == [1, 3]


# Names


@pytest.mark.parametrize("spec", known_models.KNOWN.values(), ids=lambda spec: spec.slug)
def test_a_published_model_is_found_by_every_spelling_of_its_name(spec):
    dashed = spec.hub_id.replace("/", "--")
    scored = f"MFD20_rewards_{spec.hub_id.replace('/', '_')}"
    for name in (spec.hub_id, dashed, dashed.lower(), scored, spec.nickname, spec.slug):
        assert model_id(name) == spec.hub_id
    assert slugged(model_id(dashed)) == spec.slug


def test_other_models_keep_their_names():
    assert model_id("org--my--model") == "org/my--model"
    assert model_id("my_GRM-gemma2-2B-rewardmodel-ft") == "my_GRM-gemma2-2B-rewardmodel-ft"


# Where numbers came from


def test_a_result_says_from_which_file_it_came_and_its_bytes_are_imported_once(source, tmp_path):
    """Under any file name; what was imported is verified like any run."""
    path, run = source(WORDS, "a.csv"), tmp_path / "run"
    import_one(path, run, "items", items="words", model="a")
    said = {"layout": "items", "source": "a.csv", "mode": "imported"}
    for result in analysis.load(run).items.values():
        assert result.fingerprint == {**said, "source_sha256": read(path).sha256}
    before = (run / "manifest.json").read_bytes()
    for name in ("a.csv", "b.csv"):
        import_one(source(WORDS, name), run, "items", items="words", model="a")
        assert (run / "manifest.json").read_bytes() == before
    logprobs(["best"]).write_csv(tmp_path / "b.csv")
    import_one(tmp_path / "b.csv", run, "tokens", values="logprobs")
    found = verify(storage.path_of(run))
    assert (found.problems, found.files) == ([], 3)


# Refusals


def test_other_scores_under_the_same_name_are_refused(source, tmp_path):
    run = str(tmp_path / "run")
    import_elo(source(ELO), run)
    with pytest.raises(AssayError, match="was begun with source_sha256="):
        import_elo(source(ELO.replace("1.5", "1.25")), run)
    with pytest.raises(AssayError, match="list 'some-list' is there already"):
        import_elo(source(ELO.replace("Water", "Wine")), run)
    with pytest.raises(
        AssayError, match="other human scores of the list 'some-list' are there already"
    ):
        import_elo(source(ELO.replace("1700", "1701")), run, "Another prompt?")
    assert analysis.load(run).humans("some-list")["elo_score"][0] == 1700


BAD = {
    "a header of another layout": (
        *("elo", ELO.replace("elo_score", "score"), {}),
        "columns elo_rank, score, .* layout 'elo' is elo_rank, .*, then one column per model",
    ),
    "no number": ("elo", ELO.replace("-0.5", "nan"), {}, "'Org/Model-A', row 2: 'nan' is no fin"),
    "an empty item": ("elo", ELO.replace("1600,null", "1600,"), {}, "'name' is empty in row 2"),
    "an item twice": ("elo", ELO.replace("null", "Water"), {}, "rows 1 and 2 are both name 'Water"),
    "two models of one name": (
        *("elo", ELO.replace("Org/Model.B_v2", "other/model-a"), {}),
        "other/model-a under 'what-is-best-.*' is in a.csv already",
    ),
    "a file that says no prompt": (
        *("items", "word,score\nlove,1\n", {}),
        r"--prompt is missing: .*a\.csv does not say .*; allowed: .*greatest, best, worst, elo_",
    ),
    "a prompt beside those of the columns": (
        *("items", wide("word,best,worst"), {"prompt": "best"}),
        "--prompt='best', but its columns name their prompts",
    ),
    "a long table that lacks an item": (
        *("long", LONG.replace("worst,R-Gem-2B,-1,war\n", ""), {}),
        "other items than the rest of the list 'w': 'war' is not here",
    ),
    "a long table with an item twice": (
        *("long", LONG + "greatest,R-Gem-2B,3,love\nworst,R-Gem-2B,3,love\n", {}),
        "a.csv: rows 1 and 7 are both model 'R-Gem-2B', prompt 'greatest', item 'love'; allowed: ",
    ),
    "log-probabilities as rewards": (
        *("tokens", logprobs(["best"]).write_csv(), {}),
        "column 'best' holds log-probabilities, not rewards; allowed: --values=logprobs",
    ),
    "probabilities that sum to more than 1": (
        *("tokens", logprobs(["best"]).with_columns(pl.col("best") * 0.5).write_csv()),
        *({"values": "logprobs"}, "column 'best': its probabilities sum to .*; allowed: at most 1"),
    ),
}


@pytest.mark.parametrize(("layout", "text", "said", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_one_line_and_nothing_is_written(
    source, tmp_path, layout, text, said, message
):
    default = {"elo": {"prompt": PROMPT}, "tokens": {}}.get(layout, {"items": "w"})
    with pytest.raises(AssayError, match=message) as caught:
        import_one(source(text, "a.csv"), tmp_path / "run", layout, **default | said)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_bad_file_among_good_ones_writes_nothing(source, tmp_path):
    good = source(WORDS, "a.csv")
    said = {"layout": "items", "items": "words"}
    for text, message in {
        WORDS.replace("war", "peace"): "b.csv: other items .*'peace' is only here (2 such",
        WORDS.replace("1.25", "x"): "b.csv: column 'best_ever_one', row 3: 'x' is no finite",
        WORDS.replace("\nlove,1.5,-2\nwar,-3,0.5", "\nwar,-3,0.5\nlove,1.5,-2"): "repeated items",
    }.items():
        bad = source(text, "b.csv")
        with pytest.raises(AssayError, match=re.escape(message).replace(r"\.\*", ".*")):
            import_one(f"{good},{bad}", tmp_path / "run", **said)
        assert not (tmp_path / "run").exists()


def test_two_files_of_one_model_are_refused(source, tmp_path):
    paths = [source(WORDS, name) for name in ("LxzGordon--URM-LLaMa-3.1-8B.csv", "L-Lla-8B.csv")]
    with pytest.raises(AssayError, match="under 'best-ever-one-word' is in LxzGordon--URM"):
        import_one(",".join(map(str, paths)), tmp_path / "run", "items", items="w")
    assert not (tmp_path / "run").exists()
