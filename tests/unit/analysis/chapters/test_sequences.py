import math
import shutil

import polars as pl
import pytest

import analysis
from analysis import RunError
from analysis.chapters import sequences
from analysis.report import write_report
from tests.support import charts, runs
from tests.support.studies import texts, told


def test_the_best_step_of_each_search_is_its_sequence(small_run):
    runs.add_search(small_run, "m-one", "max", [1.0, 7.0, 7.0, 2.0])
    runs.add_search(small_run, "m-one", "min", [1.0, -3.0, -2.0])
    table = analysis.sequences_table(analysis.load(small_run))
    assert " ".join(table.columns) == (
        "model prompt direction method seed length reward percentile text round_trips flops "
        "swaps better_swaps"
    )
    keys = ("direction", "method", "seed", "length", "reward", "text", "flops")
    assert table.select(keys).rows() == [
        ("max", "gcg", 3, 3, 7.0, "m-one 1", 3e9),
        ("min", "gcg", 3, 3, -3.0, "m-one 1", 2e9),
    ]


def test_a_sequence_is_placed_among_the_models_single_tokens(small_run):
    runs.add_search(small_run, "m-one", "max", [4.0])
    runs.add_search(small_run, "m-one", "min", [-99.0])
    table = analysis.sequences_table(analysis.load(small_run))
    assert table["percentile"].to_list() == pytest.approx([5.5 / 7, 0.0])
    runs.add_search(small_run, "m-two", "max", [4.0], prompt="worst")  # of no vocabulary
    unplaced = analysis.sequences_table(analysis.load(small_run)).filter(model="m-two")
    assert unplaced["percentile"].to_list() == [None]


def test_traces_hold_the_best_so_far(small_run):
    runs.add_search(small_run, "m-one", "max", [1.0, 3.0, 2.0])
    runs.add_search(small_run, "m-one", "min", [1.0, 3.0, -2.0], name="random-seed0")
    table = analysis.sequence_traces(analysis.load(small_run))
    assert table.filter(direction="max")["best"].to_list() == [1.0, 3.0, 3.0]
    assert table.filter(method="random")["best"].to_list() == [1.0, 1.0, -2.0]


@pytest.mark.parametrize(
    ("name", "rewards", "message"),
    [
        ("gcg", [1.0], "not the path of a search"),
        ("gcg-seed3", [1.0, math.nan], "rewards that are not finite, steps 1"),
        ("gcg-seed3", [], r"gcg-seed3\.parquet: column step is Int64"),
    ],
)
def test_a_file_that_is_no_search_is_refused(small_run, name, rewards, message):
    path = runs.add_search(small_run, "m-one", "max", rewards, name=name)
    if not rewards:
        pl.DataFrame({"step": [1]}).write_parquet(path)
    with pytest.raises(RunError, match=message):
        analysis.sequences_table(analysis.load(small_run))


def test_a_search_is_held_against_the_manifest(small_run):
    path = runs.add_search(small_run, "m-one", "max", [1.0])
    runs.enter_search(small_run, path)
    assert analysis.sequences_table(analysis.load(small_run)).height == 1
    other = {path.name: {"rows": 1, "sha256": "0" * 64}}
    runs.enter_search(small_run, path, parts=other)
    with pytest.raises(RunError, match="not the bytes that the manifest names"):
        analysis.sequences_table(analysis.load(small_run))


def test_a_run_of_searches_alone_has_its_report(light, small_run, tmp_path, settings):
    runs.edit_manifest(small_run, lambda content: content["results"].clear())
    runs.enter_search(small_run, runs.add_search(small_run, "m-one", "max", [1.0, 2.0]))
    run = analysis.load(small_run)
    assert list(run.models) == ["m-one"]
    assert list(run.prompts) == ["greatest"]
    page = write_report(run, tmp_path / "report", {}, settings).read_text(encoding="utf-8")
    assert "What the searches found" in page
    assert "No model scored its vocabulary." in page


def test_a_search_in_two_run_folders_counts_once(small_run, tmp_path):
    runs.add_search(small_run, "m-one", "max", [1.0, 2.0])
    copy = shutil.copytree(small_run, tmp_path / "copy")
    assert analysis.sequences_table(analysis.load([small_run, copy])).height == 1
    runs.add_search(copy, "m-one", "max", [1.0, 3.0])
    with pytest.raises(RunError, match="another search of that name"):
        analysis.sequences_table(analysis.load([small_run, copy]))


def test_a_course_is_drawn_where_it_changes(small_run, study_of):
    runs.add_search(small_run, "m-one", "max", [1.0, 3.0, 2.0, 2.5, 3.0])
    study = study_of(small_run, sequences)
    shown = charts.rows(sequences.courses(study, study.tables["sequence_traces"]))
    assert {row["sought"] for row in shown} == {"high"}
    assert [row["y"] for row in shown if row["method"] == "gcg"] == [1.0, 3.0, 3.0]


def test_a_universal_search_of_an_older_run_is_left_out_and_said(small_run, study_of):
    runs.add_search(small_run, "m-one", "max", [5.0, 3.0], name="gcg-minimum-0123abcd-seed3")
    said = "Left out: 1 file of universal searches, which Assay no longer has."
    assert said in " ".join(texts(sequences, study_of(small_run, sequences)))
    runs.add_search(small_run, "m-one", "max", [6.0])
    study = study_of(small_run, sequences)
    assert study.tables["sequences"]["reward"].to_list() == [6.0]
    assert study.tables["sequence_traces"]["method"].to_list() == ["gcg"]
    assert said in texts(sequences, study)


def test_searches_that_beat_every_token_are_counted(small_run, study_of):
    runs.add_search(small_run, "m-one", "max", [99.0])
    runs.add_search(small_run, "m-one", "max", [0.1], name="gcg-seed4")
    runs.add_search(small_run, "m-one", "min", [0.0])
    (said,) = told(sequences, study_of(small_run, sequences))
    assert said.endswith("1 of 2 for high rewards and 0 of 1 for low rewards.")


def test_a_page_says_how_many_replies_no_swap_of_one_token_improves(small_run, study_of):
    for seed, better in enumerate((0, 0, 7, None)):
        said = {"certificate": {"swaps": 100, "better": better}} if better is not None else {}
        path = runs.add_search(small_run, "m-one", "max", [0.0], name=f"gcg-seed{seed}")
        runs.enter_search(small_run, path, **said)
    study = study_of(small_run, sequences)
    assert study.tables["sequences"]["better_swaps"].to_list() == [0, 0, 7, None]
    (said,) = told(sequences, study)
    assert "improves 2 of 3 replies for which every allowed swap was scored (300 rewards)" in said
