"""One list under many prompts as an array."""

import numpy as np
import pytest

import analysis
from analysis.measures.list_scores import ALL
from tests.support import runs

ASKED = {
    "w": "What is the worst thing ever?",
    "b1": "What is the best thing ever?",
    "own": "Which pet?",
    "b2": "What is the best thing of all time?",
    "again": "What is the best thing ever?",
}


@pytest.fixture
def read(small_run):
    """Scores by (model, prompt), and a file of questions -> the array of the list."""

    def made(scores, asked="", order=("m-two", "m-one")):
        for (model, prompt), rewards in scores.items():
            runs.add_items(small_run, "pets", model, prompt, rewards)
        runs.edit_run(small_run, lambda content: content["prompts"].update(ASKED))
        run = analysis.load(small_run, allow_incomplete=True)
        points = analysis.items_points(run, "pets", list(order))
        return analysis.list_scores(points, list(order), run.prompts, asked)

    return made


PETS = {"cat": 3.0, "dog": 2.0, "eel": 1.0}
TURNED = {"cat": 1.0, "dog": 2.0, "eel": 3.0}


def test_wordings_of_one_question_stand_together_and_a_text_counts_once(read):
    scores = read({("m-one", prompt): PETS for prompt in ASKED})
    assert scores.prompts["prompt"].to_list() == ["w", "b1", "b2", "own"]
    parts = [(name, framing, at.tolist()) for name, framing, at in scores.parts()]
    framings = [("positive prompts", "positive", [1, 2]), ("negative prompts", "negative", [0])]
    assert parts == [
        ("worst", "negative", [0]),
        ("best", "positive", [1, 2]),
        ("own", "", [3]),
        *framings,
        (ALL, "", [0, 1, 2, 3]),
    ]
    views = [(name, framing, at.tolist()) for name, framing, at in scores.views()]
    assert views == [*framings, ("own", "", [3])]


def test_a_text_under_two_ids_stays_where_other_models_scored_it(read):
    scores = read({("m-one", "b1"): PETS, ("m-two", "again"): PETS})
    assert scores.prompts["prompt"].to_list() == ["b1", "again"]


def test_percentiles_stand_by_model_prompt_and_item_and_means_are_over_those_there_are(read):
    scores = read({("m-one", "b1"): PETS, ("m-two", "b1"): TURNED, ("m-one", "w"): TURNED})
    assert scores.models == ("m-two", "m-one")
    assert scores.items["item"].to_list() == ["cat", "dog", "eel"]
    high_to_low = np.array([5, 3, 1]) / 6
    np.testing.assert_allclose(scores.percentiles[:, 0], [high_to_low[::-1], high_to_low])
    np.testing.assert_allclose(scores.percentiles[1, 1], high_to_low[::-1])
    assert scores.known.tolist() == [[True, False], [True, True]]
    models, means = scores.means(np.array([0, 1]))
    assert models == ["m-two", "m-one"]
    np.testing.assert_allclose(means, [np.array([1, 3, 5]) / 6, [0.5, 0.5, 0.5]])
    assert scores.means(np.array([1]))[0] == ["m-one"]


def test_a_model_that_rates_all_items_alike_has_no_order(read):
    scores = read({("m-one", "b1"): PETS, ("m-two", "b1"): dict.fromkeys(PETS, 1.0)})
    assert scores.known.tolist() == [[False], [True]]
    assert scores.means(np.array([0]))[0] == ["m-one"]


def test_only_items_that_everyone_scored_everywhere_count(read):
    part = {"cat": None, "dog": 2.0, "eel": 1.0}
    scores = read({("m-one", "b1"): PETS, ("m-two", "w"): part})
    assert scores.items["item"].to_list() == ["dog", "eel"]
    np.testing.assert_allclose(scores.percentiles[1, 0], [0.75, 0.25])


def test_the_users_own_questions_are_taken(read, write):
    path = write("own.csv", "prompt,question,framing\nown,pets,positive\nb1,pets,positive\n")
    scores = {("m-one", "own"): PETS, ("m-one", "b1"): PETS}
    assert read(scores, path).prompts["question"].to_list() == ["pets", "pets"]
