"""The first screen: the words at both ends of every model's ranking, under each question."""

import dataclasses

import pytest

import analysis
from analysis.report import first_screen
from tests.support import runs

STARTS = [f" {one}{two}" for one in "abcde" for two in "fghij"]  # 25 words with a space before


def ends(tmp_path, settings, tokens, rewards):
    """The only panel of a run of one model and one prompt."""
    run = runs.write_run(tmp_path / "run", {"v": tokens}, {"m": "v"}, {("m", "best"): rewards})
    study = analysis.compute(analysis.load(run), {}, settings, [])
    (question,) = first_screen.questions(study, ["best"])
    assert (question.text, question.more) == (runs.PROMPTS["best"], 0)
    (panel,) = question.panels
    return panel


def test_words_alone_each_once_at_its_extreme(tmp_path, settings):
    tokens = [" love", "Love", " 12", "<|s|>", " war", " rust", " peace", "a", "!"]
    panel = ends(tmp_path, settings, tokens, [5, 6, 90, 99, -4, -3, 1, 50, -99])
    assert [word.token for word in panel.highest] == ["Love", " peace"]
    assert [word.token for word in panel.lowest] == [" war", " rust"]
    assert [word.percentile for word in panel.lowest] == pytest.approx([150 / 9, 250 / 9])
    assert [word.strength for word in panel.highest] == [0.25, 1.0]


def test_endings_of_words_are_left_out_where_the_tokenizer_marks_starts(tmp_path, settings):
    tokens = [*STARTS, "ing", "ous"]
    panel = ends(tmp_path, settings, tokens, [*range(25), 99, -99])
    assert [word.token for word in panel.highest] == STARTS[:14:-1]
    assert [word.token for word in panel.lowest] == STARTS[:10]
    assert panel.highest[0].strength == 1.0 and panel.highest[-1].strength == 3 / 12
    assert (panel.least, panel.most) == (-99.0, 99.0) and max(panel.bars) == 1.0


def test_rare_beginnings_of_words_are_left_out(tmp_path, settings):
    tokens = [*STARTS, "missp", " nonex"]
    common = tmp_path / "bnc.txt"
    lines = [
        f"\t{word.strip()}\tNoC\t:\t{1 + 9 * (at % 2)}\t9\t.9" for at, word in enumerate(STARTS)
    ]
    common.write_text("\n".join(lines), encoding="utf-8")
    options = dataclasses.replace(settings.options, frequency=str(common))
    chosen = dataclasses.replace(settings, options=options)
    panel = ends(tmp_path, chosen, tokens, [*range(25), 98, 99])
    assert [word.token for word in panel.highest] == STARTS[:14:-1]


def test_further_models_are_counted(tmp_path, settings, monkeypatch):
    models = {"m-a": "v", "m-b": "v"}
    scores = {(model, "best"): range(25) for model in models}
    run = runs.write_run(tmp_path / "run", {"v": STARTS}, models, scores)
    study = analysis.compute(analysis.load(run), {}, settings, [])
    monkeypatch.setattr(first_screen, "_MOST_MODELS", 1)
    (question,) = first_screen.questions(study, ["best"])
    assert [panel.model for panel in question.panels] == ["m-a"] and question.more == 1


def test_a_vocabulary_without_words_has_no_ends(tmp_path, settings):
    panel = ends(tmp_path, settings, ["1", "2", "<|s|>"], [3, 4, 5])
    assert (panel.highest, panel.lowest) == ([], [])
