"""The questions that prompts ask: read from their texts, or from a file of the user's own."""

import collections

import pytest

from analysis.words.lexicons import LexiconError
from analysis.words.questions import QUALITIES, questions
from configs import prompts


def test_the_follow_up_prompts_are_nine_wordings_of_six_questions():
    table = questions(prompts.FOLLOW_UP)
    assert table.columns == ["prompt", "question", "framing", "wording"]
    assert collections.Counter(table["question"]) == dict.fromkeys(QUALITIES, 9)
    assert table["question"].unique(maintain_order=True).to_list() == list(QUALITIES)
    assert collections.Counter(table["framing"]) == {"positive": 27, "negative": 27}
    assert table["wording"].n_unique() == 9
    for prompt, question, framing, wording in table.iter_rows():
        assert prompt.startswith(question.replace(" ", "_") + "-")
        assert framing == QUALITIES[question]
        assert wording.replace("…", question) == prompts.FOLLOW_UP[prompt]


def test_the_papers_prompts_are_wordings_of_the_same_questions():
    table = questions(prompts.PAPER | {"elo_greatest": prompts.ELO["elo_greatest"]})
    assert table["question"].to_list() == ["greatest", "best", "worst", "greatest"]
    same = questions(prompts.FOLLOW_UP).filter(prompt="best-ever-one-word")["wording"].item()
    assert table.filter(prompt="best")["wording"].item() == same


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


def test_an_unknown_prompt_does_not_join_the_quality_that_it_is_named_after():
    table = questions({"best": "What is the best food?", "b": "What is the BEST thing?"})
    assert table["question"].to_list() == ["What is the best food?", "best"]


def test_a_file_replaces_what_the_texts_say(write):
    path = write("q.csv", "framing,prompt,question\npositive,food,food\npositive,a,food\n,no,x\n")
    asked = {"food": "What is the best food?", "a": "What is the best thing?", "b": "b?"}
    table = questions(asked, path).drop("wording")
    assert table.rows() == [("food", "food", "positive"), ("a", "food", "positive"), ("b", "b", "")]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("prompt,question\na,b\n", "no column 'framing'; it needs prompt, question, framing"),
        ("prompt,question,framing\na,,\n", "prompt 'a' has no question"),
        ("prompt,question,framing\na,b,good\n", "framing 'good' of 'a'; allowed: "),
        ("prompt,question,framing\na,worst,positive\n", "question 'worst' has two framings"),
        ("prompt,question,framing\na,b,\na,c,\n", "prompt 'a' is there twice"),
    ],
)
def test_a_malformed_file_is_refused(write, text, reason):
    with pytest.raises(LexiconError, match=reason):
        questions({"a": "a?", "b": "What is the worst thing?"}, write("questions.csv", text))
    with pytest.raises(LexiconError, match="No such file"):
        questions({"a": "a?"}, "none.csv")
