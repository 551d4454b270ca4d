"""The reward lens: final norm and head after every layer, against the same in torch."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from engine.checkpoint import restore as restoring
from engine.checkpoint.restore import sharing_groups
from engine.models.reward_model import RewardModels
from engine.scoring.reward_passes import RewardScorer
from tests.support import folders, heads, parity, slow, torch_models

FAMILIES = ("gqa-llama3", "gemma2", "gpt_neox")  # whose final norms differ
HEADS = ("ArmoRM", "URM", "a row of ten")  # with a gate, with weights by the response, with neither


def lens_of(restored: parity.Restored) -> RewardScorer:
    of = restored.scorer
    return RewardScorer.build(of.graph, of.params, of.mesh, step_size=of.step_size, lens=True)


@torch.no_grad()
def expected(trunk, head, sequences) -> np.ndarray:
    """The reward after each layer of whole sequences, one at a time: [layers, sequences]."""
    columns = []
    for sequence in sequences:
        ids = torch.tensor([list(map(int, sequence))])
        *states, last = trunk(ids, output_hidden_states=True).hidden_states[1:]
        norm = next(m for name, m in trunk.named_children() if "norm" in name or name == "ln_f")
        normed = [*map(norm, states), last]  # torch has normed the last one
        columns.append([float(head(state[0], last[0])) for state in normed])
    return np.array(columns).T


def check(
    scorer: RewardScorer, prompt, candidates, wanted: np.ndarray, *, plain_alone=False
) -> None:
    """The layers' rows of the plain pass, then of the response pass."""
    layers = len(wanted)
    assert scorer.columns[0][-layers:] == tuple(f"layer_{n:02}" for n in range(1, layers + 1))
    sequences = parity.sequences_of(prompt, candidates)
    passes = [lambda: scorer.plain_rewards(sequences)]
    passes += [] if plain_alone else [lambda: parity.respond(scorer, prompt, candidates)]
    for actual in (rewards() for rewards in passes):
        for row, reward in zip(actual[-layers:], wanted, strict=True):
            parity.assert_close(row, reward, scale=reward.std())
        np.testing.assert_array_equal(actual[-1], actual[0])


def of_family(pair: parity.Pair):
    """Prompt, ragged candidates and torch's rewards after each layer."""
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    sequences = parity.sequences_of(prompt, candidates)
    wanted = expected(
        pair.model.base_model, lambda own, last: pair.model.score(own[-1])[0], sequences
    )
    return prompt, candidates, wanted


@pytest.mark.parametrize("name", slow.all_but(FAMILIES[:1], FAMILIES))
def test_every_layer_reads_as_torchs_norm_and_head_after_it(pair_of, name):
    pair = pair_of(name)
    check(lens_of(pair.restored), *of_family(pair), plain_alone=name != FAMILIES[0])


def test_layers_of_two_kinds_in_a_loop_read_as_torchs(pair_of, monkeypatch):
    """As on a TPU: two periods, and a layer behind them."""
    pair, made = pair_of("qwen3_5, two periods"), restoring._abstract
    monkeypatch.setattr(restoring, "_abstract", lambda *args, platform: made(*args, platform="tpu"))
    looped = parity.restore(pair.checkpoint)
    assert len(nnx.merge(looped.graph, looped.scorer.params).decoder.stacks) == 2
    check(lens_of(looped), *of_family(pair))


@pytest.mark.parametrize("name", slow.all_but(HEADS[:1], HEADS))
def test_heads_read_the_response_layer_by_layer_and_their_gate_after_the_last(loaded, name):
    case, prompt, candidates = loaded(name), heads.prompt(), heads.candidates()

    def head(own, last):
        gate = heads.last_occurrence(sequence) if case.head.gated else 0
        return case.head(own[-1], last[gate]).reward

    columns = []
    for sequence in parity.sequences_of(prompt, candidates):
        columns.append(expected(case.trunk, head, [sequence]))
    check(lens_of(case.restored), prompt, candidates, np.concatenate(columns, axis=1))


def without_the_norm(self, residual, gates):
    pairs = zip(self.readouts, gates, strict=True)
    return jnp.stack([r.head(residual, gate).reward for r, gate in pairs])


@pytest.mark.slow
def test_layers_without_the_norm_fail_the_check(pair, monkeypatch):
    monkeypatch.setattr(RewardModels, "_rewards", without_the_norm)
    anew = parity.traced_anew(pair.restored.graph, pair.restored.scorer, lens=True)
    with pytest.raises(AssertionError, match="relative error"):
        check(anew, *of_family(pair))


@pytest.mark.slow
def test_layers_are_torchs_on_a_mesh_of_several_devices(pair):
    restored = parity.restore(pair.checkpoint, mesh=parity.make_mesh(2, 2))
    check(lens_of(restored), *of_family(pair))


@pytest.mark.slow
def test_models_of_several_depths_in_one_pass_reward_as_torch_does_after_each_layer(pair, tmp_path):
    """The shallow model is the first layer of the deep one, with a norm and a head of its own."""
    models = [pair.model, torch_models.truncated(pair.model, 1)]
    source = torch_models.save(models[1], tmp_path / "hf")
    group = [pair.checkpoint, folders.convert(source, tmp_path / "checkpoint")]
    assert sharing_groups(group) == [group]
    together = parity.restore(*group)
    lens = lens_of(together)
    assert [len(names) for names in lens.columns] == [1 + 2, 1 + 1]
    prompt, candidates = parity.prompt_ids(), parity.ragged_candidates()
    sequences = parity.sequences_of(prompt, candidates)
    after = [
        expected(model.model, lambda own, last, m=model: m.score(own[-1])[0], sequences)
        for model in models
    ]
    found = [*parity.respond(together.scorer, prompt, candidates)]
    found += [*together.scorer.plain_rewards(sequences), *lens.plain_rewards(sequences)]
    wanted = 2 * [layers[-1] for layers in after]
    wanted += [column for layers in after for column in (layers[-1], *layers)]
    for actual, right in zip(found, wanted, strict=True):
        parity.assert_close(actual, right, scale=right.std())
