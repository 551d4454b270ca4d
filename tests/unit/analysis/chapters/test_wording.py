"""Robustness to wording: what a wording does is found, and noise is not."""

import math

import numpy as np
import polars as pl
import pytest

from analysis.blocks import pictures
from analysis.chapters import items, tokens, wording
from analysis.chapters.wording import COMPARISON, wording_rows
from analysis.measures.wordings import QUESTION, Wordings
from analysis.sentences import cell
from analysis.statistics import ranks
from analysis.words.questions import NEGATIVE, questions
from configs.prompts import FOLLOW_UP, PAPER
from tests.support import charts, runs
from tests.support.studies import texts, told

FORMS = ("ever-one-word", "ever-single-word", "ever-answer-only", "in_the_world-one-word")
PROMPTS = {
    prompt: text
    for prompt, text in FOLLOW_UP.items()
    if prompt.startswith(("best-", "greatest-", "worst-", "most_bad-")) and prompt.endswith(FORMS)
}
ITEMS = [f"item {i}" for i in range(150)]


@pytest.fixture
def study_of(study_of):
    return lambda run: study_of(run, tokens, items, wording, permutations=999)


def list_run(folder, rng, models=4, question=1.0, noise=0.5, shared=0.0, prompts=None):
    """Models with a taste, a share of each question, and noise."""
    prompts = PROMPTS if prompts is None else prompts
    names = [f"m{i}" for i in range(models)]
    runs.write_run(folder, {}, dict.fromkeys(names), {})
    asked = questions(prompts)
    for model in names:
        taste = rng.normal(size=len(ITEMS))
        of_question = {c: rng.normal(size=len(ITEMS)) for c in asked["question"].unique().sort()}
        of_wording = {w: rng.normal(size=len(ITEMS)) for w in asked["wording"].unique().sort()}
        for prompt, name, framing, worded in asked.iter_rows():
            rewards = (-1 if framing == NEGATIVE else 1) * taste + question * of_question[name]
            rewards = rewards + shared * of_wording[worded]
            rewards = rewards + noise * rng.normal(size=len(ITEMS))
            runs.add_items(folder, "words", model, prompt, dict(zip(ITEMS, rewards, strict=True)))
    runs.edit_run(folder, lambda content: content.update(prompts=dict(prompts)))
    return folder


def test_questions_that_matter_more_than_their_wording_are_told_and_drawn(tmp_path, rng, study_of):
    study = study_of(list_run(tmp_path / "run", rng))
    (headline,) = told(wording, study)
    assert headline == (
        "Not the wording alone but the question matters: on average, the 4 models order the list "
        "“words” more alike under two wordings of one question than under two questions of one "
        "framing."
    )
    row = study.tables["wording_comparison"].row(0, named=True)
    kinds = ["wordings of one question", "questions of one framing"]
    assert [row["comparison"], row["against"], row["models"]] == [*kinds, 4]
    assert row["q"] < 0.05
    assert row["ci_low"] > 0
    own = study.tables["wording_agreement"].filter(model="m0")
    assert own["comparison"].to_list() == [*kinds, "opposite framings", "models under one prompt"]
    pairs = [4 * 6, 2 * 12, 8 * 8, 3 * 16]  # questions in different wordings alone
    assert own["pairs"].to_list() == pairs
    section = wording.ANALYSIS.section(study)
    drawn = {picture.stem: picture.draw() for picture in pictures(section.blocks)}
    assert list(drawn) == ["wording_agreement_words", "wording_variance_words"]
    assert {f.picture for f in section.findings} == {"wording_agreement_words"}
    agreement, variance = (charts.rows(chart) for chart in drawn.values())
    taus = study.tables["wording_agreement"]["kendall"].to_list()
    assert [row["value"] for row in agreement] == pytest.approx(taus, rel=1e-4)
    shares = [cell(share, "share") for share in study.tables["wording_variance"]["share"]]
    assert [row["percent_text"] for row in variance] == shares
    assert min(row["drawn"] for row in variance) >= 0


