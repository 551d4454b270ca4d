"""Conversion of encoders: what is refused by name, and how prompt and reply become token ids."""

import functools
import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from engine.errors import AssayError
from tests.support import encoders, folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Name -> a family's model as transformers saves it, made once."""

    @functools.cache
    def of(name):
        return encoders.save(encoders.build(name), name, tmp_path_factory.mktemp("encoder") / "hf")

    return of


@pytest.fixture(scope="module")
def bert(saved):
    return saved("bert")


def copied(folder, to, **config):
    """A folder with changes of its config.json."""
    shutil.copytree(folder, to)
    folders.edit_json(to / "config.json", **config)
    return to


def refusal(folder) -> str:
    with pytest.raises(AssayError) as error:
        folders.convert(folder, folder / "checkpoint")
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("bert", {"architectures": ["AlbertForSequenceClassification"]}, "AlbertFor"),
        ("bert", {"model_type": "electra"}, "model_type='electra'"),
        ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("bert", {"hidden_act": "mish"}, "hidden_act='mish'"),
        ("bert", {"is_decoder": True}, "is_decoder=True"),
        ("bert", {"some_new_attribute": 1}, "some_new_attribute"),
        ("bert", {"sentence_transformers": {"activation_fn": "torch.Tanh"}}, "torch.Tanh"),
        ("bert", {"num_attention_heads": 5}, "5 heads"),
        ("deberta-v3", {"conv_kernel_size": 3}, "conv_kernel_size=3"),
        ("deberta-v3", {"relative_attention": False}, "relative_attention=False"),
        ("deberta-v3", {"pos_att_type": ["p2p"]}, "p2p"),
        ("modernbert", {"attention_bias": True}, "attention_bias=True"),
        ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rope_scaling="),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling='max'"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_an_encoder_that_is_not_implemented_is_refused_by_name(saved, tmp_path, name, change, word):
    assert word in refusal(copied(saved(name), tmp_path / "hf", **change))


def test_an_unknown_encoder_is_refused_with_the_families_that_are_read(bert, tmp_path):
    folder = copied(bert, tmp_path / "hf", architectures=["AlbertForSequenceClassification"])
    message = refusal(folder)
    assert all(family in message for family in ("deberta-v2", "electra", "modernbert", "llama"))


def test_a_missing_tensor_and_one_that_nothing_uses_are_refused(bert, tmp_path):
    folder = copied(bert, tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.extra.weight"] = tensors.pop("bert.pooler.dense.weight")
    save_file(tensors, folder / "model.safetensors")
    message = refusal(folder)
    assert "model.pooler.weight" in message and "bert.extra.weight" in message


def test_an_adapter_of_an_encoder_is_refused(bert, tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": str(bert), "r": 1, "lora_alpha": 1}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    key = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
    tensors = load_file(bert / "model.safetensors")
    save_file({key: tensors["bert.pooler.dense.weight"]}, folder / "adapter_model.safetensors")
    assert "an adapter of an encoder" in refusal(folder)


def test_several_rows_need_to_know_which_is_the_reward(tmp_path):
    folder = encoders.save(encoders.build("bert", num_labels=2), "bert", tmp_path / "hf")
    assert "reward=''" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "prefix", "suffix", "separator"),
    [
        ("bert", "[CLS] what is [SEP]", "[SEP]", 3),
        ("deberta-v3", "[CLS] ▁what ▁is [SEP]", "[SEP]", None),
        ("xlm-roberta", "<s> ▁what ▁is </s> </s>", "</s>", None),
        ("modernbert", "[CLS] w h a t Ġ i s [SEP]", "[SEP]", None),
        ("roberta", "<s> w h a t Ġ i s </s> </s>", "</s>", None),
    ],
)
def test_prompt_and_reply_are_the_tokenizers_pair(saved, tmp_path, name, prefix, suffix, separator):
    checkpoint = folders.convert(saved(name), tmp_path / "checkpoint")
    around, tokens = (
        checkpoint.template.split("what is"),
        checkpoint.tokenizer.convert_ids_to_tokens,
    )
    assert tokens(around.prefix) == prefix.split()
    assert tokens(around.suffix) == suffix.split()
    assert checkpoint.card.decoder.separator == separator
    [whole] = checkpoint.template.sequences("what is", ["love film"])
    assert whole == checkpoint.tokenizer.backend_tokenizer.encode("what is", "love film").ids


def test_a_prompt_with_the_separator_and_a_turn_too_many_are_refused(bert, tmp_path):
    template = folders.convert(bert, tmp_path / "checkpoint").template
    turn = {"role": "user", "content": "what"}
    for prompt, words in (("a [SEP] b", "[SEP]"), ([turn, turn], "other turns")):
        with pytest.raises(AssayError) as error:
            template.split(prompt)
        assert words in str(error.value)


def test_old_names_of_norms_and_buffers_are_read(bert, tmp_path):
    folder = copied(bert, tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        tensors = {key.replace(new, name): value for key, value in tensors.items()}
    tensors["bert.embeddings.position_ids"] = tensors["classifier.bias"].long()
    save_file(tensors, folder / "model.safetensors")
    first = folders.convert(folder, tmp_path / "first")
    second = folders.convert(bert, tmp_path / "second")
    assert first.card.checkpoint_hash == second.card.checkpoint_hash


def test_the_pooler_that_a_roberta_does_not_read_is_left_out_in_one_line(saved, tmp_path):
    folder, notes = copied(saved("roberta"), tmp_path / "hf"), []
    first = folders.convert(folder, tmp_path / "first")
    tensors = load_file(folder / "model.safetensors")
    further = {kind: tensors[f"classifier.dense.{kind}"] + 1 for kind in ("weight", "bias")}
    tensors |= {f"roberta.pooler.dense.{kind}": value for kind, value in further.items()}
    save_file(tensors, folder / "model.safetensors")
    second = folders.convert(folder, tmp_path / "second", note=notes.append)
    assert first.card.checkpoint_hash == second.card.checkpoint_hash
    assert [line for line in notes if "roberta.pooler.dense" in line]


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    "change",
    [
        {"tie_weights_": True},  # of published DistilBERTs
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.1.0"}},
    ],
)
def test_attributes_of_published_encoders_are_read(saved, tmp_path, change):
    folder = copied(saved("distilbert"), tmp_path / "hf", **change)
    assert folders.convert(folder, tmp_path / "checkpoint").card.decoder.num_layers == 2


@pytest.mark.parametrize("bos", ["none", "single"])
def test_a_bos_policy_that_an_encoder_cannot_have_is_refused(bert, tmp_path, bos):
    with pytest.raises(AssayError, match=f"bos='{bos}' of an encoder"):
        folders.convert(bert, tmp_path / "checkpoint", bos=bos)
