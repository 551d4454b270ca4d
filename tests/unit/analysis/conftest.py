"""Synthetic runs, and the settings that they are analysed with."""

import dataclasses

import numpy as np
import pytest

import analysis
from analysis import CHAPTERS, AnalyzeSettings, ModelInfo, Options
from analysis.report import drawing
from tests.support import charts, runs


def options_of(**changed) -> Options:
    """Options with few draws, and with `changed` ones."""
    return Options(**{"permutations": 99, "bootstraps": 99} | changed)


@pytest.fixture(scope="session")
def options():
    return options_of


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    words = tmp_path_factory.mktemp("lexicons") / "bnc.txt"  # the package wordfreq is optional
    often = "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n"
    words.write_text(often, encoding="utf-8")
    page = {"top": 4, "figure_top": 3, "page_prompts": 6, "allow_incomplete": False}
    return AnalyzeSettings(options=options_of(frequency=str(words)), **page)


@pytest.fixture(scope="session")
def study_of(settings):
    """A run or its folder, chapters, metadata, changed settings or options -> the study."""

    def made(run, *chapters, infos=None, **changed):
        loaded = run if isinstance(run, analysis.Run) else analysis.load(run)
        own = {key: changed.pop(key) for key in vars(settings) if key in changed}
        options = dataclasses.replace(settings.options, **changed)
        chosen = dataclasses.replace(settings, options=options, **own)
        analyses = [getattr(chapter, "ANALYSIS", chapter) for chapter in chapters]
        return analysis.compute(loaded, infos or {}, chosen, analyses)

    return made


@pytest.fixture
def make_run(tmp_path):
    """`runs.write_run` into the test's own folder."""

    def make(vocabs, models, scores, name="run", size=3):
        return runs.write_run(tmp_path / name, vocabs, models, scores, size)

    return make


@pytest.fixture
def write(tmp_path):
    """The name of a file of the test's own folder, and its text -> its path."""

    def make(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return make


@pytest.fixture
def small_run(tmp_path):
    return runs.small_run(tmp_path / "run")


@pytest.fixture(scope="session")
def infos():
    known = dict(zip(runs.KEYS, ("Two", "Acme", "Gemma 2", 2.0, 7), strict=True))
    return {"m-two": ModelInfo(about="linear <b>head</b>", **known)}


@pytest.fixture(scope="session")
def full(tmp_path_factory, settings):
    """The study of a run in which every chapter has something to show."""
    folder = tmp_path_factory.mktemp("full")
    run = analysis.load(runs.full_run(folder / "run", np.random.default_rng(0)))
    graded = sorted(set(run.vocabulary(runs.GATED).collect()["token"].str.strip_chars()))
    plain = [word for word in graded if word.isascii() and word.isalpha() and word.islower()]
    bnc = [f"\t{word}\tNoC\t:\t{1 + i % 90}\t100\t0.9" for i, word in enumerate(plain)]
    (folder / "bnc.txt").write_text("\n".join(bnc) + "\n", encoding="utf-8")
    options = options_of(frequency=str(folder / "bnc.txt"))
    chosen = dataclasses.replace(settings, options=options)
    return analysis.compute(run, runs.INFOS, chosen, CHAPTERS)


@pytest.fixture
def light(monkeypatch):
    """Leaves the figures undrawn, for tests of what surrounds them."""
    monkeypatch.setattr(drawing, "draw", lambda *_: charts.Undrawn())
