"""A folder or hub id with a listed model's name that holds another model is refused in one line."""

import json
import math

import numpy as np
import pytest

from configs import known_models, known_shapes
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from launch.common import converting, known_model_check
from tests.support import hub_server, tiny

COMPUTED = "skywork-reward-v2-qwen3-0.6b"
STATED = "grm-gemma2-2b-rewardmodel-ft"
ALLOWED = "; allowed: that model's own files, or a folder of another name"


def config_of(spec, **changes):
    rows = known_shapes.rows(spec)
    size = {} if rows is None else {"vocab_size": rows}
    return {**known_shapes.config_json(spec), **size, **changes}


def tensors_of(spec) -> dict[str, list[int]]:
    """Name -> shape of every tensor of a model with a linear head."""
    hf = config_of(spec)
    width, ffn, size = hf["hidden_size"], hf["intermediate_size"], hf["head_dim"]
    queries, keys = hf["num_attention_heads"] * size, hf["num_key_value_heads"] * size
    layer = {
        "self_attn.q_proj": [queries, width],
        "self_attn.k_proj": [keys, width],
        "self_attn.v_proj": [keys, width],
        "self_attn.o_proj": [width, queries],
        "mlp.gate_proj": [ffn, width],
        "mlp.up_proj": [ffn, width],
        "mlp.down_proj": [width, ffn],
        "input_layernorm": [width],
        "post_attention_layernorm": [width],
    }
    if spec.base == "Gemma 2":
        layer |= {"pre_feedforward_layernorm": [width], "post_feedforward_layernorm": [width]}
    if spec.base == "Qwen 3":
        layer |= {"self_attn.q_norm": [size], "self_attn.k_norm": [size]}
    shapes = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(hf["num_hidden_layers"])
        for name, shape in layer.items()
    }
    vocabulary = {"model.embed_tokens.weight": [hf["vocab_size"], width]}
    return {**shapes, **vocabulary, "model.norm.weight": [width], "score.weight": [1, width]}


def write(folder, spec, shapes, dtype="F16", **changes):
    """The folder, with files of full size that take no room: their tensors were never written."""
    folder.mkdir(parents=True)
    offset, header = 0, {}
    size = {"F16": 2, "BF16": 2, "F32": 4}[dtype]
    for name, shape in shapes.items():
        end = offset + size * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    (folder / "config.json").write_text(json.dumps(config_of(spec, **changes)))
    return folder


def converted(source, spec, tmp_path, **options):
    return converting.convert(
        str(source), tmp_path / "ck", spec, slug="x", policy=None, check_memory=False, **options
    )


@pytest.mark.parametrize("slug", [COMPUTED, STATED, "gemma-2-9b"])
def test_the_published_shapes_are_accepted_and_every_other_is_named(slug):
    spec = known_models.KNOWN[slug]
    known_model_check.check_config("folder", config_of(spec), spec)
    for field in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"):
        right = config_of(spec)[field]
        both = f"{field}={right + 4}; {spec.hub_id} has {field}={right}"
        message = f"folder: config.json has {both}{ALLOWED}"
        with pytest.raises(AssayError) as caught:
            known_model_check.check_config("folder", config_of(spec, **{field: right + 4}), spec)
        assert str(caught.value) == message


def test_rows_are_compared_where_they_are_known():
    unknown = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    known = known_models.KNOWN["grm-llama3.2-3b-rewardmodel-ft"]
    for rows in (128256, 128257, 128264):
        known_model_check.check_config("folder", config_of(unknown, vocab_size=rows), unknown)
    with pytest.raises(AssayError, match=r"vocab_size=128256; .* has vocab_size=128257; allowed"):
        known_model_check.check_config("folder", config_of(known, vocab_size=128256), known)


