"""Adapters that are refused by name, and what conversion says and keeps of those that are not."""

import json
import re
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.convert import adapter as merging
from engine.convert.hub import fetch, identify
from engine.errors import AssayError
from tests.support import folders, torch_models
from tests.support.adapters import PREFIX, Adapter, write

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
Q = "model.layers.0.self_attn.q_proj"
A = torch.ones(4, 32)


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Path:
    """A base and its adapter; read them, copy them, leave them as they are."""
    folder = tmp_path_factory.mktemp("written")
    write(Adapter(), folder)
    return folder


@pytest.fixture
def pair(written, tmp_path) -> Path:
    """A copy to damage, whose adapter names the base beside it."""
    copy = shutil.copytree(written, tmp_path / "pair")
    configured(base_model_name_or_path=str(copy / "base"))(copy)
    return copy


def configured(**fields):
    return lambda pair: folders.edit_json(pair / "adapter" / CONFIG, **fields)


def retensored(change):
    return lambda pair: torch_models.edit_tensors(pair / "adapter", change, WEIGHTS)


def renamed(name: str, other: str):
    return retensored(lambda t: t.update({PREFIX + other: t.pop(PREFIX + name)}))


def pickled(pair: Path) -> None:
    (pair / "adapter" / WEIGHTS).rename(pair / "adapter" / "adapter_model.bin")


def template_alone(pair: Path) -> None:
    for file in (pair / "adapter").glob("tokenizer*"):
        file.unlink()
    (pair / "adapter" / "chat_template.jinja").write_text("{{ messages[1]['content'] }}")


def quantised(pair: Path) -> None:
    config = {"load_in_4bit": True, "quant_method": "bitsandbytes"}
    folders.edit_json(pair / "base" / "config.json", quantization_config=config)


def adapted_base(pair: Path) -> None:
    shutil.copytree(pair / "adapter", pair / "second")
    configured(base_model_name_or_path=str(pair / "second"))(pair)


def headless(pair: Path) -> None:
    configured(task_type="CAUSAL_LM", modules_to_save=None)(pair)
    retensored(lambda t: t.pop(PREFIX + "score.weight"))(pair)


def turned(tensors) -> None:
    a, b = (f"{PREFIX}{Q}.lora_{part}.weight" for part in "AB")
    tensors[a], tensors[b] = tensors[b].T.contiguous(), tensors[a].T.contiguous()


def entry(name: str, value: object, allowed: str):
    setting = re.escape(f"{name}={value!r}")
    return configured(**{name: value}), rf"adapter_config\.json: {setting} ?.*{allowed}"


def added(name: str, tensor: torch.Tensor):
    return retensored(lambda t: t.update({PREFIX + name: tensor + 0}))


REFUSED = [
    entry("peft_type", "IA3", "'LORA'$"),
    entry("use_dora", True, "False, None$"),
    entry("init_lora_weights", "pissa", "True, False, 'gaussian'"),  # which changes the base
    entry("use_rslora", "false", ""),
    entry("lora_alpha", 0, "; allowed: numbers above 0$"),
    (configured(use_novelty=True, novelty_config=None), r"'use_novelty' \(= True\)$"),
    (template_alone, r"chat_template\.jinja"),  # of another tokenizer
    (
        configured(r=8),
        r"LoRA of 'model\.layers\.0\.\S+' has shapes \[4, \d+\] and \[\d+, 4\]; .*rank 8$",
    ),
    (retensored(turned), r"has shapes \[4, 80\] and \[32, 4\]; the base has \[80, 32\]"),
    (added("model.layers.9.mlp.lora_A.weight", A), r"'model\.layers\.9\.mlp'"),
    (
        added(f"{Q}.lora_magnitude_vector", torch.ones(80)),
        rf"'{PREFIX}{Q}\.lora_magnitude_vector'$",
    ),
    (headless, r"no head"),
    (pickled, r"adapter_model\.bin"),
    (lambda pair: (pair / "adapter" / "value_head.bin").write_bytes(b""), r"value_head\.bin$"),
    (quantised, r"base: config\.json: quantization_config="),
    (adapted_base, "second.* is an adapter"),
    (configured(base_model_name_or_path="/data/llama"), r"source='/data/llama'"),
    (configured(base_model_name_or_path="owner/base"), r"owner/base: HF_HUB_OFFLINE"),
]


