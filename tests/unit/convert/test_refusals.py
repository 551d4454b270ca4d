"""Folders that conversion refuses: one line that names the reason, and nothing left behind."""

import json
import resource
from pathlib import Path

import pytest

from engine.errors import AssayError
from tests.support import folders, torch_models

WEIGHTS = "model.safetensors"


def removed(name: str):
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


def retensored(change):
    return lambda folder: torch_models.edit_tensors(folder, change)


def replaced(**tensors):
    """Tensors by name (`__` for a dot), each computed from those of the folder."""

    def change(found):
        found.update({n.replace("__", "."): make(found) for n, make in tensors.items()})

    return retensored(change)


def narrow_value_head(tensors):
    tensors["v_head.summary.weight"] = tensors.pop("score.weight")[:, :9].contiguous()


def truncated(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-100])


def copied(name: str, damage=lambda folder: None):
    """The weights under another name too."""

    def copy(folder: Path) -> None:
        (folder / name).write_bytes((folder / WEIGHTS).read_bytes())
        damage(folder)

    return copy


def adapter(folder: Path) -> None:
    """What peft saves, beside the weights."""
    config = {"peft_type": "LORA", "base_model_name_or_path": "org/base"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def sharded(change):
    """The weights in two files with their index, damaged by `change`."""
    return lambda folder: torch_models.shard(folder, change)


PICKLED = copied("pytorch_model.bin", damage=removed(WEIGHTS))
SHARD = "model-00001-of-00002.safetensors"
K_PROJ = "model.layers.0.self_attn.k_proj.weight"
# What happens to a folder, and what is said of it.
REFUSED = [
    (written("config.json", "{"), r"config\.json: not JSON \("),
    (PICKLED, r"'pytorch_model\.bin'"),
    (copied(SHARD, damage=PICKLED), rf"no model\.safetensors\.index\.json; '{SHARD}'"),
    (adapter, r"'org/base' \(adapter_config\.json\)"),
    (copied("score.pth"), r"score\.pth; .*value_head\.safetensors"),
    (
        replaced(v_head__bias=lambda t: t["model.norm.weight"] + 0),
        r"tensor .score\.weight. has shape \[1, 32\].* \[32, 32\]$",
    ),
    (
        replaced(v_head__weight=lambda t: t["score.weight"] + 0),
        r"'score\.weight' and 'v_head\.weight'",
    ),
    (truncated, r"model\.safetensors: truncated"),
    (sharded(lambda shards, _: shards.pop("b.safetensors")), r"shard b\.safetensors is missing"),
    (
        sharded(lambda _, index: index.update(dict.fromkeys(index, "../b.safetensors"))),
        r"shard \.\./b\.safetensors is missing",
    ),
    (
        sharded(lambda shards, _: shards["b.safetensors"].append("model.embed_tokens.weight")),
        r"tensor 'model\.embed_tokens\.weight' is in a\.safetensors and in b\.safetensors$",
    ),
    (retensored(lambda t: t.pop(K_PROJ)), rf"missing tensor '{K_PROJ}'$"),
    (retensored(lambda t: t.pop("model.embed_tokens.weight")), "'model.embed_tokens.weight'"),
    (
        replaced(rm_head__weight=lambda t: t.pop("score.weight")),
        r"'score\.weight'; .*'rm_head\.weight'; .* score, value_head, ",
    ),
    (
        retensored(lambda t: t.update({K_PROJ: t["model.embed_tokens.weight"] + 0})),
        rf"tensor '{K_PROJ}'.* \[264, 32\]; .* \[20, 32\]$",
    ),
    (  # by its name in the file
        retensored(narrow_value_head),
        r"tensor 'v_head\.summary\.weight'.* \[1, 9\]; .* \[1, 32\]$",
    ),
    (
        replaced(score__weight=lambda t: t["score.weight"].repeat(2, 1)),
        r"reward='' .* 2 rows; .* 0 \(label_0\), 1 \(row_1\)",
    ),
    (
        replaced(score__weight=lambda t: t["score.weight"].char()),
        r"tensor 'score\.weight' .* I8; .* F32, F16, BF16$",
    ),
    (removed("chat_template.jinja"), "no chat template"),
    (
        written("chat_template.jinja", "{% for i in range(10**9) %}{% endfor %}"),
        r"^chat template of .*hf: .*OverflowError: Range too big",
    ),
]


def refusal(source: Path, destination: Path) -> str:
    with pytest.raises(AssayError) as caught:
        folders.convert(source, destination)
    return str(caught.value)


@pytest.mark.parametrize(("damage", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_folder_is_refused_in_one_line_and_leaves_nothing(folder, tmp_path, damage, message):
    damage(folder)
    with pytest.raises(AssayError, match=message) as caught:
        folders.convert(folder, tmp_path / "out" / "checkpoint")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_existing_destination_is_refused_and_left_as_it_was(folder, tmp_path):
    destination = tmp_path / "checkpoint"
    destination.mkdir()
    (destination / "mine").write_text("kept")
    message = refusal(folder, destination)
    assert message.startswith(f"checkpoint {destination}: exists")
    assert [path.name for path in destination.iterdir()] == ["mine"]


def test_an_interrupted_conversion_leaves_nothing_beside_the_destination(folder, tmp_path):
    def interrupt(done, total):
        assert 0 < done < total
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folders.convert(folder, tmp_path / "out" / "checkpoint", progress=interrupt)
    assert list((tmp_path / "out").iterdir()) == []


# A limit on the size of a file stands for the full disk: 9,000 bytes stop the
# embedding, 60,000 nothing but the tokenizer.
@pytest.mark.parametrize("limit", [9_000, 60_000])
def test_a_disk_that_takes_no_more_is_refused_in_one_line_and_leaves_nothing(
    folder, tmp_path, limit
):
    (tmp_path / "out").mkdir()
    tokenizer = torch_models.tokenizer()
    tokenizer.add_tokens(["x" * 70_000])
    tokenizer.save_pretrained(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        message = refusal(folder, tmp_path / "out" / "checkpoint")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message.startswith(f"checkpoint {tmp_path / 'out' / 'checkpoint'}: ")
    assert "File too large" in message
    assert "\n" not in message
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("tokenizer_class", [{}, {"tokenizer_class": "Own"}])
def test_code_in_the_folder_is_never_executed_and_not_needed(folder, tmp_path, tokenizer_class):
    marker = tmp_path / "executed"
    for name in ("modeling_own", "tokenization_own", "configuration_own"):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    auto_map = {"AutoTokenizer": [None, "tokenization_own.Own"]}
    folders.edit_json(folder / "tokenizer_config.json", auto_map=auto_map, **tokenizer_class)
    auto_map = {"AutoConfig": "configuration_own.Own"}
    auto_map["AutoModelForSequenceClassification"] = "modeling_own.Own"
    folders.edit_json(folder / "config.json", auto_map=auto_map)
    checkpoint = folders.convert(folder, tmp_path / "checkpoint")
    assert checkpoint.token_ids and checkpoint.template.split("What?")
    assert not marker.exists()
    assert not list((tmp_path / "checkpoint").rglob("*.py"))
