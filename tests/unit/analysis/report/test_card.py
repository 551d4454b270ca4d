"""What people share of a report."""

import pathlib
import tomllib

import pytest

from analysis.report import card, page


@pytest.fixture
def shared(make_run, study_of):
    tokens = [" love", " <b>|", " war", " rust", " peace", " joy"]
    scores = {("m", "best"): [5.0, 6.0, -4.0, -3.0, 1.0, 2.0]}
    study = study_of(make_run({"v": tokens}, {"m": "v"}, scores))
    return page.card_files(study, [])


def test_a_card_has_the_words_and_is_a_picture_of_1200_by_630(shared):
    image = shared[card.PNG]
    assert [int.from_bytes(image[at : at + 4]) for at in (16, 20)] == [1200, 630]
    lines = shared[card.MARKDOWN].decode().splitlines()
    assert len(lines) == 12
    assert "| Rated highest | love, joy |" in lines


def test_markup_in_a_word_is_text():
    assert card._plain("<b>|*") == r"\<b\>\|\*"


def test_the_citation_has_the_version():
    project = pathlib.Path(__file__).parents[4] / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    assert card.CITATION.startswith(f"Assay {version},")
