"""What `import_scores` refuses: one line, and nothing written."""

import re

import polars as pl
import pytest

import analysis
from engine.errors import AssayError
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


def test_other_scores_under_the_same_name_are_refused(source, tmp_path):
    run = str(tmp_path / "run")
    import_elo(source(ELO), run)
    with pytest.raises(AssayError, match="was begun with source_sha256="):
        import_elo(source(ELO.replace("1.5", "1.25")), run)
    with pytest.raises(AssayError, match="list 'some-list' is there already"):
        import_elo(source(ELO.replace("Water", "Wine")), run)
    with pytest.raises(AssayError, match="has other human scores already"):
        import_elo(source(ELO.replace("1700", "1701")), run, "Another prompt?")
    assert analysis.load(run).humans("some-list")["elo_score"][0] == 1700


def test_a_vocabulary_that_does_not_know_its_round_trips_says_so(source, tmp_path):
    run = str(tmp_path / "run")
    import_one(source(TOKENS), run, "tokens", model="Org/Model-A")
    with pytest.raises(analysis.RunError, match="model-a: its vocabulary does not say which"):
        analysis.shared_vocabulary(analysis.load(run), round_trip=True)


def test_human_scores_of_another_form_are_refused(source, tmp_path):
    run = tmp_path / "run"
    import_elo(source(ELO), run)
    path = run / "items" / "some-list" / "humans.parquet"
    pl.read_parquet(path).cast({"elo_score": pl.Int64}).write_parquet(path)
    with pytest.raises(analysis.RunError, match="column elo_score is Int64; expected Float64"):
        analysis.load(run).humans("some-list")


BAD = {
    "a header of another layout": (
        *("elo", ELO.replace("elo_score", "score"), {}),
        "columns elo_rank, score, .* layout 'elo' is elo_rank, .*, then one column per model",
    ),
    "no number": ("elo", ELO.replace("-0.5", "nan"), {}, "'Org/Model-A', row 2: 'nan' is no fin"),
    "a missing number": ("elo", ELO.replace("4e1", ""), {}, "row 2: None is no finite number"),
    "a number that float32 has not": ("elo", ELO.replace("4e1", "1e60"), {}, "'1e60' is no finite"),
    "no whole number": ("elo", ELO.replace("\n2,", "\n2.5,"), {}, "row 2: '2.5' is no whole num"),
    "a negative rank": ("elo", ELO.replace("\n2,", "\n-2,"), {}, "row 2: '-2' is no whole number"),
    "an empty item": ("elo", ELO.replace("1600,null", "1600,"), {}, "'name' is empty in row 2"),
    "an item twice": ("elo", ELO.replace("null", "Water"), {}, "rows 1 and 2 are both name 'Water"),
    "a row that is not CSV": ("elo", ELO.replace("Water", '"W\\"r"'), {}, "row 1 is not CSV"),
    "two models of one name": (
        *("elo", ELO.replace("Org/Model.B_v2", "other/model-a"), {}),
        "other/model-a under 'what-is-best-.*' is in a.csv already",
    ),
    "no rows": ("elo", ELO.splitlines()[0] + "\n", {}, "no rows"),
    "an empty file": ("elo", "", {}, "source=.*a.csv: "),
    "no models": (
        "elo",
        "elo_rank,elo_score,name,elo_matches\n1,2,a,3\n",
        {},
        "one column per model",
    ),
    "a token id twice": ("tokens", TOKENS.replace("\n0,", "\n1,"), {}, "rows 1 and 2 are both tok"),
    "a column that says no prompt": (
        *("items", wide("word,best,score"), {}),
        "'score' names no prompt; allowed: a prompt's text",
    ),
    "a file that says no prompt": (
        *("items", "word,score\nlove,1\n", {}),
        r"--prompt is missing: .*a\.csv does not say .*; allowed: .*greatest, best, worst, elo_",
    ),
    "two names of one prompt": (
        "items",
        wide("word,GW,greatest"),
        {},
        "'greatest' is in a.csv alr",
    ),
    "a prompt beside those of the columns": (
        *("items", wide("word,best,worst"), {"prompt": "best"}),
        "--prompt='best', but its columns name their prompts",
    ),
    "a prompt that is neither text nor id": (
        *("items", "word,score\nlove,1\n", {"prompt": "gratest"}),
        "--prompt='gratest'; allowed: a prompt's text",
    ),
    "a list without a name": ("items", WORDS, {"items": ""}, "--items is missing"),
    "no such column of replies": (
        "items",
        WORDS,
        {"column": "word"},
        "no column 'word'; it has re",
    ),
    "no prompts": ("items", "word\nlove\n", {}, "layout 'items' is word, then one column per prom"),
    "an unknown column of a long table": (
        *("long", LONG.replace("reward", "score"), {}),
        "columns prompt, model, score, item; layout 'long' is item, reward, model, prompt",
    ),
    "a prompt of a long table that is none": (
        *("long", LONG.replace("worst", "worse"), {}),
        "'worse' names no prompt; allowed: a prompt's text",
    ),
    "a model beside those of a long table": (
        "long",
        LONG,
        {"model": "m"},
        "its column 'model' says",
    ),
    "a long table that lacks an item": (
        *("long", LONG.replace("worst,R-Gem-2B,-1,war\n", ""), {}),
        "other items than the rest of the list 'w': 'war' is not here",
    ),
    "a long table with an item twice": (
        *("long", LONG + "greatest,R-Gem-2B,3,love\nworst,R-Gem-2B,3,love\n", {}),
        "a.csv: rows 1 and 7 are both model 'R-Gem-2B', prompt 'greatest', item 'love'; allowed: ",
    ),
    "a long table with a number under two names of a model": (
        *("long", LONG + "worst,Ray2333--GRM-gemma2-2B-rewardmodel-ft,1,love\n", {}),
        "Ray2333/GRM-gemma2-2B-rewardmodel-ft under 'worst' is in a.csv already",
    ),
    "log-probabilities as rewards": (
        *("tokens", logprobs(["best"]).write_csv(), {}),
        "column 'best' holds log-probabilities, not rewards; allowed: --values=logprobs",
    ),
    "rewards as log-probabilities": (
        *("tokens", TOKENS, {"values": "logprobs"}),
        "column 'greatest' holds 2.5; allowed: log-probabilities, at most 0; --values=logits",
    ),
    "probabilities that sum to more than 1": (
        *("tokens", logprobs(["best"]).with_columns(pl.col("best") * 0.5).write_csv()),
        *({"values": "logprobs"}, "column 'best': its probabilities sum to .*; allowed: at most 1"),
    ),
    "a list of log-probabilities without tokens": (
        *("items", "word,best\nlove,-1\n", {"values": "logprobs"}),
        "no column 'tokens': how many tokens each reply has",
    ),
    "a reserved name": ("items", WORDS, {"items": "found-1"}, "reserved for what searches find"),
    "a name that tables have": (
        "items",
        WORDS,
        {"model": "org/model"},
        "name 'model'; tables have",
    ),
    "a name that is no path": ("items", WORDS, {"items": "../w"}, "name '../w'; allowed: lower"),
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
    with pytest.raises(AssayError, match="--source: an empty name beside a comma"):
        import_one(f"{paths[0]},", tmp_path / "run", "items", items="w")
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
            "import_scores: --values='logits' with layout 'items'; allowed: 'rewards', 'logprobs'",
        ),
        (
            ["--layout=items", "--source=x", "--run={run}", "--form=chat"],
            "import_scores: --form='chat' of rewards; allowed: 'pretrained'",
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
