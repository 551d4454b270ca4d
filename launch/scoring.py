"""Flags and settings that launch.sweep and launch.score share."""

from collections.abc import Sequence

from absl import flags
from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.api import default_dtype
from engine.checkpoint.store import Checkpoint
from engine.mesh import build_mesh
from engine.sweep import SweepSettings
from launch import cli

flags.adopt_module_key_flags(cli)  # for --help
CHECKPOINT = flags.DEFINE_list("checkpoint", [], "Checkpoints to score, comma-separated.")
RUN = flags.DEFINE_string("run", None, "Run folder: a new one, or one to continue or add to.")
PROMPT = flags.DEFINE_multi_string(
    "prompt", [], "A prompt of your own instead of --config.prompts; may be repeated."
)


def checkpoints() -> Sequence[Checkpoint]:
    """The checkpoints named on the command line."""
    return [Checkpoint.open(path) for path in cli.paths(CHECKPOINT.value, "checkpoint")]


def run_folder() -> str:
    """The run folder named on the command line."""
    return cli.paths([RUN.value], "run")[0]


def settings(config: ConfigDict) -> tuple[SweepSettings, Mesh]:
    """The settings of a scoring config, and its mesh."""
    mesh = build_mesh(config.mesh.model)
    return SweepSettings(
        mode=config.mode,
        pooling=config.pooling,
        dtype=default_dtype(mesh) if config.dtype == "auto" else config.dtype,
        step_size=config.step_size,
        part_size=config.part_size,
        self_check=config.self_check,
        seed=config.seed,
        objectives=config.objectives,
    ), mesh
