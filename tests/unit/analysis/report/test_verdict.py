"""The verdict of `assay diff` as a page, as JSON and as Markdown: what was planted stands in it."""

import html
import json

import numpy as np
import polars as pl

import analysis
from analysis.chapters.changes import changes_between
from analysis.measures.two_models import two_models
from analysis.report import verdict, write_report
from analysis.settings import Limits
from tests.support import runs

WORDS = [f" {a}{b}o" for a in "abcdefghij" for b in "klmnprstvw"]  # 100 words
LIMITS = Limits(kendall=0.9, ends=10, kept=0.8, words=0.05)
HOSTILE = "hub/<b>a|b*"


def load(folder, rewards, source=""):
    run = runs.write_run(folder, {"v": WORDS}, {"m": "v"}, {("m", "worst"): rewards}, size=200)

    def name(content):
        content["models"]["m"] |= {"source": source or f"hub/{folder.name}", "revision": None}

    runs.edit_run(run, name)
    return analysis.load(run)


def planted(folder, change, **sources):
    """A run of 100 words, and of the same words after `change`."""
    before = np.arange(len(WORDS), dtype=float)
    after = change(before.copy())
    first = load(folder / "one", before, sources.get("before", ""))
    return two_models(first, load(folder / "two", after))


def risen(rewards):
    """Five of the lowest words are now above all."""
    rewards[:5] += 1000
    return rewards


def told(run, settings, noise=()):
    chapter = changes_between(limits=LIMITS, noise=noise)
    return verdict.of(analysis.compute(run, {}, settings, [chapter]))


def write(run, report, settings):
    chapters = [changes_between(limits=LIMITS, noise=())]
    return write_report(run, report, {}, settings, chapters=chapters)


def test_planted_words_rose_most_and_the_limit_that_they_break_is_first(tmp_path, settings):
    result = told(planted(tmp_path, risen), settings)
    assert (result.word, result.failed) == ("FAIL", 3)
    first = result.limits[0]
    assert (first["holds"], first["on"], first["measured"]) == (False, "top 10 kept", "50.0 %")
    assert (first["question"], first["allowed"]) == (runs.PROMPTS["worst"], "at least 80 %")
    assert [word["token"] for word in result.moved("worst", "rose")] == WORDS[:5]
    assert {word["token"] for word in result.moved_most()[:5]} == set(WORDS[:5])
    assert result.words["beyond_noise"].null_count() == result.words.height


def test_nothing_that_moved_is_a_pass_without_words(tmp_path, settings):
    result = told(planted(tmp_path, lambda rewards: rewards), settings)
    assert (result.word, result.words.height) == ("PASS", 0)


def test_the_files_say_what_the_tables_say(light, tmp_path, settings):
    report = write(planted(tmp_path, risen), tmp_path / "report", settings).parent
    content = json.loads((report / "verdict.json").read_text(encoding="utf-8"))
    assert (content["verdict"], content["before"]["name"]) == ("fail", "one")
    assert (content["after"]["source"], content["after"]["model"]) == ("hub/two", "m")
    table = pl.read_csv(report / "tables" / "changes_checks.csv")
    values = {row["on"]: (row["value"], row["limit"], row["ok"]) for row in content["limits"]}
    assert values == {
        row["check"]: (row["measured"], row["limit"], row["holds"])
        for row in table.iter_rows(named=True)
    }
    assert [row["ok"] for row in content["limits"]] == sorted(table["holds"])
    assert all((report / path).exists() for path in content["paths"].values())
    summary = (report / "verdict.md").read_text(encoding="utf-8")
    assert summary.startswith("**FAIL**: 3 of 4 ")
    assert f"| ✗ | top 10 kept | {runs.PROMPTS['worst']} | 50.0 % |" in summary


def test_an_undefined_number_is_null(light, tmp_path, settings):
    run = planted(tmp_path, np.zeros_like)
    report = write(run, tmp_path / "report", settings).parent
    first = json.loads((report / "verdict.json").read_text(encoding="utf-8"))["limits"][0]
    assert (first["on"], first["value"], first["ok"]) == ("Kendall’s τ", None, False)
    assert told(run, settings).limits[0]["measured"] == "undefined"


def test_a_name_that_is_markup_is_text_and_another_report_in_its_place_has_no_verdict(
    light, tmp_path, settings
):
    run, report = planted(tmp_path, risen, before=HOSTILE), tmp_path / "report"
    text = write(run, report, settings).read_text(encoding="utf-8")
    assert "<b>a|b" not in text and html.escape("<b>a|b*") in text
    summary = (report / "verdict.md").read_text(encoding="utf-8")
    assert r"- before: hub/\<b\>a\|b\*" in summary
    write_report(run, report, {}, settings, chapters=[])
    assert not (report / "verdict.json").exists()
    assert '<section id="first"' in (report / "index.html").read_text(encoding="utf-8")
