"""The gated delta rule of Qwen 3.5: passes and whole runs, behind prompts of any length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.models import delta
from engine.runs.schema import REPLY_START
from engine.search.proposals import UNKNOWN
from engine.types import Candidates
from tests.support import parity, searches, slow, torch_models
from tests.support.sweeps import ONE, Run

MODEL = "qwen3_5"
PROMPTS = (5, 60, 200)  # less than a chunk, less than the padded one, several


def candidates_behind(prompt: int) -> Candidates:
    """Replies behind all of a prompt, as of a sweep or a list, and behind less of it, as of texts.

    The former have 1 to 31 tokens. The latter have 1 to 5, behind all but one to three tokens of
    the prompt, its half, its first token, or nothing.
    """
    left = np.array([prompt - 1, prompt - 2, prompt - 3, prompt // 2, 1, 0])
    rows = np.arange(16)
    shared = np.append(np.full(len(rows), prompt), left[rows % len(left)])
    last = np.append(2 * rows, rows % 5)
    ids = parity.random_ids(len(last), last.max() + 1, seed=prompt)
    return Candidates(ids=ids, shared=shared.astype(np.int32), last=last.astype(np.int32))


@pytest.mark.parametrize("prompt", slow.all_but([60, 200], PROMPTS))
def test_rewards_behind_a_prompt_are_those_of_torch(pair_of, prompt):
    pair, asked, candidates = pair_of(MODEL), parity.prompt_ids(prompt), candidates_behind(prompt)
    expected = torch_models.rewards(pair.model, parity.sequences_of(asked, candidates))
    actual = parity.respond(pair.restored.scorer, asked, candidates)[0]
    parity.assert_close(actual, expected, scale=expected.std())


def random_rule(positions: int) -> delta.Rule:
    """Inputs of the rule whose decays are -20 to -1e-4, in equal numbers of each size."""
    rng = np.random.default_rng(0)

    def unit(*shape):
        drawn = rng.standard_normal(shape)
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

    shape = (2, positions, 3)
    drawn = delta.Rule(
        q=unit(*shape, 8),
        k=np.repeat(unit(2, 1, 3, 8), positions, axis=1) + 0.1 * unit(*shape, 8),
        v=rng.standard_normal((*shape, 5)),
        decay=-np.exp(rng.uniform(np.log(1e-4), np.log(20), shape)),
        beta=rng.uniform(0, 1, shape),
    )
    return jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), drawn)


@pytest.mark.parametrize("positions", [1, 63, 64, 65, 200])
def test_chunks_are_what_steps_are(positions):
    """Also of keys that are nearly equal, where the triangular system is far from the identity."""
    rule = random_rule(positions)
    for found, expected in zip(delta.chunks(rule), delta.steps(rule), strict=True):
        parity.assert_close(found, expected, scale=np.std(expected))


@pytest.mark.slow
def test_sweeps_lists_begun_replies_and_searches_pass_their_self_check(pair_of, tmp_path):
    """Each compares its numbers with the plain pass, which goes position by position."""
    model, run = [pair_of(MODEL).checkpoint], Run(tmp_path / "run")
    run.sweep(model, {"begun": f"Who?{REPLY_START}It is", **ONE})
    run.score(model, ONE, "mine", ["love", "war and peace"])
    assert all(result.self_check for result in run.results().values())
    assert searches.search(tmp_path / "search", model, length=4, candidates=20, certify=True)


@pytest.mark.slow
def test_candidates_that_share_a_row_of_a_search_score_as_in_the_plain_pass(pair_of):
    scorer = searches.scorer(pair_of(MODEL).checkpoint)
    asked = searches.problem(pair_of(MODEL).checkpoint, length=5, candidates=20, steps=20)
    for ids, rewards in zip(*map(np.asarray, searches.expanded(asked, scorer)[:2]), strict=True):
        new = rewards > UNKNOWN
        expected = searches.plain_rewards(scorer, asked, ids)[new]
        assert new.sum() >= asked.settings.candidates
        parity.assert_close(rewards[new], expected, scale=expected.std())
