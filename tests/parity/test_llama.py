"""Assay's rewards are those of the torch reference, on random models with real key names."""

import numpy as np
import pytest

from engine.checkpoint.restore import sharing_groups
from tests.support import folders, parity, slow, torch_models
from tests.support.tolerances import TOLERANCES

NAMES = [*torch_models.LLAMAS, *(name + torch_models.DEFAULT for name in torch_models.LLAMAS)]


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_after_each_layer_are_those_of_torch(pair_of, name):
    pair = pair_of(name)
    parity.check_layers(pair.model, pair.restored)


@pytest.mark.parametrize("name", NAMES)
def test_rewards_of_whole_sequences_are_those_of_torch(pair_of, name):
    pair = pair_of(name)
    parity.check_plain(pair.model, pair.restored)


@pytest.mark.parametrize("name", NAMES)
def test_rewards_behind_a_shared_prefix_are_those_of_torch(pair_of, name):
    pair = pair_of(name)
    parity.check_response(pair.model, pair.restored)


@pytest.mark.parametrize("length", slow.all_but([2], range(1, 6)))
def test_candidates_of_every_short_length_score_as_in_torch(pair, length):
    parity.check_candidates(pair.model, pair.restored, parity.whole_candidates(length))


@pytest.mark.parametrize("head", slow.all_but(["v_head.summary"], ["score"]))
def test_mlp_heads_reward_as_in_torch(pair_of, head):
    pair = pair_of("mha", head)
    mlp = torch_models.mlp_head(pair.model.config.hidden_size)
    parity.check_plain(pair.model, pair.restored, mlp)
    parity.check_response(pair.model, pair.restored, mlp)


@pytest.mark.parametrize("name", NAMES)
def test_rewards_of_the_reference_vary_with_every_token_where_weights_are_enlarged(name):
    model = torch_models.build(name)
    ids = parity.random_ids(16, 160)
    rewards = torch_models.rewards(model, ids)
    other = ids.copy()
    other[:, 80] = (other[:, 80] + 1) % torch_models.VOCAB_SIZE
    change = np.abs(torch_models.rewards(model, other) - rewards).mean() / rewards.std()
    assert rewards.std() > (0.1 if name.endswith(torch_models.DEFAULT) else 0.5)
    assert change > (0.001 if name.endswith(torch_models.DEFAULT) else 0.05)


@pytest.fixture(scope="module")
def family(pair, tmp_path_factory):
    """Three models on one decoder, deepest first: torch model, its head, its checkpoint."""
    folder = tmp_path_factory.mktemp("family")
    members = [(pair.model, None, pair.checkpoint)]
    for layers, head in ((2, "score"), (1, "linear")):
        model = torch_models.truncated(pair.model, layers)
        torch_models.save(model, folder / f"hf-{layers}", head)
        checkpoint = folders.convert(folder / f"hf-{layers}", folder / str(layers))
        mlp = None if head == "linear" else torch_models.mlp_head(model.config.hidden_size)
        members.append((model, mlp, checkpoint))
    return members


def test_several_heads_at_several_depths_reward_as_torch_does_in_one_pass(family):
    group = [checkpoint for _, _, checkpoint in family]
    assert sharing_groups(group) == [group]
    together = parity.restore(*group)
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    sequences = parity.sequences_of(prompt, candidates)
    rewards = parity.respond(together.scorer, prompt, candidates)
    plain = together.scorer.plain_rewards(sequences)
    for row, (model, head, _) in enumerate(family):
        expected = torch_models.rewards(model, sequences, head)
        parity.assert_close(rewards[row], expected, scale=expected.std())
        parity.assert_close(plain[row], expected, scale=expected.std())


@pytest.mark.slow
def test_a_model_scored_with_others_gets_the_rewards_it_gets_alone(family):
    group = [checkpoint for _, _, checkpoint in family]
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    together = parity.respond(parity.restore(*group).scorer, prompt, candidates)
    for row, checkpoint in enumerate(group):
        (alone,) = parity.respond(parity.restore(checkpoint).scorer, prompt, candidates)
        parity.assert_close(together[row], alone, scale=alone.std(), tolerance=1e-5)


@pytest.mark.parametrize("dtype", slow.all_but(["bfloat16"], ["float16"]))
def test_16_bit_decoders_differ_from_float32_by_their_rounding(pair_of, dtype):
    pair = pair_of("gqa-llama3-default")
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    expected = parity.respond(pair.restored.scorer, prompt, candidates)
    rounded = parity.restore(pair.checkpoint, dtype=dtype)
    actual = parity.respond(rounded.scorer, prompt, candidates)
    error = np.abs(actual - expected).max() / expected.std()
    assert 0 < error <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", slow.all_but(["bfloat16"], ["float16"]))
def test_16_bit_decoders_give_float32_rewards_without_ties(pair, dtype):
    rounded = parity.restore(pair.checkpoint, dtype=dtype)
    candidates = parity.ragged_candidates()
    rewards = parity.respond(rounded.scorer, parity.prompt_ids(), candidates)
    assert rewards.dtype == np.float32
    assert len(np.unique(rewards)) == rewards.size
