"""The lines before and behind the sections."""

from collections.abc import Mapping
from typing import Any

from bench.device.runner import Results
from bench.support.table import aligned, machine

_GIB = 2**30
# What the project aims at on one device of this kind, in seconds; and how many times faster than
# transformers with its cache at its best batch.
_AIMED_AT = "H200"
_VOCABULARY_S = {"llama-3.1-8b": 5.3, "gemma-2-27b": 60.0}
_SEARCH_S = ("llama-3.1-8b", 512, 20, 0.12)  # model, candidates, tokens
_FASTER = 10.0


# Any: JSON values.
def heading(header: Mapping[str, Any]) -> str:
    """The machine, the device, and whether shapes are toys."""
    device = header["device"]
    memory = device["memory_bytes"]
    room = f", {memory / _GIB:.1f} GiB that JAX may use" if memory else ""
    lines = [
        machine(),
        f"device    {device['kind']} ({device['platform']}), 1 of {device['devices_there']} used"
        f"{room}; {device['platform_version']}",
        f"settings  bfloat16, {header['minutes']:g} minutes, "
        f"{', '.join(map(str, header['step_sizes']))} candidates a step",
    ]
    if header["toy"]:
        why = "no accelerator here" if device["platform"] == "cpu" else "as asked for"
        lines.append(f"TOY SHAPES ({why}): these numbers say nothing about the speed of a device")
    return "\n".join(lines)


def summary(results: Results) -> str:
    """One line per model, and how many times faster than its peers Assay is."""
    rows = [
        ("model", "ceiling, TFLOP/s", "candidates/s", "of the ceiling", "vocabulary, s", "floor, s")
    ]
    models = list(dict.fromkeys(entry["model"] for entry in results.sections))
    for model in models:
        sweep, whole = (results.found(model, name) for name in ("sweep", "vocabulary"))
        if sweep:
            rows.append((model, *_sweep_cells(results, model, sweep), *_vocabulary_cells(whole)))
    lines = [f"\n== summary\n{aligned(rows)}"] if len(rows) > 1 else []
    lines += [line for model in models for line in _peers(results, model)]
    lines += _aims(results)
    skipped = sum(entry["status"] == "skipped" for entry in results.sections)
    done = sum(entry["status"] == "done" for entry in results.sections)
    lines.append(f"{done} sections done, {skipped} skipped, {len(results.failed)} failed")
    if results.file:
        lines.append(f"wrote {results.file}")
    return "\n".join(lines)


def _sweep_cells(results: Results, model: str, sweep: Mapping[str, Any]) -> tuple[str, str, str]:
    size = str(sweep["fastest"])
    ceiling = results.found(model, "ceiling")
    rate = f"{ceiling['flops_per_s'][size] / 1e12:,.3g}" if ceiling else ""
    best = sweep["by_step_size"][size]
    return rate, f"{best['candidates_per_s']:,.0f}", f"{best['share_of_ceiling']:.1%}"


def _vocabulary_cells(found: Mapping[str, Any] | None) -> tuple[str, str]:
    if not found:
        return "", ""
    note = "" if found["whole"] else f" ({found['tokens']:,} tokens)"
    return f"{found['seconds']:,.2f}{note}", f"{found['floor_s']:,.2f}"


def _aims(results: Results) -> list[str]:
    """What was measured beside each aim; none for other devices, toys, and parts of a task."""
    header = results.header
    if header.get("toy", True) or _AIMED_AT not in header["device"]["kind"].split():
        return []
    lines = []
    for model, aim in _VOCABULARY_S.items():
        found = results.found(model, "vocabulary")
        if found and found["whole"]:
            lines.append(_aim(f"{model}, whole vocabulary", found["seconds"], aim))
    model, candidates, length, aim = _SEARCH_S
    found = results.found(model, "search")
    if found and (found["candidates"], found["length"]) == (candidates, length):
        lines.append(_aim(f"{model}, step of {candidates} × {length}", found["step_s"], aim))
    for model in _VOCABULARY_S:
        sweep, peer = (results.found(model, name) for name in ("sweep", "transformers"))
        if sweep and peer and "cached_candidates_per_s" in peer:
            times = _own_rate(sweep) / peer["cached_candidates_per_s"]
            reached = "reached" if times >= _FASTER else "missed"
            lines.append(
                f"aim of {model}, transformers with its cache: {_FASTER:g}x, measured "
                f"{times:,.1f}x, {reached}"
            )
    return lines


def _aim(task: str, seconds: float, aim: float) -> str:
    reached = "reached" if seconds <= aim else "missed"
    return f"aim of {task}: {aim:g} s, measured {seconds:,.3g} s, {reached}"


def _own_rate(sweep: Mapping[str, Any]) -> float:
    """Candidates/s at the fastest step size."""
    rate: float = sweep["by_step_size"][str(sweep["fastest"])]["candidates_per_s"]
    return rate


def _peers(results: Results, model: str) -> list[str]:
    """How many times faster than each peer on the same shapes, at the best batch of each."""
    sweep = results.found(model, "sweep")
    if not sweep:
        return []
    own = _own_rate(sweep)
    rates = dict(results.found(model, "transformers") or {})
    names = {
        "cached_candidates_per_s": "transformers with its cache",
        "whole_candidates_per_s": "transformers, whole conversations",
    }
    found = {label: rates[key] for key, label in names.items() if key in rates}
    if vllm := results.found(model, "vllm"):
        found["vLLM with its prefix cache"] = vllm["candidates_per_s"]
    return [
        f"{model}: {own / rate:,.1f}x {label} ({rate:,.0f} candidates/s)"
        for label, rate in found.items()
    ]
