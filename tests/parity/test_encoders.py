"""Encoders: rewards are torch's in every form, and the traps of each family would show.

torch computes in float64. An error is relative to the standard deviation of the rewards that are
compared.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from engine import api
from engine.models import encoder
from engine.models import layer as layers
from engine.scoring import batches
from tests.parity.test_planted_bugs import changed, coded
from tests.support import encoders, folders, parity, slow

# Of words that prompts lack: behind 200 words, more of the same would hardly change a reward, and
# float32's rounding would be a large part of the spread.
REPLIES = ["good", "it is war", "very good", "", "?"]
PROMPTS = (5, 60, 200)  # tokens
# Of each of the three kinds of positions, and what no other has.
QUICK = ["deberta-v3", "electra", "roberta", "modernbert, mean"]


@pytest.fixture(scope="module", autouse=True)
def one_length():
    """Conversations about one prompt are padded to one length, so that less is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_WHOLE_MULTIPLE", 24)
        yield


@pytest.fixture(scope="module")
def encoder_of(tmp_path_factory):
    """Name -> a family's model, its checkpoint, and what the engine made of it."""
    return functools.cache(lambda name: converted(name, tmp_path_factory.mktemp("encoder")))


def converted(name: str, folder, layers: int = 2, **options) -> parity.Pair:
    kind = "n_layers" if name == "distilbert" else "num_hidden_layers"
    model = encoders.build(name, **{kind: layers})
    encoders.save(model, name, folder / "hf")
    checkpoint = folders.convert(folder / "hf", folder / "checkpoint", **options)
    return parity.Pair(model.double(), checkpoint, parity.restore(checkpoint, step_size=64))


def check_list(pair: parity.Pair, tokens: int = 60) -> None:
    """Rewards of replies of several lengths."""
    prompt = encoders.prompt(pair.checkpoint, tokens)
    expected = encoders.outputs(pair.model, pair.checkpoint.tokenizer, prompt, REPLIES)[:, 0]
    rewards = api.RewardModel(pair.checkpoint, pair.restored.scorer).score(prompt, REPLIES)
    parity.assert_close(rewards, expected, expected.std())


def check_sweep(pair: parity.Pair, tokens: int = 60) -> None:
    """Rewards of every token, special ones among them, as the reply."""
    prompt = encoders.prompt(pair.checkpoint, tokens)
    swept = api.RewardModel(pair.checkpoint, pair.restored.scorer).sweep(prompt).sort("token_id")
    around = pair.checkpoint.template.split(prompt)
    ids = [[*around.prefix, token, *around.suffix] for token in swept["token_id"]]
    first = len(around.prefix)
    kinds = [[int(at >= first) for at in range(len(row))] for row in ids]
    expected = encoders.of_ids(pair.model, ids, kinds)[:, 0]
    parity.assert_close(swept["reward"].to_numpy(), expected, expected.std())


FORMS = {"list": check_list, "sweep": check_sweep}
ALL = [(name, form, n) for name in encoders.FAMILIES for form in FORMS for n in PROMPTS]


@pytest.mark.parametrize(
    ("name", "form", "tokens"),
    slow.all_but([(name, form, 60) for name in QUICK for form in FORMS], ALL),
)
def test_rewards_of_an_encoder_are_those_of_torch(encoder_of, name, form, tokens):
    FORMS[form](encoder_of(name), tokens)


@pytest.mark.parametrize("name", slow.all_but(QUICK, encoders.FAMILIES))
def test_rewards_of_the_plain_pass_are_those_of_torch(encoder_of, name):
    """Of prompts of all lengths at once; errors are relative to the replies to each."""
    pair = encoder_of(name)
    template, backend = pair.checkpoint.template, pair.checkpoint.tokenizer
    prompts = [encoders.prompt(pair.checkpoint, tokens) for tokens in PROMPTS]
    sequences = [ids for prompt in prompts for ids in template.sequences(prompt, REPLIES)]
    plain = pair.restored.scorer.plain_rewards(sequences)[0]
    for prompt, rewards in zip(prompts, np.split(plain, len(prompts)), strict=True):
        expected = encoders.outputs(pair.model, backend, prompt, REPLIES)[:, 0]
        parity.assert_close(rewards, expected, expected.std())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deberta-v3", "modernbert"])
def test_in_float16_the_layers_are_a_loop_and_rewards_are_close(tmp_path, name):
    pair = converted(name, tmp_path, layers=3)
    looped = api.load(pair.checkpoint, mesh=parity.make_mesh(), dtype="float16")
    prompt = encoders.prompt(pair.checkpoint, 20)
    expected = encoders.outputs(pair.model, pair.checkpoint.tokenizer, prompt, REPLIES)[:, 0]
    parity.assert_close(looped.score(prompt, REPLIES), expected, expected.std(), tolerance=0.05)


def test_one_of_several_rows_is_the_reward_and_all_are_objectives(tmp_path):
    model = encoders.build("bert", num_labels=3)
    encoders.save(model, "bert", tmp_path / "hf")
    checkpoint = folders.convert(tmp_path / "hf", tmp_path / "checkpoint", reward="2 - 0")
    expected = encoders.outputs(model.double(), checkpoint.tokenizer, "what", REPLIES)
    found = api.load(checkpoint, mesh=parity.make_mesh()).objectives("what", REPLIES)
    rewards = expected[:, 2] - expected[:, 0]
    parity.assert_close(found["reward"].to_numpy(), rewards, rewards.std())
    parity.assert_close(found.to_numpy()[:, 2:].astype(float), expected, expected.std())


