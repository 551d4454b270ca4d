"""Candidates/s of Assay against transformers, one run, one model, the same weights and tokens.

    python -m bench.sweep [--model=<slug>] [--rounds=5] [--candidates=4096] [--step_size=1024]

    paper   text, chat template, tokenise, right-padded batches of 32   (transformers, torch)
    cached  K/V cache of the prefix, expanded to each batch             (transformers, torch)
    assay   the engine's scorer and its host loop                       (JAX)
    behind  assay again, every token behind the start of a reply        (JAX)

All are float32 on all cores. They take turns, and ratios are computed within each round, so
that other load on the machine affects all of them. Assay's arithmetic stands beside that of its
matrix products alone. The command fails if the rewards differ. About 3 minutes on two cores.
"""

import argparse
import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from bench import peers
from bench.common import (
    TOLERANCE,
    cores,
    embedded_model,
    machine,
    matmul_rate,
    parser,
    relative_difference,
    seconds_of,
    spread,
    take_turns,
)
from configs.prompts import PROMPTS
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.display import aligned
from engine.mesh import build_mesh
from engine.models import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.text.chat_template import with_reply_start
from engine.types import PromptIds

_REPLY_START = "It was good from the first scene to the last, and I would see it again."


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
        self.compile_s = seconds_of(self._prepare)

    def _prepare(self) -> None:
        self.prefix = self.scorer.prefill(self.prompt)
        self.score(np.arange(self.scorer.step_size))

    def score(self, ids: np.ndarray) -> np.ndarray:
        """Rewards of tokens by id: float32 [C]."""
        candidates = token_candidates(self.prompt, ids)
        return self.scorer.rewards(self.prefix, candidates)[0]


Way = peers.PaperWay | peers.CachedWay | AssayWay


def fastest_cached(
    network: peers.RewardNetwork, prompt: PromptIds, ids: np.ndarray, batches: Sequence[int]
) -> peers.CachedWay:
    """The cached way with the batch size that is fastest for it."""
    ways = [peers.CachedWay(network, prompt, batch) for batch in batches]
    ways[0].score(ids)  # torch warms up
    rates = {way.batch: len(ids) / seconds_of(functools.partial(way.score, ids)) for way in ways}
    print("cached way, candidates/s by batch:", *(f"{b}: {r:,.0f} " for b, r in rates.items()))
    return max(ways, key=lambda way: rates[way.batch])


def agree(rewards: Mapping[str, np.ndarray], round_trips: np.ndarray) -> bool:
    """Prints the largest differences of rewards; returns whether they are within tolerance.

    Args:
      rewards: of each way, for the first tokens.
      round_trips: bool, whether the text of each token of `paper` is read as that token.
    """
    assay, cached, paper = (rewards[name] for name in ("assay", "cached", "paper"))
    pairs = {
        "cached": (assay[: len(cached)], cached),
        "paper": (assay[: len(paper)][round_trips], paper[round_trips]),
    }
    print(f"\nlargest difference of rewards (allowed {TOLERANCE:g}, relative to max(1, |reward|))")
    differences = {name: relative_difference(*pair) for name, pair in pairs.items()}
    for name, (ours, _) in pairs.items():
        print(f"  assay - {name}: {differences[name]:.1e} over {len(ours):,} tokens read alike")
    deviation = float(np.std(assay))
    print(f"  rewards of assay: standard deviation {deviation:.2f}")
    return deviation > 0 and all(value <= TOLERANCE for value in differences.values())


def rate_table(rates: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> str:
    """Candidates/s, and how many times faster Assay is, round by round."""
    rows = [("way", "tokens", "candidates/s", "min..max", "assay is", "min..max")]
    for name, rate in rates.items():
        ratios = ("", "") if name == "assay" else spread(rates["assay"] / rate, "{:,.1f}x")
        rows.append((name, f"{counts[name]:,}", *spread(rate, "{:,.0f}"), *ratios))
    return "\n".join(aligned(rows))


def run(chosen: argparse.Namespace) -> bool:
    """Measures all ways in turns and prints the tables; returns whether the rewards agree."""
    folder, checkpoint = embedded_model(chosen.model, chosen.out)
    prompt = checkpoint.template.split(PROMPTS[chosen.prompt])
    decoder, vocabulary = checkpoint.card.decoder, len(checkpoint.template.tokenizer)
    ids = np.random.default_rng(0).permutation(vocabulary)[: chosen.candidates]
    assay = AssayWay(checkpoint, prompt, chosen.step_size)
    print(
        f"model     {chosen.model}: {decoder.num_layers} layers, prefix of {len(prompt.prefix)} "
        f"positions, {1 + len(prompt.suffix)} of a candidate\n"
        f"assay     float32, {jax.device_count()} {jax.default_backend()} device(s), "
        f"{chosen.step_size} candidates a step; compiled and run once in {assay.compile_s:.1f} s"
    )
    network = peers.RewardNetwork(folder)
    paper = peers.PaperWay(network, folder, prompt.prompt)
    cached = fastest_cached(network, prompt, ids[:512], chosen.batches)
    started = checkpoint.template.split(with_reply_start(PROMPTS[chosen.prompt], _REPLY_START))
    behind = AssayWay(checkpoint, started, chosen.step_size)
    ways: dict[str, Way] = {"paper": paper, "cached": cached, "assay": assay, "behind": behind}
    wanted = {"paper": chosen.paper, "cached": chosen.cached, "assay": len(ids)}
    wanted["behind"] = len(ids)
    counts = {name: min(count, len(ids)) for name, count in wanted.items()}
    rewards: dict[str, np.ndarray] = {}

    def score(name: str) -> None:
        rewards[name] = ways[name].score(ids[: counts[name]])

    seconds = take_turns({name: functools.partial(score, name) for name in ways}, chosen.rounds)
    rates = {name: counts[name] / np.array(seconds[name]) for name in ways}
    print(f"\n{rate_table(rates, counts)}")
    positions = 1 + len(prompt.suffix)
    work = flops.response(decoder, positions, len(prompt.prefix))
    reached = np.median(rates["assay"]) * work
    more = flops.response(decoder, 1 + len(started.suffix), len(started.prefix)) / work
    alone = matmul_rate(decoder, chosen.step_size, positions, "float32")
    print(
        f"\nassay reaches {reached / 1e9:,.0f} GFLOP/s, {reached / alone:.0%} of its matrix "
        f"products alone; a sweep of {vocabulary:,} tokens takes "
        + ", ".join(f"{name} {vocabulary / np.median(rates[name]):,.0f} s" for name in ways)
        + f"\nbehind a reply (prefix of {len(started.prefix)} positions) it does "
        + "{} ({}) of that arithmetic a second".format(
            *spread(rates["behind"] / rates["assay"] * more, "{:.2f}")
        )
    )
    return agree(rewards, paper.round_trips(ids[: counts["paper"]], prompt))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark; fails if the rewards differ."""
    flags = parser(
        __doc__.splitlines()[0],
        {
            "candidates": (4096, "tokens per round of assay"),
            "cached": (1024, "tokens per round of cached"),
            "paper": (192, "tokens per round of paper"),
            "step_size": (1024, "candidates per device step of assay"),
        },
    )
    batches = [32, 64, 128, 256, 512]
    flags.add_argument("--batches", type=int, nargs="+", default=batches, help="tried for cached")
    chosen = flags.parse_args(argv)
    peers.quiet(cores())
    print(machine())
    if not run(chosen):
        raise SystemExit("bench.sweep: the ways give different rewards; their speeds say nothing")


if __name__ == "__main__":
    main()
