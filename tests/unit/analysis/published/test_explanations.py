"""Sentences on models that no change explains."""

import pytest

from analysis.published.explanations import Explanation, unexplained


def explained(change, differing, met):
    counts = {"differing": differing, "met": met, "same": 3, "kept": 1}
    return Explanation(model="S-Gem-27B", change=change, **counts)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("bos single", 0, 0), ("mode ids", 40, 0)], "the change mode ids does not give any of"),
        ([("bos single", 30, 0), ("mode ids", 40, 0)], "none of the 2 changes gives any of the 40"),
        ([("bos single", 0, 0), ("mode ids", 40, 1)], None),
        ([("bos single", 0, 0)], None),
    ],
)
def test_changes_that_explain_nothing(rows, said):
    """Changes are not always tried under the same prompts, so their values differ in number."""
    sentences = unexplained([explained(*row) for row in rows])
    assert len(sentences) == (said is not None)
    assert all(said in sentence for sentence in sentences)
