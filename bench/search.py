"""Steps/s of Assay's GCG against the same step in torch, one run, one model, the same weights.

    python -m bench.search [--model=<slug>] [--length=20] [--candidates=512] [--rounds=5]

    torch   nanoGCG's step on transformers' model and K/V cache (bench/peers.py)
    assay   Assay's step: a candidate is computed from the first token that it changes
    sweep   a step of Assay's sweep under the same prompt: the arithmetic rate to compare with

One direction and one restart. Each candidate changes one token, drawn uniformly from the top-k;
Assay's step then scores six replies more, with the changes of the best seven merged. Texts need not
round-trip. All ways are float32 on all cores and take turns; ratios are computed
within each round. If rewards or gradients differ, the command fails before it measures. About 6
minutes on two cores.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from bench import peers
from bench.common import (
    TOLERANCE,
    cores,
    embedded_model,
    gcg_settings,
    machine,
    parser,
    relative_difference,
    seconds_of,
    spread,
    take_turns,
)
from configs.prompts import PROMPTS
from engine.checkpoint.restore import restore
from engine.display import aligned
from engine.mesh import build_mesh
from engine.models import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import gcg
from engine.search import objective as objectives
from engine.search.objective import SearchObjective
from engine.sweep.setup import vocabulary_of


def agreement(
    objective: SearchObjective, scorer: RewardScorer, peer: peers.TorchGCG
) -> tuple[float, float]:
    """Largest relative difference of the rewards of 32 sequences, and of the first gradient.

    That of the gradient is relative to its largest entry.
    """
    rng, prompt = np.random.default_rng(0), objective.prompt
    ids = rng.choice(np.flatnonzero(objective.allowed), (32, objective.settings.length))
    rows = [[*prompt.prefix, *row, *prompt.suffix] for row in ids.tolist()]
    theirs = peer.score(torch.from_numpy(ids)).numpy()
    rewards = relative_difference(scorer.plain_rewards(rows)[0], theirs)
    expected = peer.gradient().numpy()
    slopes = gradient(objective, scorer, peer.ids.numpy())
    return rewards, float(np.max(np.abs(slopes - expected)) / np.max(np.abs(expected)))


def gradient(objective: SearchObjective, scorer: RewardScorer, parent: np.ndarray) -> np.ndarray:
    """Gradient of a sequence [T] with respect to its one-hot rows: float32 [T, V]."""

    @jax.jit
    def compiled(params: nnx.State, inputs: objectives.StepInputs, parents: jax.Array) -> jax.Array:
        model = nnx.merge(scorer.graph, params)
        return objectives.slopes_of(model, inputs, parents, objective.settings, scorer.mesh)[1]

    inputs = gcg.build_step_inputs(objective, scorer)
    return np.asarray(compiled(scorer.params, inputs, jnp.asarray(parent[None], jnp.int32)))[0]


def fastest_batch(peer: peers.TorchGCG, batches: Sequence[int]) -> int:
    """The batch size that is fastest for torch."""
    seconds = {}
    for batch in [batches[0], *batches]:  # the first once more: torch warms up on it
        peer.batch = batch
        seconds[batch] = seconds_of(lambda: peer.score(peer.propose(peer.gradient())))
    print("torch, steps/s by batch:", *(f"{b}: {1 / s:.3f} " for b, s in seconds.items()))
    return min(seconds, key=seconds.__getitem__)


def sweep_step(scorer: RewardScorer, objective: SearchObjective) -> Callable[[], object]:
    """A step of a sweep, compiled: tokens as the whole reply."""
    prompt = objective.prompt
    candidates = token_candidates(prompt, np.arange(scorer.step_size))
    prefix = scorer.prefill(prompt)

    def run() -> np.ndarray:
        return scorer.rewards(prefix, candidates)

    run()
    return run


def torch_flops(objective: SearchObjective) -> float:
    """FLOPs of the peer's step, which computes the last layer at every position."""
    config, length = objective.config, objective.settings.length
    before, behind = len(objective.prompt.prefix), length + len(objective.prompt.suffix)
    candidates = objective.settings.candidates * flops.extension(config, behind, before)
    one_hot = 2 * length * config.vocab_size * config.width  # Assay looks the rows up
    return candidates + flops.gradient(config, length, behind, before) + one_hot


