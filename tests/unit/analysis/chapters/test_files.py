"""Every table that the page shows is a file, with q beside every p."""

import re

import pytest

from analysis import CHAPTERS
from analysis.blocks import Folded, Rows


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


@pytest.mark.parametrize(
    "stem", [*("sentiment_slopes", "bing_effects", "frequency_slopes", "humans_correlation"), "rsa"]
)
def test_every_p_has_its_q_beside_it(stem, full):
    columns = full.tables.files[stem].columns
    tests = [name for name in columns if re.fullmatch(r"(.*_)?p", name)]
    assert tests
    for p in tests:
        assert columns[columns.index(p) + 1] == f"{p[:-1]}q"
