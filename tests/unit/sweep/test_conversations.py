"""Conversations with prompts of their own: prefixes are shared, and gates read their prompts."""

import dataclasses

import numpy as np
import pytest

from engine.lists.rows import RowReader
from engine.mesh import build_mesh
from engine.runs import schema
from engine.scoring.conversations import ConversationRows
from engine.sweep.reward_jobs import sweep_rewards
from tests.support.sweeps import SETTINGS, plain_rewards

pytestmark = pytest.mark.usefixtures("one_length")
PROMPTS = ("love", "the war", "truth?")


def list_of(*replies):
    """Prompt and reply of each conversation -> the list."""
    rows = [{"prompt": prompt, "reply": reply} for prompt, reply in replies]
    return RowReader(["prompt", "reply"]).table(rows)


@pytest.mark.slow
def test_gated_and_plain_heads_score_each_reply_under_its_prompt(heads, run):
    """In one pass, of 2 prompts with few replies and one with many; duplicates in other parts."""
    many = [(PROMPTS[0], f"{number % 17}") for number in range(18)]
    table = list_of((PROMPTS[1], "a"), *many, (PROMPTS[2], "a"), (PROMPTS[1], "love"))
    models = [heads["tiny"], heads["qrm"]]
    arguments = str(run.folder), dataclasses.replace(SETTINGS, objectives="values"), build_mesh()
    scored = sweep_rewards(models, None, *arguments, items=("own", table, ""))
    assert scored == 2 * len(table)
    sequences = models[0].template.conversations(table["messages"].to_list())
    for model in models:
        found = run.frame(schema.conversations_path("own", model.card.slug))
        expected = plain_rewards(model, sequences)
        np.testing.assert_allclose(found["reward"], expected, rtol=1e-4, atol=1e-5)


def test_replies_of_a_prompt_that_fill_a_step_share_its_prefix(tiny):
    many = [(PROMPTS[0], f"{number}") for number in range(20)]
    table = list_of((PROMPTS[1], "a"), *many, *many[:2])
    rows = ConversationRows.of(tiny, table, "text", "last")
    (prefix, buckets), (none, others) = rows.passes(0, len(table), alone=False)
    around = tiny.template.around(PROMPTS[0])
    assert prefix == around.prefix
    assert none == ()
    assert sorted(row for bucket in buckets for row in bucket.rows) == [*range(1, 23)]
    assert [row for bucket in others for row in bucket.rows] == [0]
    assert sum(len(bucket.candidates) for bucket in buckets) == 20  # the same texts once
    assert len(list(rows.passes(0, len(table), alone=True))) == 2
    assert [row for _, own in rows.passes(21, 23, alone=False) for row in own] == []
