import math
import shutil

import pytest

import analysis
from analysis import RunError
from analysis.chapters import sequences
from analysis.report import write_report
from engine.runs.result import Certificate
from tests.support import runs
from tests.support.studies import cited, told


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


def test_a_reward_that_is_not_finite_is_refused(small_run):
    runs.add_search(small_run, "m-one", "max", [1.0, math.nan])
    with pytest.raises(RunError, match="steps 1"):
        analysis.sequences_table(analysis.load(small_run))


def test_a_run_of_searches_alone_has_its_report(light, small_run, tmp_path, settings):
    runs.edit_run(small_run, lambda content: content["results"].clear())
    runs.add_search(small_run, "m-one", "max", [1.0, 2.0])
    run = analysis.load(small_run)
    assert list(run.models) == ["m-one"]
    assert list(run.prompts) == ["greatest"]
    page = write_report(run, tmp_path / "report", {}, settings).read_text(encoding="utf-8")
    assert '<article id="sequences"' in page


def test_a_search_in_two_run_folders_counts_once(small_run, tmp_path):
    runs.add_search(small_run, "m-one", "max", [1.0, 2.0])
    copy = shutil.copytree(small_run, tmp_path / "copy")
    assert analysis.sequences_table(analysis.load([small_run, copy])).height == 1
    runs.add_search(copy, "m-one", "max", [1.0, 3.0], identity={"search": {"steps": 2}})
    with pytest.raises(RunError, match="search"):
        analysis.load([small_run, copy])


def test_searches_that_beat_every_token_are_counted(small_run, study_of):
    runs.add_search(small_run, "m-one", "max", [99.0])
    runs.add_search(small_run, "m-one", "max", [0.1], name="gcg-seed4")
    runs.add_search(small_run, "m-one", "min", [0.0])
    (text,) = told(sequences, study_of(small_run, sequences))
    assert cited(text)[-4:] == ["1", "2", "0", "1"]


def test_a_page_says_how_many_replies_no_swap_of_one_token_improves(small_run, study_of):
    for seed, better in enumerate((0, 0, 7, None)):
        certificate = None if better is None else Certificate(swaps=100, better=better)
        name = f"gcg-seed{seed}"
        runs.add_search(small_run, "m-one", "max", [0.0], name=name, certificate=certificate)
    study = study_of(small_run, sequences)
    assert study.tables["sequences"]["better_swaps"].to_list() == [0, 0, 7, None]
    (text,) = told(sequences, study)
    assert cited(text)[-3:] == ["2", "3", "300"]
