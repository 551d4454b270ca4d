"""What people share of a report."""

import pathlib
import re
import tomllib

import pytest

from analysis.measures import pairs
from analysis.report import card, page

TOKENS = [" love", " <b>|", " war", " rust", " peace", " joy"]
REWARDS = [5.0, 6.0, -4.0, -3.0, 1.0, 2.0]


@pytest.fixture
def study(make_run, study_of):
    scores = {("m", "best"): REWARDS, ("n", "best"): [-x for x in REWARDS]}
    return study_of(make_run({"v": TOKENS}, {"m": "v", "n": "v"}, scores))


def test_a_card_has_the_words_and_is_a_picture_of_1200_by_630(study):
    made = page.cards(study, [])["m"]
    assert [int.from_bytes(made.image[at : at + 4]) for at in (16, 20)] == [1200, 630]
    lines = made.text.splitlines()
    assert len(lines) == 12
    assert "| Rated highest | love, joy |" in lines


def test_each_model_has_a_card_and_that_of_the_first_stands_at_the_top(study, tmp_path):
    made = page.cards(study, [])
    card.write(tmp_path, made.values())
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("card*/*.*")}
    files |= {path.name for path in tmp_path.glob("card.*")}
    assert files == {"card.md", "card.png", "cards/n.md", "cards/n.png"}
    assert "| Rated lowest | love, joy |" in made["n"].text.splitlines()


def test_a_card_says_how_often_the_longer_reply_wins(study):
    row = ("m", "own", 8, 0.5, 0.75, 0.6, 0.9, 0.5)
    study.tables.frames["replies_length",] = pairs.LENGTH.frame([row])
    assert study_numbers(page.cards(study, [])["m"].text) == ["75.0 %", "60.0 %", "90.0 %"]
    assert not study_numbers(page.cards(study, [])["n"].text)


def study_numbers(text):
    lines = [line for line in text.splitlines() if "| Length" in line]
    return re.findall(r"[\d.]+ %", "".join(lines))


def test_markup_in_a_word_is_text():
    assert card._plain("<b>|*") == r"\<b\>\|\*"


def test_the_citation_has_the_version():
    project = pathlib.Path(__file__).parents[4] / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    assert card.CITATION.startswith(f"Assay {version},")
