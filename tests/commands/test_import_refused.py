"""What `import_scores` refuses: one line, and nothing written."""

import re

import polars as pl
import pytest

import analysis
from engine.errors import AssayError
from launch.common import released_scores
from tests.support.released import (
    ELO,
    LONG,
    PROMPT,
    TOKENS,
    WORDS,
    import_one,
    logprobs,
    wide,
)


def test_other_scores_under_the_same_name_are_refused(source, tmp_path):
    run = str(tmp_path / "run")
    released_scores.import_elo(source(ELO), run, PROMPT)
    with pytest.raises(AssayError, match="was begun with source_sha256="):
        released_scores.import_elo(source(ELO.replace("1.5", "1.25")), run, PROMPT)
    with pytest.raises(AssayError, match="list 'some-list' is there already"):
        released_scores.import_elo(source(ELO.replace("Water", "Wine")), run, PROMPT)
    with pytest.raises(AssayError, match="other human scores of the list 'some-list' are there"):
        released_scores.import_elo(source(ELO.replace("1700", "1701")), run, "Another prompt?")
    assert analysis.load(run).humans("some-list")["elo_score"][0] == 1700


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ELO.replace("elo_score", "score"), "columns elo_rank, score, .* layout 'elo' is elo_rank"),
        (ELO.replace("-0.5", "nan"), "column 'Org/Model-A', row 2: 'nan' is no finite number"),
        (ELO.replace("4e1", ""), "column 'Org/Model.B_v2', row 2: None is no finite number"),
        (ELO.replace("4e1", "1e60"), "row 2: '1e60' is no finite number"),
        (ELO.replace("1600,null", "1600,"), "column 'name' is empty in row 2"),
        (ELO.replace("null", "Water"), "rows 1 and 2 are both name 'Water'; allowed: one"),
        (ELO.replace("Water", '"Wa\\"ter"'), r"source=.*: row 1 is not CSV: '1,1700,\"Wa"),
        (ELO.replace(",9,", ",9,9,"), "source=.*: row 2: number of cells 7; the header has 6"),
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


def test_a_vocabulary_that_does_not_know_its_round_trips_says_so(source, tmp_path):
    run = str(tmp_path / "run")
    import_one(source(TOKENS), run, "tokens", model="Org/Model-A")
    with pytest.raises(analysis.RunError, match="model-a: its vocabulary does not say which"):
        analysis.shared_vocabulary(analysis.load(run), round_trip=True)


def test_human_scores_of_another_form_are_refused(source, tmp_path):
    run = tmp_path / "run"
    released_scores.import_elo(source(ELO), str(run), PROMPT)
    path = run / "items" / "some-list" / "humans.parquet"
    pl.read_parquet(path).cast({"elo_score": pl.Int64}).write_parquet(path)
    with pytest.raises(analysis.RunError, match="column elo_score is Int64; expected Float64"):
        analysis.load(run).humans("some-list")


