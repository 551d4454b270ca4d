"""Sections on peers: the same shapes by transformers, and by an engine that caches prefixes.

Their weights are random too, so speeds are compared here and rewards are not: bench.speed.sweep
compares rewards on real weights.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.device.bench import Bench, Outcome, Skipped, seconds_of
from bench.support.table import aligned, spread

# Batch sizes that are tried, by `toy`.
_CACHED = {True: (32,), False: (256, 1024, 2048)}
_WHOLE = {True: (32,), False: (32, 128, 512)}
_VLLM = {True: 32, False: 16_384}


def transformers_peer(bench: Bench) -> Outcome:
    """Candidates/s of transformers in bfloat16: with its K/V cache, and whole conversations."""
    torch = _imported("torch")
    device = _torch_device(torch, bench)
    from bench.peers.transformers_rewards import CachedWay, RandomNetwork

    network = RandomNetwork(bench.model.hf, torch.bfloat16, device)
    prompt = bench.prompt

    def cached(batch: int) -> Callable[[np.ndarray], np.ndarray]:
        return CachedWay(network, prompt, batch).score

    def whole(batch: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda ids: _whole(torch, network, device, prompt, ids)

    rows = [("way", "batch", "candidates/s", "min..max")]
    best: dict[str, float] = {}
    for name, way, batches in (("cached", cached, _CACHED), ("whole", whole, _WHOLE)):
        for batch in batches[bench.toy]:
            if best and bench.left_s < 10 and not bench.toy:
                rows.append((name, f"{batch:,}", "no time left", ""))
                continue
            try:
                rates = _rates(bench, way(batch), batch)
            except torch.OutOfMemoryError:
                rows.append((name, f"{batch:,}", "out of memory", ""))
                continue
            rows.append((name, f"{batch:,}", *spread(rates, "{:,.0f}")))
            best[name] = max(best.get(name, 0.0), float(np.median(rates)))
    result = {f"{name}_candidates_per_s": rate for name, rate in best.items()}
    versions = {name: _version(name) for name in ("torch", "transformers")}
    text = f"{aligned(rows)}\ntorch {versions['torch']}, transformers {versions['transformers']}"
    return Outcome(text=text, result={**result, "versions": versions})


def vllm_peer(bench: Bench) -> Outcome:
    """Candidates/s of vLLM with its prefix cache, which it fills with the first conversation."""
    vllm = _imported("vllm")
    prompt, count = bench.prompt, _VLLM[bench.toy]
    ids = np.arange(count) % bench.model.decoder.vocab_size
    conversations = [
        {"prompt_token_ids": [*prompt.prefix, token, *prompt.suffix]} for token in ids.tolist()
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = {**bench.model.hf, "num_labels": 1, "torch_dtype": "bfloat16"}
        (Path(folder) / "config.json").write_text(json.dumps(config))
        engine = vllm.LLM(
            model=folder,
            runner="pooling",
            load_format="dummy",  # random weights
            skip_tokenizer_init=True,
            enable_prefix_caching=True,
            dtype="bfloat16",
            max_model_len=256,
        )
        engine.classify(conversations[:256], use_tqdm=False)
        began = time.perf_counter()
        engine.classify(conversations, use_tqdm=False)
        seconds = time.perf_counter() - began
    rate = count / seconds
    text = f"vLLM {_version('vllm')}: {count:,} tokens, {rate:,.0f} candidates/s"
    return Outcome(text=text, result={"candidates_per_s": rate, "version": _version("vllm")})


def _rates(bench: Bench, score: Callable[[np.ndarray], np.ndarray], batch: int) -> list[float]:
    """Candidates/s of several rounds of batches."""
    ids = np.arange(2 * batch) % bench.model.decoder.vocab_size
    if not np.isfinite(score(ids)).all():  # warms up, too
        raise ValueError("rewards of the peer are not finite")
    times = seconds_of(lambda: score(ids), at_least_s=0.1 if bench.toy else 2.0)
    return [len(ids) / seconds for seconds in times]


# Any: torch, a module of it, and its device.
def _whole(torch: Any, network: Any, device: Any, prompt: Any, ids: np.ndarray) -> np.ndarray:
    """Rewards of whole conversations, without a cache: float32 [C]; two batches."""
    rewards = []
    with torch.inference_mode():
        for own in np.array_split(ids, 2):
            rows = [[*prompt.prefix, token, *prompt.suffix] for token in own.tolist()]
            hidden = network.base(torch.tensor(rows, device=device), use_cache=False)
            rewards.append(network.head(hidden.last_hidden_state[:, -1])[:, 0])
        return torch.cat(rewards).float().cpu().numpy()


def _torch_device(torch: Any, bench: Bench) -> Any:
    """The accelerator that torch sees; the CPU for toy shapes where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if bench.toy:
        return torch.device("cpu")
    raise Skipped(f"torch {_version('torch')} sees no accelerator")


# Any: a module.
def _imported(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        raise Skipped(f"{name} is not installed")
    return importlib.import_module(name)


def _version(name: str) -> str:
    return importlib.metadata.version(name)
