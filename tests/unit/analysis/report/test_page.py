"""Sections of the page: each shows its tables and figures, or says why there is none."""

import base64
import re
from functools import partial

import numpy as np
import polars as pl
import pytest

from analysis import CHAPTERS
from analysis.blocks import Folded, Picture, Rows, pictures
from analysis.chapters import sentiment
from analysis.charts.heat_map import heat_map
from analysis.report import drawing, page
from analysis.report.explorer import Packed
from engine.errors import AssayError
from tests.support import charts, runs
from tests.support.studies import cited

NOTHING = Packed(meta={"rows": 0, "models": [], "prompts": []}, blobs=[])


def sections_of(study):
    return [chapter.section(study) for chapter in CHAPTERS]


def text_of(study):
    return page.render(study, sections_of(study), charts.Undrawn(), NOTHING)


def test_every_section_that_has_a_table_shows_it_and_escapes_it(full):
    source = text_of(full)
    for section in sections_of(full):
        if section.is_empty:
            assert f'<b id="{section.analysis.id}">' in source
            continue
        assert f'<article id="{section.analysis.id}"' in source
        assert f'href="#{section.analysis.id}"' in source
    assert "<script>alert(1)" not in source
    assert "&lt;b&gt;peace" in source
    assert "<b>peace" not in source
    assert "<i>\\u202e</i>" in source


STEPS = [f"step-{number}" for number in (200, 50, 100, 150)]


def _within(found, order):
    """Whether the models among `found` are in this order."""
    return (models := [name for name in found if name in order]) == sorted(models, key=order.index)


@pytest.mark.slow
def test_models_stand_in_the_order_given(tmp_path, study_of, monkeypatch):
    """Never in that of their text: 100, 150, 200, 50."""
    monkeypatch.setattr(runs, "FULL", dict.fromkeys(STEPS))
    monkeypatch.setattr(runs, "UNGATED", STEPS[0])
    monkeypatch.setattr(runs, "GATED", STEPS[1])
    run = runs.full_run(tmp_path / "run", np.random.default_rng(1))
    study = study_of(run, *CHAPTERS, match_trim="always")
    for stem, frame in study.tables.files.items():
        columns = {"model", "source", "language_model"} & set(frame.columns)
        names = [frame[column].unique(maintain_order=True).to_list() for column in columns]
        assert all(_within(found, STEPS) for found in (*names, frame.columns)), stem


def test_each_chart_is_saved_once_and_goes_into_the_page(tmp_path):
    frames = [pl.DataFrame({"model": ["a"], "a": [value]}) for value in (0.5, 0.7)]
    blocks = [
        Picture(stem, "", partial(heat_map, frame, {}, "τ"))
        for stem, frame in zip("ab", frames, strict=True)
    ]
    drawn = drawing.draw(blocks, tmp_path, drawing.FORMATS)
    assert list(drawn) == ["a", "b"]
    assert '"value":0.7' in drawn["b"].text
    svg = (tmp_path / "a.svg").read_bytes()
    assert drawn["a"].image == f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    names = [f"{stem}.{kind}" for stem in "ab" for kind in ("pdf", "png", "svg")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(AssayError, match="figure a"):
        drawing.draw([*blocks, blocks[0]], tmp_path, drawing.FORMATS)
    kept = {p: p.read_bytes() for p in tmp_path.iterdir() if p.suffix != ".pdf"}
    drawing.draw(blocks, tmp_path, drawing.FORMATS)
    assert all(path.read_bytes() == data for path, data in kept.items())


def test_one_line_says_what_was_scored(full):
    vocabulary = full.described["vocabulary"]
    scored = ["4", "3", f"{vocabulary.max():,}", f"{3 * vocabulary.sum():,}"]
    listed = [str(len(set(column))) for column in zip(*full.run.lists(), strict=True)]
    assert cited(page.lede(full)) == [*scored, *listed, "2", "1"]


def shown(blocks):
    for block in blocks:
        if isinstance(block, Folded):
            yield from shown(block.blocks)
        elif isinstance(block, Rows):
            yield block


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.id)
def test_every_table_of_the_page_is_in_a_file_of_the_report(chapter, full):
    for block in shown(chapter.section(full).blocks):
        assert block.file.removesuffix(".csv") in full.tables.files, block.title or block.columns


def many_models():
    """The heat map of ten models, as one chart."""
    names = {f"m{i}": f"model {i}" for i in range(10)}
    matrix = pl.DataFrame({"model": [*names], **{name: [0.5] * len(names) for name in names}})
    return Picture("many", "", partial(heat_map, matrix, names, "τ"))


@pytest.mark.parametrize("stem", ["sentiment_slopes", "many"])
@pytest.mark.parametrize(("width", "inches"), [("column", 3.3), ("text", 6.9)])
def test_a_chart_for_a_paper_has_its_width_and_type_of_eight_points(
    tmp_path, full, width, inches, stem
):
    made = [*pictures(sentiment.ANALYSIS.section(full).blocks), many_models()]
    [chart] = [picture for picture in made if picture.stem == stem]
    assert drawing.draw([chart], tmp_path, width=width)[stem].view == ""
    svg = (tmp_path / f"{stem}.svg").read_text(encoding="utf-8")
    assert f'width="{inches}in"' in svg[:400]
    pixels = float(re.search(r'viewBox="0 0 ([\d.]+) ', svg)[1])
    least = min(float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg))
    assert 72 * inches * least / pixels == pytest.approx(8, rel=0.01)