def test_the_kind_of_a_model_must_be_the_listed_one():
    language, reward = known_models.KNOWN["gemma-2-2b"], known_models.KNOWN[STATED]
    with pytest.raises(AssayError, match="is that of a reward model; google/gemma-2-2b is a lang"):
        known_model_check.check_config("folder", config_of(reward), language)
    with pytest.raises(AssayError, match=r"is that of a language model; Ray2333/.* is a reward mo"):
        known_model_check.check_config("folder", config_of(language), reward)
    llama = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    with pytest.raises(AssayError, match=r"has model_type=llama; Ray2333/.* has model_type=gemma2"):
        known_model_check.check_config("folder", config_of(llama), reward)


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_every_listed_model_has_its_own_shapes(slug):
    spec = known_models.KNOWN[slug]
    known_model_check.check_config("folder", config_of(spec), spec)


@pytest.mark.parametrize("slug", [COMPUTED, STATED])
def test_tensors_of_full_size_are_accepted_and_others_are_not(tmp_path, slug):
    spec = known_models.KNOWN[slug]
    shapes = tensors_of(spec)
    whole = write(tmp_path / "whole", spec, shapes)
    known_model_check.check_tensors(whole, spec)
    assert TensorFiles.open(whole).nbytes == known_shapes.expected_bytes(spec)
    fewer = {name: shape for name, shape in shapes.items() if "layers.0." not in name}
    with pytest.raises(AssayError, match=rf"; {spec.hub_id} has [\d,]+{ALLOWED}$"):
        known_model_check.check_tensors(write(tmp_path / "fewer", spec, fewer), spec)


def test_bytes_that_were_computed_allow_another_dtype(tmp_path):
    spec = known_models.KNOWN[COMPUTED]
    known_model_check.check_tensors(write(tmp_path / "a", spec, tensors_of(spec), "F32"), spec)


def test_a_folder_of_other_bytes_is_refused_before_weights_are_read(tmp_path, monkeypatch):
    spec = known_models.KNOWN[STATED]
    folder = write(tmp_path / "GRM-gemma2-2B-rewardmodel-ft", spec, tensors_of(spec), "F32")
    monkeypatch.setattr(np, "fromfile", None)  # which reads tensors
    with pytest.raises(AssayError) as caught:
        converted(folder, spec, tmp_path)
    assert str(caught.value) == (
        f"{folder}: 10,457,376,768 bytes of tensors; {spec.hub_id} has 5,228,688,384{ALLOWED}"
    )
    assert not (tmp_path / "ck").exists()


def test_a_command_refuses_a_tiny_model_under_a_listed_name(command, tmp_path):
    source = tiny.write_model(tmp_path / "Skywork-Reward-Llama-3.1-8B-v0.2")
    done = command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'ck'}")
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"convert: {source}: config.json has hidden_size=")
    assert done.err[0].endswith(ALLOWED)
    assert not (tmp_path / "ck").exists()


def test_a_hub_id_of_other_shapes_is_refused_before_its_weights_are_fetched(
    command, tmp_path, monkeypatch
):
    name = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    with hub_server.running() as hub:
        hub.add(name, tiny.write_model(tmp_path / "hf"))
        hub_server.point(monkeypatch, hub, tmp_path / "cache")
        done = command("convert", f"--source={name}", f"--checkpoint={tmp_path / 'ck'}")
        assert hub.downloads("model.safetensors") == []
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"convert: {name}: config.json has hidden_size=")


def test_a_language_models_copy_of_its_embedding_does_not_count(tmp_path):
    spec = known_models.KNOWN["gemma-2-9b"]  # whose bytes are not stated
    shapes = tensors_of(spec)
    del shapes["score.weight"]
    known_model_check.check_tensors(write(tmp_path / "without", spec, shapes, "BF16"), spec)
    shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    known_model_check.check_tensors(write(tmp_path / "with", spec, shapes, "BF16"), spec)
    shapes["other.weight"] = [1]
    with pytest.raises(AssayError, match="9,241,705,985 numbers in its tensors; google/gemma-2-9b"):
        known_model_check.check_tensors(write(tmp_path / "more", spec, shapes, "BF16"), spec)