def test_a_template_makes_one_text_of_prompt_and_reply(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0]['content'] }} is {{ messages[1]['content'] }}")
    pair = converted("bert", tmp_path, template=str(template))
    backend = pair.checkpoint.tokenizer.backend_tokenizer
    ids = [backend.encode(f"a film is {reply}").ids for reply in REPLIES]
    expected = encoders.of_ids(pair.model, ids, [[0] * len(row) for row in ids])[:, 0]
    rewards = api.RewardModel(pair.checkpoint, pair.restored.scorer).score("a film", REPLIES)
    parity.assert_close(rewards, expected, expected.std())


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (8, 256), (32, 128)])
def test_rows_of_relative_positions_are_those_of_torch(encoder_of, buckets, most):
    config = encoder_of("deberta-v3").checkpoint.card.decoder
    config = dataclasses.replace(config, relative_span=buckets, relative_most=most)
    sized = torch.zeros(1, 512, 1)  # of queries and of keys
    buckets_of = build_relative_position(sized, sized, buckets, most)[0].numpy()
    apart = np.subtract.outer(np.arange(512), np.arange(512))
    rows = encoder.relative_rows(config, 512)[apart + 511]
    np.testing.assert_array_equal(rows, np.clip(buckets_of + buckets, 0, 2 * buckets - 1))


def configured(**changes):
    """The same weights under other static numbers."""

    def plant(patch, pair: parity.Pair) -> parity.Restored:
        card = pair.checkpoint.card
        other = dataclasses.replace(card, decoder=dataclasses.replace(card.decoder, **changes))
        return parity.restore(dataclasses.replace(pair.checkpoint, card=other), step_size=64)

    return plant


def opposite(right, *about):
    return right(*about)[::-1]


def no_buckets(right, config, positions):
    return right(dataclasses.replace(config, relative_most=0), positions)


def no_norm_of_positions(right, self, owner, x, name):
    return x if name == "relative_norm" else right(self, owner, x, name)


def second_position_read(right, self, owner, x, name):
    return jnp.roll(right(self, owner, x, name), int(name == "embedding_norm"), axis=1)


def first_norm(right, self, index, x, **about):
    weight = self.stacks[0].attention_norm[...][0]
    normed = layers.layer_norm(x, weight, jnp.zeros_like(weight), self.config.rms_eps)
    return right(self, index, normed if index == 0 else x, **about)


def no_mask(right, self, index, seen):
    return right(self, index, seen | True)


BUGS = [
    ("deberta-v3", "distances the other way", changed(encoder, "relative_rows", opposite)),
    ("deberta-v3", "no buckets", changed(encoder, "relative_rows", no_buckets)),
    ("deberta-v3", "no positions of queries", configured(relative=("c2p",))),
    ("deberta-v3", "no positions of keys", configured(relative=("p2c",))),
    (
        "deberta-v3",
        "no norm of relative positions",
        changed(encoder.Encoder, "_norm", no_norm_of_positions),
    ),
    ("bert", "no token types", configured(separator=None)),
    ("bert", "another epsilon", configured(rms_eps=1e-12)),
    ("bert", "another pooler", configured(pooler="relu")),
    ("bert", "mean in place of the first", configured(pooling="mean")),
    ("bert", "approximate GELU", configured(activation="gelu_tanh")),
    ("bert", "padding is seen", changed(encoder.Encoder, "_mask", no_mask)),
    ("bert", "another position is read", changed(encoder.Encoder, "_norm", second_position_read)),
    ("roberta", "positions from 0", configured(pad=None)),
    ("modernbert, mean", "first in place of the mean", configured(pooling="first")),
    (
        "modernbert, mean",
        "a norm in the first layer",
        changed(encoder.Encoder, "_layer", first_norm),
    ),
    ("modernbert, mean", "no window", configured(window_layers=())),
    ("modernbert, mean", "a window of one more", configured(window=7)),
    ("modernbert, mean", "one rope", configured(window_rope=None)),
]
QUICK_BUGS = [BUGS[1], BUGS[5], BUGS[6], BUGS[8]]


@pytest.mark.parametrize(("name", "what", "plant"), slow.all_but(QUICK_BUGS, BUGS))
def test_a_planted_bug_fails_the_parity_of_encoders(encoder_of, monkeypatch, name, what, plant):
    pair = encoder_of(name)
    planted = dataclasses.replace(pair, restored=plant(monkeypatch, pair))
    with pytest.raises(AssertionError, match="relative error"):
        check_list(planted)


def test_the_two_passes_differ_where_one_has_a_bug(encoder_of, monkeypatch):
    """The self-check compares them: it would be none if they shared what is computed."""
    pair = encoder_of("deberta-v3")
    monkeypatch.setattr(encoder, "_diagonals", lambda x, positions: x[..., positions - 1 :])
    planted = coded(lambda patch: None)(monkeypatch, pair).scorer
    prompt = encoders.prompt(pair.checkpoint, 5)
    rewards = api.RewardModel(pair.checkpoint, planted).score(prompt, REPLIES)
    plain = planted.plain_rewards(pair.checkpoint.template.sequences(prompt, REPLIES))[0]
    with pytest.raises(AssertionError, match="relative error"):
        parity.assert_close(rewards, plain, plain.std())
