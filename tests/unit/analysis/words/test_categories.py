import re
from pathlib import Path

import pytest

from analysis.words.lexicons import LexiconError, categories
from analysis.words.questions import questions


@pytest.fixture
def mine(write):
    return lambda text: write("mine.csv", text)


def test_a_file_of_ones_own_is_one_scale_and_leaves_out_words_on_both_of_its_sides(mine):
    table = categories(mine("word,category\n Gold ,metals\noak,trees\noak,trees\n"))
    assert table.rows() == [("gold", "metals", "mine"), ("oak", "trees", "mine")]
    text = "word,category,scale\noak,trees,a\nOak,woods,a\noak,trees,b\nelm,trees,a\n"
    assert categories(mine(text)).rows() == [("oak", "trees", "b"), ("elm", "trees", "a")]


def test_the_example_of_the_guide_can_be_read(mine):
    page = (Path(__file__).parents[4] / "docs/extend/add-an-analysis.md").read_text()
    (text,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    counts = categories(mine(text)).group_by("category").len().sort("category")
    assert counts.rows() == [("metals", 8), ("trees", 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,kind\na,b\n", r"mine\.csv: no column 'category'"),
        ("word,category\na,\n", r"mine\.csv: "),
    ],
)
def test_another_file_is_refused_in_a_line(mine, text, message):
    with pytest.raises(LexiconError, match=message):
        categories(mine(text))
    with pytest.raises(LexiconError, match=r"nowhere\.csv: No such file"):
        categories("nowhere.csv")


@pytest.mark.parametrize(
    "text",
    [
        "What is the best food?",
        "Is the best thing better than the worst thing?",
        "What is the bestest thing?",
        "",
    ],
)
def test_any_other_prompt_is_a_question_of_its_own(text):
    assert questions({"mine": text}).row(0) == ("mine", "mine", "", text)


def test_a_file_replaces_what_the_texts_say(write):
    path = write("q.csv", "framing,prompt,question\npositive,food,food\npositive,a,food\n,no,x\n")
    asked = {"food": "What is the best food?", "a": "What is the best thing?", "b": "b?"}
    table = questions(asked, path).drop("wording")
    assert table.rows() == [("food", "food", "positive"), ("a", "food", "positive"), ("b", "b", "")]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("prompt,question\na,b\n", "'framing'"),
        ("prompt,question,framing\na,,\n", "'a' has no question"),
        ("prompt,question,framing\na,b,good\n", "'good' of 'a'"),
        ("prompt,question,framing\na,worst,positive\n", "'worst' has two framings"),
        ("prompt,question,framing\na,b,\na,c,\n", "'a' is there twice"),
    ],
)
def test_a_malformed_file_is_refused(write, text, reason):
    with pytest.raises(LexiconError, match=reason):
        questions({"a": "a?", "b": "What is the worst thing?"}, write("questions.csv", text))
    with pytest.raises(LexiconError, match="No such file"):
        questions({"a": "a?"}, "none.csv")
