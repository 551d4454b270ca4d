"""Steps/s of Assay's GCG against the same step in torch, one run, one model, the same weights.

    python -m bench.speed.gcg [--model=<slug>] [--length=20] [--candidates=512] [--rounds=5]

    torch   nanoGCG's step on transformers' model and K/V cache (bench/peers/torch_gcg.py)
    whole   Assay's step with every candidate computed from its first token
    assay   Assay's step: a candidate is computed from the first token that it changes
    sweep   a step of Assay's sweep under the same prompt: the arithmetic rate to compare with

One direction and one restart. Each candidate changes one token, drawn uniformly from the top-k;
texts need not round-trip. All ways are float32 on all cores and take turns; ratios are computed
within each round. The command fails if rewards or gradients differ. About 6 minutes on two cores.
"""

import dataclasses
import math
import time
from collections.abc import Mapping
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags, logging
from flax import nnx

from bench.peers.torch_gcg import TorchGCG
from bench.peers.transformers_rewards import RewardNetwork
from bench.support import embedded_files
from bench.support.matmul import Step
from bench.support.table import aligned, cores, machine, spread
from configs import search
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.planning import flops
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import gcg, loop, passes
from engine.search.objective import SearchObjective
from engine.settings import SearchSettings
from engine.sweep.setup import vocabulary_of
from launch.common import searching

