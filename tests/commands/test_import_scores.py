import polars as pl
import pytest

import analysis
from engine.errors import AssayError
from launch.common import released_scores

ELO = """elo_rank,elo_score,name,elo_matches,Org/Model-A,Org/Model.B_v2
1,1700,Water,10,1.5,-2
2,1600,null,9,-0.5,4e1
3,1600,007,8,2,3
"""
TOKENS = """token_id,token_name,token_decoded,greatest,"What, of all?"
1,Ġlove, love,2.5,1
0,null,null,-1,2
2,,,0,3
3,<|eot|>,<|eot|>,0.25,4
"""
PROMPT = "What is best?"


@pytest.fixture
def source(tmp_path):
    def make(text, name="Some List.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_items_come_back_with_rewards_and_humans(source, tmp_path):
    run = str(tmp_path / "run")
    said = released_scores.import_elo(source(ELO), run, PROMPT)
    assert said == f"{run}/items/some-list: 2 models × 3 items, with humans"
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
    released_scores.import_tokens(source(TOKENS), run, model="Org/Model-A")
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
                released_scores.import_elo(source(ELO), run, PROMPT)
            else:
                released_scores.import_tokens(source(TOKENS), run, model="Org/Model-A")
        loaded = analysis.load(run)
        assert loaded.vocabulary_models == ["model-a"]
        assert list(loaded.models) == ["model-a", "model.b_v2"]


def test_importing_again_changes_nothing(source, tmp_path):
    run = tmp_path / "run"
    for _ in range(2):
        released_scores.import_elo(source(ELO), str(run), PROMPT)
    before = (run / "manifest.json").read_bytes()
    released_scores.import_elo(source(ELO), str(run), PROMPT)
    assert (run / "manifest.json").read_bytes() == before


def test_other_scores_under_the_same_name_are_refused(source, tmp_path):
    run = str(tmp_path / "run")
    released_scores.import_elo(source(ELO), run, PROMPT)
    with pytest.raises(AssayError, match="was begun with source_sha256="):
        released_scores.import_elo(source(ELO.replace("1.5", "1.25")), run, PROMPT)
    with pytest.raises(AssayError, match="list 'some-list' is there already"):
        released_scores.import_elo(source(ELO.replace("Water", "Wine")), run, PROMPT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ELO.replace("elo_score", "score"), "columns elo_rank, score, .* layout 'elo' is elo_rank"),
        (ELO.replace("-0.5", "nan"), "column 'Org/Model-A', row 2: 'nan' is no finite number"),
        (ELO.replace("4e1", ""), "column 'Org/Model.B_v2', row 2: None is no finite number"),
        (ELO.replace("4e1", "1e60"), "row 2: '1e60' is no finite number"),
        (ELO.replace("1600,null", "1600,"), "column 'name' is empty in row 2"),
        (ELO.replace("null", "Water"), "column 'name' holds 'Water' twice"),
        (ELO.replace("\n2,", "\n2.5,"), "column 'elo_rank', row 2: '2.5' is no whole number"),
        (ELO.replace("\n2,", "\n-2,"), "column 'elo_rank', row 2: '-2' is no whole number"),
        (ELO.replace("Org/Model.B_v2", "other/model-a"), "models whose slugs are equal or empty"),
        (ELO.splitlines()[0] + "\n", "no rows"),
        ("", "source=.*Some List.csv: "),
        ("elo_rank,elo_score,name,elo_matches\n1,2,a,3\n", "then one column per model"),
    ],
)
def test_a_bad_file_is_one_line_and_writes_nothing(source, tmp_path, text, message):
    with pytest.raises(AssayError, match=message) as caught:
        released_scores.import_elo(source(text), str(tmp_path / "run"), PROMPT)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_token_id_twice_is_refused(source, tmp_path):
    with pytest.raises(AssayError, match="column 'token_id' holds 1 twice"):
        released_scores.import_tokens(source(TOKENS.replace("\n0,", "\n1,")), str(tmp_path / "run"))


def test_a_vocabulary_that_does_not_know_its_round_trips_says_so(source, tmp_path):
    run = str(tmp_path / "run")
    released_scores.import_tokens(source(TOKENS), run, model="Org/Model-A")
    with pytest.raises(analysis.RunError, match="model-a: its vocabulary does not say which"):
        analysis.shared_vocabulary(analysis.load(run), round_trip=True)


def test_human_scores_of_another_form_are_refused(source, tmp_path):
    run = tmp_path / "run"
    released_scores.import_elo(source(ELO), str(run), PROMPT)
    path = run / "items" / "some-list" / "humans.parquet"
    pl.read_parquet(path).cast({"elo_score": pl.Int64}).write_parquet(path)
    with pytest.raises(analysis.RunError, match="column elo_score is Int64; expected Float64"):
        analysis.load(run).humans("some-list")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--layout=elo", "--source=nowhere.csv", "--run={run}"],
            "import_scores: source=nowhere.csv: No such file or directory",
        ),
        (
            ["--layout=grid", "--source=x", "--run={run}"],
            "import_scores: --layout='grid'; allowed: 'elo', 'tokens'",
        ),
        (
            ["--layout=elo", "--run={run}"],
            "import_scores: --source is missing; allowed: the CSV file",
        ),
    ],
)
def test_the_command_ends_bad_input_in_one_line(command, tmp_path, flags, message):
    done = command("import_scores", *(flag.format(run=tmp_path / "run") for flag in flags))
    assert done.code == 2
    assert done.err == [message]
    assert not (tmp_path / "run").exists()
