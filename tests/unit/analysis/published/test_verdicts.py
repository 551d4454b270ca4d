"""Verdicts in both directions: what is the same counts as the same, and nothing else does."""

import math

import pytest

from analysis.published import verdicts
from analysis.published.verdicts import Entry


def number(published, own, within=0.005, **more):
    return verdicts.of_number(published, within, own, **more)


@pytest.mark.parametrize("own", [0.55, 0.5549, 0.5451, 0.555, 0.545])
def test_a_number_that_rounds_to_the_printed_one_is_the_same(own):
    assert number(0.55, own).kind == verdicts.SAME


@pytest.mark.parametrize("own", [0.5552, 0.5448, -0.55, 0.0, math.inf, math.nan])
def test_a_number_that_does_not_is_different(own):
    assert number(0.55, own) == verdicts.Verdict(verdicts.DIFFERS, "")


def test_noise_is_a_verdict_only_where_it_was_measured():
    assert number(0.55, 0.56).kind == verdicts.DIFFERS
    assert number(0.55, 0.56, noise=0.0).kind == verdicts.DIFFERS
    assert number(0.55, 0.56, noise=0.004).kind == verdicts.DIFFERS
    found = number(0.55, 0.56, noise=0.006)
    assert (found.kind, found.why) == (verdicts.NOISE, "two dtypes differ by 0.006")


def test_a_number_within_the_printed_digit_is_the_same_whatever_the_noise():
    assert number(0.55, 0.551, noise=1.0).kind == verdicts.SAME


def test_another_reading_explains_a_difference_only_if_it_gives_the_published_number():
    found = number(0.55, 0.7, others={"ours": 0.551, "third": 0.6, "none": None})
    assert (found.kind, found.why) == (verdicts.DIFFERS, "the same in ours")
    assert number(0.55, 0.7, others={"ours": 0.6}).why == ""
    assert number(0.55, 0.551, others={"ours": 0.551}).why == ""


def test_an_analysis_of_conventions_may_explain_a_difference_and_nothing_else():
    assert number(0.55, 0.7, explained="one BOS gives 0.55").why == "one BOS gives 0.55"
    assert number(0.55, 0.55, explained="one BOS gives 0.55").why == ""


def test_a_number_that_is_not_there_is_not_run_and_says_why():
    found = number(0.55, None, missing="give --elo", others={"ours": 0.55})
    assert found == verdicts.Verdict(verdicts.NOT_RUN, "give --elo")


def test_no_number_is_the_same_as_no_number():
    assert number(math.nan, math.nan).kind == verdicts.SAME


def entries(text, scores=None):
    scores = scores or range(len(text), 0, -1)
    return [Entry(key, float(score)) for key, score in zip(text, scores, strict=True)]


PRINTED = [Entry(key) for key in "abcd"]


def listed(own, **more):
    return verdicts.of_list(PRINTED, own, descending=more.pop("descending", True), **more)


def test_the_same_tokens_in_the_same_order_are_the_same():
    assert listed(entries("abcdef")).kind == verdicts.SAME


def test_tokens_of_equal_reward_may_stand_in_any_order():
    assert listed(entries("bacd", [4, 4, 2, 1])).kind == verdicts.SAME
    assert listed(entries("bacd", [4, 3, 2, 1])).kind == verdicts.DIFFERS


def test_a_tie_at_the_end_of_the_list_may_be_cut_anywhere():
    assert listed(entries("abced", [5, 4, 3, 1, 1])).kind == verdicts.SAME
    assert listed(entries("abced", [5, 4, 3, 2, 1])).kind == verdicts.DIFFERS


def test_the_lowest_end_is_ordered_from_the_lowest_up():
    own = entries("abcd", [-4, -3, -2, -1])
    assert listed(own, descending=False).kind == verdicts.SAME
    assert listed(entries("abdc", [-4, -3, -2, -1]), descending=False).kind == verdicts.DIFFERS


def test_a_shorter_list_or_another_token_differs():
    assert listed(entries("abc")).kind == verdicts.DIFFERS
    assert listed(entries("abcx")).kind == verdicts.DIFFERS


def test_a_text_that_is_printed_twice_must_be_there_twice():
    twice = [Entry("a"), Entry("a"), Entry("b")]
    own = entries("aab")
    assert verdicts.of_list(twice, own, descending=True).kind == verdicts.SAME
    assert verdicts.of_list(twice, entries("abc"), descending=True).kind == verdicts.DIFFERS


def test_a_list_is_within_noise_if_another_dtype_moves_as_many_tokens():
    own = entries("abdc")
    assert listed(own, noise=2).kind == verdicts.NOISE
    assert listed(own, noise=1).kind == verdicts.DIFFERS
    assert listed(own, noise=None).kind == verdicts.DIFFERS


def test_another_reading_or_analysis_explains_a_list_too():
    other = {"ours": entries("abcd")}
    assert listed(entries("wxyz"), others=other).why == "the same in ours"
    assert listed(entries("wxyz"), others=other, explained="its dtype").why == (
        "the same in ours; its dtype"
    )
    assert listed(None, missing="not among --models").kind == verdicts.NOT_RUN


def test_common_tokens_are_counted_as_far_as_is_printed():
    own = entries("xbadc")
    assert verdicts.shared(PRINTED, own) == 3
    assert verdicts.at_their_rank(PRINTED, own) == 2
