"""Sections on sweeps: memory of a step, rate by step size, the whole vocabulary, other lists."""

import time
from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np

from bench.device.bench import GIB, Bench, Outcome, Skipped, check_rewards, seconds_of
from bench.device.replies import LISTS, reply_sequences
from bench.support.table import aligned, spread
from engine import mesh as meshes
from engine.planning import flops
from engine.scoring.batches import Distinct, token_candidates
from engine.scoring.reward_passes import RewardScorer, score_buckets
from engine.scoring.rows import TokenRows
from engine.types import Candidates

_SPARE = 0.8  # share of the time left that one measurement may take


def memory(bench: Bench) -> Outcome:
    """Peak memory of the weights, one prefill and one step, against their sizes. Runs first."""
    size = bench.step_sizes[0]
    began = time.perf_counter()
    scorer = bench.scorer_of(size)
    made_s, began = time.perf_counter() - began, time.perf_counter()
    candidates = token_candidates(bench.prompt, np.arange(size) % bench.model.decoder.vocab_size)
    program = _compiled_step(bench, scorer, candidates)
    check_rewards(np.concatenate(list(scorer.rewards(bench.prefix, candidates)), axis=1))
    compiled_s = time.perf_counter() - began
    analysis = program.memory_analysis()
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(bench.prefix))
    working = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    needed = bench.weight_bytes + held + working
    peak = (bench.device.memory_stats() or {}).get("peak_bytes_in_use")
    measured = (
        f"peak {peak / GIB:,.2f} GiB, {peak / needed:.2f} of that"
        if peak
        else "this device reports no memory statistics"
    )
    text = (
        f"{size:,} candidates a step: weights {bench.weight_bytes / GIB:,.2f} GiB, keys and values "
        f"{held / GIB:.2g}, one step {working / GIB:,.2g}, together {needed / GIB:,.2f}; "
        f"{measured}\nweights made in {made_s:.1f} s; prefill and step compiled and run in "
        f"{compiled_s:.1f} s"
    )
    result = {
        "candidates": size,
        "weight_bytes": bench.weight_bytes,
        "prefix_bytes": held,
        "step_bytes": working,
        "peak_bytes": peak,
        "weights_made_s": made_s,
        "compiled_s": compiled_s,
    }
    return Outcome(text=text, result=result)


# Any: a compiled program of JAX, whose functions have no type that says so.
def _compiled_step(bench: Bench, scorer: RewardScorer, candidates: Candidates) -> Any:
    on_device, step = meshes.put(scorer.mesh, candidates, "CT"), cast(Any, scorer.score_step)
    return step.lower(scorer.params, bench.prefix, on_device).compile()


def sweep(bench: Bench) -> Outcome:
    """Candidates/s by step size, and the share of the ceiling that they are."""
    ceilings, rows, by_size = bench.ceilings(), [], {}
    rows.append(("candidates a step", "candidates/s", "min..max", "TFLOP/s", "of the ceiling"))
    for size in bench.step_sizes:
        if by_size and _time_is_short(bench, by_size):
            rows.append((f"{size:,}", "no time left", "", "", ""))
            continue
        began = time.perf_counter()
        try:
            rates = _rates(bench, size)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            rows.append((f"{size:,}", "out of memory", "", "", ""))
            continue
        achieved = float(np.median(rates)) * bench.step(size).flops() / size
        share = achieved / ceilings.flops_per_s[size]
        by_size[str(size)] = {
            "candidates_per_s": float(np.median(rates)),
            "flops_per_s": achieved,
            "share_of_ceiling": share,
            "measured_in_s": time.perf_counter() - began,
        }
        rates_text = spread(rates, "{:,.0f}")
        rows.append((f"{size:,}", *rates_text, f"{achieved / 1e12:,.3g}", f"{share:.1%}"))
    if not by_size:
        raise MemoryError(f"no step size of {bench.step_sizes} fits into memory")
    best = max(by_size, key=lambda size: by_size[size]["candidates_per_s"])
    bench.fastest = int(best), by_size[best]["candidates_per_s"]
    return Outcome(text=aligned(rows), result={"by_step_size": by_size, "fastest": int(best)})


