"""InternLM2 reward models: rewards are torch's, read at `<|reward|>`; each trap would show."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import layouts
from engine.errors import AssayError
from tests.support import folders, internlm2, parity, tiny, torch_models


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("internlm2")
    return folders.convert(internlm2.save(folder / "hf"), folder / "checkpoint")


@pytest.fixture(scope="module")
def restored(checkpoint):
    return parity.restore(checkpoint)


def conversations(checkpoint) -> list[list[int]]:
    replies = ["love", "war", "a", "the best thing of all", "?", "0"]
    return checkpoint.template.sequences("What?", replies)


def check_rendered(checkpoint, restored, change=lambda ids: ids) -> None:
    """Rewards of rendered conversations, as `change` makes the engine see them."""
    sequences = conversations(checkpoint)
    expected = torch_models.rewards(internlm2.build(), sequences)
    actual = restored.scorer.plain_rewards([change(ids) for ids in sequences])[0]
    parity.assert_close(actual, expected, scale=expected.std())


@pytest.mark.parametrize("check", [parity.check_layers, parity.check_plain, parity.check_response])
def test_hidden_states_and_rewards_are_those_of_torch(restored, check):
    check(internlm2.build(), restored)


def test_the_reward_is_read_at_the_reward_token_that_the_template_puts_last(checkpoint, restored):
    assert {ids[-1] for ids in conversations(checkpoint)} == {internlm2.REWARD_ID}
    assert checkpoint.template.split("What?").suffix[-1] == internlm2.REWARD_ID
    check_rendered(checkpoint, restored)


@pytest.mark.parametrize(
    "change",
    [lambda ids: ids[:-1], lambda ids: ids[:-2], lambda ids: [*ids, internlm2.REWARD_ID]],
    ids=["at the line end before it", "at the end of the turn", "at a second one"],
)
def test_a_reward_read_at_another_position_fails_parity(checkpoint, restored, change):
    with pytest.raises(AssertionError, match="relative error"):
        check_rendered(checkpoint, restored, change)


def in_blocks(rule, tensor, sizes):
    """All queries, then all keys, then all values, as most fused projections have them."""
    N, K, H = (sizes[letter] for letter in "NKH")
    starts = {"q": (0, N), "k": (N, N + K), "v": (N + K, N + 2 * K)}
    start, stop = starts[rule.part] if rule.part else (0, len(tensor) // H)
    return tensor[start * H : stop * H] if rule.part else tensor


def swapped(rule, tensor, sizes):
    other = {"k": "v", "v": "k"}.get(rule.part, rule.part)
    return right(dataclasses.replace(rule, part=other), tensor, sizes)


def groups_first(rule, tensor, sizes):
    """Query heads ordered by their place in a group, not by the key/value head they read."""
    rows = right(rule, tensor, sizes)
    return rows.swapaxes(0, 1) if rule.part == "q" else rows


right = layouts.part_of
SPLITS = {"blocks": in_blocks, "k and v swapped": swapped, "groups first": groups_first}


@pytest.mark.parametrize("split", SPLITS)
def test_a_wrong_split_of_wqkv_fails_parity(tmp_path, monkeypatch, split):
    monkeypatch.setattr(layouts, "part_of", SPLITS[split])
    folder = internlm2.save(tmp_path / "hf")
    restored = parity.restore(folders.convert(folder, tmp_path / "checkpoint"))
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_plain(internlm2.build(), restored)


def test_feed_forwards_gate_and_up_swapped_fail_parity(tmp_path, monkeypatch):
    keys = {"decoder.layers.gate": "w3", "decoder.layers.up": "w1"}
    swap = [
        dataclasses.replace(r, key=f"model.layers.{{l}}.feed_forward.{keys[r.parameter]}.weight")
        if r.parameter in keys
        else r
        for r in layouts._INTERNLM2
    ]
    monkeypatch.setattr(layouts, "_INTERNLM2", tuple(swap))
    folder = internlm2.save(tmp_path / "hf")
    restored = parity.restore(folders.convert(folder, tmp_path / "checkpoint"))
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_plain(internlm2.build(), restored)


def test_a_template_that_does_not_end_with_the_reward_token_is_refused(tmp_path):
    folder = internlm2.save(tmp_path / "hf", template=tiny.CHATML)
    message = rf"token \(\d+,\); .* reward_token_id={internlm2.REWARD_ID}, which must"
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "out" / "checkpoint")
    assert not (tmp_path / "out").exists()


REFUSED = {
    "a bias": (
        "model.layers.0.attention.wqkv.bias",
        torch.ones(64),
        r"tensor that nothing uses: 'model\.layers\.0\.attention\.wqkv\.bias'$",
    ),
    "rows of another number of heads": (
        "model.layers.1.attention.wqkv.weight",
        torch.ones(96, 32),
        r"tensor 'model\.layers\.1\.attention\.wqkv\.weight' has shape \[96, 32\]; "
        r"config\.json implies \[64, 32\]$",
    ),
    "no value head": ("v_head.weight", None, r"hf: missing tensor 'v_head\.weight'$"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_tensors_are_refused_by_name_for(tmp_path, reason):
    key, value, message = REFUSED[reason]
    folder = internlm2.save(tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors") | {key: value}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "checkpoint")
