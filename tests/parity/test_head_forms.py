"""Heads as TRL, OpenRLHF, LLaMA-Factory, verl and transformers write them, against torch."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from tests.support import folders, parity, slow, torch_models
from tests.support.heads import convert


def written(folder, auto, labels: int, name="qwen2", **options):
    """A model as transformers writes it, with biases and labels far from where training starts."""
    config = torch_models.CONFIGS[name]()
    config.num_labels = labels
    model = torch_models.enlarged(config, auto)
    torch_models.save(model, folder / "hf")
    checkpoint = folders.convert(folder / "hf", folder / "checkpoint", **options)
    return model, checkpoint, parity.restore(checkpoint, objectives="values")


@torch.no_grad()
def logits_of(model, sequences) -> np.ndarray:
    """Logits [C, R] of the last position of whole sequences."""
    rows = [model.base_model(torch.tensor([row])).last_hidden_state[0, -1] for row in sequences]
    head = model.score if hasattr(model, "score") else model.classifier
    return head(torch.stack(rows)).numpy()


SEQUENCES, TOKENS = AutoModelForSequenceClassification, AutoModelForTokenClassification
WRITTEN = [
    (TOKENS, 1, "gpt2", "", ()),  # its head is called `classifier`
    (SEQUENCES, 3, "qwen2", "2", ("label_0", "label_1", "label_2")),
]


@pytest.mark.parametrize(
    ("auto", "labels", "name", "reward", "names"),
    slow.all_but([(TOKENS, 2, "qwen2", "1 - 0", ("row_0", "row_1"))], WRITTEN),  # no id2label
)
def test_what_transformers_writes_is_read(tmp_path, auto, labels, name, reward, names):
    model, checkpoint, restored = written(tmp_path, auto, labels, name, reward=reward)
    sequences = [list(map(int, row)) for row in parity.random_ids(8, 130)]
    logits = logits_of(model, sequences)
    rewards, *values = restored.scorer.plain_rewards(sequences)
    expected = logits[:, 1] - logits[:, 0] if labels == 2 else logits[:, -1]
    parity.assert_close(rewards, expected, scale=expected.std())
    assert checkpoint.card.head.objectives == names
    for row, objective in enumerate(values):
        parity.assert_close(objective, logits[:, row], scale=logits[:, row].std())


def test_the_row_that_is_the_reward_is_said(tmp_path):
    notes = []
    options = {"reward": "LABEL_2 - 0", "note": notes.append}
    _, checkpoint, _ = written(tmp_path, SEQUENCES, 3, **options)
    card = Checkpoint.open(checkpoint.path).card
    assert card.reward == "row 2 (label_2) minus row 0 (label_0), of 3 rows"
    assert notes == [f"the reward is {card.reward}"]
    other = dataclasses.replace(card, reward="")
    assert other.checkpoint_hash == card.checkpoint_hash
    assert '"reward"' in card.to_json() and '"reward"' not in other.to_json()


def test_a_row_of_a_gated_head_is_refused(loaded, tmp_path):
    case = loaded("ArmoRM")
    folder = case.checkpoint.path.parent / "hf"
    with pytest.raises(AssayError, match=r"reward='0'"):
        convert(folder, tmp_path / "checkpoint", reward="0")
