"""`import_scores`: scores come back as they were released, or are refused in one line."""

import numpy as np
import polars as pl
import pytest

import analysis
from configs import known_models, prompts
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.verify import verify
from launch.common.released_scores import model_id, read, slugged
from tests.support.released import ELO, PROMPT, STEPS, TOKENS, import_elo, import_one, logprobs


def test_items_come_back_with_rewards_and_humans(source, tmp_path):
    run = str(tmp_path / "run")
    line = import_elo(source(ELO), run)
    counted = "1 file, 2 models, 1 prompt, 6 rewards, with humans"
    assert line == f"{run}/items/some-list: {counted}"
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


@pytest.mark.parametrize("layout", ["items", "tokens"])
def test_columns_of_steps_are_a_training_run(source, tmp_path, layout):
    """A list without people may hold a reply twice; of tokens, each once."""
    tokens = (
        "token_id,token_decoded,step-100,step-50\n0,love,1.5,-2\n1,war,-3,0.5\n2,Love,1.25,-2\n"
    )
    path = source(STEPS if layout == "items" else tokens, "me--mine.csv")
    import_one(path, tmp_path / "run", layout, prompt="best")
    loaded = analysis.load(tmp_path / "run")
    assert loaded.prompts == {"best": prompts.PROMPTS["best"]}
    assert loaded.models["mine-step-50"]["source"] == "me/mine-step-50"
    if layout == "items":
        table = loaded.item_scores("me--mine", "best")
        assert table["item"].to_list() == ["love", "war", "love"]
        assert table["mine-step-50"].to_list() == [-2.0, 0.5, -2.0]
        assert loaded.humans("me--mine") is None
    else:
        assert loaded.rewards("mine-step-50", "best")[1].tolist() == [-2.0, 0.5, -2.0]
        assert loaded.rewards("mine-step-100", "best")[1].tolist() == [1.5, -3.0, 1.25]


def test_a_folder_of_csv_and_parquet_files_is_one_list(source, tmp_path):
    """Each file is named after its prompt."""
    folder = tmp_path / "Two Prompts"
    folder.mkdir()
    frame = pl.DataFrame({"item": ["love", "war"], "Org/A": [1.0, 2.0], "B": [3.0, 4.0]})
    frame.write_csv(folder / "What one single thing, person, or concept is the greatest ever.csv")
    frame.with_columns(pl.col("Org/A") + 1).write_parquet(folder / "best.parquet")
    (folder / "notes.txt").write_text("not a table")
    (folder / ".hidden.csv").write_text("nor this one")
    line = import_one(folder, tmp_path / "run", "items")
    path = f"{tmp_path / 'run'}/items/two-prompts"
    assert line == f"{path}: 2 files, 2 models, 2 prompts, 8 rewards"
    loaded = analysis.load(tmp_path / "run")
    assert set(loaded.lists()) == {("two-prompts", "best"), ("two-prompts", "elo_greatest")}
    table = loaded.item_scores("two-prompts", "best")
    assert table.rows() == [(0, "love", 2.0, 3.0), (1, "war", 3.0, 4.0)]


def test_log_probabilities_of_a_vocabulary_come_back_and_logits_are_normalised(tmp_path):
    frame = logprobs(["greatest", "worst"])
    frame.write_csv(tmp_path / "google--gemma-2-2b.csv")
    frame.write_parquet(tmp_path / "google--gemma-2-2b-it.parquet")
    run, place = tmp_path / "run", tmp_path / "google--gemma-2-2b"
    import_one(f"{place}.csv", run, "tokens", values="logprobs")
    import_one(f"{place}-it.parquet", run, "tokens", values="logprobs", form="chat")
    shifted = frame.with_columns(pl.col("greatest") + 800, pl.col("worst") - 7.5)
    shifted.write_csv(tmp_path / "logits.csv")
    import_one(tmp_path / "logits.csv", run, "tokens", values="logits")
    rewards = frame.with_columns(pl.col("greatest") * 3, pl.col("worst").abs())
    rewards.write_csv(tmp_path / "GRM-gemma2-2B-rewardmodel-ft.csv")
    import_one(tmp_path / "GRM-gemma2-2B-rewardmodel-ft.csv", run, "tokens")
    loaded = analysis.load(run)
    models = {"gemma-2-2b": "", "logits": "", "gemma-2-2b-it": ".chat"}.items()
    asked = {(model, f"{p}{form}") for model, form in models for p in ("greatest", "worst")}
    assert set(loaded.logprobs) == asked
    found = loaded.next_tokens("gemma-2-2b", "worst")
    np.testing.assert_allclose(found["logprob"], frame["worst"].cast(pl.Float32))
    logits = loaded.next_tokens("logits", "worst")
    np.testing.assert_allclose(logits["logprob"], found["logprob"], rtol=1e-5)
    against = analysis.logprobs_rewards(loaded, ["grm-gemma2-2b-rewardmodel-ft"])
    same = against.filter(language_model="gemma-2-2b-it", prompt="greatest.chat")
    assert (same["spearman"].item(), same["n"].item()) == (pytest.approx(1), 40)