def table(rates: Mapping[str, np.ndarray], work: Mapping[str, float]) -> str:
    """Steps/s, arithmetic rate, and how many times faster Assay is, round by round."""
    rows = [("way", "steps/s", "min..max", "TFLOP a step", "GFLOP/s", "assay is", "min..max")]
    for name, rate in rates.items():
        ratio = spread(rates["assay"] / rate, "{:.2f}x") if name == "torch" else ("", "")
        speed = f"{np.median(rate) * work[name] / 1e9:,.0f}"
        rows.append((name, *spread(rate, "{:.3f}"), f"{work[name] / 1e12:.2f}", speed, *ratio))
    return "\n".join(aligned(rows))


def run(chosen: argparse.Namespace) -> bool:
    """Lets the ways take turns and prints the table; returns whether their numbers agree."""
    folder, checkpoint = embedded_model(chosen.model, chosen.out)
    settings = gcg_settings(chosen.length, chosen.candidates, chosen.topk, "float32")
    prompt, mesh = checkpoint.template.split(PROMPTS[chosen.prompt]), build_mesh()
    objective = SearchObjective.build(checkpoint, prompt, vocabulary_of(checkpoint), settings)
    restored = restore([checkpoint], mesh, dtype_named("float32"))
    scorer = RewardScorer.build(*restored, mesh, step_size=chosen.swept)
    peer = peers.TorchGCG(
        peers.RewardNetwork(folder),
        prompt,
        objective.allowed,
        objective.initial()[0],
        candidates=chosen.candidates,
        topk=chosen.topk,
        batch=32,
    )
    rewards, slopes = agreement(objective, scorer, peer)
    print(
        f"model     {chosen.model}: {objective.config.num_layers} layers, prefix of "
        f"{len(prompt.prefix)} positions, {chosen.length} free and {len(prompt.suffix)} behind\n"
        f"search    {chosen.candidates} candidates a step, top {chosen.topk} of "
        f"{objective.allowed.sum():,} tokens, float32, {jax.device_count()} "
        f"{jax.default_backend()} device(s)\n"
        f"agreement rewards {rewards:.1e}, gradient {slopes:.1e} (allowed {TOLERANCE:g})"
    )
    if not max(rewards, slopes) <= TOLERANCE:
        return False
    peer.batch = fastest_batch(peer, chosen.batches)
    driver = gcg.StepDriver(objective, scorer)
    compiled = seconds_of(lambda: driver.advance(1))
    print(f"compiling assay's step, with one run of it: {compiled:.1f} s\n")
    swept = sweep_step(scorer, objective)
    ways: dict[str, Callable[[], object]] = {
        "torch": lambda: [peer.step() for _ in range(chosen.steps)],
        "assay": lambda: driver.advance(chosen.steps),
        "sweep": lambda: [swept() for _ in range(chosen.steps)],
    }
    seconds = take_turns(ways, chosen.rounds)
    candidate_flops = flops.response(objective.config, 1 + len(prompt.suffix), len(prompt.prefix))
    work = {
        "torch": torch_flops(objective),
        "assay": gcg.step_flops(objective),
        "sweep": chosen.swept * candidate_flops,
    }
    rates = {name: chosen.steps / np.array(times) for name, times in seconds.items()}
    print(table(rates, work))
    shares = rates["assay"] * work["assay"] / (rates["sweep"] * work["sweep"])
    share, low_to_high = spread(100 * shares, "{:.0f} %")
    print(f"\nof the sweep's rate, assay's step reaches {share} ({low_to_high})")
    return True


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark; fails if rewards or gradients differ."""
    flags = parser(
        __doc__.splitlines()[0],
        {
            "length": (20, "tokens of the reply"),
            "candidates": (512, "candidates of a step"),
            "topk": (256, "tokens that may be proposed for a position"),
            "steps": (2, "steps of each way in a round"),
            "swept": (1024, "candidates in a step of sweep"),
        },
    )
    batches = [64, 128, 256, 512]
    flags.add_argument("--batches", type=int, nargs="+", default=batches, help="tried for torch")
    chosen = flags.parse_args(argv)
    peers.quiet(cores())
    print(machine())
    if not run(chosen):
        raise SystemExit("bench.search: the ways give different numbers; their speeds say nothing")


if __name__ == "__main__":
    main()