def _time_is_short(bench: Bench, by_size: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether another step size would take the time that the whole vocabulary needs."""
    another = 1.5 * max(found["measured_in_s"] for found in by_size.values())
    rate = max(found["candidates_per_s"] for found in by_size.values())
    return bench.left_s < another + bench.model.decoder.vocab_size / rate / _SPARE


def _rates(bench: Bench, size: int) -> list[float]:
    """Candidates/s of several rounds of steps through the engine's host loop."""
    scorer, tokens = bench.scorer_of(size), bench.model.decoder.vocab_size

    def score(steps: int) -> float:
        candidates = token_candidates(bench.prompt, np.arange(steps * size) % tokens)
        began = time.perf_counter()
        rewards = np.concatenate(list(scorer.rewards(bench.prefix, candidates)), axis=1)
        seconds = time.perf_counter() - began
        check_rewards(rewards)
        return seconds

    score(1)  # compiles
    round_s, rounds = (0.05, 3) if bench.toy else (0.7, 3)
    steps = max(1, min(32, int(round_s / score(1))))
    return [steps * size / score(steps) for _ in range(rounds)]


def vocabulary(bench: Bench) -> Outcome:
    """Seconds of every token of the vocabulary, at the fastest step size."""
    tokens, ceilings = bench.model.decoder.vocab_size, bench.ceilings()
    size = bench.best_size
    rate = bench.fastest[1] if bench.fastest else float(np.median(_rates(bench, size)))
    allowed = int(_SPARE * max(0.0, bench.left_s) * rate)
    count = tokens if tokens <= allowed else allowed // size * size
    if not count:
        raise Skipped("no time left for one step")
    scorer = bench.scorer_of(size)
    rows = TokenRows(bench.prompt, range(tokens))
    began = time.perf_counter()
    [rewards] = scorer.score(bench.prefix, rows, 0, count, lambda candidates: None)
    seconds = time.perf_counter() - began
    check_rewards(rewards)
    step = bench.step(size)
    each = ceilings.floor_s(step.flops() / size, bench.layer_bytes / size)
    floor = each * count
    what = "whole vocabulary" if count == tokens else f"over {count // size} steps"
    text = (
        f"{what}: {count:,} tokens in {seconds:,.2f} s ({count / seconds:,.0f} a second, {size:,} "
        f"a step); floor {floor:,.2f} s, {floor / seconds:.1%} of the time"
    )
    result = {
        "tokens": count,
        "vocabulary": tokens,
        "whole": count == tokens,
        "candidates": size,
        "seconds": seconds,
        "floor_s": floor,
    }
    return Outcome(text=text, result=result)


def prefill(bench: Bench) -> Outcome:
    """Milliseconds of a prompt's prefix."""
    scorer, padded = bench.scorer, bench.padded_prefix
    jax.block_until_ready(scorer.prefill(bench.prompt))  # compiles
    times = seconds_of(
        lambda: jax.block_until_ready(scorer.prefill(bench.prompt)),
        at_least_s=0.1 if bench.toy else 0.5,
    )
    seconds = float(np.median(times))
    work = flops.extension(bench.model.decoder, padded, 0)
    floor = bench.ceilings().floor_s(work, bench.layer_bytes)
    text = (
        f"{bench.model.prefix} positions, padded to {padded}: {1e3 * seconds:,.2f} ms; "
        f"floor {1e3 * floor:,.2f} ms"
    )
    return Outcome(text=text, result={"positions": padded, "seconds": seconds, "floor_s": floor})


def replies(bench: Bench) -> Outcome:
    """Seconds of the vocabulary as text, and of a list of 7,530 replies: their lengths vary."""
    rows = [("list", "replies", "distinct", "seconds", "a second", "floor, s", "of the time")]
    result = {}
    for name, lengths in LISTS.items():
        if result and bench.left_s < 1:
            rows.append((name, "no time left", "", "", "", "", ""))
            continue
        found = _reply_list(bench, lengths)
        result[name] = found
        rows.append(
            (
                name,
                f"{found['replies']:,}",
                f"{found['distinct']:,}",
                f"{found['seconds']:,.2f}",
                f"{found['replies'] / found['seconds']:,.0f}",
                f"{found['floor_s']:,.2f}",
                f"{found['floor_s'] / found['seconds']:.1%}",
            )
        )
    return Outcome(text=aligned(rows), result=result)


def _reply_list(bench: Bench, lengths: dict[int, float]) -> dict[str, float]:
    """One list: from token ids to rewards. Its programs are compiled before it is timed."""
    config, prompt = bench.model.decoder, bench.prompt
    count = 7530 if lengths is LISTS["list"] else config.vocab_size
    if bench.toy:
        count, lengths = min(count, 512), {n: share for n, share in lengths.items() if n < 4}
    sequences = reply_sequences(prompt, lengths, count, config.vocab_size)
    scorer = bench.scorer_of(bench.best_size)

    def score() -> tuple[Distinct, np.ndarray]:
        distinct = Distinct.of(prompt.prefix, sequences)
        buckets = distinct.buckets(0, count)
        return distinct, score_buckets(scorer, bench.prefix, buckets, count)[0]

    check_rewards(score()[1])  # compiles a program for each length
    began = time.perf_counter()
    distinct, _ = score()
    seconds = time.perf_counter() - began
    own = np.diff(distinct.starts)
    work = sum(flops.response(config, int(n), bench.padded_prefix) for n in own)
    floor = bench.ceilings().floor_s(work, 0)
    return {"replies": count, "distinct": len(own), "seconds": seconds, "floor_s": floor}
