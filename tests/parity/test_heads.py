"""Reward heads with attributes, gates and values, against references in torch."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from engine.errors import AssayError
from engine.scoring.reward_passes import gate_position
from tests.support import parity, slow
from tests.support.heads import (
    CASES,
    FORMS,
    PATTERN,
    armorm,
    check,
    convert,
    qrm_gemma,
    qrm_llama,
    restore,
    save,
)

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
    check(case, restore(case.checkpoint, mesh=mesh))


def test_the_published_indices_of_the_gates_modules_are_those_saved():
    def indices(head: nn.Module, kind: type) -> list[int]:
        return [i for i, module in enumerate(head.gating.layers) if isinstance(module, kind)]

    assert indices(armorm(8), nn.Linear) == [0, 1, 2, 3]
    assert indices(qrm_llama(8), nn.Linear) == [0, 3, 6, 9]
    assert indices(qrm_llama(8), nn.BatchNorm1d) == [2, 5, 8]
    assert indices(qrm_gemma(8), nn.Linear) == [0, 4, 8, 11]
    assert indices(qrm_gemma(8), nn.BatchNorm1d) == [2, 6, 10]


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
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(AssayError, match=message):
        convert(tmp_path / "hf", tmp_path / "checkpoint")
