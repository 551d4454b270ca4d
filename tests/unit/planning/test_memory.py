"""The account of bytes: weights are exact, the rest follows the shapes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest

from configs import known_models, known_shapes, sweep
from engine.checkpoint.restore import parameters, restore
from engine.planning import memory, plans, work
from engine.planning.memory import Model
from engine.planning.work import SearchWork
from engine.scoring import language_passes
from launch.common.subjects import subject_of
from tests.support.parity import make_mesh


def model_of(slug, platform="tpu", **mesh) -> Model:
    return subject(slug).on(platform, None, **mesh)


def subject(slug):
    spec = known_models.KNOWN[slug]
    return subject_of(slug, known_shapes.config_json(spec), spec)


@pytest.mark.parametrize(
    "slug", [s for s, spec in known_models.KNOWN.items() if spec.tensor_bytes is not None]
)
def test_the_shapes_that_are_listed_have_the_published_bytes(slug):
    spec, decoder = known_models.KNOWN[slug], subject(slug).config
    size = jnp.dtype(spec.dtype).itemsize
    bytes_ = sum(
        size * math.prod(p.shape) for p in parameters(decoder, subject(slug).heads[0]).values()
    )
    assert 0 <= spec.tensor_bytes - bytes_ <= size * decoder.width  # some have one row more


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_every_listed_model_has_shapes_and_a_plan(slug):
    size = known_models.KNOWN[slug].size_b
    weights = memory.weight_bytes(model_of(slug)) / 2e9
    assert 0.7 * size < weights < 1.35 * size  # `2B` of Gemma is 2.6 · 10⁹


@pytest.mark.parametrize(("data", "model"), [(1, 1), (2, 2), (1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_those_that_a_restored_model_has_on_a_device(checkpoint, data, model, dtype):
    tiny = checkpoint()
    mesh = make_mesh(data, model)
    _, params = restore([tiny], mesh, jnp.dtype(dtype))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(params))
    account = Model(
        config=tiny.card.decoder, heads=(tiny.card.head,), dtype=dtype, data=data, model=model
    )
    assert memory.weight_bytes(account) == held


def test_key_value_heads_that_are_repeated_count():
    gemma = model_of("gemma-2b", model=8)  # one head, which each of 8 devices holds
    alone = model_of("gemma-2b")
    keys = 2 * 18 * 64 * 256 * 2
    of = dict(prefix=64, own=3, candidates=16)
    assert memory.of_scoring(alone, **of).prefix == keys
    assert memory.of_scoring(gemma, **of).prefix == keys


def test_a_cpu_holds_all_layers_of_bfloat16_in_float32_and_one_of_float16():
    llama = model_of("skywork-reward-v2-llama-3.2-1b", "cpu")
    brain, half = (dataclasses.replace(llama, dtype=d) for d in ("bfloat16", "float16"))
    of = dict(prefix=64, own=2, candidates=1024)
    assert memory.of_scoring(brain, **of).weights < memory.of_scoring(llama, **of).weights
    assert memory.of_scoring(brain, **of).total > memory.of_scoring(llama, **of).total
    assert memory.of_scoring(half, **of).layer == memory.of_scoring(llama, **of).layer


def test_a_larger_step_and_a_longer_prompt_need_more():
    llama = model_of("skywork-reward-llama-3.1-8b")

    def total(**changes):
        of = {"prefix": 64, "own": 2, "candidates": 1024} | changes
        return memory.of_scoring(llama, **of).total

    assert total() < total(candidates=4096) < total(candidates=4096, prefix=20_000)


def test_the_prompts_own_pass_and_the_self_check_count_where_a_step_needs_less():
    llama = model_of("skywork-reward-llama-3.1-8b")

    def step(prefix, rows):
        of = {"prefix": prefix, "own": 2, "candidates": 16, "self_check": rows}
        return memory.of_scoring(llama, **of).step

    logits = 6 * 32 * 4000**2  # float32 logits, and exponentials in 16 bits, of 32 heads
    assert step(4000, 1) > logits - 2**27  # which the vector memory holds
    assert step(4000, 16) > 16 * logits - 2**27
    assert sweep.get_config().self_check == work.SELF_CHECK
    assert sweep.get_config().part_size == work.PART_SIZE


def test_a_language_model_is_charged_for_the_step_that_it_takes():
    gemma = model_of("gemma-2b")
    assert gemma.language
    taken = language_passes.largest_step(2048, gemma.config.vocab_size)
    assert taken < 2048
    of = {"prefix": 64, "own": 3}
    full = memory.of_scoring(gemma, candidates=2048, **of)
    assert full == memory.of_scoring(gemma, candidates=taken, **of)


def test_converting_holds_the_two_largest_blocks():
    gemma = subject("skywork-reward-gemma-2-27b")
    process = memory.process_bytes(gemma.config)
    embedding = 2 * 256_000 * 4608
    layer = 2 * (4 * 4608 + 4608 * 128 * 2 * (32 + 16) + 3 * 4608 * 36864)
    both = memory.host_bytes(gemma.config, gemma.heads[0], 2, blocks=2)
    one = memory.host_bytes(gemma.config, gemma.heads[0], 2, blocks=1)
    assert (one, both) == (process + embedding, process + embedding + layer)


def test_a_search_counts_what_it_holds_for_each_token_of_the_vocabulary():
    llama = model_of("skywork-reward-llama-3.1-8b", "gpu")
    one = SearchWork(prefix=64, suffix=1, length=8, candidates=64, attempts=1)
    five = dataclasses.replace(one, attempts=5)
    more = memory.of_search(llama, five).step - memory.of_search(llama, one).step
    assert more >= 4 * 2 * 4 * 8 * 128_256  # slopes and gain of four more attempts
    assert plans.STEPS["cpu"] > plans.LEAST_STEP


@pytest.mark.parametrize(("tokens", "held"), [(128_256, 16_032), (128_257, 128_257)])
def test_devices_along_model_divide_the_slopes_of_a_vocabulary_that_they_divide(tokens, held):
    search = SearchWork(prefix=64, suffix=1, length=8, candidates=64, attempts=4)
    llama = model_of("skywork-reward-llama-3.1-8b", "tpu")
    llama = dataclasses.replace(
        llama, model=8, config=dataclasses.replace(llama.config, vocab_size=tokens)
    )
    twice = dataclasses.replace(search, attempts=8)
    more = memory.of_search(llama, twice).step - memory.of_search(llama, search).step
    assert more == 4 * 4 * 4 * 8 * held  # four tables of float32, of four replies of 8 tokens
    momentum = dataclasses.replace(search, momentum=True)
    more = memory.of_search(llama, momentum).step - memory.of_search(llama, search).step
    assert more == 2 * 4 * 4 * 8 * tokens  # whole on every device
    paper, twice = (dataclasses.replace(each, packed=False) for each in (search, twice))
    more = memory.of_search(llama, twice).step - memory.of_search(llama, paper).step
    assert more == 4 * 4 * 4 * 8 * tokens  # its best pairs are sought on every device


def test_a_cpu_holds_the_embedding_of_a_search_twice_more_in_bfloat16():
    search = SearchWork(prefix=64, suffix=1, length=8, candidates=64, attempts=1)
    tokens, width = 32_000, 256
    steps = []
    for size in (tokens, 2 * tokens):
        model = subject("skywork-reward-v2-llama-3.2-1b").on("cpu", "bfloat16")
        config = dataclasses.replace(model.config, vocab_size=size, width=width)
        steps.append(memory.of_search(dataclasses.replace(model, config=config), search).step)
    tables = 4 * 4 * 2 * 8 * tokens
    assert steps[1] - steps[0] == (2 + 4) * tokens * width + tables  # transposed, and in float32
