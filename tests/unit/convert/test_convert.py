"""What conversion writes: the same numbers in the same dtype, hashes, one parameter at a time."""

import collections
import json
import re
import tracemalloc

import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.torch import load_file

from engine.checkpoint.restore import restore, sharing_groups
from engine.convert.safetensors import TensorFiles
from engine.mesh import build_mesh
from tests.support import folders, tiny, torch_models
from tests.unit.convert.conftest import MODEL

WEIGHTS = "model.safetensors"
HASHES = ("embedding_hash", "layer_hashes", "readout_hash", "tokenizer_hash", "checkpoint_hash")


def hashes(checkpoint) -> dict:
    return {name: getattr(checkpoint.card, name) for name in HASHES}


def changed_hashes(checkpoint, other) -> set[str]:
    before, after = hashes(checkpoint), hashes(other)
    return {name for name in HASHES if before[name] != after[name]}


def parameters(checkpoint, dtype="float32") -> dict[str, np.ndarray]:
    _, params = restore([checkpoint], build_mesh(), np.dtype(dtype))
    return {".".join(map(str, path)): np.asarray(p[...]) for path, p in nnx.to_flat_state(params)}


def test_shards_convert_to_the_same_hashes_as_one_file(checkpoint, tmp_path):
    model = torch_models.build(MODEL)
    folder = torch_models.save(model, tmp_path / "hf")
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    sharded = folders.convert(folder, tmp_path / "checkpoint")
    assert len(shards) >= 2
    assert sorted(sharded.card.files) == shards
    assert hashes(sharded) == hashes(checkpoint)


def with_an_index(folder):
    index = {"weight_map": dict.fromkeys(load_file(folder / WEIGHTS), WEIGHTS)}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


def with_copies_in_other_formats(folder):
    (folder / "original").mkdir()
    mistral = "consolidated.safetensors", "consolidated-00001-of-00002.safetensors"
    llama = "original/consolidated.00.pth", "original/score.safetensors"
    for name in (*mistral, *llama, "pytorch_model.bin", "training_args.bin"):
        (folder / name).write_text("never read")


def with_buffers(folder):
    """Of rotary embeddings, and of masks as GPT-NeoX and GPT-2 were saved with."""
    names = ("self_attn.rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")
    buffers = {f"model.layers.0.{name}": torch.ones(5, dtype=torch.bool) for name in names}
    torch_models.edit_tensors(folder, lambda tensors: tensors.update(buffers))


def renamed(rename):
    def change(folder):
        torch_models.edit_tensors(
            folder, lambda t: t.update({rename(name): t.pop(name) for name in list(t)})
        )

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_an_index,
        with_copies_in_other_formats,
        with_buffers,
        # Names that some repositories prefix or shorten: bare, wrapped, and both.
        renamed(lambda name: name.removeprefix("model.")),
        renamed(lambda n: "pretrained_model." + n if n.startswith("model.") else n),
        renamed(lambda n: re.sub(r"(score|embed_tokens)", r"\1.modules_to_save.default", n)),
    ],
)
def test_what_changes_no_number_changes_no_hash(folder, tmp_path, checkpoint, change):
    change(folder)
    assert hashes(folders.convert(folder, tmp_path / "checkpoint")) == hashes(checkpoint)


def test_the_decoder_keeps_its_dtype_and_the_readout_becomes_float32(folder, tmp_path):
    torch_models.edit_tensors(folder, lambda t: t.update({n: v.half() for n, v in t.items()}))
    converted = folders.convert(folder, tmp_path / "checkpoint")
    for name, stored in converted.card.dtypes.items():
        assert stored == ("float32" if name.startswith("readout.") else "float16")
    assert converted.card.dtype == "float16"
    tensors = load_file(folder / WEIGHTS)
    params = parameters(converted)
    np.testing.assert_array_equal(
        params["decoder.embedding"], tensors["model.embed_tokens.weight"].float()
    )
    np.testing.assert_array_equal(
        params["readouts.0.head.weight"], tensors["score.weight"][0].float()
    )


def test_layers_of_different_dtypes_each_keep_theirs(folder, tmp_path):
    name = "model.layers.{}.mlp.up_proj.weight"

    def mix(tensors):
        tensors[name.format(0)] = tensors[name.format(0)].bfloat16()
        tensors[name.format(1)] = tensors[name.format(1)].half()

    torch_models.edit_tensors(folder, mix)
    converted = folders.convert(folder, tmp_path / "checkpoint")
    assert converted.card.dtypes["decoder.layers.up"] == "bfloat16, float16, float32"
    assert converted.card.dtype == "bfloat16, float16, float32"
    tensors, params = load_file(folder / WEIGHTS), parameters(converted)
    for layer in (0, 1, 2):
        np.testing.assert_array_equal(
            params[f"decoder.stacks.{layer}.up"][0], tensors[name.format(layer)].float().T
        )