_MODEL = flags.DEFINE_enum("model", next(iter(EMBEDDED)), list(EMBEDDED), "Embedded model.")
_PROMPT = flags.DEFINE_enum("prompt", "greatest", list(PROMPTS), "Prompt.")
_LENGTH = flags.DEFINE_integer("length", 20, "Tokens of the reply.", lower_bound=2)
_CANDIDATES = flags.DEFINE_integer("candidates", 512, "Candidates per step.", lower_bound=16)
_TOPK = flags.DEFINE_integer(
    "topk", 256, "Tokens that may be proposed per position.", lower_bound=1
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds; each measures all ways.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 2, "Steps of each way in a round.", lower_bound=1)
_BATCHES = flags.DEFINE_list(
    "batches", ["64", "128", "256", "512"], "Batch sizes to try for torch."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the first sequence and the draws.")

SWEPT = 1024  # candidates in a step of the sweep, the default of configs/sweep.py

# Largest difference of two rewards, relative to max(1, |reward|); of two gradients, relative to the
# largest entry.
TOLERANCE = 1e-4


def settings(direction: str = "max") -> SearchSettings:
    """The defaults of nanoGCG, as settings of Assay's search."""
    config = search.get_config()
    config.update(
        direction=direction,
        method="gcg",
        length=_LENGTH.value,
        steps=10**6,
        candidates=_CANDIDATES.value,
        topk=_TOPK.value,
        merge=0,
        round_trip=False,
        every=_STEPS.value,
        dtype="float32",
        seed=_SEED.value,
    )
    return searching.settings(config, [])[0]


class AssayWay:
    """Assay's search, compiled before it is timed; `whole` computes every candidate in full."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer, *, whole: bool):
        first = (0,) * objective.settings.candidates
        changes = (lambda settings: first) if whole else gcg.first_changes
        gcg.compiled_step.cache_clear()  # the two ways' settings agree: one would get the other's
        began = time.perf_counter()
        with (
            mock.patch.object(gcg, "first_changes", changes),
            mock.patch.object(loop, "first_changes", changes),
        ):
            self.driver = loop.StepDriver(objective, scorer)
            self.steps(1)  # traced here
        self.compile_s = time.perf_counter() - began

    def steps(self, count: int) -> float:
        """Takes steps; returns the best reward so far."""
        rewards, _, _ = self.driver.advance(count, math.inf)
        return float(rewards[-1, 0])


class SweepWay:
    """A step of a sweep, compiled before it is timed: `step_size` tokens as the whole reply.

    Attributes:
      step_flops: operations of a step.
    """

    def __init__(self, checkpoint: Checkpoint, scorer: RewardScorer):
        prompt = checkpoint.template.split(PROMPTS[_PROMPT.value])
        self.scorer, self.prefix = scorer, scorer.prefill(prompt)
        self.candidates = token_candidates(prompt, np.arange(scorer.step_size))
        self.step_flops = Step(
            config=checkpoint.card.decoder,
            candidates=scorer.step_size,
            positions=1 + len(prompt.suffix),
            prefix=self.prefix.key_values.keys.shape[1],
        ).flops()
        self.steps(1)

    def steps(self, count: int) -> float:
        """Takes steps; returns the best reward."""
        return [
            float(max(rewards[0].max() for rewards in self.scorer.rewards(self.prefix, each)))
            for each in [self.candidates] * count
        ][-1]


class TorchWay:
    """The peer in torch, with the batch size that is fastest for it."""

    def __init__(self, search: TorchGCG, batches: list[int]):
        self.search = search
        self.rates = {}
        for batch in [batches[0], *batches]:  # the first once more: torch warms up on it
            search.batch = batch
            began = time.perf_counter()
            search.score(search.propose(search.gradient()))
            self.rates[batch] = 1 / (time.perf_counter() - began)
        search.batch = max(self.rates, key=self.rates.__getitem__)

    def steps(self, count: int) -> float:
        """Takes steps; returns the reward of the last parent."""
        return [self.search.step() for _ in range(count)][-1]


def agreement(
    objective: SearchObjective, scorer: RewardScorer, peer: TorchGCG
) -> tuple[float, float]:
    """Largest relative difference of the rewards of 32 sequences, and of the first gradient."""
    rng = np.random.default_rng(_SEED.value)
    ids = rng.choice(np.flatnonzero(objective.allowed), (32, _LENGTH.value))
    prompt = objective.prompts[0]
    own = scorer.plain_rewards([[*prompt.prefix, *row, *prompt.suffix] for row in ids.tolist()])[0]
    other = peer.score(torch.from_numpy(ids)).numpy()
    rewards = np.max(np.abs(own - other) / np.maximum(1, np.abs(other)))
    slopes = gradients(objective, scorer, peer.ids.numpy()[None])
    expected = peer.gradient().numpy()
    gradient = np.max(np.abs(slopes[0] - expected)) / np.max(np.abs(expected))
    return float(rewards), float(gradient)


def gradients(objective: SearchObjective, scorer: RewardScorer, parents: np.ndarray) -> np.ndarray:
    """Gradients of sequences [A, T] with respect to their one-hot rows: float32 [A, T, V]."""

    @jax.jit  # shards of a model are laid out by the compiler, as in a search
    def compiled(
        params: nnx.State, inputs: passes.StepInputs, parents: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        model = nnx.merge(scorer.graph, params)
        return passes.slopes_of(model, inputs, parents, objective.settings, scorer.mesh)

    inputs = loop.build_step_inputs(objective, scorer)
    signs = jnp.resize(inputs.signs[:1], len(parents))  # of the first attempt, for all
    inputs = dataclasses.replace(inputs, signs=signs)
    _, slopes = compiled(scorer.params, inputs, jnp.asarray(parents, jnp.int32))
    return np.asarray(slopes)


def rate_table(seconds: dict[str, list[float]], work: dict[str, float]) -> str:
    """Steps/s, arithmetic rate, and how many times faster Assay is, round by round."""
    rates = {name: _STEPS.value / np.array(times) for name, times in seconds.items()}
    rows = [("way", "steps/s", "min..max", "TFLOP a step", "GFLOP/s", "assay is", "min..max")]
    for name, rate in rates.items():
        ratio = ("", "")
        if name not in ("assay", "sweep"):  # a step of a sweep is other work
            ratio = spread(rates["assay"] / rate, "{:.2f}x")
        speed = f"{np.median(rate) * work[name] / 1e9:,.0f}"
        rows.append((name, *spread(rate, "{:.3f}"), f"{work[name] / 1e12:.2f}", speed, *ratio))
    return aligned(rows)


def share_of_sweep(seconds: Mapping[str, list[float]], work: Mapping[str, float]) -> str:
    """How much of the sweep's arithmetic rate the search's step reaches, round by round."""
    rate = {name: work[name] / np.array(seconds[name]) for name in ("assay", "sweep")}
    share, low_to_high = spread(100 * rate["assay"] / rate["sweep"], "{:.0f} %")
    return f"{share} ({low_to_high})"


def take_turns(
    ways: Mapping[str, TorchWay | AssayWay | SweepWay],
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Runs every way in each round; seconds of wall clock and of CPU time, by way and round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS.value):
        for name, way in ways.items():
            began, spent = time.perf_counter(), time.process_time()
            way.steps(_STEPS.value)
            seconds[name].append(time.perf_counter() - began)
            busy[name].append(time.process_time() - spent)
    return seconds, busy


def run() -> bool:
    """Prepares the ways, lets them take turns, prints the table; whether they agree."""
    folder, checkpoint = embedded_files.files(_MODEL.value)
    mesh = build_mesh()
    scorer = RewardScorer.build(
        *restore([checkpoint], mesh, dtype_named("float32")), mesh, step_size=SWEPT
    )
    objective = objective_of(checkpoint)
    prompt = objective.prompts[0]
    peer = TorchGCG(
        RewardNetwork(folder),
        prompt,
        objective.allowed,
        objective.initial()[0],
        sign=1,
        candidates=_CANDIDATES.value,
        topk=_TOPK.value,
        batch=1,
        seed=_SEED.value,
    )
    rewards, gradient = agreement(objective, scorer, peer)
    print(
        f"model     {_MODEL.value}: {objective.config.num_layers} layers, prefix of "
        f"{len(prompt.prefix)} positions, {_LENGTH.value} free and {len(prompt.suffix)} behind\n"
        f"search    {_CANDIDATES.value} candidates a step, top {_TOPK.value} of "
        f"{objective.allowed.sum():,} tokens, float32, {jax.device_count()} "
        f"{jax.default_backend()} device(s)\n"
        f"agreement rewards {rewards:.1e}, gradient {gradient:.1e} (allowed {TOLERANCE:g})"
    )
    torch_way = TorchWay(peer, [int(b) for b in _BATCHES.value])
    whole, assay = (AssayWay(objective, scorer, whole=whole) for whole in (True, False))
    sweep = SweepWay(checkpoint, scorer)
    ways: dict[str, TorchWay | AssayWay | SweepWay] = {
        "torch": torch_way,
        "whole": whole,
        "assay": assay,
        "sweep": sweep,
    }
    print("torch, steps/s by batch:", *(f"{b}: {r:.3f} " for b, r in torch_way.rates.items()))
    print(f"compiling assay's step, with one run of it: {assay.compile_s:.1f} s\n")
    seconds, busy = take_turns(ways)
    work = {
        "torch": _torch_flops(objective),
        "whole": whole.driver.step_flops,
        "assay": assay.driver.step_flops,
        "sweep": sweep.step_flops,
    }
    print(
        f"{rate_table(seconds, work)}\n\n"
        f"of the sweep's rate, assay's step reaches {share_of_sweep(seconds, work)}; "
        f"by CPU time {share_of_sweep(busy, work)}"
    )
    return max(rewards, gradient) <= TOLERANCE


def objective_of(checkpoint: Checkpoint, direction: str = "max") -> SearchObjective:
    """The objective of a search under the prompt that the flags name."""
    prompts = [checkpoint.template.split(PROMPTS[_PROMPT.value])]
    searched = settings(direction)
    return SearchObjective.build(checkpoint, prompts, vocabulary_of(checkpoint), searched)


def _torch_flops(objective: SearchObjective) -> float:
    """FLOPs of the peer's step, which computes the last layer at every position."""
    before, own = len(objective.prompts[0].prefix), _LENGTH.value + len(objective.suffix)
    config, length = objective.config, _LENGTH.value
    candidates = _CANDIDATES.value * flops.extension(config, own, before)
    one_hot = 2 * length * config.vocab_size * config.width  # Assay looks the rows up
    return candidates + flops.gradient(config, length, own, before) + one_hot


def main(_) -> None:
    """Runs the benchmark; fails if rewards or gradients differ."""
    logging.set_verbosity(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # an MLP head is loaded apart from its base
    torch.set_num_threads(cores())
    print(machine())
    if not run():
        raise SystemExit(
            "bench.speed.gcg: the ways give different numbers; speed counts only when they agree"
        )


if __name__ == "__main__":
    app.run(main)