@pytest.mark.parametrize(("damage", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_an_adapter_is_refused_in_one_line(pair, tmp_path, damage, message):
    damage(pair)
    with pytest.raises(AssayError, match=message) as caught:
        folders.convert(pair / "adapter", tmp_path / "out" / "checkpoint")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_base_is_for_adapters_alone(written):
    with pytest.raises(AssayError, match=r"^base='b'"):
        fetch(str(written / "base"), None, base="b")


def test_the_card_names_adapter_and_base_and_the_hashes_of_both(written, tmp_path):
    card = folders.convert(written / "adapter", tmp_path / "checkpoint").card
    base = folders.convert(written / "base", tmp_path / "base").card
    files = [WEIGHTS, "adapter_config.json"]
    assert (card.source, list(card.files)) == (str(written / "adapter"), files)
    assert card.base["source"] == str(written / "base")
    assert card.base["files"] == base.files  # though what was stored is merged
    assert card.identity.keys() == {"checkpoint_hash", "adapter", "base"}
    assert card.identity["adapter"] != card.identity["base"]
    assert base.base is None and base.identity.keys() == {"checkpoint_hash"}


@pytest.mark.parametrize(
    "change",
    [
        retensored(lambda t: t.update({k: 0 * v for k, v in t.items() if "lora_B" in k})),
        configured(lora_alpha=80),
    ],
)
def test_another_adapter_is_another_model(written, pair, tmp_path, change):
    change(pair)
    first = folders.convert(written / "adapter", tmp_path / "first").card
    second = folders.convert(pair / "adapter", tmp_path / "second").card
    assert first.identity["base"] == second.identity["base"]
    assert first.identity["adapter"] != second.identity["adapter"]


@pytest.mark.parametrize(
    "saved", [("", ".modules_to_save"), (".default", ".modules_to_save.default")]
)
def test_names_that_peft_has_in_memory_are_those_in_its_files(pair, tmp_path, saved):
    """As where the state of the whole model was saved, and the name of the adapter left out."""
    part, module = saved
    embedding = f"{PREFIX}model.embed_tokens"
    rows = json.loads((pair / "base" / "config.json").read_text())["vocab_size"]
    retensored(lambda t: t.update({f"{embedding}.weight": torch.randn(rows, 32)}))(pair)
    plain = folders.convert(pair / "adapter", tmp_path / "plain").card

    def rename(tensors):
        for key in list(tensors):
            end = module if "lora_" not in key else part
            name, tensor = f"{key.removesuffix('.weight')}{end}.weight", tensors.pop(key)
            tensors[name] = tensor
            if "lora_" not in key:
                tensors[name.replace(module, ".original_module")] = torch.zeros_like(tensor)

    retensored(rename)(pair)
    renamed = folders.convert(pair / "adapter", tmp_path / "renamed").card
    assert renamed.checkpoint_hash == plain.checkpoint_hash


def test_tokenizer_template_and_pad_are_those_of_the_adapter(pair, tmp_path):
    tokenizer = torch_models.tokenizer()
    tokenizer.pad_token = "<|im_start|>"
    tokenizer.chat_template = "{{ messages[0]['content'] }}|{{ messages[1]['content'] }}!"
    tokenizer.save_pretrained(pair / "adapter")
    checkpoint = folders.convert(pair / "adapter", tmp_path / "checkpoint")
    assert checkpoint.tokenizer.chat_template == tokenizer.chat_template
    assert checkpoint.card.pad_token_id == tokenizer.pad_token_id


def test_a_head_in_a_file_of_its_own_is_the_head(pair, tmp_path):
    """As LLaMA-Factory writes it."""
    headless(pair)
    head = {f"v_head.summary.{k}": v for k, v in torch.nn.Linear(32, 1).state_dict().items()}
    save_file(head, pair / "adapter" / "value_head.safetensors")
    card = folders.convert(pair / "adapter", tmp_path / "checkpoint").card
    assert card.head.kind == "affine"
    assert sorted(card.files) == ["adapter_config.json", WEIGHTS, "value_head.safetensors"]


def test_merging_keeps_no_second_copy_of_a_matrix():
    rows, width, rank = 8192, 4096, 4
    array = np.zeros((rows, width), np.float32)
    a, b = np.ones((rank, width), np.float32), np.ones((rows, rank), np.float32)
    delta = merging.Delta(a="a", b="b", scale=0.5, transposed=False)
    tracemalloc.start()
    try:
        merged = delta.merged(array, a, b, array.dtype)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert merged is array and (merged == 2).all()
    assert peak < 0.5 * array.nbytes


@pytest.fixture
def published(hub, pair):
    """An adapter and its base on a hub, the base at a revision of its own; their commits."""
    commit = hub.add("owner/base", pair / "base", "trained")
    shutil.copytree(pair / "base", pair / "other")
    (pair / "other" / "README.md").write_text("another commit")
    hub.add("owner/base", pair / "other")
    configured(base_model_name_or_path="owner/base", revision="trained")(pair)
    return hub.add("owner/adapter", pair / "adapter"), commit


def test_an_adapter_on_a_hub_is_merged_into_the_revision_of_its_base(
    hub, published, written, tmp_path
):
    told = []
    fetch("owner/adapter", None, lambda source: told.append(source.config_json()))
    assert [hf["architectures"] for hf in told] == [["LlamaForSequenceClassification"]]
    checkpoint = folders.convert("owner/adapter", tmp_path / "checkpoint")
    local = folders.convert(written / "adapter", tmp_path / "local")
    card = checkpoint.card
    assert (card.revision, card.base["revision"]) == published
    assert card.checkpoint_hash == local.card.checkpoint_hash


@pytest.mark.parametrize(
    ("base", "branch"),
    [("owner/base", "trained"), ("owner/base@main", "main"), ("owner/base@trained", "trained")],
)
def test_the_base_is_at_the_revision_that_is_named_else_at_the_adapters(
    hub, published, base, branch
):
    source = identify("owner/adapter", None, base=base)
    assert source.base.name == "owner/base"
    assert source.base.revision == hub.repositories["owner/base"].names[branch]


def test_a_template_that_writes_a_token_beyond_the_embedding_is_refused(pair, tmp_path):
    tokenizer = torch_models.tokenizer()
    rows = json.loads((pair / "base" / "config.json").read_text())["vocab_size"]
    tokenizer.add_special_tokens({"extra_special_tokens": [f"<{i}>" for i in range(rows)]})
    tokenizer.chat_template += f"<{rows - 1}>"
    tokenizer.save_pretrained(pair / "adapter")
    message = rf"'<{rows - 1}>' \(token id \d+\)"
    with pytest.raises(AssayError, match=message):
        folders.convert(pair / "adapter", tmp_path / "checkpoint")
