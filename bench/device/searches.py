"""Sections on searches: a GCG step of 512 candidates of 20 tokens, and its gradient."""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.device.bench import Bench, Ceiling, Outcome, seconds_of
from engine.planning import flops, memory
from engine.planning import searches as planned
from engine.planning.work import SearchWork
from engine.scoring.reward_passes import RewardScorer
from engine.search import passes
from engine.search.loop import StepDriver, build_step_inputs
from engine.search.objective import SearchObjective
from engine.settings import SearchSettings
from engine.types import Params

_SIZES = {True: (4, 16), False: (20, 512)}  # tokens of the reply, candidates; by `toy`


class RandomObjective(SearchObjective):
    """A search without a tokenizer: any token may be used, and no text is checked."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Random tokens: int32 [T]."""
        tokens = self.config.vocab_size
        return rng.integers(0, tokens, self.settings.length).astype(np.int32)


def objective_of(bench: Bench, length: int, candidates: int) -> RandomObjective:
    """NanoGCG's settings: each candidate changes one token, drawn uniformly from the top 256."""
    own = {
        "method": "gcg",
        "length": length,
        "candidates": candidates,
        "steps": 10**6,
        "topk": 256,
        "merge": 0,
        "round_trip": False,
    }
    settings = SearchSettings.of(**own, direction="max", dtype="bfloat16")
    return RandomObjective(
        config=bench.model.decoder,
        checkpoint_hash="",
        template=None,  # nothing is read or written as text
        prompts=(bench.prompt,),
        allowed=np.ones(bench.model.decoder.vocab_size, bool),
        settings=settings,
        round_trip=None,
    )


def floors_of(bench: Bench, length: int, candidates: int, ceiling: Ceiling) -> dict[str, float]:
    """Least seconds of a step and of its gradient: the sum over the passes that each needs.

    A pass takes no less than its operations at the ceiling, or than reading the weights once.

    Args:
      bench: the model and the device.
      length: tokens of the reply.
      candidates: of a step.
      ceiling: of the device.
    """
    subject, platform = bench.model, bench.device.platform
    model = memory.Model(
        config=subject.decoder, heads=(subject.head,), dtype="bfloat16", platform=platform
    )
    sizes = {"length": length, "candidates": candidates, "attempts": 1}
    work = SearchWork(prefix=subject.prefix, suffix=subject.suffix, **sizes)
    passes = {
        each.name: ceiling.floor_s(each.operations, planned.pass_bytes(model, each))
        for each in planned.least_passes(model, work)
    }
    gradient = sum(seconds for name, seconds in passes.items() if name.startswith("gradient"))
    return {"step": sum(passes.values()), "gradient": gradient}


def search(bench: Bench) -> Outcome:
    """Milliseconds of a GCG step and of its gradient, against their floors."""
    length, candidates = _SIZES[bench.toy]
    objective, scorer = objective_of(bench, length, candidates), bench.scorer
    ceilings = bench.ceilings()
    began = time.perf_counter()
    driver = StepDriver(objective, scorer)
    rewards, _, _ = driver.advance(1, math.inf)
    compiled_s = time.perf_counter() - began
    if not np.isfinite(rewards).all():
        raise ValueError("the reward of a search is not finite")
    steps = 2 if bench.toy else 5
    at_least = 0.1 if bench.toy else 1.0
    times = seconds_of(lambda: driver.advance(steps, math.inf), at_least_s=at_least, most=8)
    step_s = float(np.median(times)) / steps
    gradient_s = _gradient_s(objective, scorer, at_least)
    own = length + bench.model.suffix
    work = {
        "step": driver.step_flops,
        "gradient": flops.gradient(objective.config, length, own, bench.model.prefix),
    }
    floors = floors_of(bench, length, candidates, ceilings)
    text = "\n".join(
        f"{name}: {1e3 * seconds:,.2f} ms, {work[name] / seconds / 1e12:,.3g} TFLOP/s; floor "
        f"{1e3 * floors[name]:,.2f} ms, {floors[name] / seconds:.1%} of the time"
        for name, seconds in (("step", step_s), ("gradient", gradient_s))
    )
    result = {
        "candidates": candidates,
        "length": length,
        "step_s": step_s,
        "step_flops": work["step"],
        "step_floor_s": floors["step"],
        "gradient_s": gradient_s,
        "gradient_flops": work["gradient"],
        "gradient_floor_s": floors["gradient"],
        "compiled_s": compiled_s,
    }
    header = f"{candidates} candidates of {length} tokens; compiled in {compiled_s:.1f} s\n"
    return Outcome(text=header + text, result=result)


def _gradient_s(objective: SearchObjective, scorer: RewardScorer, at_least_s: float) -> float:
    """Seconds of the gradient alone, which every step takes once."""

    @jax.jit
    def gradient(params: Params, inputs: passes.StepInputs, parents: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):
            model = nnx.merge(scorer.graph, params)
            return passes.slopes_of(model, inputs, parents, objective.settings, scorer.mesh)[1]

    inputs = build_step_inputs(objective, scorer)
    parents = jnp.asarray(objective.initial())

    def run() -> None:
        jax.block_until_ready(gradient(scorer.params, inputs, parents))

    run()  # compiles
    return float(np.median(seconds_of(run, at_least_s=at_least_s)))