BAD = {
    "a token id twice": (
        "tokens",
        TOKENS.replace("\n0,", "\n1,"),
        {},
        "rows 1 and 2 are both token_id 1",
    ),
    "a column that says no prompt": (
        "items",
        wide("word,best,score"),
        {"items": "w"},
        "column 'score' names no prompt; allowed: a prompt's text",
    ),
    "a file that says no prompt": (
        "items",
        "word,score\nlove,1\n",
        {"items": "w"},
        r"--prompt is missing: .*a\.csv does not say .*; allowed: .*greatest, best, worst, elo_",
    ),
    "two columns of one prompt": (
        "items",
        wide("word,best,best"),
        {"items": "w"},
        r"a\.csv: two columns 'best'; allowed: one of each name",
    ),
    "two names of one prompt": (
        "items",
        wide("word,GW,greatest"),
        {"items": "w"},
        "column 'GW': another column is the prompt 'greatest' too",
    ),
    "a prompt beside those of the columns": (
        "items",
        wide("word,best,worst"),
        {"items": "w", "prompt": "best"},
        "--prompt='best', but its columns name their prompts",
    ),
    "a prompt that is neither text nor id": (
        "items",
        "word,score\nlove,1\n",
        {"items": "w", "prompt": "gratest"},
        "--prompt='gratest'; allowed: a prompt's text",
    ),
    "a list without a name": ("items", WORDS, {}, "--items is missing"),
    "no such column of replies": (
        "items",
        WORDS,
        {"items": "w", "column": "word"},
        "no column 'word'; it has response, best_ever_one",
    ),
    "no prompts": ("items", "word\nlove\n", {"items": "w"}, "no column after 'word'"),
    "an unknown column of a long table": (
        "long",
        LONG.replace("reward", "score"),
        {},
        "columns prompt, model, score, item; layout 'long' is item, reward, model, prompt",
    ),
    "a prompt of a long table that is none": (
        "long",
        LONG.replace("worst", "worse"),
        {},
        "column 'prompt': 'worse'; allowed: a prompt's text",
    ),
    "a long table that lacks an item": (
        "long",
        LONG.replace("worst,R-Gem-2B,-1,war\n", ""),
        {},
        "other items than the rest of the list 'a': 'war' is not here",
    ),
    "a long table with an item twice": (
        "long",
        LONG + "greatest,R-Gem-2B,3,love\nworst,R-Gem-2B,3,love\n",
        {},
        "a.csv: rows 1 and 7 are both model 'R-Gem-2B', prompt 'greatest', item 'love'; allowed: ",
    ),
    "a long table of one model and prompt with an item twice": (
        "long",
        "item,reward\nlove,1\nwar,2\nlove,1\n",
        {"prompt": "best"},
        "a.csv: rows 1 and 3 are both item 'love'; allowed: one of them",
    ),
    "a long table with a number twice": (
        "long",
        LONG + "worst,Ray2333--GRM-gemma2-2B-rewardmodel-ft,1,love\n",
        {},
        "Ray2333/GRM-gemma2-2B-rewardmodel-ft under 'worst' is in a.csv already",
    ),
    "log-probabilities as rewards": (
        "tokens",
        logprobs(["best"]).write_csv(),
        {},
        "column 'best' holds log-probabilities, not rewards; allowed: --values=logprobs",
    ),
    "rewards as log-probabilities": (
        "tokens",
        TOKENS,
        {"values": "logprobs"},
        "column 'greatest' holds 2.5; allowed: log-probabilities, at most 0; --values=logits",
    ),
    "probabilities that sum to more than 1": (
        "tokens",
        logprobs(["best"]).with_columns(pl.col("best") * 0.5).write_csv(),
        {"values": "logprobs"},
        "column 'best': its probabilities sum to .*; allowed: at most 1",
    ),
    "a list of log-probabilities without tokens": (
        "items",
        "word,best\nlove,-1\n",
        {"items": "w", "values": "logprobs"},
        "no column 'tokens'; log-probabilities of a list need it",
    ),
    "a reserved name": ("items", WORDS, {"items": "found-1"}, "reserved for what searches find"),
    "a name that tables have": (
        "items",
        WORDS,
        {"items": "w", "model": "org/model"},
        "name 'model'; tables have a column of that name already",
    ),
    "a name that is no path": ("items", WORDS, {"items": "../w"}, "name '../w'; allowed: lower"),
}


@pytest.mark.parametrize(("layout", "text", "said", "message"), BAD.values(), ids=BAD)
def test_bad_files_are_one_line_and_nothing_is_written(
    source, tmp_path, layout, text, said, message
):
    with pytest.raises(AssayError, match=message) as caught:
        import_one(source(text, "a.csv"), tmp_path / "run", layout, **said)
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
    with pytest.raises(AssayError, match="--source: an empty name beside a comma"):
        import_one(f"{paths[0]},", tmp_path / "run", "items", items="w")
    with pytest.raises(AssayError, match="named twice; allowed: each file once"):
        import_one(f"{paths[0]},{paths[0]}", tmp_path / "run", "items", items="w")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--layout=elo", "--source=nowhere.csv", "--run={run}"],
            "import_scores: source=nowhere.csv: No such file or directory",
        ),
        (
            ["--layout=grid", "--source=x", "--run={run}"],
            "import_scores: --layout='grid'; allowed: 'elo', 'tokens', 'items', 'long'",
        ),
        (
            ["--layout=tokens", "--source=x", "--run={run}", "--items=w"],
            "import_scores: --items='w' with layout 'tokens'; allowed with 'elo', 'items', 'long'",
        ),
        (
            ["--layout=items", "--source=x", "--run={run}", "--values=logits"],
            "import_scores: --values='logits' with layout 'items'; allowed: 'tokens'",
        ),
        (
            ["--layout=items", "--source=x", "--run={run}", "--form=chat"],
            "import_scores: --form='chat' with rewards; allowed with --values=logprobs",
        ),
        (
            ["--layout=items", "--source=.,x", "--run={run}", "--model=m"],
            "import_scores: source=.: no .csv or .parquet file in this folder",
        ),
        (
            ["--layout=elo", "--run={run}"],
            "import_scores: --source is missing; allowed: files (CSV or Parquet), or folders of "
            "them, comma-separated",
        ),
    ],
)
def test_the_command_ends_bad_input_in_one_line(command, tmp_path, flags, message):
    done = command("import_scores", *(flag.format(run=tmp_path / "run") for flag in flags))
    assert done.code == 2
    assert done.err == [message]
    assert not (tmp_path / "run").exists()
