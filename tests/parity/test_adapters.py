"""Adapters merged at conversion, against torch that computes W x + scale * (B (A x)) unmerged."""

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from engine.convert import adapter as merging
from tests.support import folders, parity, slow
from tests.support.adapters import Adapter, write
from tests.support.planted import instead

CASES = {
    "rank 16 on a reward model": Adapter(rank=16, alpha=32, causal=False),
    "two modules": Adapter(rank=2, alpha=4, targets=("q_proj", "v_proj")),
    "rslora": Adapter(rank=16, alpha=8, rslora=True),
    "patterns": Adapter(
        rank=2,
        alpha=6,
        ranks={"layers.1.self_attn.q_proj": 8, "v_proj": 3},
        alphas={"down_proj": 1, "layers.0.self_attn.o_proj": 12},
    ),
    "a resized vocabulary": Adapter(rank=4, rows=272),
    "an adapted embedding": Adapter(rank=4, targets=("embed_tokens", "up_proj")),
    "gemma3, images": Adapter(model="gemma3, images"),
    "gpt_neox": Adapter(model="gpt_neox", targets=("query_key_value", "dense_4h_to_h"), rows=272),
    "phi3": Adapter(model="phi3", targets=("qkv_proj", "gate_up_proj"), rows=272),
    "gpt2": Adapter(model="gpt2", targets=("c_attn", "c_proj", "c_fc"), rows=272),
    "square matrices": Adapter(model="mha", targets=("q_proj", "k_proj", "o_proj")),
}


def check(case: Adapter, folder) -> None:
    """The merged checkpoint's rewards."""
    model = write(case, folder)
    checkpoint = folders.convert(folder / "adapter", folder / "checkpoint")
    parity.check_plain(model, parity.restore(checkpoint))


QUICK = ("patterns", "a resized vocabulary")


@pytest.mark.parametrize("name", slow.all_but(QUICK, CASES))
def test_rewards_of_a_merged_adapter_are_those_of_torch_unmerged(tmp_path, name):
    check(CASES[name], tmp_path)


def test_sums_of_a_bfloat16_base_are_rounded_once(tmp_path):
    write(CASES["two modules"], tmp_path)
    base = tmp_path / "base" / "model.safetensors"
    rounded = {name: tensor.bfloat16() for name, tensor in load_file(base).items()}
    save_file(rounded, base, {"format": "pt"})
    files = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    checkpoint = folders.convert(tmp_path / "adapter", tmp_path / "checkpoint")
    assert checkpoint.card.dtype == "bfloat16"
    key = "model.layers.1.self_attn.q_proj"
    a, b = (files[f"base_model.model.{key}.lora_{part}.weight"] for part in "AB")
    expected = (rounded[f"{key}.weight"].float() + 2.0 * (b @ a)).bfloat16().float().numpy()
    opened = merging.open_merged(tmp_path / "base", tmp_path / "adapter", "llama")
    actual = opened.read(f"{key}.weight").astype(np.float32)
    assert (actual == expected).mean() > 0.99  # float32 sums in another order round otherwise
    np.testing.assert_allclose(actual, expected, rtol=2**-7)


def no_rslora(right, config, module):
    return config["lora_alpha"] / merging.rank_of(config, module)


def transposed(right, self, array, a, b, dtype):
    square = array.shape[0] == array.shape[1]
    return right(self, array, *((b.T, a.T) if square else (a, b)), dtype)


def head_of_the_base(right, self, key):
    return self.base.read(key) if key == "score.weight" else right(self, key)


# What is planted, and the adapter in which it shows.
BUGS = {
    "scale forgotten": (instead(merging, "scale_of", lambda *_: 1.0), "two modules"),
    "rslora ignored": (instead(merging, "scale_of", no_rslora), "rslora"),
    "patterns ignored": (instead(merging, "scale_of", no_rslora), "patterns"),
    "B A transposed": (instead(merging.Delta, "merged", transposed), "square matrices"),
    "the base's head": (
        instead(merging.MergedFiles, "read", head_of_the_base),
        "rank 16 on a reward model",
    ),
}


@pytest.mark.parametrize("bug", slow.all_but(["scale forgotten", "the base's head"], BUGS))
def test_a_bug_planted_in_merging_fails_parity(tmp_path, monkeypatch, bug):
    plant, name = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        check(CASES[name], tmp_path)
