"""Rewards read before the first pad token, held against the rule of the time."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.restore import sharing_groups
from engine.errors import AssayError
from engine.scoring.rows import Pooling
from tests.support import slow, tiny
from tests.support.sweeps import ONE, SIZE, plain_rewards

PROMPT = ONE["greatest"]
IDS = tiny.tokenizer().convert_tokens_to_ids
# Where the first pad stands: nowhere but as a reply, in the prompt, in front, behind the reply.
PADS = {"a reply": IDS("love"), "the prompt": IDS("?"), "the front": 1, "nowhere": 310}


def positions(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """`LlamaForSequenceClassification.forward` of transformers 4.4x, to the letter."""
    sequence_lengths = torch.eq(ids, pad).int().argmax(-1) - 1
    return sequence_lengths % ids.shape[-1]


def library_rewards(model, sequences: list[list[int]], pad: int) -> np.ndarray:
    """Of the plain pass, up to where the library read."""
    ends = [int(positions(torch.tensor([ids]), pad)[0]) + 1 for ids in sequences]
    return plain_rewards(model, [ids[:end] for ids, end in zip(sequences, ends, strict=True)])


@pytest.fixture
def padded(checkpoint):
    """Pad id -> checkpoint."""
    return lambda pad: checkpoint(f"pad-{pad}", pad_token_id=pad)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_the_reward_position_is_the_librarys(sequence, pad):
    assert Pooling("first_pad", pad).position(sequence) == int(
        positions(torch.tensor([sequence]), pad)[0]
    )


PLACES = [("text", "a reply"), ("text", "the prompt"), ("ids", "the front"), ("ids", "nowhere")]


@pytest.mark.parametrize(("mode", "place"), slow.all_but([("ids", "a reply")], PLACES))
def test_a_sweep_reads_each_reward_where_the_library_did(run, padded, place, mode):
    model = padded(PADS[place])
    run.sweep([model], ONE, mode=mode, pooling="first_pad")
    rewards, template = run.rewards(model.card.slug, "greatest"), model.template
    around = template.split(PROMPT)
    rows = [[*around.prefix, i, *around.suffix] for i in range(SIZE)]
    if mode == "text":
        rows = template.sequences(PROMPT, list(model.tokens.values()))
    sample = sorted({*range(0, SIZE, 24), IDS("love"), IDS("Ġlove"), 0, 1, 2})
    expected = library_rewards(model, [rows[i] for i in sample], PADS[place])
    np.testing.assert_allclose(rewards[sample], expected, rtol=1e-4, atol=1e-5)
    assert (np.unique(rewards).size == 1) == (place == "the prompt")


def test_replies_are_read_where_the_library_did(run, padded):
    model = padded(IDS("love"))
    replies = ["the war", "love", "the love war", "", "truth", " love"]
    run.score([model], ONE, "words", replies, pooling="first_pad")
    rows = model.template.sequences(PROMPT, replies)
    expected = library_rewards(model, rows, IDS("love"))
    written = run.frame(f"items/words/model={model.card.slug}/prompt=greatest")["reward"]
    np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-5)
    assert written[2] not in (written[1], written[3])


def test_a_model_without_a_pad_token_is_refused_and_nothing_is_written(run, checkpoint):
    with pytest.raises(AssayError, match=r"^pooling='first_pad': .*pad_token_id"):
        run.sweep([checkpoint()], ONE, pooling="first_pad")
    assert not run.folder.exists()


def test_models_with_other_pad_tokens_share_no_pass(padded):
    model = padded(IDS("love"))
    other = dataclasses.replace(model, card=dataclasses.replace(model.card, pad_token_id=3))
    assert len(sharing_groups([model, model])) == 1
    assert len(sharing_groups([model, other])) == 2
