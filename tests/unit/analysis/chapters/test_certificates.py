"""What the page says of certificates: a planted one makes it appear, a run without one does not."""

import pytest

import analysis
from analysis.chapters import sequences
from tests.support import runs


def certify(run, model, rewards, *, certified, gain, direction="max", target=None, rejected=2):
    """Adds a search and the certificate that goes on from it, as the engine files them."""
    runs.add_search(run, model, direction, rewards[:1], name="gcg-seed3")
    path = runs.add_search(run, model, direction, rewards, name="gcg-ascent-seed3")
    said = {"certified": certified, "best_gain": gain, "target": target}
    said |= {"sweeps": len(rewards), "swaps": 100 * len(rewards), "margin": 1e-3, "noise": 1e-6}
    said |= {"searched_reward": rewards[0], "searched_ids": [1, 2, 3]}
    said |= {"ascent_steps": len(set(rewards)) - 1}
    runs.enter_search(run, path, rejected=rejected, certificate=said)


def test_a_certificate_is_a_row_under_the_name_of_its_search(small_run):
    certify(small_run, "m-one", [1.0, 2.0, 2.0], certified=True, gain=-0.5)
    run = analysis.load(small_run)
    row = analysis.sequence_certificates(run).row(0, named=True)
    assert (row["method"], row["certified"], row["text"]) == ("gcg", True, "m-one 2")
    assert (row["searched_reward"], row["reward"], row["rejected"]) == (1.0, 2.0, 2)
    assert (row["swaps"], row["ascent_steps"], row["best_gain"]) == (300, 1, -0.5)
    assert set(analysis.sequences_table(run)["method"]) == {"gcg", "gcg-ascent"}


@pytest.fixture
def study_of(study_of):
    """The study of a run's searches."""
    return lambda run: study_of(run, sequences)


def said(study):
    """What the section tells and notes of certificates."""
    found = [finding.text for finding in sequences.certified(study)]
    return " ".join([*found, sequences.unfinished(study.tables["sequence_certificates"])])


SURE = "Every swap of a single token for another of the 101 allowed tokens (of 7) was scored"
SHORT = "The searches had stopped short"
OPEN = "The budget of sweeps ended before"
KNOWN = "of 1 a swap is known that improves it"


@pytest.mark.parametrize(
    ("rewards", "certified", "gain", "appear"),
    [
        ([1.0, 1.0], True, -0.5, {SURE}),
        ([1.0, 2.5], True, -0.5, {SURE, SHORT}),
        ([1.0, 1.0], False, 0.0, {OPEN}),
        ([1.0, 2.5], False, 0.5, {SHORT, OPEN, KNOWN}),
    ],
)
def test_the_section_says_what_one_says(small_run, study_of, rewards, certified, gain, appear):
    certify(small_run, "m-one", rewards, certified=certified, gain=gain)
    text = said(study_of(small_run))
    assert {sentence for sentence in (SURE, SHORT, OPEN, KNOWN) if sentence in text} == appear


def test_counts_are_of_the_replies_that_were_put_to_the_test(small_run, study_of):
    certify(small_run, "m-one", [1.0, 1.5], certified=True, gain=-1.0)
    certify(small_run, "m-one", [1.0, 0.25], certified=True, gain=-1.0, direction="min")
    certify(small_run, "m-two", [1.0, 1.0], certified=False, gain=0.0)
    study = study_of(small_run)
    significant, short = (finding.text for finding in sequences.certified(study))
    assert significant.startswith("Certified: 2 of 3 replies that were put to the test.")
    assert "(400 rewards)" in significant
    assert "improved 2 of 3 replies that they found, by up to 0.75" in short
    assert "none improves the reply; 4 would, but cannot be typed." in significant


@pytest.mark.parametrize(("direction", "sign"), [("max", 1), ("min", -1)])
def test_a_certificate_says_what_another_search_found(small_run, study_of, direction, sign):
    found = {"certified": True, "gain": -1.0, "direction": direction, "rejected": 0}
    certify(small_run, "m-one", [sign * 1.5], **found)
    alone = said(study_of(small_run))
    assert "Another search" not in alone and "typed" not in alone
    runs.add_search(small_run, "m-one", direction, [sign * 4.0], name="gcg-seed8")
    found, certified = ("4", "1.5") if sign > 0 else ("−4", "−1.5")
    assert (
        f"Another search of m-one under “greatest” found {found}, where the certified reply has "
        f"{certified}: no swap of one token leads there." in said(study_of(small_run))
    )


def test_with_a_target_a_gain_is_how_much_closer_a_reply_came(small_run, study_of):
    certify(small_run, "m-one", [5.0, 2.5], certified=True, gain=-1.0, target=3.0)
    certify(small_run, "m-one", [-4.0, -2.5], certified=True, gain=-1.0, direction="min", target=-2)
    study = study_of(small_run)
    made = study.tables["sequence_certificates"]
    assert made["target"].to_list() == [3.0, -2.0]
    table = study.tables["sequences"].filter(method="gcg-ascent")
    assert table["reward"].to_list() == made["reward"].to_list() == [2.5, -2.5]
    traces = study.tables["sequence_traces"].filter(method="gcg-ascent")
    assert traces["best"].to_list() == [5.0, 2.5, -4.0, -2.5]
    _, short = (finding.text for finding in sequences.certified(study))
    assert "improved 2 of 2 replies that they found, by up to 1.5." in short
