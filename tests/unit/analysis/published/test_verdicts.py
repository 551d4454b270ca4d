"""Verdicts in both directions: what is the same counts as the same, and nothing else does."""

import math

import pytest

from analysis.published import verdicts
from analysis.published.explanations import unexplained
from analysis.published.verdicts import Entry


def number(published, own, within=0.005, **more):
    return verdicts.of_number(published, within, own, **more)


def test_a_number_is_the_same_if_it_rounds_to_the_printed_one():
    for own in (0.55, 0.5549, 0.5451, 0.555, 0.545):
        assert number(0.55, own).kind == verdicts.SAME
    for own in (0.5552, 0.5448, -0.55, 0.0, math.inf, math.nan):
        assert number(0.55, own) == verdicts.Verdict(verdicts.DIFFERS, "")
    assert number(math.nan, math.nan).kind == verdicts.SAME


def test_noise_that_was_measured_and_another_reading_that_gives_the_number_explain_it():
    assert number(0.55, 0.56).kind == verdicts.DIFFERS
    assert number(0.55, 0.56, noise=0.0).kind == verdicts.DIFFERS
    assert number(0.55, 0.56, noise=0.004).kind == verdicts.DIFFERS
    found = number(0.55, 0.56, noise=0.006)
    assert (found.kind, found.why) == (verdicts.NOISE, "two dtypes differ by 0.006")
    assert number(0.55, 0.551, noise=1.0).kind == verdicts.SAME
    found = number(0.55, 0.7, others={"ours": 0.551, "third": 0.6, "none": None})
    assert (found.kind, found.why) == (verdicts.DIFFERS, "the same in ours")
    assert number(0.55, 0.7, others={"ours": 0.6}).why == ""
    assert number(0.55, 0.551, others={"ours": 0.551}).why == ""


def entries(text, scores=None):
    scores = scores or range(len(text), 0, -1)
    return [Entry(key, float(score)) for key, score in zip(text, scores, strict=True)]


PRINTED = [Entry(key) for key in "abcd"]


def listed(own, **more):
    return verdicts.of_list(PRINTED, own, descending=more.pop("descending", True), **more)


def test_the_same_tokens_in_the_same_order_are_the_same_at_both_ends():
    assert listed(entries("abcdef")).kind == verdicts.SAME
    assert listed(entries("abc")).kind == listed(entries("abcx")).kind == verdicts.DIFFERS
    twice = [Entry("a"), Entry("a"), Entry("b")]
    assert verdicts.of_list(twice, entries("aab"), descending=True).kind == verdicts.SAME
    assert verdicts.of_list(twice, entries("abc"), descending=True).kind == verdicts.DIFFERS
    own = entries("xbadc")
    assert (verdicts.shared(PRINTED, own), verdicts.at_their_rank(PRINTED, own)) == (3, 2)
    own = entries("abcd", [-4, -3, -2, -1])
    assert listed(own, descending=False).kind == verdicts.SAME
    assert listed(entries("abdc", [-4, -3, -2, -1]), descending=False).kind == verdicts.DIFFERS


def test_tokens_of_equal_reward_may_stand_in_any_order_and_be_cut_anywhere():
    assert listed(entries("abced", [5, 4, 3, 1, 1])).kind == verdicts.SAME
    assert listed(entries("abced", [5, 4, 3, 2, 1])).kind == verdicts.DIFFERS
    assert listed(entries("bacd", [4, 4, 2, 1])).kind == verdicts.SAME
    assert listed(entries("bacd", [4, 3, 2, 1])).kind == verdicts.DIFFERS
    tied = [Entry("a", 3.3), Entry("b", 3.2), Entry("c", 3.2)]
    for own in (entries("acb"), [Entry(key) for key in "acb"]):
        assert verdicts.of_list(tied, own, descending=True).kind == verdicts.SAME
    for keys in ("bac", "cba", "abx", "abxc"):
        found = verdicts.of_list(tied, entries(keys), descending=True)
        assert found.kind == verdicts.DIFFERS


def test_a_list_is_within_noise_if_another_dtype_shifts_as_far_and_shares_as_few_tokens():
    own = entries("abdc")
    assert listed(own, noise=entries("abcd")).kind == verdicts.NOISE
    assert listed(own, noise=entries("adbc")).kind == verdicts.NOISE
    assert listed(own, noise=own).kind == verdicts.DIFFERS
    assert listed(own, noise=None).kind == verdicts.DIFFERS
    assert listed(entries("dabc"), noise=entries("dacb")).kind == verdicts.DIFFERS
    assert listed(entries("wxyz"), noise=entries("xwzy")).kind == verdicts.DIFFERS
    assert listed(entries("wxyz"), noise=entries("zyxw")).kind == verdicts.DIFFERS
    assert listed(entries("wxyz"), noise=entries("abcd")).kind == verdicts.DIFFERS
    assert listed(entries("abcx"), noise=entries("abcy")).kind == verdicts.NOISE


def test_ties_of_two_dtypes_may_stand_in_any_order():
    """Tokens of equal number stand by id, the published ones do not: that was taken for a shift."""
    published = entries("abcdef")
    noise = entries("afedcb", scores=[6, 5, 5, 5, 5, 5])  # the published list, but for ties
    own = entries("bafedc", scores=[6, 5.5, 5, 5, 5, 5])
    found = verdicts.of_list(published, own, descending=True, noise=noise)
    assert found.kind == verdicts.NOISE and found.why.endswith("at most 1 rank apart")
    noise = entries("fedcba", [6, 5, 5, 5, 5, 5])
    found = verdicts.of_list(entries("fabcde"), entries("fedcba"), descending=True, noise=noise)
    assert (found.kind, found.why) == (verdicts.NOISE, "the same in the other of two dtypes")
    own, noise = entries("xabcxed", [5, 5, 5, 5, 5, 2, 1]), entries("xabcxde")
    found = verdicts.of_list(noise, own, descending=True, noise=noise)
    assert found.kind == verdicts.NOISE and found.why.endswith("at most 1 rank apart")


