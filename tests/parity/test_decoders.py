"""Every decoder family: hidden states and rewards are torch's, and the traps of each would show."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    Olmo3Config,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.models import decoder
from engine.models import layer as layers
from engine.models.config import Rope, inverse_frequencies
from tests.support import folders, internlm2, parity, slow, tiny, torch_models
from tests.support.tolerances import TOLERANCES

CHECKS = {
    "layers": parity.check_layers,
    "plain pass": parity.check_plain,
    "response pass": parity.check_response,
}
DEFAULT = "gqa-llama3" + torch_models.DEFAULT
# The plain pass of what differs most: windows, soft-caps, several ropes, biases, learned positions,
# norms behind sums, experts; the others of one that has no window, and of one that has.
QUICK = [
    *((name, "plain pass") for name in ("gqa-llama3", DEFAULT, "internlm2", "gemma2", "gemma3")),
    *((name, "plain pass") for name in ("phi3", "gpt_neox", "gpt2", "olmo3", "smollm3")),
    *((name, "plain pass") for name in ("qwen3_moe", "qwen3_5")),
    *((name, check) for name in ("gqa-llama3", "gemma2") for check in ("layers", "response pass")),
]
# Of every form the plain pass, which reads all of its tensors. Behind a prefix, of those for which
# masks, positions or experts are computed in another way there.
ELSEWHERE = ("gemma2, no soft-cap", "gemma3, images", "mistral, no window")
ELSEWHERE += ("qwen3_5, images", "qwen3_5, two periods", "qwen3_moe, three layers")
ALL = [(n, "plain pass") for n in (*torch_models.LLAMAS, *torch_models.FAMILIES)]
ALL = [case for case in ALL if case[0] not in ELSEWHERE]
ALL += [(n, "response pass") for n in ("gemma3", "gpt2", "smollm3", "qwen3_moe", "qwen3_5")]


@pytest.mark.parametrize(("name", "check"), slow.all_but(QUICK, ALL))
def test_hidden_states_and_rewards_are_those_of_torch(pair_of, name, check):
    pair = pair_of(name)
    CHECKS[check](pair.model, pair.restored)


# One position needs no mask of its own; some are longer than the window.
LENGTHS = [("gqa-llama3", 1), ("gqa-llama3", 2), ("gemma2", torch_models.WINDOW + 7)]


@pytest.mark.parametrize(("name", "length"), LENGTHS)
def test_candidates_of_one_length_behind_the_whole_prefix_score_as_in_torch(pair_of, name, length):
    pair = pair_of(name)
    parity.check_candidates(pair.model, pair.restored, parity.whole_candidates(length))


@pytest.mark.parametrize(("name", "shape"), [("olmo3", (1, 4)), ("qwen3_5", (2, 2))])
def test_norms_over_all_heads_and_the_delta_rule_are_torchs_on_devices_that_split_the_heads(
    pair_of, name, shape
):
    pair = pair_of(name)
    split = parity.restore(pair.checkpoint, mesh=parity.make_mesh(*shape))
    parity.check_response(pair.model, split)


def test_a_conversion_without_soft_cap_is_torchs_without_and_not_with(tmp_path):
    """As the paper's library version computed; both models are of the same weights."""
    folder = torch_models.save(torch_models.build("gemma2"), tmp_path / "hf")
    converted = folders.convert(folder, tmp_path / "checkpoint", softcap=False)
    restored = parity.restore(converted)
    parity.check_plain(torch_models.build("gemma2, no soft-cap"), restored)
    with pytest.raises(AssertionError, match="relative error"):
        parity.check_plain(torch_models.build("gemma2"), restored)


@pytest.mark.parametrize("name", ["gemma3", "qwen3_5"])
def test_of_a_model_with_images_the_text_is_read_and_one_line_says_so(pair_of, tmp_path, name):
    notes: list[str] = []
    folder = torch_models.save(torch_models.build(f"{name}, images"), tmp_path / "hf")
    card = folders.convert(folder, tmp_path / "checkpoint", note=notes.append).card
    assert card.decoder == pair_of(name).checkpoint.card.decoder
    [line] = notes
    assert re.search(r"images .*\d+ tensors", line)


def test_predictions_of_further_tokens_are_left_out_by_name(pair_of, tmp_path):
    pair, notes = pair_of("qwen3_5"), []
    folder = torch_models.save(pair.model, tmp_path / "hf")
    further = {"mtp.fc.weight": torch.ones(2, 2), "mtp.layers.0.mlp.up_proj.weight": torch.ones(2)}
    torch_models.edit_tensors(folder, lambda tensors: tensors.update(further))
    card = folders.convert(folder, tmp_path / "checkpoint", note=notes.append).card
    assert card.checkpoint_hash == pair.checkpoint.card.checkpoint_hash
    assert [line for line in notes if "2 tensors" in line]