def test_a_published_model_is_found_by_its_name_and_others_keep_theirs():
    for spec in known_models.KNOWN.values():
        dashed = spec.hub_id.replace("/", "--")
        for name in (spec.hub_id, dashed, dashed.lower(), spec.slug):
            assert model_id(name) == spec.hub_id
        assert slugged(model_id(dashed)) == spec.slug
    assert model_id("org--my--model") == "org/my--model"
    assert model_id("my_GRM-gemma2-2B-rewardmodel-ft") == "my_GRM-gemma2-2B-rewardmodel-ft"


def test_a_result_says_from_which_file_it_came_and_its_bytes_are_imported_once(source, tmp_path):
    """Under any file name; what was imported is verified like any run."""
    path, run = source(STEPS, "a.csv"), tmp_path / "run"
    import_one(path, run, "items", items="words", model="a", prompt="best")
    for result in analysis.load(run).items.values():
        assert result.imported and result.ways[0]["source"] == "a.csv"
        assert result.identity.imported == {"layout": "items", "source_sha256": read(path).sha256}
    before = {file: file.read_bytes() for file in run.rglob("*.json")}
    for name in ("a.csv", "b.csv"):
        import_one(source(STEPS, name), run, "items", items="words", model="a", prompt="best")
        assert {file: file.read_bytes() for file in run.rglob("*.json")} == before
    logprobs(["best"]).write_csv(tmp_path / "b.csv")
    import_one(tmp_path / "b.csv", run, "tokens", values="logprobs")
    found = verify(storage.path_of(run))
    assert (found.problems, found.files) == ([], 3)


def test_other_scores_under_the_same_name_are_refused(source, tmp_path):
    run = str(tmp_path / "run")
    import_elo(source(ELO), run)
    with pytest.raises(AssayError, match=r"imported\.source_sha256="):
        import_elo(source(ELO.replace("1.5", "1.25")), run)
    with pytest.raises(AssayError, match="list 'some-list'"):
        import_elo(source(ELO.replace("Water", "Wine")), run)
    with pytest.raises(AssayError, match=r"human .*'some-list'"):
        import_elo(source(ELO.replace("1700", "1701")), run, "Another prompt?")
    assert analysis.load(run).humans("some-list")["elo_score"][0] == 1700


LARGE = logprobs(["best"]).with_columns(pl.col("best") * 0.5).write_csv()
# Layout, the file, what flags say, and the line.
BAD = [
    ("items", TOKENS, {}, "token_id, token_name, .*'items'"),
    ("items", ELO.replace("-0.5", "nan"), {}, "'Org/Model-A', row 2: 'nan'"),
    ("items", ELO.replace("1600,null", "1600,"), {}, "'name', row 2"),
    ("items", ELO.replace("null", "Water"), {}, "1 and 2 .*'Water'"),
    (
        "items",
        ELO.replace("Org/Model.B_v2", "b/model-a"),
        {},
        "b/model-a .*'what-is-best-.*' .*a.c",
    ),
    ("items", ELO, {"prompt": ""}, r"--prompt .*'a' .*greatest, best, worst, elo_"),
    ("items", ELO, {"model": "m"}, "--model='m'"),
    ("tokens", TOKENS, {"prompt": "best"}, "--prompt='best'"),
    ("tokens", TOKENS.replace("greatest", "category"), {}, "a.csv: 'category'"),
    ("tokens", logprobs(["best"]).write_csv(), {}, "'best' .*--values=logprobs"),
    ("tokens", LARGE, {"values": "logprobs"}, "'best' "),  # probabilities that sum to more than 1
]


@pytest.mark.parametrize(("layout", "text", "fields", "message"), BAD)
def test_bad_files_are_one_line_and_nothing_is_written(
    source, tmp_path, layout, text, fields, message
):
    default = {"prompt": PROMPT} if layout == "items" else {}
    with pytest.raises(AssayError, match=message) as caught:
        import_one(source(text, "a.csv"), tmp_path / "run", layout, **default | fields)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_bad_file_among_good_ones_writes_nothing(source, tmp_path):
    folder = source(ELO, "best.csv").parent
    for text, message in {
        ELO.replace("1700", "1701"): "worst.csv: .*human",
        ELO.replace("4e1", "x"): "worst.csv: column 'Org/Model.B_v2', row 2: 'x'",
        "item,Org/Model-A\nnull,1\nWater,2\n007,3\n": "worst.csv: .*items",
    }.items():
        source(text, "worst.csv")
        with pytest.raises(AssayError, match=message):
            import_one(folder, tmp_path / "run", "items", items="words")
        assert not (tmp_path / "run").exists()


def test_two_files_of_one_model_are_refused(source, tmp_path):
    for name in ("LxzGordon--URM-LLaMa-3.1-8B.csv", "urm-llama-3.1-8b.csv"):
        folder = source(TOKENS, name).parent
    for fields, match in (({}, "'greatest' .*LxzGordon--URM"), ({"model": "m"}, "--model='m'")):
        with pytest.raises(AssayError, match=match):
            import_one(folder, tmp_path / "run", "tokens", **fields)
    assert not (tmp_path / "run").exists()
