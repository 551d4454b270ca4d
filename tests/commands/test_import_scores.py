"""Released scores come back as results: layouts, names, and where numbers came from."""

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters import language_models
from configs import known_models, prompts
from engine.errors import AssayError
from engine.runs import storage
from engine.runs.verify import verify
from launch.__main__ import main
from launch.common.released_files import files, model_id, prompt_named, read, slugged
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


def test_both_layouts_of_one_model_meet_in_one_run(source, tmp_path):
    for order in (["elo", "tokens"], ["tokens", "elo"]):
        run = str(tmp_path / order[0])
        for layout in order:
            if layout == "elo":
                import_elo(source(ELO), run)
            else:
                import_one(source(TOKENS), run, "tokens", model="Org/Model-A")
        loaded = analysis.load(run)
        assert loaded.vocabulary_models == ["model-a"]
        assert list(loaded.models) == ["model-a", "model.b_v2"]


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


def test_a_long_table_without_model_or_prompt_takes_them_from_the_flags(source, tmp_path):
    path = source("text,reward\nlove,1\nwar,2\n", "scores.csv")
    said = {"column": "text", "model": "Org/Judge", "prompt": "GE", "items": "words"}
    import_one(path, tmp_path / "run", "long", **said)
    loaded = analysis.load(tmp_path / "run")
    assert loaded.lists() == [("words", "elo_greatest")]
    assert loaded.item_scores("words", "elo_greatest")["judge"].to_list() == [1.0, 2.0]


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
    against = language_models.logprobs_rewards(loaded, ["grm-gemma2-2b-rewardmodel-ft"])
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


# The pages


def vocabulary_file(path, columns, **kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = logprobs(columns, seed=len(path.name))
    if not kind.get("logprobs"):
        frame = frame.with_columns(pl.col(columns).abs())
    frame.write_csv(path)


def words_file(path, first, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = ",".join([first, *columns])
    path.write_text(f"{header}\nlove{',1' * len(columns)}\nwar{',2' * len(columns)}\n")


@pytest.fixture
def released(tmp_path, monkeypatch):
    """The files that the pages import, made up, in the authors' layouts."""
    monkeypatch.chdir(tmp_path)
    follow_up = [name for name in prompts.RELEASED if "_" in name]
    specs = list(known_models.MODELS.values())
    named = [spec.hub_id.replace("/", "--") for spec in specs]
    for model in named:
        vocabulary_file(tmp_path / f"data/reward_model_scores/{model}.csv", list(prompts.PAPER))
    for model in named[:2]:
        vocabulary_file(tmp_path / f"released/scores/{model}.csv", list(prompts.PAPER))
        words_file(tmp_path / f"released/words/{model}.csv", "word", ["greatest"])
        path = tmp_path / f"dict_big2_nouns/big2_rewards_{model.replace('--', '_')}.csv"
        words_file(path, "response", follow_up)
    for model in ("google--gemma-2-2b", "google--gemma-2-2b-it"):
        path = tmp_path / f"data/base_model_logits/{model}.csv"
        vocabulary_file(path, list(prompts.PAPER), logprobs=True)
        vocabulary_file(tmp_path / f"data/logprobs/{model}.csv", follow_up, logprobs=True)
    places = {"elo_rank": [1, 2], "elo_score": [9, 8], "name": ["a", "b"], "elo_matches": [3, 4]}
    elo = pl.DataFrame({**places, **{spec.hub_id: [0.5, 0.25] for spec in specs}})
    (tmp_path / "data/elo").mkdir()
    for text in (*prompts.ELO.values(), prompts.PAPER["greatest"]):
        elo.write_csv(tmp_path / f"data/elo/{text.removesuffix('?')}.csv")
    elo.write_csv(tmp_path / "elo_greatest_single_thing.csv")
    (tmp_path / "long.csv").write_text(LONG)
    pl.read_csv(tmp_path / "long.csv").write_parquet(tmp_path / "released/all.parquet")
    return tmp_path


def commands_of(page, name):
    text = (Path(__file__).parents[2] / "docs" / page).read_text().replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(rf"^assay ({name} .*)$", text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("page", "count"), [("reproduce-the-paper.md", 8), ("your-own-model.md", 3)]
)
def test_the_imports_of_the_pages_run_as_written(released, page, count):
    lines = commands_of(page, "import_scores")
    assert len(lines) == count
    for line in lines:
        assert main(line) == 0, line
    for folder in (released / "runs").iterdir():
        assert set(analysis.load(folder).models) <= {*known_models.KNOWN, "other"}


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
    assert model_id("meta-llama--Llama-3.2-3B") == "meta-llama/Llama-3.2-3B"
    assert model_id("Other/GRM-gemma2-2B-rewardmodel-ft") == "Other/GRM-gemma2-2B-rewardmodel-ft"
    assert model_id("my_GRM-gemma2-2B-rewardmodel-ft") == "my_GRM-gemma2-2B-rewardmodel-ft"


def test_the_prompts_of_the_release_have_the_texts_that_their_names_say():
    assert len(prompts.RELEASED) == 3 + 54
    assert len(set(prompts.RELEASED.values())) == 3 + 54
    words = {"world": "in the world", "time": "of all time", "ever": "ever"}
    forms = {"one": "in one word,", "single": "in a single word,", "please": "Please answer"}
    for name, key in prompts.RELEASED.items():
        if "_" in name:
            quality, scope, form = name.split("_")
            text = prompts.PROMPTS[key]
            assert f"{quality} thing {words[scope]}?" in text
            assert forms[form] in text
            assert prompt_named(name) == (key, text)
    assert prompt_named("What, in one word, is the best thing ever").id == "best"


def test_columns_can_be_left_out(source, tmp_path):
    path = source(wide("word,Category,best"), "m.csv")
    import_one(path, tmp_path / "run", "items", ["Category"], items="w")
    assert analysis.load(tmp_path / "run").lists() == [("w", "best")]


# Where numbers came from


def test_every_result_says_from_which_file_it_came(source, tmp_path):
    path = source(WORDS, "a.csv")
    import_one(path, tmp_path / "run", "items", items="words")
    for result in analysis.load(tmp_path / "run").items.values():
        assert result.fingerprint == {
            "layout": "items",
            "source": "a.csv",
            "source_sha256": read(path).sha256,
            "mode": "imported",
        }


def test_importing_again_under_any_file_name_changes_nothing(source, tmp_path):
    run = tmp_path / "run"
    import_one(source(WORDS, "a.csv"), run, "items", items="words", model="a")
    before = (run / "manifest.json").read_bytes()
    for name in ("a.csv", "b.csv"):
        import_one(source(WORDS, name), run, "items", items="words", model="a")
        assert (run / "manifest.json").read_bytes() == before


def test_an_import_is_verified_like_any_run(source, tmp_path):
    import_one(source(WORDS, "a.csv"), tmp_path / "run", "items", items="words")
    logprobs(["best"]).write_csv(tmp_path / "b.csv")
    import_one(tmp_path / "b.csv", tmp_path / "run", "tokens", values="logprobs")
    found = verify(storage.path_of(tmp_path / "run"))
    assert (found.problems, found.files) == ([], 3)