FORMS = [("qwen2_5_vl", "saved"), ("qwen2_5_vl", "published")]


@pytest.mark.parametrize(("name", "form"), slow.all_but([("qwen3_vl", "saved")], FORMS))
def test_text_of_a_model_with_images_and_a_value_head_scores_as_in_torch(tmp_path, name, form):
    """As Skywork-VL-Reward; the published Qwen2.5-VL has no `text_config`."""
    model = torch_models.enlarged(torch_models.WITH_IMAGES[name](), AutoModelForImageTextToText)
    folder = torch_models.save(model, tmp_path / "hf")
    score = torch.nn.Linear(model.config.text_config.hidden_size, 1)
    head = {f"v_head.summary.{key}": value for key, value in score.state_dict().items()}
    save_file(head, folder / "value_head.safetensors")
    if form == "published":
        text = json.loads((folder / "config.json").read_text())["text_config"]
        rope = text.pop("rope_parameters")
        section = {"type": "mrope", "mrope_section": rope["mrope_section"]}
        text |= {"rope_theta": rope["rope_theta"], "rope_scaling": section}
        folders.edit_json(folder / "config.json", ["text_config"], **{**text, "model_type": name})
    model.score = score
    parity.check_plain(model, parity.restore(folders.convert(folder, tmp_path / "checkpoint")))


@pytest.mark.parametrize("name", slow.all_but(["qwen3_moe"], ["mixtral", "qwen3_moe"]))
def test_experts_in_one_tensor_make_the_checkpoint_that_one_tensor_each_makes(
    pair_of, tmp_path, name
):
    """As in the modules of transformers 5, which by default saves each by itself."""
    pair = pair_of(name)
    torch_models.save(pair.model, tmp_path / "hf", save_original_format=False)
    fused = folders.convert(tmp_path / "hf", tmp_path / "checkpoint")
    assert fused.card.files != pair.checkpoint.card.files
    assert fused.card.checkpoint_hash == pair.checkpoint.card.checkpoint_hash


