"""Reward heads against references in torch: with attributes, gates and values, and as tools save.

Those are TRL, OpenRLHF, LLaMA-Factory, verl and transformers.
"""

import dataclasses

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.scoring.reward_passes import gate_position
from tests.support import folders, parity, slow, torch_models
from tests.support.heads import CASES, FORMS, PATTERN, check, convert, save

# One of every kind of head.
QUICK = (
    *("GRM sftreg, Llama", "URM", "QRM-Gemma", "a row of ten"),
    *("a head that OpenRLHF's user named, normalised", "Qwen's process reward model"),
)


@pytest.mark.parametrize("name", slow.all_but(QUICK, [*CASES, *FORMS]))
def test_rewards_and_objectives_are_those_of_the_formulas(loaded, name):
    case = loaded(name)
    check(case, case.restored, plain_alone=name not in QUICK)  # of each kind, both passes


@pytest.mark.slow
def test_a_gate_is_the_same_on_a_mesh_of_several_devices(loaded):
    case = loaded("QRM-Llama v2")
    mesh = parity.make_mesh(2, 2)
    check(case, parity.restore(case.checkpoint, mesh=mesh, objectives="values"))


def test_the_gate_reads_at_the_start_of_the_last_occurrence():
    assert gate_position([*PATTERN, 1, *PATTERN, 2], PATTERN) == 4
    assert gate_position([1, *PATTERN], PATTERN) == 1
    assert gate_position([1, 2], ()) == 0


@pytest.mark.parametrize("ids", [[], [7, 11, 12, 13]])
def test_a_prompt_without_the_gates_pattern_is_refused(ids):
    with pytest.raises(AssayError, match=r"\[7, 11, 13\]"):
        gate_position(ids, PATTERN)


REFUSED = {
    "a missing logit_scale": (
        lambda tensors: tensors.pop("gating.logit_scale"),
        r"missing tensor 'gating\.logit_scale'",
    ),
    "a gate's tensor of another name": (
        lambda tensors: tensors.update({"gating.other": torch.ones(1)}),
        r"'gating\.other'",
    ),
    "rows that are no whole number of quantiles": (
        lambda tensors: tensors.update({"regression_layer.weight": torch.ones(94, 32)}),
        r"tensor 'regression_layer\.weight'.* \[94, 32\]; .* \[90, 32\]$",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_gated_model_is_refused_by_name_for(loaded, tmp_path, reason):
    change, message = REFUSED[reason]
    save(CASES["QRM-Gemma"], loaded("QRM-Gemma").head, tmp_path / "hf")
    torch_models.edit_tensors(tmp_path / "hf", change)
    with pytest.raises(AssayError, match=message):
        convert(tmp_path / "hf", tmp_path / "checkpoint")


def written(folder, auto, labels: int, name="qwen2", **options):
    """A model as transformers writes it, with biases and labels far from where training starts."""
    config = torch_models.CONFIGS[name]()
    config.num_labels = labels
    model = torch_models.enlarged(config, auto)
    torch_models.save(model, folder / "hf")
    checkpoint = folders.convert(folder / "hf", folder / "checkpoint", **options)
    return model, checkpoint, parity.restore(checkpoint, objectives="values")


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
    head = model.score if hasattr(model, "score") else model.classifier
    logits = head(torch_models.last_states(model.base_model, sequences)).detach().numpy()
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