def test_how_far_two_dtypes_are_apart_does_not_depend_on_the_published_list():
    """Tokens that are tied in one dtype have no order there from which the other could differ."""
    tied = [6, 5, 5, 5, 5, 5]
    for own, noise in (
        (entries("fedcba"), entries("fedcba", tied)),
        (entries("gedcbf", tied), entries("gfedcb")),
    ):
        found = verdicts.of_list(entries("bfacde"), own, descending=True, noise=noise)
        assert found.kind == verdicts.DIFFERS, found.why


TWENTY = [Entry(str(i)) for i in range(20)]


def twenty(common, shift=0):
    """A list of sixty that has the first of twenty published tokens, moved by some ranks."""
    own = [f"other {i}" for i in range(60)]
    for rank in range(common):
        own[(rank + shift) % 20] = str(rank)
    return [Entry(key, -float(rank)) for rank, key in enumerate(own)]


@pytest.mark.parametrize(
    ("common", "kind"), [(1, verdicts.DIFFERS), (9, verdicts.DIFFERS), (10, verdicts.NOISE)]
)
def test_two_dtypes_that_share_few_tokens_make_nothing_noise(common, kind):
    own, noise = twenty(common, shift=1), [Entry(str(i)) for i in range(100, 160)]
    for rank in range(common):  # the dtypes share as many tokens as are published
        noise[rank] = Entry(str(rank))
    found = verdicts.of_list(TWENTY, own, descending=True, noise=noise)
    assert (verdicts.shared(TWENTY, own), found.kind) == (common, kind)


def test_a_published_token_beyond_the_end_of_our_list_is_a_shift():
    own = twenty(20, shift=1)
    near = [Entry(each.key, -float(rank)) for rank, each in enumerate([*own[1:], own[0]])]
    assert verdicts.of_list(TWENTY, own, descending=True, noise=near).kind == verdicts.NOISE
    lost = [Entry("lost", own[7].score) if entry.key == "6" else entry for entry in own]
    noise = [entry for entry in lost if entry.key != "3"]
    noise.insert(25, Entry("3"))  # so two dtypes share 19 tokens, too
    assert verdicts.shared(TWENTY, lost) == verdicts.shared(lost[:20], noise) == 19
    assert verdicts.largest_shift(TWENTY, lost) == 60 - 6
    found = verdicts.of_list(TWENTY, lost, descending=True, noise=noise)
    assert found.kind == verdicts.DIFFERS
    gone = [entry for entry in lost if entry.key != "3"]  # in the other dtype, beyond the end too
    found = verdicts.of_list(TWENTY, lost, descending=True, noise=gone)
    assert found.kind == verdicts.NOISE


def test_the_list_of_the_other_dtype_is_within_noise_of_ours():
    """Whichever of the two is published: a shift is counted from either list to the other."""
    own, other = entries("abcdefgh"), entries("bcdeafgh")
    for first, second in ((own, other), (other, own)):
        published = [Entry(entry.key) for entry in second[:4]]
        found = verdicts.of_list(published, first, descending=True, noise=second)
        assert found.kind == verdicts.NOISE
        assert found.why.endswith("at most 4 ranks apart")


def test_another_reading_and_single_changes_explain_a_list_too():
    other = {"ours": entries("abcd")}
    assert listed(entries("wxyz"), others=other).why == "the same in ours"
    same, other, near = entries("abcdef"), entries("efabcd"), entries("abdcef")
    found = listed(entries("badcef"), singles={"a": same, "b": other, "c": near})
    assert (found.why, found.met) == ("the same with a", ("a",))
    noisy = listed(other, noise=entries("efabdc"), singles={"c": near})
    assert noisy.why == "not the same with the one single change that was tried"
    noisy = listed(entries("badcef"), noise=entries("abdcef"), singles={"c": near})
    assert noisy.kind == verdicts.NOISE


def test_single_changes_are_named_where_they_give_the_value_and_only_there():
    tried = {"bos none": 0.551, "mode ids": 0.7, "dtype x": 0.56, "head y": None}
    found = number(0.55, 0.7, singles=tried)
    assert (found.why, found.met) == ("the same with bos none", ("bos none",))
    assert found.tried == ("bos none", "mode ids", "dtype x")
    near = number(0.55, 0.7, singles=tried, noise=0.006)
    assert near.why == "the same with bos none; within noise with dtype x"
    assert near.met == ("bos none", "dtype x")
    both = number(0.55, 0.7, singles={"a": 0.55, "b": 0.55}, others={"ours": 0.55})
    assert both.why == "the same in ours; the same with a or b"
    none = number(0.55, 0.7, singles={"a": 0.6, "b": 0.7})
    assert (none.why, none.met) == ("not the same with any of 2 single changes", ())
    assert "the one single change" in number(0.55, 0.7, singles={"a": 0.6}).why
    assert number(0.55, 0.7, singles={}).why == ""
    found = number(0.55, 0.551, singles={"a": 0.55, "b": 0.7})
    assert (found.kind, found.why, found.met) == (verdicts.SAME, "", ("a",))


def explained(change, differing, met):
    return {"model": "S-Gem-27B", "change": change, "differing": differing, "met": met}


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
