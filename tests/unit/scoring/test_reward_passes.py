"""The host side of scoring: few compiled shapes, and nothing about a batch changes a reward."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scoring.batches import Distinct, take_rows
from engine.types import Candidates, PromptIds
from tests.support import parity, torch_models

TIGHT = 2e-5  # relative: the same sums in another order
PROMPT = parity.prompt_ids(20)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def scorer(pair):
    return pair.restored.scorer


def candidates_of(rows: int, seed: int, length: int = 5) -> Candidates:
    """Random candidates that share some or all of `PROMPT`."""
    rng = np.random.default_rng(seed)
    return Candidates(
        ids=rng.integers(0, torch_models.VOCAB_SIZE, (rows, length), np.int32),
        shared=rng.choice(np.int32([len(PROMPT.prefix), 19, 7]), rows),
        last=rng.integers(0, length, rows, np.int32),
    )


def rewards_of(scorer, candidates: Candidates) -> np.ndarray:
    return parity.respond(scorer, PROMPT, candidates)[0]


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    # The scale of this model's rewards: a few drawn rows may happen to lie close together.
    parity.assert_close(actual, expected, scale=1.0, tolerance=TIGHT)


@given(rows=st.integers(1, 40), seed=SEEDS)
def test_the_order_of_rows_does_not_change_rewards(scorer, rows, seed):
    candidates = candidates_of(rows, seed)
    order = np.random.default_rng(seed).permutation(rows)
    shuffled = rewards_of(scorer, take_rows(candidates, order))
    assert_same(shuffled, rewards_of(scorer, candidates)[order])


@given(rows=st.integers(1, 40), seed=SEEDS, step_size=st.sampled_from([1, 32]))
def test_the_step_size_does_not_change_rewards(scorer, rows, seed, step_size):
    candidates = candidates_of(rows, seed)
    other = dataclasses.replace(scorer, step_size=step_size)
    assert_same(rewards_of(other, candidates), rewards_of(scorer, candidates))


@given(seed=SEEDS)
def test_what_follows_the_reward_position_does_not_change_rewards(scorer, seed):
    candidates = candidates_of(16, seed)
    longer = candidates_of(16, seed + 1, length=8).ids
    kept = np.arange(5) <= candidates.last[:, None]
    longer[:, :5] = np.where(kept, candidates.ids, longer[:, :5])
    padded = dataclasses.replace(candidates, ids=longer)
    assert_same(rewards_of(scorer, padded), rewards_of(scorer, candidates))


@given(seed=SEEDS, extra=st.integers(1, 12))
def test_prefix_positions_that_no_candidate_shares_do_not_change_rewards(scorer, seed, extra):
    candidates = candidates_of(16, seed)
    tail = np.random.default_rng(seed).integers(0, torch_models.VOCAB_SIZE, extra).tolist()
    longer = dataclasses.replace(PROMPT, prefix=(*PROMPT.prefix, *tail))
    assert_same(parity.respond(scorer, longer, candidates)[0], rewards_of(scorer, candidates))


@st.composite
def conversations(draw) -> list[list[int]]:
    """Six sequences, duplicates among them; most begin with `PROMPT`, some leave it early."""
    token = st.integers(0, torch_models.VOCAB_SIZE - 1)
    reply = st.lists(token, min_size=1, max_size=3)
    shared = st.sampled_from([len(PROMPT.prefix), len(PROMPT.prefix), 17, 0])
    row = st.builds(lambda n, ids: [*PROMPT.prefix[:n], *ids], shared, reply)
    rows = draw(st.lists(row, min_size=3, max_size=6))
    return [draw(st.sampled_from(rows)) for _ in range(6)]


@given(sequences=conversations())
def test_replies_that_leave_the_prefix_early_score_as_in_the_plain_pass(scorer, sequences):
    rewards = np.full(len(sequences), np.nan, np.float32)
    for bucket in Distinct.of(PROMPT.prefix, sequences).buckets(0, len(sequences)):
        rewards[bucket.rows] = rewards_of(scorer, bucket.candidates)[bucket.row_candidate]
    assert_same(rewards, scorer.plain_rewards(sequences)[0])


def test_many_steps_and_prompts_of_similar_length_compile_each_pass_once(pair):
    scorer = pair.restored.rebuilt().scorer
    candidates = candidates_of(50, seed=0)
    for length in (33, 40, 48):  # all are padded to 48
        prompt = parity.prompt_ids(length)
        steps: list[int] = []
        scorer.rewards(scorer.prefill(prompt), candidates, steps.append)
        assert steps == [16, 16, 16, 2]
        scorer.plain_rewards([list(prompt.prefix)] * 4)
    assert scorer.prefill_step._cache_size() == 1
    assert scorer.score_step._cache_size() == 1
    assert scorer.plain_step._cache_size() == 1


def test_the_prefix_is_part_of_what_is_judged(scorer):
    other = PromptIds(prompt="?", prefix=PROMPT.prefix[::-1], suffix=())
    candidates = candidates_of(16, seed=0)
    change = parity.respond(scorer, other, candidates)[0] - rewards_of(scorer, candidates)
    assert np.abs(change).mean() > 0.05