@pytest.mark.parametrize(
    ("tensor", "changed"),
    [
        ("model.layers.0.self_attn.o_proj.weight", "layer_hashes"),
        ("model.embed_tokens.weight", "embedding_hash"),
        ("model.norm.weight", "readout_hash"),
        ("score.weight", "readout_hash"),
    ],
)
def test_one_changed_weight_changes_the_hash_of_its_block_alone(
    folder, tmp_path, checkpoint, tensor, changed
):
    def nudge(tensors):
        weight = tensors[tensor].view(-1)
        weight[3] = torch.nextafter(weight[3], torch.tensor(9.0))

    torch_models.edit_tensors(folder, nudge)
    other = folders.convert(folder, tmp_path / "checkpoint", slug="another")
    assert changed_hashes(checkpoint, other) == {changed, "checkpoint_hash"}
    pairs = zip(other.card.layer_hashes, checkpoint.card.layer_hashes, strict=True)
    assert [a != b for a, b in pairs] == [f"layers.{layer}." in tensor for layer in range(3)]


@pytest.fixture(scope="module")
def relatives(checkpoint, tmp_path_factory):
    """Name -> a model and what it shares with the one all tests here use."""
    base = tmp_path_factory.mktemp("relatives")
    model = torch_models.build(MODEL)

    def converted(name, model, bos="template", tokenizer=None, change=None):
        folder = torch_models.save(model, base / f"{name}-hf")
        if change:
            torch_models.edit_tensors(folder, change)
        if tokenizer:
            tokenizer.save_pretrained(folder)
        return folders.convert(folder, base / name, name, bos=bos)

    other_template = torch_models.tokenizer()
    other_template.chat_template = tiny.CHATML.replace("<|im_end|>\n", "<|im_end|>")
    return {
        "model": checkpoint,
        "other head": converted("head", model, change=lambda t: t["score.weight"].mul_(2)),
        "first two layers": converted("two", torch_models.truncated(model, 2)),
        "first layer": converted("one", torch_models.truncated(model, 1)),
        "other layer": converted(
            "layer", model, change=lambda t: t["model.layers.2.mlp.up_proj.weight"].mul_(2)
        ),
        "other policy": converted("policy", model, bos="single"),
        "other template": converted("template", model, tokenizer=other_template),
    }


# In the order given -> groups, deepest first, in the order of the first of each.
GROUPS = [
    (["model", "other head"], [["model", "other head"]]),
    (["first layer", "model"], [["model", "first layer"]]),
    (
        ["first layer", "other policy", "model", "first two layers"],
        [["model", "first two layers", "first layer"], ["other policy"]],
    ),
    (["model", "other layer"], [["model"], ["other layer"]]),
    (["model", "other template"], [["model"], ["other template"]]),
    (["model", "other policy"], [["model"], ["other policy"]]),
    ([], []),
]


@pytest.mark.parametrize(("given", "groups"), GROUPS)
def test_models_that_can_be_scored_in_one_pass_are_grouped(relatives, given, groups):
    names = {id(checkpoint): name for name, checkpoint in relatives.items()}
    found = sharing_groups([relatives[name] for name in given])
    assert [[names[id(c)] for c in group] for group in found] == groups


def test_conversion_holds_two_blocks_at_most(tmp_path, checkpoint):
    layers = 10
    config = torch_models.llama(
        4, 4, 8, num_hidden_layers=layers, hidden_size=128, intermediate_size=1536
    )
    folder = torch_models.save(torch_models.enlarged(config), tmp_path / "hf")
    total = (folder / WEIGHTS).stat().st_size
    layer = total / layers  # which most of the model is
    tracemalloc.start()
    try:
        folders.convert(folder, tmp_path / "checkpoint")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * layer


@pytest.mark.parametrize("model", [MODEL, "gpt2", "mixtral", "phi3"])
def test_every_tensor_is_read_once_for_its_parameters_and_the_hash_of_its_file(
    model, tmp_path, monkeypatch
):
    times, read = collections.Counter(), TensorFiles.read

    def counted(files, key):
        times[key] += 1
        return read(files, key)

    folder = torch_models.save(torch_models.build(model), tmp_path / "hf")
    monkeypatch.setattr(TensorFiles, "read", counted)
    folders.convert(folder, tmp_path / "checkpoint")
    assert set(times.values()) == {1}
    assert set(times) == set(TensorFiles.open(folder).tensors)
