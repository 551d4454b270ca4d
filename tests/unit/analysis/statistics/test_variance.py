import numpy as np
import pytest

from analysis.statistics.variance import nested_shares

QUESTIONS = np.repeat([0, 1, 2], 4)


def made(rng, items, sizes=(1.0, 0.7, 0.5), questions=QUESTIONS):
    """Items with effects of the given standard deviations, and their shares."""
    common, question, wording = sizes
    effects = rng.normal(size=(items, questions.max() + 1))[:, questions]
    noise = rng.normal(size=(items, len(questions)))
    values = common * rng.normal(size=(items, 1)) + question * effects + wording * noise
    shares = np.array([common, question, wording]) ** 2
    return values, shares / shares.sum()


def test_with_questions_of_equal_size_it_is_the_nested_analysis_of_variance(rng):
    values, _ = made(rng, 50)
    share, *_ = nested_shares(values, QUESTIONS, np.arange(12), np.arange(50))
    centred = values - values.mean(axis=0)
    squares = np.zeros(3)
    for item in centred:
        mean = item.mean()
        squares[0] += 12 * mean**2
        for question in range(3):
            own = item[question == QUESTIONS]
            squares[1] += 4 * (own.mean() - mean) ** 2
            squares[2] += ((own - own.mean()) ** 2).sum()
    item, question, wording = squares / (49 * np.array([1, 2, 9]))
    components = np.array([(item - question) / 12, (question - wording) / 4, wording])
    np.testing.assert_allclose(share, components / components.sum())


@pytest.mark.parametrize(
    ("sizes", "questions"),
    [
        ((1.0, 0.7, 0.5), QUESTIONS),
        ((1.0, 0.0, 0.5), np.repeat([0, 1], [2, 7])),
        ((0, 0, 1), QUESTIONS),
    ],
)
def test_shares_are_recovered_also_where_questions_are_of_unequal_size(rng, sizes, questions):
    found = []
    for _ in range(60):
        values, truth = made(rng, 200, sizes, questions)
        found.append(nested_shares(values, questions, np.arange(len(questions)), np.arange(200))[0])
    error = np.std(found, axis=0) / np.sqrt(60)
    assert (np.abs(np.mean(found, axis=0) - truth) < 4 * error + 1e-3).all()


def test_a_wording_that_questions_share_is_not_taken_for_what_all_have_in_common(rng):
    found = []
    for _ in range(60):
        values, _ = made(rng, 200)
        values += rng.normal(size=(200, 4))[:, np.arange(12) % 4]
        found.append(nested_shares(values, QUESTIONS, np.arange(12) % 4, np.arange(200))[0])
    truth = np.array([1.0, 0.49, 0.25 + 1.0])
    np.testing.assert_allclose(np.mean(found, axis=0), truth / truth.sum(), atol=0.015)


def test_one_question_has_no_part_of_its_own_and_one_wording_cannot_tell(rng):
    values, _ = made(rng, 400, (1.0, 0.0, 0.5), np.zeros(5, dtype=int))
    share, low, high, _ = nested_shares(values, np.zeros(5), np.arange(5), np.arange(400))
    assert np.isnan(share[1])
    assert low[0] < 0.8 < high[0]
    assert low[2] < 0.2 < high[2]
    share, *_ = nested_shares(rng.normal(size=(30, 3)), np.arange(3), np.arange(3), np.arange(30))
    assert np.isnan(share[1:]).all()


def test_spellings_of_a_word_are_no_further_evidence(rng):
    values, _ = made(rng, 60)
    _, low, high, _ = nested_shares(values, QUESTIONS, np.arange(12), np.arange(60))
    twice = nested_shares(
        np.repeat(values, 5, axis=0), QUESTIONS, np.arange(12), np.arange(60).repeat(5)
    )
    np.testing.assert_allclose(twice[1:3], (low, high), rtol=1e-9)


@pytest.mark.slow
def test_the_interval_holds_the_truth_as_often_as_it_says(rng):
    held = np.zeros(3)
    for _ in range(400):
        values, truth = made(rng, 120)
        _, low, high, _ = nested_shares(values, QUESTIONS, np.arange(12), np.arange(120))
        held += (low <= truth) & (truth <= high)
    # A true rate of 95 % leaves these bounds in less than one of a thousand sets of 400; the delta
    # method of 120 items is allowed a little less.
    assert (held >= 360).all()
    assert (held <= 394).all()
