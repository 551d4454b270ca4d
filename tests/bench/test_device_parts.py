"""Parts of `bench.device`: published shapes, self times of kernels, the plan, disagreement."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.device import (
    agreement,
    models,
    peers,
    plan,
    replies,
    runner,
    searches,
    summary,
    sweeps,
    trace,
    worker,
)
from bench.device.bench import Bench, Ceiling, Skipped, check_rewards
from bench.device.worker import SECTIONS
from engine.models.config import inverse_frequencies
from engine.planning import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer

ROOT = Path(__file__).resolve().parents[2]

# Parameters as published, without the output head of a language model; the reward head beside it.
PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248 - 128_256 * 4096,
    "gemma-2-27b": 27_227_128_320,
    "llama-3.2-1b": 1_235_814_400,
    "gemma-2-2b": 2_614_341_888,
    "qwen3-8b": 8_190_735_360 - 151_936 * 4096,
}


def bench_of(model, **changes) -> Bench:
    fields = {"toy": True, "until": time.time() + 60, "step_sizes": [16]}
    return Bench(model=model, **{**fields, **changes})


def test_the_plan_names_the_models_that_there_are():
    assert list(plan.MODELS) == list(models.MODELS) == list(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_model_has_as_many_parameters_as_the_published_one(name):
    model = models.named(name, toy=False)
    sizes = (leaf.size for leaf in jax.tree.leaves(models.shapes(model, jnp.dtype("bfloat16"))[1]))
    assert sum(sizes) == PARAMETERS[name] + model.decoder.width


def test_a_search_reads_the_weights_three_times_and_its_gradient_twice():
    bench = bench_of(models.named("llama-3.1-8b", toy=False))
    by_bytes = Ceiling(flops_per_s={1024: 1e30}, bytes_per_s=1e12)
    found = searches.floors_of(bench, 20, 512, by_bytes)
    embedding = 2 * 128_256 * 4096
    assert found["gradient"] == pytest.approx((2 * bench.layer_bytes + embedding) / 1e12)
    assert found["step"] == pytest.approx((3 * bench.layer_bytes + embedding) / 1e12)


def test_the_floor_of_a_search_is_its_operations_where_those_take_longer():
    bench = bench_of(models.named("llama-3.1-8b", toy=False))
    by_operations = Ceiling(flops_per_s={1024: 1e12}, bytes_per_s=1e30)
    found = searches.floors_of(bench, 20, 512, by_operations)
    before, own = bench.model.prefix, 20 + bench.model.suffix
    counted = flops.gradient(bench.model.decoder, 20, own, before)
    assert found["gradient"] == pytest.approx(counted / 1e12)
    assert found["step"] > 100 * found["gradient"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_transformers_makes_the_same_model_of_a_config(name):
    import torch

    from bench.peers.transformers_rewards import RandomNetwork

    model = models.named(name, toy=False)
    network = RandomNetwork(model.hf, torch.bfloat16, torch.device("meta"))
    counted = sum(weight.numel() for weight in network.whole.parameters())
    assert counted == PARAMETERS[name] + model.decoder.width
    toy = models.named(name, toy=True)
    rotary = RandomNetwork(toy.hf, torch.float32, torch.device("cpu")).base.rotary_emb
    expected = inverse_frequencies(toy.decoder.rope, toy.decoder.head_size)
    np.testing.assert_allclose(rotary.inv_freq.numpy(), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma-2-27b", "llama-3.1-8b"])
def test_random_weights_give_rewards_that_are_finite_and_vary(name):
    model = models.named(name, toy=True)
    mesh = models.one_device()
    graph, params = models.random_model(model, mesh, jnp.dtype("bfloat16"))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params["decoder"])} == {"bfloat16"}
    scorer = RewardScorer.build(graph, params, mesh, step_size=64)
    candidates = token_candidates(model.prompt(), np.arange(64))
    [rewards] = scorer.rewards(scorer.prefill(model.prompt()), candidates)
    assert np.isfinite(rewards).all() and 0.01 < rewards.std() < 100


@pytest.mark.parametrize("name", PARAMETERS)
def test_passes_of_the_published_shapes_are_traced(name):
    """Nothing is allocated: the programs that an accelerator would compile."""
    model, mesh = models.named(name, toy=False), models.one_device()
    graph, params = models.shapes(model, jnp.dtype("bfloat16"))
    scorer: Any = RewardScorer.build(graph, params, mesh, step_size=1024)
    positions = -(-model.prefix // 16) * 16
    ids, gate_at = (jax.ShapeDtypeStruct((n,), jnp.int32) for n in (positions, 1))
    prefix = jax.eval_shape(scorer.prefill_step, scorer.params, ids, gate_at)
    candidates = token_candidates(model.prompt(), np.arange(1024))
    rewards = jax.eval_shape(scorer.score_step, scorer.params, prefix, candidates)
    assert rewards.shape == (1, 1024) and candidates.ids.shape[1] == 1 + model.suffix
    config = model.decoder
    expected = (config.num_layers, positions, config.num_kv_heads, config.head_size)
    assert prefix.key_values.keys.shape == expected


def test_weights_are_drawn_anew_for_every_layer():
    params = models.random_model(
        models.named("llama-3.1-8b", toy=True), models.one_device(), jnp.dtype("float32")
    )[1]
    query = np.asarray(params["decoder"]["layers"]["q"][...])
    assert query.std() == pytest.approx(64**-0.5, rel=0.05)
    assert not np.allclose(query[0], query[1])
    gate, up = (np.asarray(params["decoder"]["layers"][name][...]) for name in ("gate", "up"))
    assert not np.allclose(gate, up)


def test_a_model_larger_than_the_memory_is_said_not_to_fit():
    bench = bench_of(models.named("gemma-2-27b", toy=False), toy=False)
    bench.device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 16 * 2**30})
    with pytest.raises(Skipped, match=r"does not fit: 50\.7 GiB of weights, 16\.0 GiB of memory"):
        _ = bench.scorer


def test_a_kernels_own_time_leaves_out_what_runs_inside_it():
    spans = [
        trace.Span("while", 0, 100),
        trace.Span("dot", 10, 40),
        trace.Span("add", 20, 25),
        trace.Span("dot", 50, 90),
        trace.Span("copy", 100, 130),
    ]
    own: dict[str, float] = {}
    for name, ns in trace.self_times(spans):
        own[name] = own.get(name, 0) + ns
    assert own == {"while": 30, "dot": 65, "add": 5, "copy": 30}


def test_a_gpus_streams_count_and_the_lines_that_repeat_them_do_not():
    def line(name, *events):
        named = [SimpleNamespace(name=e, start_ns=0, duration_ns=5, stats=()) for e in events]
        return SimpleNamespace(name=name, events=named)

    planes = [
        SimpleNamespace(
            name="/device:GPU:0",
            lines=[line("Stream #13(Compute)", "gemm"), line("XLA Modules", "jit_respond")],
        ),
        SimpleNamespace(
            name="/device:TPU:0", lines=[line("XLA Ops", "fusion"), line("Steps", "1")]
        ),
        SimpleNamespace(name="/host:CPU", lines=[line("python", "a call")]),
    ]
    lines = trace.device_lines(SimpleNamespace(planes=planes))
    assert [[span.name for span in spans] for spans in lines] == [["gemm"], ["fusion"]]


def test_the_first_model_is_measured_first_and_in_full():
    jobs = plan.jobs(list(plan.MODELS), list(SECTIONS), 540)
    first = [section for job in jobs if job.model == plan.MODELS[0] for section in job.sections]
    assert sorted(first) == sorted(SECTIONS)
    assert jobs[0].sections[:4] == ("memory", "ceiling", "sweep", "vocabulary")
    assert {job.model for job in jobs} == set(plan.MODELS)
    assert all(0 < job.limit_s <= 270 for job in jobs)


def test_sections_that_are_not_asked_for_have_no_job():
    [job] = plan.jobs(["gemma-2-2b"], ["agreement"], 60)
    assert (job.model, job.sections) == ("gemma-2-2b", ("agreement",))


def test_the_default_time_ends_before_nine_minutes():
    assert 60 * plan.MINUTES + runner.GRACE_S < 540


def results_of(kind: str = "NVIDIA H200", toy: bool = False, **changes) -> runner.Results:
    """Results just at the aims, but for `changes`: section -> fields."""
    rates = {"by_step_size": {"4096": {"candidates_per_s": 1000.0, "share_of_ceiling": 0.5}}}
    found = {
        "sweep": {"fastest": 4096, **rates},
        "vocabulary": {"whole": True, "seconds": 5.3, "floor_s": 4.5, "tokens": 128_256},
        "search": {"candidates": 512, "length": 20, "step_s": 0.12},
        "transformers": {"cached_candidates_per_s": 100.0},
    }
    results = runner.Results(None, {"toy": toy, "device": {"kind": kind}})
    for section, result in found.items():
        entry = {"section": section, "model": "llama-3.1-8b", "status": "done"}
        results.sections.append({**entry, "result": {**result, **changes.get(section, {})}})
    return results


def aims_of(results: runner.Results) -> list[str]:
    return [line for line in summary.summary(results).splitlines() if line.startswith("aim of ")]


def test_the_summary_says_which_aims_were_reached():
    assert aims_of(results_of()) == [
        "aim of llama-3.1-8b, whole vocabulary: 5.3 s, measured 5.3 s, reached",
        "aim of llama-3.1-8b, step of 512 × 20: 0.12 s, measured 0.12 s, reached",
        "aim of llama-3.1-8b, transformers with its cache: 10x, measured 10.0x, reached",
    ]
    slower = {"vocabulary": {"seconds": 5.4}, "search": {"step_s": 0.13}}
    missed = aims_of(results_of(**slower, transformers={"cached_candidates_per_s": 101.0}))
    assert [line.rpartition(", ")[2] for line in missed] == ["missed"] * 3


@pytest.mark.parametrize(
    ("changes", "aims"),
    [
        ({"kind": "NVIDIA H100 80GB HBM3"}, 0),
        ({"toy": True}, 0),
        ({"vocabulary": {"whole": False}}, 2),
        ({"search": {"length": 4}}, 2),
    ],
)
def test_aims_are_compared_with_their_own_device_and_shapes_alone(changes, aims):
    assert len(aims_of(results_of(**changes))) == aims


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma-2-27b", "qwen3-8b"])
def test_other_families_run_in_the_sections_that_an_accelerator_runs(name):
    """Soft-caps and windows of Gemma, norms of queries and keys of Qwen."""
    sections = ("memory", "sweep", "vocabulary", "prefill", "transformers")
    bench = bench_of(models.named(name, toy=True))
    found = {section: worker._outcome(section, bench) for section in sections}
    assert {section: each["status"] for section, each in found.items()} == dict.fromkeys(
        sections, "done"
    ), found


def test_replies_have_the_lengths_of_their_list():
    model = models.named("llama-3.1-8b", toy=True)
    prompt, lengths = model.prompt(), {1: 3, 4: 1}
    rows = replies.reply_sequences(prompt, lengths, 400, 512)
    own = np.array([len(row) for row in rows]) - len(prompt.prefix) - len(prompt.suffix)
    assert set(own.tolist()) == {1, 4} and 0.65 < (own == 1).mean() < 0.85
    assert all(tuple(row[: model.prefix]) == prompt.prefix for row in rows)
    assert sum(replies.LISTS["list"].values()) == 7530


@pytest.mark.slow
def test_a_model_whose_weights_differ_on_the_device_disagrees(monkeypatch):
    model = models.named("llama-3.1-8b", toy=True)
    model = dataclasses.replace(model, hf={**model.hf, **agreement._SIZES})
    first, second = jax.devices("cpu")[:2]
    right, calls = models.random_model, []
    assert agreement.difference(model, "float32", first, second) == 0

    def planted(*args, **options):
        graph, params = right(*args, **options)
        calls.append(args)
        if len(calls) == 1:
            params["decoder"]["layers"]["down"].set_value(
                1.01 * params["decoder"]["layers"]["down"][...]
            )
        return graph, params

    monkeypatch.setattr(models, "random_model", planted)
    error = agreement.difference(model, "float32", first, second)
    with pytest.raises(agreement.Disagreement, match="llama in float32: rewards differ"):
        agreement.check({"llama": {"float32": error}})


@pytest.mark.parametrize("error", [np.nan, np.inf, 1e-3])
def test_an_error_that_is_not_small_disagrees(error):
    with pytest.raises(agreement.Disagreement, match=r"allowed: 1\.0e-04"):
        agreement.check({"llama": {"float32": error}})


@pytest.mark.parametrize("rewards", [[1.0, np.nan], [1.0, 1.0]])
def test_rewards_that_are_not_finite_or_all_equal_are_no_measurement(rewards):
    with pytest.raises(ValueError, match=r"not finite|equal"):
        check_rewards(np.array(rewards))


def test_without_torch_only_its_section_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Skipped, match="torch is not installed"):
        peers.transformers_peer(bench_of(models.named("llama-3.1-8b", toy=True)))


def test_without_vllm_its_section_is_left_out():
    with pytest.raises(Skipped, match="vllm is not installed"):
        peers.vllm_peer(bench_of(models.named("llama-3.1-8b", toy=True)))


@pytest.mark.slow
def test_no_other_section_imports_torch():
    names = sorted({module for module, _ in SECTIONS.values()} | {"first_score", "summary"})
    code = "import sys; sys.modules['torch'] = None\n" + "".join(
        f"import bench.device.{name}\n" for name in names
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_cannot_be_done_in_time_is_said_over_how_many_steps(monkeypatch):
    bench = bench_of(models.named("llama-3.1-8b", toy=True))
    bench.fastest = 16, 100.0  # 512 tokens would take 5 s
    bench.ceilings()
    bench.until = time.time() + 2
    found = sweeps.vocabulary(bench)
    assert not found.result["whole"]
    assert found.result["tokens"] % 16 == 0 and 0 < found.result["tokens"] <= 160
    assert f"over {found.result['tokens'] // 16} steps" in found.text
