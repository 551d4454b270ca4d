"""The tables of a run that the paper has too, with three lists of items, one without people."""

import numpy as np
import pytest
import scipy.stats

import analysis
from analysis import ModelInfo
from analysis.published import data, rounding, tables
from analysis.report import drawing
from configs import known_models
from tests.support import runs

SPECS = list(known_models.MODELS.values())
INFOS = {spec.slug: ModelInfo(**{key: getattr(spec, key) for key in runs.KEYS}) for spec in SPECS}
PROMPT = "elo_greatest"
NAMES = [f"thing {i}" for i in range(8)]
TOKENS = ["love", "hate", "good", "bad", *(f"word{i}" for i in range(20))]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Ten models, their vocabulary and three lists: two that people ranked, and one more."""
    rng = np.random.default_rng(0)
    slugs = list(INFOS)
    common = rng.normal(size=len(TOKENS))
    rewards = {(slug, "greatest"): common + rng.normal(size=len(TOKENS)) for slug in slugs}
    folder = tmp_path_factory.mktemp("ten") / "run"
    runs.write_run(folder, {"v": TOKENS}, dict.fromkeys(slugs, "v"), rewards)
    for name in ("aaa", "items", "words"):
        for slug in slugs:
            own = dict(zip(NAMES, rng.normal(size=len(NAMES)).tolist(), strict=True))
            runs.add_items(folder, name, slug, PROMPT, own)
        if name != "words":
            people = dict(zip(NAMES, np.linspace(1700, 1000, len(NAMES)).tolist(), strict=True))
            runs.add_humans(folder, name, people)
    return analysis.load(folder)


@pytest.fixture(scope="module")
def study(run, settings):
    return tables.study_of(run, INFOS, settings, data.read())


def number(study, items, exhibit, quantity, model="", other="", prompt=PROMPT):
    own = tables.own_of("", study, INFOS, items=items)
    row = {"exhibit": exhibit, "quantity": quantity, "model": model, "other": other}
    return own.number({**row, "prompt": prompt})


def test_models_agree_on_a_list_that_people_did_not_rank(run, study):
    first, second = SPECS[0], SPECS[5]
    scores = run.item_scores("words", PROMPT)
    expected = scipy.stats.kendalltau(scores[first.slug], scores[second.slug]).statistic
    names = (first.nickname, second.nickname)
    found = number(study, "words", "figure_a5", "kendall", *names)
    assert found == pytest.approx(expected)
    assert found != number(study, "items", "figure_a5", "kendall", *names)
    assert set(study.tables.of("items_kendall")) == {("words", PROMPT)}


def test_figure_2c_is_of_rounded_agreement_and_the_word_list_is_known_by_its_path(study, settings):
    matrix = study.tables["kendall_tau", "greatest"]
    expected = rounding.rounded_rsa(matrix, study.described)
    made = study.tables["rsa_rounded", "greatest"]
    assert made.equals(expected)
    assert made["pearson_r"].to_list() != study.tables["rsa"]["pearson_r"].to_list()
    found = number(study, "items", "figure_2c", "pearson", other="size", prompt="greatest")
    assert found == expected.filter(predictor="size")["pearson_r"].item()
    assert tables.own_of("", study, INFOS).frequencies == settings.options.frequency


@pytest.mark.parametrize(("items", "drawn"), [("aaa", ["aaa"]), ("words", [])])
def test_figures_are_of_the_named_list(study, monkeypatch, items, drawn):
    def stems(pictures, folder):
        return {p.stem: drawing.Drawn("", 0, 0, (), p.stem) for p in pictures}

    monkeypatch.setattr(drawing, "draw", stems)
    found = tables.draw(study, None, items)
    names = [f"humans_correlation_{name}_{PROMPT}" for name in drawn]
    assert [stem for stem, _ in found["figure_5a"]] == names
    of_lists = [stem for stem, _ in found["figure_a5"]]
    wanted = [f"humans_{kind}_{name}_{PROMPT}" for name in drawn for kind in ("ranks", "kendall")]
    assert sorted(of_lists) == sorted(wanted or [f"items_kendall_words_{PROMPT}"])
    every = tables.draw(study, None)["figure_a5"]
    assert len(every) == 5