def test_wordings_that_questions_share_are_not_told_as_questions(tmp_path, rng, study_of):
    """What a wording adds is the same under each question: prompts of one wording agree."""
    study = study_of(list_run(tmp_path / "run", rng, question=0.0, shared=1.0))
    assert study.tables["wording_comparison"]["q"].item() > 0.05
    assert told(wording, study) == []
    taus = study.tables["wording_agreement"].group_by("comparison").agg(pl.col("kendall").mean())
    of = {kind: f"{tau:.2f} between two {kind}" for kind, tau in taus.iter_rows()}
    answer = wording.ANALYSIS.section(study).answer
    assert f"{of['wordings of one question']} and {of['questions of one framing']}. The" in answer
    assert "The test does not tell these apart (q = ." in answer
    table = study.tables["wording_variance"].filter(component="question")
    assert abs(table["share"].mean()) < 0.03


def test_the_papers_prompts_are_compared_by_framing(make_run, rng, study_of):
    words = [f"t{i}" for i in range(60)]
    value = rng.normal(size=60)
    scores = {
        (model, prompt): (-value if prompt == "worst" else value) + 0.1 * rng.normal(size=60)
        for model in ("a", "b")
        for prompt in PAPER
    }
    study = study_of(make_run({"v": words}, {"a": "v", "b": "v"}, scores, size=100))
    variance = study.tables["wording_variance"].head(2)
    assert variance.select("level", "framing").rows() == 2 * [("framing", "positive")]
    assert variance["component"].to_list() == ["common", "wording"]
    kinds = {"prompts of one framing", "opposite framings", "models under one prompt"}
    assert set(study.tables["wording_agreement"]["comparison"]) == kinds
    assert study.tables["wording_comparison"]["p"].item() > 0.05  # three prompts cannot show it
    assert any(t.startswith("No question was asked in two") for t in texts(wording, study))
    assert told(wording, study) == []


def test_one_model_has_shares_but_nothing_to_agree_with(tmp_path, rng, study_of):
    study = study_of(list_run(tmp_path / "run", rng, models=1))
    assert math.isnan(study.tables["wording_comparison"]["ci_low"].item())
    (headline,) = told(wording, study)
    assert "the model orders the list" in headline


SIZE, MODELS = 200, ("a", "b", "c")


def crossed(rng, question, alike, wordings=6):
    """Two questions of each framing in the same wordings, which are of two kinds.

    Wordings of one kind share much, whatever the question; a question has a little of its own.
    """
    names = [("best", "positive"), ("greatest", "positive"), ("worst", "negative")]
    names.append(("most bad", "negative"))
    rows = [(f"{m}-{w}", m, f, f"wording {w}") for m, f in names for w in range(wordings)]
    prompts = pl.DataFrame(rows, schema=["prompt", "question", "framing", "wording"], orient="row")
    values = {}
    for model in MODELS:
        taste, kinds = rng.normal(size=SIZE), alike * rng.normal(size=(2, SIZE))
        own = question * rng.normal(size=(len(names), SIZE))
        cells = [
            taste + kinds[w % 2] + own[q] + 0.3 * rng.normal(size=SIZE)
            for q in range(len(names))
            for w in range(wordings)
        ]
        values[model] = np.array([ranks.percentiles(cell) for cell in cells])
    return Wordings(
        source="words",
        level=QUESTION,
        items=[f"item {i}" for i in range(SIZE)],
        clusters=np.arange(SIZE),
        models=MODELS,
        prompts=prompts,
        read=values.__getitem__,
    )


def test_a_question_is_found_beside_wordings_that_differ_much_and_their_kinds_are_none():
    """Questions are permuted inside each wording, so that kinds of wordings are no noise."""
    found = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        [row] = wording_rows(crossed(rng, question=0.15, alike=1.0), rng, 199)[COMPARISON.name]
        found += row[-1] < 0.05
    assert found == 5
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        [row] = wording_rows(crossed(rng, question=0.0, alike=1.0), rng, 199)[COMPARISON.name]
        alarms += row[-1] < 0.05
    assert alarms <= 4
