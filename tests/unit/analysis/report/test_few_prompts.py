"""The page of a run of many prompts: a few are shown, and the tables and findings are of all."""

import dataclasses

import polars as pl
import pytest

import analysis
from analysis.blocks import Finding, Picture, rows
from analysis.report import few_prompts
from analysis.study import Analysis, table
from configs.prompts import FOLLOW_UP, PAPER
from tests.support import runs


def _tables(study):
    prompts = list(study.run.vocabulary_prompts)
    for prompt in prompts:
        yield table("height", prompt, make=lambda: pl.DataFrame({"height": [1]}))
    yield table("heights", make=lambda: pl.DataFrame({"prompt": prompts}))


def _shown(study):
    yield from (Picture(f"height_{p}", "", lambda: None) for (p,) in study.tables.of("height"))
    yield from rows(study.tables["heights"], [("prompt", "prompt", "text")], "heights.csv")


def _told(study):
    *_, (last,) = study.tables.of("height")
    yield Finding(text=f"{study.tables['heights'].height} heights.", picture=f"height_{last}")


# A table, a figure and a row for each prompt; and the same as a section of all prompts.
BY_PROMPT = Analysis(
    id="heights", title="Heights", lead="", make=_tables, parts=(_shown,), told=(_told,)
)
TOGETHER = dataclasses.replace(BY_PROMPT, every_prompt=True)


@pytest.fixture
def run_under(make_run):
    """Prompts -> a run of one vocabulary under each."""

    def make(prompts, models=("m",)):
        scores = {(m, p): [float(i), 1.0, 2.0] for m in models for i, p in enumerate(prompts)}
        run = make_run({"v": ["a", "b", "c"]}, dict.fromkeys(models, "v"), scores)
        runs.edit_run(run, lambda content: content.update(prompts=dict(prompts)))
        return analysis.load(run)

    return make


def test_one_wording_of_each_question_is_shown(run_under, study_of):
    study = study_of(run_under(FOLLOW_UP))
    first = ("best", "greatest", "most_good", "worst", "most_bad", "most_terrible")
    assert few_prompts.shown(study) == [f"{name}-ever-one-word" for name in first]


@pytest.mark.parametrize(("models", "more"), [(1, ["p0", "p1", "p2"]), (30, ["p0"])])
def test_the_others_follow_in_their_order_fewer_for_many_models(run_under, study_of, models, more):
    prompts = PAPER | {f"p{i}": f"Question {i}?" for i in range(4)}
    study = study_of(run_under(prompts, [f"m{i}" for i in range(models)]))
    assert few_prompts.shown(study) == ["greatest", "best", "worst", *more]


def test_a_section_shows_few_prompts_and_finds_in_all_unless_it_is_of_all(run_under, study_of):
    study = study_of(run_under(PAPER), BY_PROMPT, page_prompts=2)
    (section,) = few_prompts.sections_of(study, [BY_PROMPT])
    assert [block.stem for block in section.blocks[:-1]] == ["height_greatest", "height_best"]
    assert [row["prompt"] for row in section.blocks[-1].rows] == ["greatest", "best"]
    assert section.findings == [Finding(text="3 heights.", picture="")]
    assert set(study.tables.files) == {"height_greatest", "height_best", "height_worst", "heights"}
    study = study_of(study.run, TOGETHER, page_prompts=2)
    (section,) = few_prompts.sections_of(study, [TOGETHER])
    assert [block.stem for block in section.blocks[:-1]][-1] == "height_worst"
    assert section.findings == [Finding(text="3 heights.", picture="height_worst")]


def test_the_prompt_of_a_language_model_goes_with_its_own(run_under, study_of):
    run = run_under({**PAPER, "best.chat": PAPER["best"], "worst.chat": PAPER["worst"]})
    run = dataclasses.replace(
        run, results={k: r for k, r in run.results.items() if "." not in k[1]}
    )
    made = table("log", make=lambda: pl.DataFrame({"prompt": ["best.chat", "worst.chat", "own"]}))
    study = study_of(run, page_prompts=2)
    study.tables.add(made)
    kept = few_prompts.limited(study, few_prompts.shown(study))
    assert kept.tables["log"]["prompt"].to_list() == ["best.chat", "own"]
