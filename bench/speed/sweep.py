"""Candidates/s of Assay against transformers, one run, one model, the same weights and tokens.

    python -m bench.speed.sweep [--model=<slug>] [--rounds=5] [--candidates=4096] [--step_size=1024]

    paper   text, chat template, tokenise, right-padded batches of 32   (transformers, torch)
    cached  K/V cache of the prefix, expanded to each batch             (transformers, torch)
    assay   the engine's scorer and its host loop                       (JAX)

All three are float32 on all cores. They take turns, and ratios are computed within each round, so
that other load on the machine affects all of them. The command fails if the rewards differ. About
3 minutes on two cores.
"""

import dataclasses
import time
from collections.abc import Mapping

import jax
import numpy as np
import torch
import transformers
from absl import app, flags, logging

from bench.peers.transformers_rewards import PAPER_BATCH, CachedWay, PaperWay, RewardNetwork
from bench.support import embedded_files
from bench.support.matmul import MatmulRates, Step
from bench.support.table import aligned, cores, machine, spread
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.scoring.batches import Bucket, token_candidates
from engine.scoring.reward_passes import RewardScorer, dtype_named, score_buckets
from engine.types import PromptIds

_MODEL = flags.DEFINE_enum("model", next(iter(EMBEDDED)), list(EMBEDDED), "Embedded model.")
_PROMPT = flags.DEFINE_enum("prompt", "greatest", list(PROMPTS), "Prompt.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds; each measures all ways.", lower_bound=1)
_CANDIDATES = flags.DEFINE_integer(
    "candidates", 4096, "Tokens per round for assay.", lower_bound=64
)
_CACHED = flags.DEFINE_integer(
    "cached_candidates", 1024, "Tokens per round for cached.", lower_bound=32
)
_PAPER = flags.DEFINE_integer(
    "paper_candidates", 192, "Tokens per round for paper.", lower_bound=32
)
_STEP_SIZE = flags.DEFINE_integer(
    "step_size", 1024, "Candidates per device step of assay.", lower_bound=1
)
_BATCHES = flags.DEFINE_list(
    "batches", ["32", "64", "128", "256", "512"], "Batch sizes to try for cached."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the random tokens.")

# Largest difference of two rewards, relative to max(1, |reward|).
TOLERANCE = 1e-4


class AssayWay:
    """Assay's scorer through the host loop of a sweep, compiled and prefilled before it is timed.

    Attributes:
      compile_s: seconds of the first prefill and the first step, compilation included.
    """

    def __init__(self, checkpoint: Checkpoint, prompt: PromptIds, step_size: int):
        mesh = build_mesh()
        restored = restore([checkpoint], mesh, dtype_named("float32"))
        self.scorer = RewardScorer.build(*restored, mesh, step_size=step_size)
        self.prompt = prompt
        began = time.perf_counter()
        self.prefix = self.scorer.prefill(prompt)
        self.score(np.arange(step_size))
        self.compile_s = time.perf_counter() - began

    def score(self, ids: np.ndarray) -> np.ndarray:
        """Rewards of tokens by id: float32 [C]."""
        rows = np.arange(len(ids))
        candidates = token_candidates(self.prompt, ids)
        bucket = Bucket(candidates=candidates, rows=rows, row_candidate=rows)
        return score_buckets(self.scorer, self.prefix, [bucket], len(ids))[0]

    def step(self, checkpoint: Checkpoint) -> Step:
        """The shapes that `score` runs."""
        return Step(
            config=checkpoint.card.decoder,
            candidates=self.scorer.step_size,
            positions=1 + len(self.prompt.suffix),
            prefix=self.prefix.key_values.keys.shape[1],
        )


Way = PaperWay | CachedWay | AssayWay


@dataclasses.dataclass
class Turns:
    """The measurements: seconds of each way and FLOP/s of each matmul library, by round."""

    counts: Mapping[str, int]
    seconds: dict[str, list[float]]
    matmul: dict[str, list[float]]
    rewards: dict[str, np.ndarray]

    def rates(self, name: str) -> np.ndarray:
        """Candidates/s, by round."""
        return self.counts[name] / np.array(self.seconds[name])


def fastest_cached(network: RewardNetwork, prompt: PromptIds, ids: np.ndarray) -> CachedWay:
    """The cached way with the batch size that is fastest for it."""
    ways = [CachedWay(network, prompt, int(batch)) for batch in _BATCHES.value]
    _timed(ways[0], ids)  # torch warms up
    rates = {way.batch: len(ids) / _timed(way, ids)[0] for way in ways}
    print("cached way, candidates/s by batch:", *(f"{b}: {r:,.0f} " for b, r in rates.items()))
    return max(ways, key=lambda way: rates[way.batch])


def take_turns(
    ways: Mapping[str, Way], counts: Mapping[str, int], ids: np.ndarray, rates: MatmulRates
) -> Turns:
    """Runs every way and the matmuls in each round; a way scores its count of the first `ids`."""
    turns = Turns(counts, {n: [] for n in ways}, {n: [] for n in rates.ways}, {})
    for _ in range(_ROUNDS.value):
        for name, way in ways.items():
            seconds, turns.rewards[name] = _timed(way, ids[: counts[name]])
            turns.seconds[name].append(seconds)
        for name, rate in rates.measure().items():
            turns.matmul[name].append(rate)
    return turns


def agreement(turns: Turns, round_trips: np.ndarray) -> bool:
    """Prints the largest differences of rewards; returns whether they are within tolerance."""
    assay = turns.rewards["assay"]
    cached, paper = (turns.rewards[name] for name in ("cached", "paper"))
    pairs = {
        "assay - cached": (assay[: len(cached)], cached),
        "assay - paper": (assay[: len(paper)][round_trips], paper[round_trips]),
    }
    largest = {name: _difference(a, b) for name, (a, b) in pairs.items()}
    print(f"\nlargest difference of rewards (allowed {TOLERANCE:g}, relative to max(1, |reward|))")
    for name, (a, _) in pairs.items():
        print(
            f"  {name:<15} {largest[name]:.1e}  over {len(a):,} tokens that both read the same way"
        )
    deviation = float(np.std(assay))
    print(f"  rewards of assay: standard deviation {deviation:.2f}")
    return deviation > 0 and all(value <= TOLERANCE for value in largest.values())


def rate_table(turns: Turns) -> str:
    """Table of candidates/s, and of how many times faster Assay is."""
    assay = turns.rates("assay")
    rows = [("way", "tokens", "candidates/s", "min..max", "assay is", "min..max")]
    for name, count in turns.counts.items():
        rates = turns.rates(name)
        ratios = ("", "") if name == "assay" else spread(assay / rates, "{:,.1f}x")
        rows.append((name, f"{count:,}", *spread(rates, "{:,.0f}"), *ratios))
    return aligned(rows)


def matmul_table(turns: Turns, step: Step) -> str:
    """Table of Assay's FLOP/s, and its share of each matmul library's rate for the same shapes."""
    achieved = turns.rates("assay") * step.flops() / step.candidates / 1e9
    rows = [("", "GFLOP/s", "min..max", "assay reaches", "min..max")]
    rows.append(("assay, whole step", *spread(achieved, "{:,.0f}"), "", ""))
    for name, rates in turns.matmul.items():
        rates = np.array(rates) / 1e9
        fraction = spread(100 * achieved / rates, "{:.0f} %")
        rows.append((f"matmul alone, {name}", *spread(rates, "{:,.0f}"), *fraction))
    return aligned(rows)


def floor(turns: Turns, step: Step, vocabulary: int) -> str:
    """The FLOPs and bytes that a whole sweep needs, and the seconds that each way takes for it."""
    steps = -(-vocabulary // step.candidates)
    flops = step.flops() / step.candidates * vocabulary
    moved = steps * step.weight_bytes() + vocabulary * step.candidate_bytes()
    best = max(float(np.median(rates)) for rates in turns.matmul.values())
    times = ", ".join(
        f"{name} {vocabulary / np.median(turns.rates(name)):,.0f} s" for name in turns.counts
    )
    return (
        f"a sweep of {vocabulary:,} tokens needs {flops / 1e12:.2f} TFLOP "
        f"({flops / vocabulary / 1e6:,.0f} MFLOP a token) and {moved / 1e9:.1f} GB "
        f"(weights once in each of {steps} steps), {flops / moved:,.0f} FLOP a byte:\n"
        f"floor {flops / best:,.0f} s at the fastest matmul's rate; {times}"
    )


def describe(step: Step, prompt: PromptIds) -> str:
    """The model, the prompt and the settings, as lines."""
    return (
        f"model     {_MODEL.value}: {step.config.num_layers} layers\n"
        f"prompt    {prompt.prompt!r}: prefix of {len(prompt.prefix)} positions (padded to "
        f"{step.prefix}), {step.positions} of the candidate's own\n"
        f"assay     float32, {jax.device_count()} {jax.default_backend()} device(s), "
        f"{step.candidates} candidates a step\n"
        f"torch     float32, {torch.get_num_threads()} threads, paper's batch {PAPER_BATCH}"
    )


def run() -> bool:
    """Measures all ways in turns and prints the tables; returns whether the rewards agree."""
    folder, checkpoint = embedded_files.files(_MODEL.value)
    prompt = checkpoint.template.split(PROMPTS[_PROMPT.value])
    vocabulary = len(checkpoint.template.tokenizer)
    ids = np.random.default_rng(_SEED.value).permutation(vocabulary)[: _CANDIDATES.value]
    assay = AssayWay(checkpoint, prompt, _STEP_SIZE.value)
    step = assay.step(checkpoint)
    print(describe(step, prompt))
    print(f"compiling assay's prefill and step, with one run of each: {assay.compile_s:.1f} s")
    network = RewardNetwork(folder)
    paper = PaperWay(network, folder, prompt.prompt)
    ways = {
        "paper": paper,
        "cached": fastest_cached(network, prompt, ids[:512]),
        "assay": assay,
    }
    counts = {"paper": _PAPER.value, "cached": _CACHED.value, "assay": len(ids)}
    counts = {name: min(count, len(ids)) for name, count in counts.items()}
    turns = take_turns(ways, counts, ids, MatmulRates(step))
    print(
        f"\n{rate_table(turns)}\n\n{matmul_table(turns, step)}\n\n{floor(turns, step, vocabulary)}"
    )
    return agreement(turns, paper.round_trips(ids[: counts["paper"]], prompt))


def main(_) -> None:
    """Runs the benchmark; fails if the rewards differ."""
    logging.set_verbosity(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # an MLP head is loaded apart from its base
    torch.set_num_threads(cores())
    print(machine())
    if not run():
        raise SystemExit(
            "bench.speed.sweep: the ways give different rewards; speed counts only when they agree"
        )


def _timed(way: Way, ids: np.ndarray) -> tuple[float, np.ndarray]:
    began = time.perf_counter()
    rewards = way.score(ids)
    return time.perf_counter() - began, rewards


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    # NaN stays NaN, which is within no tolerance.
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b)), initial=0)) if len(a) else np.nan


if __name__ == "__main__":
    app.run(main)