def test_a_gpt2_without_prefix_and_with_its_masks_is_the_same_model(pair_of, tmp_path):
    """As the published gpt2: tensors of the decoder alone, and masks, some of them bools."""
    folder = torch_models.save(torch_models.build("gpt2"), tmp_path / "hf")
    path = folder / "model.safetensors"
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(path).items()}
    tensors["h.0.attn.bias"] = torch.tril(torch.ones(9, 9, dtype=torch.bool))
    tensors["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path)
    same = folders.convert(folder, tmp_path / "checkpoint").card
    assert same.checkpoint_hash == pair_of("gpt2").checkpoint.card.checkpoint_hash


@pytest.mark.parametrize("dtype", slow.all_but(["bfloat16"], ["float16"]))
def test_16_bit_decoders_give_float32_rewards_that_differ_by_rounding(pair_of, dtype):
    pair = pair_of("gqa-llama3-default")
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    expected = parity.respond(pair.restored.scorer, prompt, candidates)
    rounded = parity.restore(pair.checkpoint, dtype=dtype)
    actual = parity.respond(rounded.scorer, prompt, candidates)
    error = np.abs(actual - expected).max() / expected.std()
    assert 0 < error <= TOLERANCES[dtype]
    assert actual.dtype == np.float32
    assert len(np.unique(actual)) == actual.size


def test_frequencies_of_yarn_are_those_of_transformers():
    """With the numbers that Olmo 3 is published with; other lengths would show little of them."""
    yarn = torch_models.YARN | {"original_max_position_embeddings": 8192, "beta_fast": 32.0}
    ropes = {**torch_models.OLMO3["rope_parameters"], "full_attention": yarn}
    hf = Olmo3Config(**{**torch_models.OLMO3, "rope_parameters": ropes, "head_dim": 128})
    expected, factor = ROPE_INIT_FUNCTIONS["yarn"](hf, layer_type="full_attention")
    fields = {**hf.to_dict(), "architectures": ["Olmo3ForSequenceClassification"]}
    rope = decoder_config(fields).rope
    np.testing.assert_allclose(inverse_frequencies(rope, 128), expected.numpy(), rtol=1e-6)
    assert rope.attention_factor == pytest.approx(factor, rel=1e-12)
    divided = inverse_frequencies(Rope(theta=5e5), 128) / expected.numpy()
    assert len(np.unique(divided.round(3))) > 15  # kept, blended one by one, divided by 8


YARN = {**torch_models.YARN, "truncate": True, "mscale": 0.7, "mscale_all_dim": 0.7}
# Name -> a model, and what its config.json says instead.
SAID = {
    "a Phi whose scaling alone has its first positions": (
        "phi3",
        ["original_max_position_embeddings"],
        {"rope_parameters": {**torch_models.LONGROPE, "original_max_position_embeddings": 64}},
    ),
    "kinds of layers and no first one that slides": (
        "qwen2, window",
        ["max_window_layers"],
        {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "a Mistral with kinds of layers, which is read as a Ministral": (
        "mistral",
        [],
        {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "settings of YaRN without influence, and a factor of one": (
        "gqa",
        [],
        {"rope_parameters": YARN},
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_rewards_are_those_of_the_class_of_transformers_that_reads_the_same_file(tmp_path, what):
    name, removed, changes = SAID[what]
    folder = torch_models.save(torch_models.build(name), tmp_path / "hf")
    folders.edit_json(folder / "config.json", removed, **changes)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    parity.check_plain(model, parity.restore(folders.convert(folder, tmp_path / "checkpoint")))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scaled_embeddings_are_torchs_in_16_bits_and_not_with_an_unrounded_scale(pair_of, dtype):
    width, rng = 4608, np.random.default_rng(0)
    embedded = torch.tensor(rng.normal(size=(3, width))).to(getattr(torch, dtype))
    scale = torch.tensor(width**0.5, dtype=embedded.dtype)  # as Gemma2Model normalises
    expected = (embedded * scale).float().numpy()
    gemma = pair_of("gemma2").checkpoint.card.decoder
    config = dataclasses.replace(gemma, width=width, vocab_size=3)
    module = decoder.Decoder(config, jnp.dtype(dtype), platform="cpu")
    module.embedding[...] = jnp.asarray(embedded.float().numpy(), dtype)
    actual = np.asarray(module.embed(jnp.arange(3)[None]))[0]
    np.testing.assert_array_equal(actual, expected)
    unrounded = (embedded.float() * width**0.5).to(embedded.dtype).float().numpy()
    assert np.mean(unrounded != expected) > 0.1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", [LlamaRMSNorm, Gemma2RMSNorm, Olmo2RMSNorm])
def test_norms_round_where_those_of_torch_do(kind, dtype):
    """Llama's casts before it multiplies; Gemma's adds one in float32; OLMo's casts after."""
    gemma, rng = kind is Gemma2RMSNorm, np.random.default_rng(0)
    norm = kind(64, eps=1e-6).to(getattr(torch, dtype))
    # Gemma's weights are not representable once one is added in 16 bits.
    drawn = rng.normal(0, 0.01, 64) if gemma else rng.normal(1, 0.3, 64)
    norm.weight.data = torch.tensor(drawn).to(norm.weight.dtype)
    x = torch.tensor(rng.normal(size=(50, 64))).to(norm.weight.dtype)
    expected = norm(x).detach().float().numpy()
    given, weight = (
        jnp.asarray(values.detach().float().numpy(), dtype) for values in (x, norm.weight)
    )
    wide = kind is Olmo2RMSNorm
    actual = layers.rms_norm(given, weight, 1e-6, offset=gemma, wide=wide)
    other = weight + 1 if gemma else weight if wide else weight.astype(jnp.float32)
    wrong = layers.rms_norm(given, other, 1e-6)
    # The last bit differs where float32 sums in another order.
    assert np.mean(np.asarray(actual, np.float32) != expected) < 0.01
    assert np.mean(np.asarray(wrong.astype(dtype), np.float32) != expected) > 0.1


def test_the_reward_is_read_at_the_reward_token_that_the_template_puts_last(pair_of):
    pair = pair_of("internlm2")
    replies = ["love", "war", "a", "the best thing of all", "?", "0"]
    sequences = pair.checkpoint.template.sequences("What?", replies)
    assert {ids[-1] for ids in sequences} == {internlm2.REWARD_ID}
    expected = torch_models.rewards(pair.model, sequences)
    actual = pair.restored.scorer.plain_rewards(sequences)[0]
    parity.assert_close(actual, expected, scale=expected.std())
    assert pair.checkpoint.template.split("What?").suffix[-1] == internlm2.REWARD_ID


def test_a_template_that_does_not_end_with_the_reward_token_is_refused(tmp_path):
    folder = internlm2.save(tmp_path / "hf", template=tiny.CHATML)
    message = rf"reward_token_id={internlm2.REWARD_ID}"
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "out" / "checkpoint")
    assert not (tmp_path / "out").exists()
