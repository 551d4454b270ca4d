"""The first screen: the words at both ends of every model's ranking, under each question."""

import pytest

from analysis.report import first_screen
from tests.support import runs

STARTS = [f" {a}{b}" for a in "abcde" for b in "fghij"]  # 25 words with a space before


@pytest.fixture
def ends(make_run, study_of):
    """The only panel of a run of one model and one prompt."""

    def of(tokens, rewards, **options):
        study = study_of(make_run({"v": tokens}, {"m": "v"}, {("m", "best"): rewards}), **options)
        (question,) = first_screen.questions(study, ["best"])
        assert (question["text"], question["more"]) == (runs.PROMPTS["best"], 0)
        (panel,) = question["panels"]
        return panel

    return of


def test_words_alone_each_once_at_its_extreme(ends):
    tokens = [" love", "Love", " 12", "<|s|>", " war", " rust", " peace", "a", "!"]
    panel = ends(tokens, [5, 6, 90, 99, -4, -3, 1, 50, -99])
    assert [word["token"] for word in panel["highest"]] == ["Love", " peace"]
    assert [word["token"] for word in panel["lowest"]] == [" war", " rust"]
    assert [word["percentile"] for word in panel["lowest"]] == pytest.approx([150 / 9, 250 / 9])
    assert [word["strength"] for word in panel["highest"]] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("more", "top"),
    [
        ({"-": 90}, {"token": "-", "mark": "no word"}),
        ({"ing": 90}, {"token": "ing", "mark": "a piece of a word, or a rare word"}),
        ({"AF": 90}, {"token": "AF", "mark": ""}),  # of the word " af", which is at the other end
        ({"EJ": 90}, None),  # of the word " ej", which is listed
        ({"-": 24}, None),  # a word has that reward too
    ],
)
def test_the_highest_of_all_tokens_is_named_where_no_word_has_its_reward(ends, more, top):
    panel = ends([*STARTS, *more], [*range(25), *more.values()])
    assert (panel["top"], panel["bottom"]) == (top, None)


def test_endings_of_words_are_left_out_where_the_tokenizer_marks_starts(ends):
    tokens = [*STARTS, "ing", "ous"]
    panel = ends(tokens, [*range(25), 99, -99])
    assert [word["token"] for word in panel["highest"]] == STARTS[:14:-1]
    assert [word["token"] for word in panel["lowest"]] == STARTS[:10]
    assert panel["highest"][0]["strength"] == 1.0 and panel["highest"][-1]["strength"] == 3 / 12
    assert (panel["least"], panel["most"]) == (-99.0, 99.0) and max(panel["bars"]) == 1.0


def test_a_vocabulary_without_words_has_no_ends(ends):
    panel = ends(["1", "2", "<|s|>"], [3, 4, 5])
    assert (panel["highest"], panel["lowest"]) == ([], [])
