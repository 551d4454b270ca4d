"""The checks that compare Assay with torch: parity tests run them, planted bugs must fail them.

An error is relative to the scale of what is compared: the standard deviation of the rewards over
the rows, the root mean square of hidden states. How large it may be, `tolerances` says.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh
from transformers import PreTrainedModel

from engine.checkpoint import restore as restoring
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.models.config import Rope
from engine.models.heads import final_norm
from engine.scoring import language_passes, reward_passes
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import RewardScorer
from engine.types import Candidates, PromptIds
from tests.support import folders, internlm2, torch_models
from tests.support.tolerances import TOLERANCES

TOLERANCE = TOLERANCES["float32"]
NO_ACCELERATORS = "needs several accelerators, and there are fewer"
STEP_SIZE = 16
LENGTHS = (160, 159, 150, 145, 144, 131, 129, 128, 96, 65, 64, 33, 17, 5, 2, 1)
PREFIX_LENGTH = 133  # padded to 144, beyond the positions from which llama3 scaling acts


@dataclasses.dataclass(frozen=True)
class Pair:
    """A model in torch and what the engine made of it."""

    model: PreTrainedModel
    checkpoint: Checkpoint
    restored: "Restored"


@dataclasses.dataclass(frozen=True)
class Restored:
    """Models as the engine holds them, and the scorer over them."""

    graph: nnx.GraphDef
    scorer: RewardScorer
    layers_step: Callable[..., list[jax.Array]]

    def rebuilt(self) -> "Restored":
        """The same weights, traced anew."""
        layers_step = build_layers.__wrapped__(self.graph)
        return Restored(self.graph, traced_anew(self.graph, self.scorer), layers_step)

    def under(self, **changes) -> "Restored":
        """The same weights in a decoder of another config, which may leave some of them unused."""
        scorer = self.scorer
        model = nnx.merge(self.graph, scorer.params)
        config = dataclasses.replace(model.decoder.config, **changes)
        model.decoder.config = config
        for stack in model.decoder.stacks:
            stack.config = config.first(stack.config.num_layers)
        graph, params = nnx.split(model)
        changed = RewardScorer.build(graph, params, scorer.mesh, step_size=scorer.step_size)
        return Restored(graph, changed, build_layers(graph))


# Of Llama 3.1.
LLAMA3 = Rope(
    theta=500_000.0,
    kind="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_positions=8192,
)


def make_mesh(data: int = 1, model: int = 1) -> Mesh:
    """A mesh over the first devices; `engine.mesh.build_mesh` takes all of them.

    Tests have four on a CPU. On fewer accelerators, a test that needs four is skipped.
    """
    if jax.default_backend() != "cpu" and jax.device_count() < data * model:
        pytest.skip(NO_ACCELERATORS)
    return jax.make_mesh(
        (data, model),
        ("data", "model"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=jax.devices()[: data * model],
    )


def restore(
    *group: Checkpoint,
    dtype: str = "float32",
    mesh: Mesh | None = None,
    step_size=STEP_SIZE,
    objectives: str = "none",
) -> Restored:
    """A sharing group; models that differ in their weights only share compiled passes."""
    mesh = mesh or make_mesh()
    graph, params = restoring.restore(group, mesh, np.dtype(dtype), objectives=objectives)
    kind = LanguageScorer if group[0].card.kind == LANGUAGE else RewardScorer
    scorer = kind.build(graph, params, mesh, step_size=step_size)
    return Restored(graph, scorer, build_layers(graph))


def converted(name: str, folder: Path) -> Pair:
    """Builds, saves, converts and restores `internlm2` or a model of `torch_models.build`."""
    if name == "internlm2":
        model = internlm2.build()
        internlm2.save(folder / "hf")
    else:
        model = torch_models.build(name)
        torch_models.save(model, folder / "hf")
    checkpoint = folders.convert(folder / "hf", folder / "checkpoint")
    return Pair(model, checkpoint, restore(checkpoint))


def random_ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, torch_models.VOCAB_SIZE, shape, np.int32)


def prompt_ids(length: int = PREFIX_LENGTH) -> PromptIds:
    return PromptIds(prompt="?", prefix=tuple(map(int, random_ids(length, seed=1))), suffix=())


def assert_close(actual, expected, scale: float, tolerance: float = TOLERANCE) -> None:
    """Fails for NaN too."""
    error = np.abs(np.asarray(actual) - expected).max() / scale
    assert error <= tolerance, f"relative error {error:.3g}; allowed: {tolerance}"


def check_layers(model, restored: Restored) -> None:
    """Residual stream after every layer, at all of 160 positions."""
    ids = random_ids(2, max(LENGTHS))
    hidden = restored.layers_step(restored.scorer.params, ids)
    for actual, expected in zip(hidden, torch_models.hidden_states(model, ids), strict=True):
        assert_close(actual, expected, scale=np.sqrt(np.square(expected).mean()))


def check_plain(model, restored: Restored) -> None:
    """Rewards of sequences of 1 to 160 positions, by the plain pass."""
    ids = random_ids(len(LENGTHS), max(LENGTHS))
    sequences = [list(row[:n]) for row, n in zip(ids, LENGTHS, strict=True)]
    expected = torch_models.rewards(model, sequences)
    assert_close(restored.scorer.plain_rewards(sequences)[0], expected, scale=expected.std())


def check_response(model, restored: Restored) -> None:
    """Rewards of ragged candidates behind a shared prefix, some of which leave it early."""
    check_candidates(model, restored, ragged_candidates())


def check_candidates(model, restored: Restored, candidates: Candidates) -> None:
    """Rewards of candidates against torch on the whole sequence of each."""
    prompt = prompt_ids()
    expected = torch_models.rewards(model, sequences_of(prompt, candidates))
    actual = respond(restored.scorer, prompt, candidates)[0]
    assert_close(actual, expected, scale=expected.std())


def respond(scorer: RewardScorer, prompt: PromptIds, candidates: Candidates) -> np.ndarray:
    return scorer.rewards(scorer.prefill(prompt), candidates)


def ragged_candidates() -> Candidates:
    """1 to 5 positions, padded with ids that would matter; they share 0 to all of the prefix."""
    rows = np.arange(20, dtype=np.int32)
    shared = np.array([PREFIX_LENGTH, PREFIX_LENGTH, 131, 64, 1, 0], np.int32)
    return Candidates(
        ids=random_ids(len(rows), 5, seed=2), shared=shared[rows % len(shared)], last=rows % 5
    )


def whole_candidates(length: int) -> Candidates:
    """Candidates of one length behind the whole prefix: what a sweep scores."""
    rows = 20
    return Candidates(
        ids=random_ids(rows, length, seed=length),
        shared=np.full(rows, PREFIX_LENGTH, np.int32),
        last=np.full(rows, length - 1, np.int32),
    )


def sequences_of(prompt: PromptIds, candidates: Candidates) -> list[Sequence[int]]:
    """What each candidate stands for, by the definition in `engine.types`."""
    return [
        [*prompt.prefix[:shared], *ids[: last + 1]]
        for ids, shared, last in zip(
            candidates.ids, candidates.shared, candidates.last, strict=True
        )
    ]


def traced_anew(graph: nnx.GraphDef, scorer, **options):
    """A scorer of rewards or log-probabilities whose passes are what the code says now.

    Neither does it take passes that were compiled before, nor are its own kept for others.
    """
    passes = reward_passes if isinstance(scorer, RewardScorer) else language_passes
    with pytest.MonkeyPatch.context() as patch:
        for name in ("compiled", "compiled_over_data"):
            patch.setattr(passes, name, getattr(reward_passes, name).__wrapped__)
        size = scorer.step_size
        return scorer.build(graph, scorer.params, scorer.mesh, step_size=size, **options)


@functools.cache
def build_layers(graph: nnx.GraphDef) -> Callable[..., list[jax.Array]]:
    """Jits (params, ids int32 [C, T]) -> hidden states after every layer, float32 [C, T, D]."""

    @jax.jit
    def layers(params, ids):
        models = nnx.merge(graph, params)
        depths = tuple(range(1, models.decoder.config.num_layers + 1))
        with jax.default_matmul_precision("highest"):
            (*hidden, last), _ = models.decoder.plain(ids, depths)
        return [*hidden, final_norm(models.readouts[0], last)]

    return layers
