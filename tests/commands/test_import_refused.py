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


BAD = {
    "a header of another layout": (
        *("elo", ELO.replace("elo_score", "score"), {}),
        "columns elo_rank, score, .* layout 'elo' is elo_rank, .*, then one column per model",
    ),
    "no number": ("elo", ELO.replace("-0.5", "nan"), {}, "'Org/Model-A', row 2: 'nan' is no fin"),
    "no whole number": ("elo", ELO.replace("\n2,", "\n2.5,"), {}, "row 2: '2.5' is no whole num"),
    "an empty item": ("elo", ELO.replace("1600,null", "1600,"), {}, "'name' is empty in row 2"),
    "an item twice": ("elo", ELO.replace("null", "Water"), {}, "rows 1 and 2 are both name 'Water"),
    "a row that is not CSV": ("elo", ELO.replace("Water", '"W\\"r"'), {}, "row 1 is not CSV"),
    "two models of one name": (
        *("elo", ELO.replace("Org/Model.B_v2", "other/model-a"), {}),
        "other/model-a under 'what-is-best-.*' is in a.csv already",
    ),
    "no rows": ("elo", ELO.splitlines()[0] + "\n", {}, "no rows"),
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
    "a list of log-probabilities without tokens": (
        *("items", "word,best\nlove,-1\n", {"values": "logprobs"}),
        "no column 'tokens': how many tokens each reply has",
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
    ],
)
def test_the_command_ends_bad_input_in_one_line(command, tmp_path, flags, message):
    done = command("import_scores", *(flag.format(run=tmp_path / "run") for flag in flags))
    assert done.code == 2
    assert done.err == [message]
    assert not (tmp_path / "run").exists()
